// .npy files: restored contents, the bytes of NumPy, and errors for other files.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <heed/autograd/shape_ops.hpp>
#include <heed/data/npy.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"
#include "tests/tools/python.hpp"
#include "tests/tools/size_limit.hpp"

using namespace heed;
using test::contains;
using test::error_of;

TEST_CASE(".npy files are restored, and damaged ones are refused") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("heed_npy_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto file = folder / "x.npy";
  for (const Tensor& x : {Tensor::from({1.5, -2, 3, 4}, {2, 2}), Tensor::from<double>({1, 2, 3}),
                          Tensor::from<std::int32_t>({7, -8}, {1, 2}), Tensor::from<bool>({1, 0, 1}), Tensor::scalar(3),
                          Tensor::zeros({0, 4}), Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}).t()}) {
    save_npy(file, x);
    CHECK(test::same_bits(load_npy(file), x));
  }
  CHECK(contains(error_of([&] { save_npy(file, Tensor::ones({2}, DType::bfloat16)); }),
                 "it must be float32, float64, int32 or bool8"));
  CHECK(contains(error_of([&] { save_npy(folder / "none" / "x.npy", Tensor::ones({2})); }), "there is no folder "));
  CHECK(contains(error_of([&] { load_npy(folder / "missing.npy"); }), "load_npy: there is no file "));
  CHECK(contains(error_of([&] { load_npy(folder); }), " is a folder; it must be a file"));
  save_npy(file, Tensor::ones({100}));
  const auto size = std::filesystem::file_size(file);
  {  // A save that fails keeps the old file and leaves no temporary file.
    const test::SizeLimit limit;
    limit.set(1000);
    CHECK(contains(error_of([&] { save_npy(file, Tensor::zeros({1000})); }), "the previous file is unchanged"));
  }
  CHECK(test::same_bits(load_npy(file), Tensor::ones({100})));
  CHECK_FALSE(std::filesystem::exists(folder / "x.npy.tmp"));
  for (std::uintmax_t n = 0; n < size; n += 7) {
    save_npy(file, Tensor::ones({100}));
    std::filesystem::resize_file(file, n);
    CHECK(!error_of([&] { load_npy(file); }).empty());
  }
  std::ofstream(file) << "this is text, and long enough to hold a header";
  CHECK(contains(error_of([&] { load_npy(file); }), "is not a .npy file"));
  std::filesystem::remove_all(folder);
}

