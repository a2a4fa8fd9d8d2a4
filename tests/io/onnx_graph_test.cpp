// Graphs of ONNX operators: the bytes of a file that the package onnx wrote, and errors.
#include <heed/io/onnx_graph.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using detail::OnnxGraph;
using detail::OnnxType;
using detail::ProtobufMessage;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::TemporaryFolder;

TEST_CASE("protobuf: numbers of 1 to 10 bytes, and strings") {
  ProtobufMessage m;
  m.integer(1, 0);
  m.integer(2, 127);
  m.integer(15, 128);
  m.integer(16, 300);  // the key has two bytes
  m.integer(1, -1);
  m.integer(1, std::numeric_limits<std::int64_t>::max());
  const std::string max = "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF";
  CHECK(m.bytes() == std::string("\x08\x00\x10\x7F\x78\x80\x01\x80\x01\xAC\x02", 11) + "\x08" + max + "\xFF\x01" +
                         "\x08" + max + "\x7F");
  ProtobufMessage inner, outer;
  inner.real(1, 1);
  outer.message(3, inner);
  outer.text(4, "");
  CHECK(outer.bytes() == std::string("\x1A\x05\x0D\x00\x00\x80\x3F\x22\x00", 9));
  CHECK(outer.size() == 9);
}

TEST_CASE("ONNX: a graph is written with the bytes of the package onnx") {
  OnnxGraph g;
  const std::string x = g.input("x", OnnxType::float32, {"batch", 4});
  g.input("ids", OnnxType::int64, {"batch", "length"});
  const Tensor weight = (Tensor::arange(40).to(DType::float32) / 8).reshape({4, 10});
  const std::string product = g.add("MatMul", {x, g.weight("blocks.0.wü", weight.t().contiguous().t())});
  const std::vector<std::string> parts = g.split(product, {3, 7});
  CHECK(parts.size() == 2);
  g.add("ReduceMean", {parts[0]}, {{"axes", std::vector<Index>{-1, Index{1} << 40}}, {"keepdims", 1}});
  const std::string scale = g.weight("scale", Tensor::from({1, -0.5, 2, 0, 1e30, 0.1, 3}));
  const std::string norm = g.add("LayerNormalization", {parts[1], scale}, {{"axis", -1}, {"epsilon", 1e-5}});
  const std::string half = g.number(0.5);
  CHECK(g.number(0.5) == half);  // stored once
  CHECK(g.integers({3, 7}) == "constant_0");
  g.output("y", g.add("Gather", {g.add("Mul", {norm, half}), g.integer(-1)}, {{"axis", 0}}), {7});
  const TemporaryFolder folder;
  const auto path = folder.path / "x.onnx";
  g.save("op", path, {{"licence", "MIT"}, {"general.name", "Grüße"}});
  const std::string written = bytes_of(path), expected = bytes_of(test::in_source("tests/reference/onnx_graph.onnx"));
  CHECK(written.size() == expected.size());
  CHECK(written == expected);
}

TEST_CASE("ONNX: weights of any floating dtype are stored as float32") {
  const Tensor x = Tensor::from({1, -3.140625, 0.5});
  const TemporaryFolder folder;
  for (DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    OnnxGraph g;
    g.weight("x", x.to(dtype));
    g.save("op", folder.path / "x.onnx", {});
    const std::string bytes = bytes_of(folder.path / "x.onnx");
    CHECK(contains(bytes, std::string(reinterpret_cast<const char*>(x.raw()), 12)));
  }
}

TEST_CASE("ONNX: errors") {
  const TemporaryFolder folder;
  const auto path = folder.path / "x.onnx";
  OnnxGraph large;
  large.weight("w", Tensor::zeros({1, 1}).expand({1 << 10, 1 << 19}));  // 2^31 bytes in a file, 4 in memory
  const std::string message = error_of([&] { large.save("op", path, {}); });
  CHECK(contains(message, "op: "));
  CHECK(contains(message,
                 "x.onnx would have 2147483696 bytes; an ONNX file must have at most 2147483647, because "
                 "heed does not write external data"));
  OnnxGraph overflows;
  overflows.weight("blocks.0.w", Tensor::from<double>({1, 1e300}));
  CHECK(contains(error_of([&] { overflows.save("op", path, {}); }),
                 "op: blocks.0.w cannot be written as float32: store: x is [2] float64"));
  CHECK(contains(error_of([&] { OnnxGraph().save("op", folder.path / "none" / "x.onnx", {}); }),
                 "op: there is no folder "));
  CHECK(test::files_in(folder.path) == 0);
}
