// Reads and writes NumPy's .npy files.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <heed/core/float16.hpp>
#include <heed/core/index.hpp>
#include <heed/core/names.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/npy.hpp>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

namespace heed {
namespace {

using detail::NextBytes;

// The value of `'key':` in the header.
std::string field(const std::string& header, const std::string& key, const std::string& what) {
  const std::size_t at = header.find("'" + key + "':");
  require(at != std::string::npos, what, " has no '", key, "' in its header; it is not a complete .npy file");
  const std::size_t begin = std::min(header.find_first_not_of(' ', at + key.size() + 3), header.size());
  const bool list = header[begin] == '(';
  const std::size_t end = header.find_first_of(list ? ")" : ",}", begin);
  require(end != std::string::npos, what, " has a header that ends within '", key, "'; it is not a complete .npy file");
  return header.substr(begin, end - begin + (list ? 1 : 0));
}

float from_half(std::uint16_t bits, const char*) { return detail::from_float16(bits); }
std::int32_t from_integer(std::int64_t value, const char* op) { return detail::to_int32(op, value); }
std::int32_t from_unsigned(std::uint64_t value, const char* op) {
  return from_integer(static_cast<std::int64_t>(std::min(value, std::uint64_t{1} << 62)), op);
}
bool from_byte(std::uint8_t value, const char*) { return value != 0; }  // any nonzero byte is true

// Reads the values of x, stored as From, through a small buffer. Errors begin with `what`.
template <class From, auto convert>
void read_as(const NextBytes& next, const Tensor& x, const char* what) {
  using To = decltype(convert(From{}, what));
  std::vector<From> part(static_cast<std::size_t>(std::min<Index>(1 << 14, x.numel())));
  for (Index done = 0, n = 0; done < x.numel(); done += n) {
    n = std::min<Index>(static_cast<Index>(part.size()), x.numel() - done);
    next(part.data(), static_cast<std::size_t>(n) * sizeof(From));
    std::transform(part.begin(), part.begin() + n, x.ptr<To>() + done, [what](From v) { return convert(v, what); });
  }
}

void read_as_it_is(const NextBytes& next, const Tensor& x, const char*) {
  next(x.raw(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype()));
}

struct Type {
  const char* name;  // in NumPy
  std::size_t bytes;
  DType dtype;  // in heed
  void (*read)(const NextBytes& next, const Tensor& x, const char* what);
};

constexpr Type kTypes[] = {
    {"'<f4'", 4, DType::float32, read_as_it_is},
    {"'<f8'", 8, DType::float64, read_as_it_is},
    {"'<f2'", 2, DType::float32, read_as<std::uint16_t, from_half>},
    {"'<i4'", 4, DType::int32, read_as_it_is},
    {"'<i8'", 8, DType::int32, read_as<std::int64_t, from_integer>},
    {"'<i2'", 2, DType::int32, read_as<std::int16_t, from_integer>},
    {"'|i1'", 1, DType::int32, read_as<std::int8_t, from_integer>},
    {"'<u8'", 8, DType::int32, read_as<std::uint64_t, from_unsigned>},
    {"'<u4'", 4, DType::int32, read_as<std::uint32_t, from_unsigned>},
    {"'<u2'", 2, DType::int32, read_as<std::uint16_t, from_unsigned>},
    {"'|u1'", 1, DType::int32, read_as<std::uint8_t, from_unsigned>},
    {"'|b1'", 1, DType::bool8, read_as<std::uint8_t, from_byte>},
};

// The sizes in a text such as "(2, 3)" or "(4,)"; nullopt for any other text.
std::optional<std::vector<Index>> sizes_in(std::string_view text) {
  std::vector<Index> sizes;
  const auto take = [&text](char c) {  // drops blanks, then c if it is next
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const bool found = text.starts_with(c);
    if (found) text.remove_prefix(1);
    return found;
  };
  if (!take('(')) return std::nullopt;
  for (bool more = true; !take(')'); more = take(',')) {
    Index n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (!more || error != std::errc() || n < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    sizes.push_back(n);
  }
  return sizes;
}

struct Header {
  const Type* type;
  Shape shape;
  std::uintmax_t bytes;  // length of the header
};

// Reads the header, and stops before the values. The file has `size` bytes.
Header read_header(const NextBytes& next, std::uintmax_t size, const std::string& what) {
  unsigned char start[10] = {};
  if (size >= sizeof start) next(start, sizeof start);
  require(std::memcmp(start, "\x93NUMPY\x01", 7) == 0, what, " is not a .npy file of version 1");
  const std::size_t length = start[8] | static_cast<std::size_t>(start[9]) << 8;
  require(length <= size - sizeof start, what, " ends within its header");
  std::string header(length, '\0');
  next(header.data(), length);

  const std::string type = field(header, "descr", what);
  Header h{std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& t) { return type == t.name; }),
           {},
           sizeof start + length};
  require(h.type != std::end(kTypes), what, " has dtype ", excerpt(type),
          "; it must be little-endian float16, float32, float64, integer or bool");
  require(field(header, "fortran_order", what) == "False", what, " is in Fortran order; it must be in C order");
  const auto sizes = sizes_in(field(header, "shape", what));
  require(sizes.has_value(), what, " has an unreadable shape");
  require(sizes->size() <= static_cast<std::size_t>(kMaxRank), what, " has ", sizes->size(),
          " axes; there must be at most ", kMaxRank);
  h.shape = Shape(sizes->begin(), sizes->end());
  require(detail::can_be_counted(h.shape), what, " has the shape ", h.shape,
          "; it has more elements than memory can hold");
  return h;
}

// The header in format 1.0: a Python dictionary, padded with spaces to a multiple of 64 bytes. Written here because
// xtensor formats the shape in the program's locale.
std::string header_of(const Tensor& x) {
  const Type* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const Type& t) { return t.dtype == x.dtype() && t.bytes == size_of(t.dtype); });
  std::string shape = detail::joined(x.shape(), [](Index n) { return std::to_string(n); });
  if (x.rank() == 1) shape += ",";
  std::string dictionary = std::string("{'descr': ") + type->name + ", 'fortran_order': False, 'shape': (" + shape;
  dictionary += "), }";
  constexpr std::size_t kBefore = 10;
  dictionary += std::string(63 - (kBefore + dictionary.size()) % 64, ' ') + "\n";
  const std::size_t length = dictionary.size();
  const std::string magic("\x93NUMPY\x01\0", 8);
  return magic + static_cast<char>(length & 255) + static_cast<char>(length >> 8) + dictionary;
}

}  // namespace