namespace {

// A .npy file of version 1 with this header, padded by spaces to 64 bytes as NumPy does, with a line feed at the end.
std::string npy(std::string header, const std::string& values = "") {
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + values;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

}  // namespace

TEST_CASE(".npy files are NumPy's, byte for byte, and others are refused by name") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("heed_numpy_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto file = folder / "x.npy";
  const auto write = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; };
  const std::pair<std::string, Tensor> same[] = {
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", bytes_of<float>({1, 2, 3, 4})),
       Tensor::from({1, 2, 3, 4}, {2, 2})},
      {npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", bytes_of<double>({1, 2, -3})),
       Tensor::from<double>({1, 2, -3})},
      {npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 1, 2), }", bytes_of<std::int32_t>({7, -1})),
       Tensor::from<std::int32_t>({7, -1}, {1, 1, 2})},
      {npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", bytes_of<bool>({true, false})),
       Tensor::from<bool>({1, 0})},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", bytes_of<float>({5})), Tensor::scalar(5)},
  };
  for (const auto& [bytes, x] : same) {
    write(bytes);
    CHECK(test::same_bits(load_npy(file), x));
    save_npy(file, x);
    CHECK(test::bytes_of(file) == bytes);
  }
  write(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", std::string("\x02\0", 2)));  // invalid bool
  CHECK(test::same_bits(load_npy(file), Tensor::from<bool>({1, 0})));
  const auto read_as = [&](const std::string& type, const std::string& values, const Tensor& x) {
    write(npy("{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(x.numel()) + ",), }",
              values));
    INFO(type);
    CHECK(test::same_bits(load_npy(file), x));
  };
  read_as("<i8", bytes_of<std::int64_t>({2147483647, -2147483648, 5}),
          Tensor::from<std::int32_t>({2147483647, -2147483648.0, 5}));
  read_as("<i2", bytes_of<std::int16_t>({-32768, 7}), Tensor::from<std::int32_t>({-32768, 7}));
  read_as("|i1", bytes_of<std::int8_t>({-128, 7}), Tensor::from<std::int32_t>({-128, 7}));
  read_as("<u8", bytes_of<std::uint64_t>({2147483647}), Tensor::from<std::int32_t>({2147483647}));
  read_as("<u4", bytes_of<std::uint32_t>({9, 2147483647}), Tensor::from<std::int32_t>({9, 2147483647}));
  read_as("<u2", bytes_of<std::uint16_t>({65535}), Tensor::from<std::int32_t>({65535}));
  read_as("|u1", bytes_of<std::uint8_t>({255}), Tensor::from<std::int32_t>({255}));
  // Half floats: 1, -2, the largest, the smallest normal, the smallest, infinities, -0.
  read_as("<f2", bytes_of<std::uint16_t>({0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x7c00, 0xfc00, 0x8000}),
          Tensor::from({1, -2, 65504, 0x1p-14, 0x1p-24, INFINITY, -INFINITY, -0.0}));
  const Tensor many = Tensor::arange(40000);  // more than are read at once
  const std::vector<std::int64_t> wide = many.to_vector<Index>();
  read_as("<i8", std::string(reinterpret_cast<const char*>(wide.data()), 8 * wide.size()), many);
  const std::string four = bytes_of<float>({1, 2, 3, 4});
  const auto refused = [&](const std::string& bytes, const char* text) {
    write(bytes);
    const std::string error = error_of([&] { load_npy(file); });
    CHECK_MESSAGE(contains(error, text), "wanted: ", text, "\ngot: ", error);
    CHECK(contains(error, "load_npy: " + file.string()));
  };
  refused(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", bytes_of<Index>({1, 3000000000})),
          ": the value 3000000000 does not fit int32");
  refused(npy("{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }", std::string(8, '\xff')),
          " does not fit int32");
  refused(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", four),
          " has 144 bytes; its header says 152");
  refused(npy("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", four),
          " has dtype '<c8'; it must be little-endian float16, float32, float64, integer or bool");
  refused(npy("{'descr': '\x1B[2J\xFF', 'fortran_order': False, 'shape': (4,), }", four),
          " has dtype '\\x1B[2J\\xFF'; it must be little-endian");
  refused(npy("{'descr': '" + std::string(5000, 'x') + "', 'fortran_order': False, 'shape': (4,), }", four),
          (" has dtype '" + std::string(79, 'x') + "...; it must be").c_str());
  refused(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }", four), " has dtype '>f4'");
  refused(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", four),
          " is in Fortran order; it must be in C order");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", four),
          " has 144 bytes; its header says 148");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }", four), " has an unreadable shape");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (x,), }", four), " has an unreadable shape");
  for (const char* shape : {"(2 2)", "(2,,2)", "(,)", "4", "(4L,)", "(2, 2", "(99999999999999999999,)", "(2.0, 2)"})
    refused(npy(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': ") + shape + ", }", four),
            shape == std::string("(2, 2") ? " ends within 'shape'" : " has an unreadable shape");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 2, 2), }", four),
          " has 9 axes; there must be at most 8");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }"),
          " has the shape [4294967296, 4294967296, 4]; it has more elements than memory can hold");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }"),
          " has 128 bytes; its header says 4611686018427388032");
  refused(npy("{'descr': '<f4', 'fortran_order': False}", four),
          " has no 'shape' in its header; it is not a complete .npy file");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape':", four),
          " has a header that ends within 'shape'; it is not a complete .npy file");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4", four), " has a header that ends within 'shape'");
  refused(npy("{'descr': '<f4'}").substr(0, 20), " ends within its header");
  refused("\x93NUMPY\x02", " is not a .npy file of version 1");
  CHECK(contains(error_of([&] { save_npy(file, Tensor()); }),
                 "save_npy: x is undefined; it must be float32, float64, int32 or bool8"));
  std::filesystem::remove_all(folder);
}

