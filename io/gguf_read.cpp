// Parses the bytes of a GGUF file.
//
// Sizes in the file are compared with the bytes that are left before memory is allocated. Each iteration of a loop
// reads bytes or throws Error, so loops end with the file.
#include <algorithm>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/io/detail/gguf_format.hpp>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace heed::detail {
namespace {

constexpr int kMaxGgufLevels = 4;                // arrays in arrays
constexpr std::size_t kMaxGgufReserved = 65536;  // values for which memory is reserved before they are read

// Sets a variant to the alternative with this index. Returns false if there is none.
template <class... Types>
bool set_alternative(std::variant<Types...>& variant, std::size_t index) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return ((I == index && (variant.template emplace<I>(), true)) || ...);
  }
  (std::index_sequence_for<Types...>());
}

// A position in the bytes, which reading moves forward, and the part of the file around it for messages.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, const std::string& who) : bytes_(bytes), who_(who) {}

  std::size_t position() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }
  // Sets the part of the file for messages: "the value of 'general.name'".
  void enter(const char* part, std::string_view name = {}) { part_ = part, name_ = name; }

  // The next `count` items of `size` bytes.
  std::span<const std::byte> take(std::uint64_t count, std::size_t size = 1) {
    check_left(count, size);
    const auto taken = bytes_.subspan(at_, static_cast<std::size_t>(count) * size);
    at_ += taken.size();
    return taken;
  }
  void check_left(std::uint64_t count, std::size_t size) const {
    if (count > left() / size) [[unlikely]]
      fail(who_, " ends within ", place(), "; it is truncated or damaged");
  }

  template <class T>
  T number() {
    T x;
    std::memcpy(&x, take(1, sizeof x).data(), sizeof x);
    return x;
  }
  std::string_view text() {
    const auto size = number<std::uint64_t>();
    const auto bytes = take(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(who_, ": ", place(), parts...);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& who_;
  std::size_t at_ = 0;
  const char* part_ = "the header";
  std::string_view name_ = {};

  std::string place() const { return name_.empty() ? part_ : part_ + (" '" + excerpt(name_)) + "'"; }
};

void read_value(GgufCursor& in, bool& value, int) {
  const auto byte = in.number<std::uint8_t>();
  if (byte > 1) in.refuse(" has a bool that is ", int{byte}, "; it must be 0 or 1");
  value = byte == 1;
}

template <class T>
requires std::is_arithmetic_v<T>
void read_value(GgufCursor& in, T& value, int) { value = in.number<T>(); }

void read_value(GgufCursor& in, std::string& value, int) { value = in.text(); }

// The values of an array of numbers.
template <class T>
void read_values(GgufCursor& in, std::uint64_t count, std::vector<T>& values, int) {
  const auto bytes = in.take(count, sizeof(T));
  values.resize(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
}

void read_value(GgufCursor& in, GgufArray& array, int level);

// The values of an array whose values are read one by one, each at least `bytes` bytes.
template <class T>
void read_each(GgufCursor& in, std::uint64_t count, std::vector<T>& values, int level, std::size_t bytes) {
  in.check_left(count, bytes);
  values.reserve(std::min(static_cast<std::size_t>(count), kMaxGgufReserved));
  for (std::uint64_t i = 0; i < count; ++i) {
    T value{};
    read_value(in, value, level);
    values.push_back(std::move(value));
  }
}

void read_values(GgufCursor& in, std::uint64_t count, std::vector<bool>& values, int level) {
  read_each(in, count, values, level, 1);
}
void read_values(GgufCursor& in, std::uint64_t count, std::vector<std::string>& values, int level) {
  read_each(in, count, values, level, sizeof(std::uint64_t));
}
void read_values(GgufCursor& in, std::uint64_t count, std::vector<GgufArray>& values, int level) {
  read_each(in, count, values, level, sizeof(std::uint32_t) + sizeof(std::uint64_t));
}

// An array: the number of its type, the number of values, the values.
void read_value(GgufCursor& in, GgufArray& array, int level) {
  if (level == kMaxGgufLevels) in.refuse(" has more than ", kMaxGgufLevels, " levels of arrays in arrays");
  const auto type = in.number<std::uint32_t>();
  if (!set_alternative(array.values, type)) in.refuse(" is an array of the unknown type ", type);
  const auto count = in.number<std::uint64_t>();
  std::visit([&](auto& values) { read_values(in, count, values, level + 1); }, array.values);
}

void read_metadata(GgufCursor& in, std::uint64_t count, const std::string& who, GgufMetadata& metadata) {
  for (std::uint64_t i = 0; i < count; ++i) {
    in.enter("the metadata");
    const std::string_view key = in.text();
    check_gguf_key(key, who);
    in.enter("the value of", key);
    const auto type = in.number<std::uint32_t>();
    GgufValue value;
    if (!set_alternative(value, type)) in.refuse(" is of the unknown type ", type);
    std::visit([&](auto& v) { read_value(in, v, 0); }, value);
    const bool is_new = metadata.try_emplace(std::string(key), std::move(value)).second;
    require(is_new, who, " has the key '", excerpt(key), "' twice in its metadata");
  }
}

// The shape in row-major order; the file lists the innermost axis first.
Shape read_shape(GgufCursor& in) {
  const auto rank = in.number<std::uint32_t>();
  if (rank > kMaxGgufRank) in.refuse(" has ", rank, " axes; it must have at most ", kMaxGgufRank);
  Shape shape;
  for (std::uint32_t axis = 0; axis < rank; ++axis) {
    const auto size = in.number<std::uint64_t>();
    if (size == 0 || size > static_cast<std::uint64_t>(std::numeric_limits<Index>::max()))
      in.refuse(" has an axis of size ", size, "; it must be at least 1 and less than 2^63");
    shape.push_back(size);
  }
  std::reverse(shape.begin(), shape.end());
  return shape;
}

StoredType read_type(GgufCursor& in) {
  const auto number = in.number<std::uint32_t>();
  const GgufType* type = gguf_type(number);
  if (type == nullptr) in.refuse(" is of the unknown type ", number);
  const std::optional<StoredType> stored = stored_type_named(type->name);
  if (!stored)
    in.refuse(" is of type ", type->name,
              "; it must be F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K or an integer type");
  return *stored;
}

// A tensor of the list, without its bytes.
struct ListedGguf {
  StoredTensor tensor;
  std::size_t begin, size;  // place of its bytes after the header
};

// Reads an item of the list. The bytes of the tensor must begin at `expected`.
ListedGguf read_tensor(GgufCursor& in, std::size_t expected, const std::string& who) {
  in.enter("the list of tensors");
  const std::string_view name = in.text();
  check_gguf_name(name, who);
  in.enter("tensor", name);
  ListedGguf listed = {{std::string(name), read_shape(in), StoredType::f32, {}}, expected, 0};
  StoredTensor& t = listed.tensor;
  t.type = read_type(in);
  const auto offset = in.number<std::uint64_t>();
  if (t.shape.rank() > 0 && t.shape.back() % items_per_block(t.type) != 0)
    in.refuse(" has rows of ", t.shape.back(), " numbers; ", name_of(t.type), " has blocks of ",
              items_per_block(t.type));
  const std::optional<std::size_t> size = stored_bytes(t.type, t.shape);
  if (!size) in.refuse(" of shape ", t.shape, " and type ", name_of(t.type), " is larger than any file");
  if (offset != expected)
    in.refuse(" begins at byte ", offset, " after the header; it must begin at ", expected,
              ", the aligned end of the tensor before it");
  listed.size = *size;
  return listed;
}

// Reads the list of tensors, and sets their bytes.
void read_tensors(GgufCursor& in, std::uint64_t count, std::span<const std::byte> bytes, std::size_t alignment,
                  const std::string& who, GgufContents& contents) {
  std::vector<ListedGguf> all;
  std::size_t end = 0;  // of the tensors so far, relative to the first one; padded
  for (std::uint64_t i = 0; i < count; ++i) {
    all.push_back(read_tensor(in, end, who));
    const ListedGguf& last = all.back();
    if (end > bytes.size() || last.size > bytes.size() - end)  // ends within this tensor; also prevents an overflow
      fail(who, " ends within the bytes of tensor '", last.tensor.name, "'; it is truncated or damaged");
    end = padded(end + last.size, alignment);
  }
  const std::size_t header = padded(in.position(), alignment);
  std::size_t used = in.position();
  for (ListedGguf& listed : all) {
    require(header + listed.begin + listed.size <= bytes.size(), who, " ends within the bytes of tensor '",
            listed.tensor.name, "'; it is truncated or damaged");
    listed.tensor.bytes = bytes.subspan(header + listed.begin, listed.size);
    used = header + listed.begin + listed.size;
    const std::string name = listed.tensor.name;
    const bool is_new = contents.tensors.try_emplace(name, std::move(listed.tensor)).second;
    require(is_new, who, " has two tensors with the name '", name, "'");
  }
  require(bytes.size() <= padded(used, alignment), who, " has ", bytes.size(), " bytes; its header describes ", used,
          ", or ", padded(used, alignment), " with padding");
}

// Reads the magic and the version. Throws Error for a file of another format, byte order or version.
void read_start(GgufCursor& in, std::span<const std::byte> bytes, const std::string& who) {
  constexpr std::string_view kBigEndian = "is big-endian; it must be little-endian";
  const std::string_view magic(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kGgufMagic.size()));
  require(magic != "FUGG", who, " ", kBigEndian);
  require(magic == kGgufMagic, who, " is not a GGUF file: it begins with '", magic, "', not with '", kGgufMagic, "'");
  in.take(kGgufMagic.size());
  const auto version = in.number<std::uint32_t>();
  require((version & 0xffff) != 0 || version == 0, who, " ", kBigEndian);  // the version in the other byte order
  require(version == 2 || version == kGgufVersion, who, " has version ", version, "; it must be 2 or ", kGgufVersion);
}

}  // namespace

GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& who) {
  GgufCursor in(bytes, who);
  read_start(in, bytes, who);
  const auto tensors = in.number<std::uint64_t>();
  const auto values = in.number<std::uint64_t>();
  GgufContents contents;
  read_metadata(in, values, who, contents.metadata);
  read_tensors(in, tensors, bytes, gguf_alignment(contents.metadata, who), who, contents);
  return contents;
}

}  // namespace heed::detail