void save_npy(const std::filesystem::path& file, const Tensor& x) {
  require(x.defined() && x.dtype() != DType::bfloat16, "save_npy: x is ", x,
          "; it must be float32, float64, int32 or bool8");
  const Tensor dense = x.detach().dense();
  const std::string bytes = header_of(dense);
  const std::size_t size = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  detail::NewFile out("save_npy", file, bytes.size() + size);
  out.write(bytes.data(), bytes.size());
  out.write(dense.raw(), size);
  out.finish();
}

Tensor detail::read_npy(const NextBytes& next, std::uintmax_t size, const std::string& what) {
  const Header h = read_header(next, size, what);
  const std::uintmax_t expected = h.bytes + static_cast<std::uintmax_t>(h.shape.numel()) * h.type->bytes;
  require(size == expected, what, " has ", size, " bytes; its header says ", expected);
  const Tensor x = Tensor::empty(h.shape, h.type->dtype);
  h.type->read(next, x, what.c_str());
  return x;
}

Tensor load_npy(const std::filesystem::path& file) {
  const detail::InputFile in("load_npy", file);
  const auto next = [&in, at = std::size_t{0}](void* to, std::size_t count) mutable {
    in.read_at(at, static_cast<unsigned char*>(to), count);
    at += count;
  };
  return detail::read_npy(next, in.size(), "load_npy: " + file.string());
}

Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  const auto next = [rest = bytes](void* to, std::size_t count) mutable {
    std::copy_n(rest.begin(), count, static_cast<std::byte*>(to));
    rest = rest.subspan(count);
  };
  return detail::read_npy(next, bytes.size(), "parse_npy: " + name);
}

}  // namespace heed