TEST_CASE(".npy files are read by NumPy, and NumPy's by heed") {
  const std::string python = test::python_with("numpy");
  if (python.empty()) return;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("heed_with_numpy_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const Tensor x = Tensor::from<double>({1.5, NAN, -INFINITY, 0, 3e-310, 7}, {3, 2});
  const std::pair<const char*, Tensor> all[] = {
      {"f4", x.to(DType::float32)},          {"f8", x},    {"i4", Tensor::arange(5)},
      {"b1", Tensor::from<bool>({1, 0, 1})}, {"t", x.t()}, {"s", Tensor::scalar(2)},
      {"e", Tensor::zeros({2, 0})}};
  for (const auto& [name, tensor] : all) save_npy(folder / (std::string(name) + ".npy"), tensor);
  const std::string script =
      "import glob, sys, numpy as np\n"
      "for f in glob.glob(sys.argv[1] + '/*.npy'):\n"
      "    x = np.load(f)\n"
      "    print(f.rsplit('/', 1)[1], x.dtype, x.shape)\n"
      "    np.save(f, np.ascontiguousarray(x[::-1]) if x.ndim else x)\n";
  const test::Ran ran = test::run(python + " -c " + test::quoted(script) + " " + test::quoted(folder.string()));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  for (const char* line : {"f4.npy float32 (3, 2)", "f8.npy float64 (3, 2)", "i4.npy int32 (5,)", "b1.npy bool (3,)",
                           "t.npy float64 (2, 3)", "s.npy float32 ()", "e.npy float32 (2, 0)"})
    CHECK(contains(ran.output, line));
  for (const auto& [name, tensor] : all)
    CHECK(test::same_bits(load_npy(folder / (std::string(name) + ".npy")),
                          tensor.rank() > 0 ? flip(tensor, {0}) : tensor));
  std::filesystem::remove_all(folder);
}

TEST_CASE(".npy files are read from memory") {
  const std::string file = npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), }", bytes_of<Index>({7, -1}));
  const auto parsed = [](const std::string& bytes) { return parse_npy(std::as_bytes(std::span(bytes)), "x"); };
  CHECK(test::same_bits(parsed(file), Tensor::from<std::int32_t>({7, -1}, {1, 2})));
  CHECK(test::same_bits(parsed(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }")),
                        Tensor::zeros({0, 3})));
  CHECK(error_of([&] { parsed(file + "1"); }) == "parse_npy: x has 145 bytes; its header says 144");
  for (std::size_t n = 0; n < file.size(); ++n) {
    const char* text = n < 10 ? " is not a .npy file" : n < 128 ? " ends within its header" : "; its header says 144";
    CHECK(contains(error_of([&] { parsed(file.substr(0, n)); }),
                   std::string("parse_npy: x") + (n < 128 ? text : " has")));
    CHECK(contains(error_of([&] { parsed(file.substr(0, n)); }), text));
  }
}

RELEASE_TEST_CASE(".npy files are written and read alike in every locale") {
  test::check_in_every_locale([] {
    const test::TemporaryFolder folder;
    const std::string file = (folder.path / "x.npy").string();
    save_npy(file, Tensor::arange(6000).reshape({2, 3000}));
    const Tensor x = load_npy(file);
    return to_string(x.shape()) + to_string(Shape{static_cast<Index>(x.at({1, 2999}))}) +
           test::bytes_of(folder.path / "x.npy");
  });
}
