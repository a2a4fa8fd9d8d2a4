// Reads and writes NumPy's .npy files.
#include <heed/core/names.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/float16.hpp>
#include <heed/data/npy.hpp>
//
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace heed {
namespace {

// The value of `'key':` in the header.
std::string field(const std::string& header, const std::string& key, const std::string& name) {
  const std::size_t at = header.find("'" + key + "':");
  require(at != std::string::npos, "load_npy: ", name, " has no '", key,
          "' in its header; it is not a complete .npy file");
  const std::size_t begin = std::min(header.find_first_not_of(' ', at + key.size() + 3), header.size());
  const bool list = header[begin] == '(';
  const std::size_t end = header.find_first_of(list ? ")" : ",}", begin);
  require(end != std::string::npos, "load_npy: ", name, " has a header that ends within '", key,
          "'; it is not a complete .npy file");
  return header.substr(begin, end - begin + (list ? 1 : 0));
}

float from_half(std::uint16_t bits, const char*) { return detail::from_float16(bits); }
std::int32_t from_integer(std::int64_t value, const char* op) { return detail::to_int32(op, value); }
std::int32_t from_unsigned(std::uint64_t value, const char* op) {
  return from_integer(static_cast<std::int64_t>(std::min(value, std::uint64_t{1} << 62)), op);
}
bool from_byte(std::uint8_t value, const char*) { return value != 0; }  // any nonzero byte is true

// Reads the values of x, stored as From, through a small buffer. Errors begin with `op`.
template <class From, auto convert>
void read_as(std::istream& in, const Tensor& x, const char* op) {
  using To = decltype(convert(From{}, op));
  std::vector<From> part(1 << 14);
  for (Index done = 0; done < x.numel() && in.good();) {
    const Index n = std::min<Index>(static_cast<Index>(part.size()), x.numel() - done);
    in.read(reinterpret_cast<char*>(part.data()),
            static_cast<std::streamsize>(static_cast<std::size_t>(n) * sizeof(From)));
    std::transform(part.begin(), part.begin() + n, x.ptr<To>() + done, [op](From v) { return convert(v, op); });
    done += n;
  }
}

void read_as_it_is(std::istream& in, const Tensor& x, const char*) {
  in.read(static_cast<char*>(x.raw()),
          static_cast<std::streamsize>(static_cast<std::size_t>(x.numel()) * size_of(x.dtype())));
}

struct Type {
  const char* name;  // in NumPy
  std::size_t bytes;
  DType dtype;  // in heed
  void (*read)(std::istream& in, const Tensor& x, const char* op);
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

struct Header {
  const Type* type;
  Shape shape;
  std::uintmax_t bytes;  // length of the header
};

// Reads the header, and stops before the values.
Header read_header(std::istream& in, const std::string& name) {
  char start[10] = {};
  in.read(start, sizeof start);
  require(in.gcount() == sizeof start && std::memcmp(start, "\x93NUMPY", 6) == 0 && start[6] == 1, "load_npy: ", name,
          " is not a .npy file of version 1");
  const std::size_t length =
      static_cast<unsigned char>(start[8]) | static_cast<std::size_t>(static_cast<unsigned char>(start[9])) << 8;
  std::string header(length, '\0');
  in.read(header.data(), static_cast<std::streamsize>(length));
  require(static_cast<std::size_t>(in.gcount()) == length, "load_npy: ", name, " ends within its header");

  const std::string type = field(header, "descr", name);
  Header h{std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& t) { return type == t.name; }),
           {},
           sizeof start + length};
  require(h.type != std::end(kTypes), "load_npy: ", name, " has dtype ", excerpt(type),
          "; it must be little-endian float16, float32, float64, integer or bool");
  require(field(header, "fortran_order", name) == "False", "load_npy: ", name,
          " is in Fortran order; it must be in C order");
  std::istringstream sizes(field(header, "shape", name));
  sizes.imbue(std::locale::classic());  // no digit grouping
  char c = 0;
  for (Index n = 0; sizes >> c;) {
    if (c == ')') break;
    if (c == '(' || c == ',') continue;
    sizes.putback(c);
    require(static_cast<bool>(sizes >> n) && n >= 0, "load_npy: ", name, " has an unreadable shape");
    h.shape.push_back(n);
  }
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

Tensor load_npy(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::ifstream in(file, std::ios::binary);
  require(in.good(), "load_npy: ", name, " cannot be read: ", std::strerror(errno));
  const Header h = read_header(in, name);
  const std::uintmax_t expected = h.bytes + static_cast<std::uintmax_t>(h.shape.numel()) * h.type->bytes,
                       size = std::filesystem::file_size(file);
  require(size == expected, "load_npy: ", name, " has ", size, " bytes; its header says ", expected);
  const Tensor x = Tensor::empty(h.shape, h.type->dtype);
  h.type->read(in, x, ("load_npy: " + name).c_str());
  require(in.good(), "load_npy: ", name, " cannot be read: ", std::strerror(errno));
  return x;
}

}  // namespace heed
