#include <heed/core/npy.hpp>
//
#include <heed/core/array.hpp>
#if __has_include(<xtensor/io/xnpy.hpp>)
#include <xtensor/io/xnpy.hpp>
#else
#include <xtensor/xnpy.hpp>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace heed {
namespace {

// The part of the header behind `'key':`, up to the end of its value.
std::string field(const std::string& header, const std::string& key, const std::string& name) {
  const std::size_t at = header.find("'" + key + "':");
  require(at != std::string::npos, "load_npy: ", name, " has no '", key,
          "' in its header; it is not a whole .npy file");
  const std::size_t begin = std::min(header.find_first_not_of(' ', at + key.size() + 3), header.size());
  const bool list = header[begin] == '(';
  const std::size_t end = header.find_first_of(list ? ")" : ",}", begin);
  require(end != std::string::npos, "load_npy: ", name, " has a header that ends within '", key,
          "'; it is not a whole .npy file");
  return header.substr(begin, end - begin + (list ? 1 : 0));
}

struct Header {
  DType dtype;
  Shape shape;
  std::uintmax_t bytes;  // of the header
};

Header read_header(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::ifstream in(file, std::ios::binary);
  require(in.good(), "load_npy: ", name, " cannot be read: ", std::strerror(errno));
  char start[10] = {};
  in.read(start, sizeof start);
  require(in.gcount() == sizeof start && std::memcmp(start, "\x93NUMPY", 6) == 0 && start[6] == 1, "load_npy: ", name,
          " is not a .npy file of version 1");
  const std::size_t length =
      static_cast<unsigned char>(start[8]) | static_cast<std::size_t>(static_cast<unsigned char>(start[9])) << 8;
  std::string header(length, '\0');
  in.read(header.data(), static_cast<std::streamsize>(length));
  require(static_cast<std::size_t>(in.gcount()) == length, "load_npy: ", name, " ends within its header");

  Header h{DType::float32, {}, sizeof start + length};
  const std::string type = field(header, "descr", name);
  if (type == "'<f8'")
    h.dtype = DType::float64;
  else if (type == "'<i4'")
    h.dtype = DType::int32;
  else if (type == "'|b1'")
    h.dtype = DType::bool8;
  else
    require(type == "'<f4'", "load_npy: ", name, " holds ", type,
            "; it must be float32 '<f4', float64 '<f8', int32 '<i4' or bool '|b1'");
  require(field(header, "fortran_order", name) == "False", "load_npy: ", name,
          " is in Fortran order; it must be in C order");
  std::istringstream sizes(field(header, "shape", name));
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

template <class F>
void with_npy_type(DType t, F&& f) {
  switch (t) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::int32: return f(std::int32_t{});
    default: return f(bool{});
  }
}

}  // namespace

void save_npy(const std::filesystem::path& file, const Tensor& x) {
  require(x.defined() && x.dtype() != DType::bfloat16, "save_npy: x is ", x,
          "; it must be float32, float64, int32 or bool8");
  const Tensor dense = x.detach().dense();
  with_npy_type(x.dtype(), [&](auto t) {
    using T = decltype(t);
    std::ofstream out(file, std::ios::binary);
    const std::string bytes = xt::dump_npy(dense.array<T>());
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    require(out.good(), "save_npy: ", file.string(), " cannot be written: ", std::strerror(errno));
  });
}

Tensor load_npy(const std::filesystem::path& file) {
  const Header h = read_header(file);
  const std::uintmax_t wanted = h.bytes + static_cast<std::uintmax_t>(h.shape.numel()) * size_of(h.dtype),
                       size = std::filesystem::file_size(file);
  require(size == wanted, "load_npy: ", file.string(), " has ", size, " bytes; its header says ", wanted);
  const Tensor x = Tensor::empty(h.shape, h.dtype);
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(h.bytes)).read(static_cast<char*>(x.raw()), static_cast<std::streamsize>(wanted - h.bytes));
  require(in.good(), "load_npy: ", file.string(), " cannot be read: ", std::strerror(errno));
  if (h.dtype == DType::bool8) {
    auto* byte = static_cast<unsigned char*>(x.raw());
    std::transform(byte, byte + x.numel(), byte, [](unsigned char b) { return b != 0; });  // whatever wrote them
  }
  return x;
}

}  // namespace heed
