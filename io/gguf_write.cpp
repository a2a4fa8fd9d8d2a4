// Writes GGUF files.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/names.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/io/detail/gguf_format.hpp>
#include <iterator>
#include <set>

namespace heed {
namespace {

constexpr StoredType kGgufWritable[] = {StoredType::f32, StoredType::f16, StoredType::bf16, StoredType::q8_0,
                                        StoredType::f64, StoredType::i64, StoredType::i32};
constexpr std::size_t kGgufPiece = std::size_t{4} << 20;  // bytes that are converted at a time

// The bytes of the file before its tensors.
class GgufHeader {
 public:
  const std::string& bytes() const { return bytes_; }

  template <class T>
  requires std::is_arithmetic_v<T>
  void put(const T& x) { bytes_.append(reinterpret_cast<const char*>(&x), sizeof x); }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    bytes_ += text;
  }
  void put(const GgufArray& array) {
    put(static_cast<std::uint32_t>(array.values.index()));
    put(std::uint64_t{array.size()});
    const auto put_all = [this]<class T>(const std::vector<T>& values) {
      for (const T& x : values) put(x);
    };
    std::visit(put_all, array.values);
  }
  void put_value(const GgufValue& value) {
    put(static_cast<std::uint32_t>(value.index()));
    std::visit([this](const auto& x) { put(x); }, value);
  }
  void put_magic() { bytes_ += detail::kGgufMagic; }
  void pad(std::size_t alignment) { bytes_.resize(detail::padded(bytes_.size(), alignment)); }

 private:
  std::string bytes_;
};

void check_tensor(const GgufTensor& t, const std::string& who) {
  detail::check_gguf_name(t.name, who);
  const std::string what = who + ": tensor '" + t.name + "'";
  const Shape& shape = t.value.shape();
  require(t.value.defined(), what, " is undefined");
  require(shape.rank() <= detail::kMaxGgufRank && t.value.numel() > 0, what, " is ", t.value, "; it must have at most ",
          detail::kMaxGgufRank, " axes, none of size 0");
  const bool as_is = is_quantized(t.value.dtype()) && stored_type_for(t.value.dtype()) == t.type;
  require(as_is || std::ranges::find(kGgufWritable, t.type) != std::end(kGgufWritable), what, " has the type ",
          name_of(t.type), "; it must be one of ",
          detail::joined(kGgufWritable, [](StoredType type) { return name_of(type); }));
  const Index block = items_per_block(t.type), row = shape.empty() ? 1 : shape.back();
  require(row % block == 0, what, " is ", t.value, "; the last axis must be a multiple of ", block, " for type ",
          name_of(t.type));
}

void check_all(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors, const std::string& who) {
  for (const auto& [key, value] : metadata) detail::check_gguf_key(key, who);
  const auto architecture = metadata.find("general.architecture");
  require(architecture != metadata.end() && std::holds_alternative<std::string>(architecture->second), who,
          ": the metadata must have the text 'general.architecture', such as \"llama\"");
  std::set<std::string_view> names;
  for (const GgufTensor& t : tensors) {
    check_tensor(t, who);
    require(names.insert(t.name).second, who, ": two tensors have the name '", t.name, "'");
  }
}

std::size_t bytes_of(const GgufTensor& t) { return stored_bytes(t.type, t.value.shape()).value(); }

GgufHeader header_of(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors, std::size_t alignment) {
  GgufHeader header;
  header.put_magic();
  header.put(detail::kGgufVersion);
  header.put(std::uint64_t{tensors.size()});
  header.put(std::uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    header.put(key);
    header.put_value(value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& t : tensors) {
    header.put(t.name);
    header.put(static_cast<std::uint32_t>(t.value.rank()));
    for (int axis = t.value.rank() - 1; axis >= 0; --axis)  // the innermost axis first
      header.put(static_cast<std::uint64_t>(t.value.shape()[axis]));
    header.put(detail::gguf_number(t.type).value());
    header.put(offset);
    offset += detail::padded(bytes_of(t), alignment);
  }
  header.pad(alignment);
  return header;
}

// Writes the values and the padding after them. Whole rows are converted at a time, because a block is in one row.
void write_values(detail::NewFile& out, const GgufTensor& t, std::size_t alignment, const std::string& who) {
  const Tensor made = t.change ? t.change(t.value.detach()) : t.value.detach();
  require(made.shape() == t.value.shape(), who, ": tensor '", t.name, "' became ", made, "; it must keep its shape ",
          t.value.shape());
  const Tensor x = made.dense();
  const Index width = x.rank() == 0 ? 1 : x.shape().back(), rows = x.numel() / width;
  const Tensor matrix = x.view({rows, width});
  const std::size_t size = bytes_of(t), row_bytes = size / static_cast<std::size_t>(rows);
  const auto step = static_cast<Index>(std::max<std::size_t>(1, kGgufPiece / row_bytes));
  for (Index row = 0; row < rows; row += step) {
    std::vector<std::byte> bytes;
    try {
      bytes = store(matrix.slice(0, row, row + step), t.type);
    } catch (const Error& e) {
      fail(who, ": tensor '", t.name, "' from row ", row, ": ", e.what());
    }
    out.write(bytes.data(), bytes.size());
  }
  const std::string padding(detail::padded(size, alignment) - size, '\0');
  out.write(padding.data(), padding.size());
}

}  // namespace

void save_gguf(const std::filesystem::path& file, const GgufMetadata& metadata,
               const std::vector<GgufTensor>& tensors) {
  const std::string who = "save_gguf: " + file.string();
  check_all(metadata, tensors, who);
  const std::size_t alignment = detail::gguf_alignment(metadata, who);
  GgufMetadata all = metadata;
  if (std::ranges::any_of(tensors, [](const GgufTensor& t) { return is_quantized(t.type); }))
    all.try_emplace("general.quantization_version", std::uint32_t{2});
  const GgufHeader header = header_of(all, tensors, alignment);
  std::size_t size = header.bytes().size();
  for (const GgufTensor& t : tensors) size += detail::padded(bytes_of(t), alignment);
  detail::NewFile out("save_gguf", file, size);
  out.write(header.bytes().data(), header.bytes().size());
  for (const GgufTensor& t : tensors) write_values(out, t, alignment, who);
  out.finish();
}

}  // namespace heed
