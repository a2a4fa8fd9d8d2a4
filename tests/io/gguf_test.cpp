// GGUF files: those of the package gguf (tests/reference/gguf_files.py), round trips, and errors for other files.
#include <algorithm>
#include <heed/io/detail/gguf_format.hpp>
#include <heed/io/gguf.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

std::string stored_gguf(const std::string& name) { return test::in_source("tests/reference/gguf_" + name + ".gguf"); }

// Checks that the file has these tensors of tests/reference/gguf_files.json, with the same shapes and values.
void check_gguf_tensors(const GgufFile& file, const std::vector<std::pair<std::string, StoredType>>& expected) {
  static const test::Named reference = test::stored_tensors("gguf_files.json");
  CHECK(file.tensors().size() == expected.size());
  for (const auto& row : expected) {
    const std::string& name = row.first;
    INFO(name);
    const StoredTensor& t = file.tensor(name);
    CHECK(t.name == name);
    CHECK(t.type == row.second);
    const Tensor x = load(t);
    CHECK(x.shape() == reference.at(name).shape());
    CHECK(test::same_bits(x, reference.at(name).to(x.dtype())));
  }
}

const std::vector<std::pair<std::string, StoredType>> kPlainGguf = {
    {"f32", StoredType::f32},    {"f16", StoredType::f16},
    {"bf16", StoredType::bf16},  {"q8_0", StoredType::q8_0},
    {"f64", StoredType::f64},    {"four axes", StoredType::f32},
    {"i32", StoredType::i32},    {"i64", StoredType::i64},
    {"scalar", StoredType::f32}, {std::string(63, 'x'), StoredType::f32}};

// The metadata of gguf_plain.gguf.
GgufMetadata plain_gguf_metadata() {
  using std::string;
  const std::vector<string> texts = {"", "▁the", string("a\nb\0c", 5)};
  return {{"general.architecture", "llama"},
          {"general.name", "Grüße"},
          {"general.quantization_version", std::uint32_t{2}},
          {"test.array.array", std::vector<GgufArray>{std::vector<std::int32_t>{1, 2}, std::vector<std::int32_t>{3}}},
          {"test.array.bool", std::vector<bool>{true, false, true}},
          {"test.array.float32", std::vector<float>{0.5F, -1.25e30F}},
          {"test.array.float64", std::vector<double>{0.1, 1e300}},
          {"test.array.int16", std::vector<std::int16_t>{-32768, 7}},
          {"test.array.int32", std::vector<std::int32_t>{-2147483647 - 1, 7, 8}},
          {"test.array.int64", std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), 7}},
          {"test.array.int8", std::vector<std::int8_t>{-128, 127}},
          {"test.array.string", texts},
          {"test.array.uint16", std::vector<std::uint16_t>{65535, 7}},
          {"test.array.uint32", std::vector<std::uint32_t>{4294967295, 7}},
          {"test.array.uint64", std::vector<std::uint64_t>{18446744073709551615U, 7}},
          {"test.array.uint8", std::vector<std::uint8_t>{0, 255}},
          {"test.bool", true},
          {"test.float32", -1.25e30F},
          {"test.float64", 1e300},
          {"test.int16", std::int16_t{7}},
          {"test.int32", 8},
          {"test.int64", std::int64_t{7}},
          {"test.int8", std::int8_t{127}},
          {"test.string", texts[2]},
          {"test.uint16", std::uint16_t{7}},
          {"test.uint32", std::uint32_t{7}},
          {"test.uint64", std::uint64_t{7}},
          {"test.uint8", std::uint8_t{255}}};
}

}  // namespace

TEST_CASE("GGUF: metadata of all types are those that the package gguf wrote") {
  const GgufFile file(stored_gguf("plain"));
  for (const auto& row : plain_gguf_metadata()) {
    const std::string& key = row.first;
    INFO(key);
    REQUIRE(file.has(key));
    CHECK(file.metadata().at(key) == row.second);
    CHECK(type_name(file.metadata().at(key)) == type_name(row.second));
  }
  CHECK(file.metadata().size() == plain_gguf_metadata().size());
  CHECK(file.name() == stored_gguf("plain"));
  CHECK(file.text("general.name") == "Grüße");
  CHECK(file.number("test.uint8") == 255);
  CHECK(file.number("test.int64") == 7);
  CHECK(file.real("test.float32") == -1.25e30F);
  CHECK(file.real("test.uint32") == 7);
  CHECK(file.flag("test.bool"));
  CHECK(file.array<std::string>("test.array.string")[1] == "▁the");
  CHECK(file.array<bool>("test.array.bool") == std::vector<bool>{true, false, true});
  CHECK_FALSE(file.has("general"));
}

TEST_CASE("GGUF: tensors are those that the package gguf wrote") {
  check_gguf_tensors(GgufFile(stored_gguf("plain")), kPlainGguf);
  check_gguf_tensors(GgufFile(stored_gguf("quantized")), {{"q4_0", StoredType::q4_0},
                                                          {"q4_1", StoredType::q4_1},
                                                          {"q4_k", StoredType::q4_k},
                                                          {"q6_k", StoredType::q6_k},
                                                          {"i8", StoredType::i8},
                                                          {"i16", StoredType::i16}});
  const GgufFile aligned(stored_gguf("aligned"));
  check_gguf_tensors(aligned, {{"a", StoredType::f32}, {"b", StoredType::f32}, {"c", StoredType::f16}});
  CHECK(aligned.number("general.alignment") == 64);
  CHECK(aligned.tensor("b").bytes.data() - aligned.tensor("a").bytes.data() == 64);
  CHECK(aligned.tensor("c").bytes.data() - aligned.tensor("b").bytes.data() == 256);
}

TEST_CASE("GGUF: a file is written with the bytes of the package gguf") {
  const GgufFile file(stored_gguf("plain"));
  std::vector<GgufTensor> tensors;
  for (const char* name : {"f32", "f16", "bf16", "q8_0", "four axes", "f64", "i32", "i64", "scalar"})
    tensors.push_back({name, load(file.tensor(name)), file.tensor(name).type});
  const std::string longest(63, 'x');
  tensors.push_back({longest, load(file.tensor(longest))});
  const test::TemporaryFolder folder;
  save_gguf(folder.path / "x.gguf", plain_gguf_metadata(), tensors);
  const std::string written = test::bytes_of(folder.path / "x.gguf"), expected = test::bytes_of(stored_gguf("plain"));
  CHECK(written.size() == expected.size());
  CHECK(std::ranges::mismatch(written, expected).in1 == written.end());
}

TEST_CASE("GGUF: what is written is read again") {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "x.gguf";
  const Tensor rows = test::normal({2, 3, 64}, 1, DType::float32), large = test::normal({70, 32768}, 2, DType::float32);
  const GgufMetadata metadata = {{"general.alignment", std::uint32_t{4096}}, {"general.architecture", "gpt2"}};
  // Views with gaps, a tensor of more than one piece, one and no axes.
  save_gguf(path, metadata,
            {{"t", rows.transpose(0, 1), StoredType::f32},
             {"large", large, StoredType::q8_0},
             {"large f16", large, StoredType::f16},
             {"every second", rows.slice(1, 0, 3, 2), StoredType::bf16},
             {"vector", Tensor::arange(5).to(DType::float32), StoredType::f16},
             {"scalar", Tensor::scalar(7), StoredType::f64}});
  GgufFile file(path);
  CHECK(file.number("general.quantization_version") == 2);
  CHECK(file.number("general.alignment") == 4096);
  CHECK(file.metadata().size() == 3);
  const GgufFile copy = file;
  file = GgufFile(stored_gguf("aligned"));  // the copy keeps the mapping
  CHECK(test::same_bits(load(copy.tensor("t")), rows.transpose(0, 1).contiguous()));
  const auto bytes = store(large, StoredType::q8_0);
  CHECK(std::ranges::equal(copy.tensor("large").bytes, bytes));
  CHECK(test::close(load(copy.tensor("large f16")), large, 1e-3, 1e-6));
  CHECK(test::same_bits(load(copy.tensor("every second")), rows.slice(1, 0, 3, 2).to(DType::bfloat16)));
  CHECK(test::same_bits(load(copy.tensor("vector")), Tensor::arange(5).to(DType::float32)));
  CHECK(test::same_bits(load(copy.tensor("scalar")), Tensor::scalar(7, DType::float64)));
  const std::byte* first = copy.tensor("t").bytes.data();
  for (const auto& [name, t] : copy.tensors()) CHECK((t.bytes.data() - first) % 4096 == 0);
  save_gguf(path, {{"general.architecture", ""}}, {});  // only metadata
  CHECK(GgufFile(path).tensors().empty());
  CHECK(GgufFile(path).metadata().size() == 1);
}

TEST_CASE("GGUF: vocabularies are arrays of texts") {
  const test::TemporaryFolder folder;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  for (int i = 0; i < 100000; ++i) {
    tokens.push_back("token " + std::to_string(i * 7919));
    scores.push_back(static_cast<float>(-i));
  }
  save_gguf(folder.path / "x.gguf", {{"general.architecture", "llama"}, {"tokens", tokens}, {"scores", scores}}, {});
  const GgufFile file(folder.path / "x.gguf");
  CHECK(file.array<std::string>("tokens") == tokens);
  CHECK(file.array<float>("scores") == scores);
}

TEST_CASE("GGUF: the package gguf reads what heed writes") {
  const std::string python = test::python_with("gguf, numpy");
  if (python.empty()) return;
  const test::TemporaryFolder folder;
  const std::string path = (folder.path / "x.gguf").string();
  std::vector<float> values;  // whole numbers of each type: the scale of each block is 1
  for (int i = 0; i < 192; ++i) values.push_back(static_cast<float>(i % 32 == 0 ? 127 : i % 32));
  const Tensor x = Tensor::from(values, {3, 64});
  save_gguf(path, {{"general.architecture", "llama"}, {"llama.block_count", std::uint32_t{3}}},
            {{"a", x, StoredType::q8_0}, {"b", x, StoredType::bf16}, {"c", x[0], StoredType::f16}, {"d", x}});
  const std::string script =
      "import sys, gguf\n"
      "from gguf.quants import dequantize\n"
      "file = gguf.GGUFReader(sys.argv[1])\n"
      "print(file.fields['llama.block_count'].contents(), file.fields['general.architecture'].contents())\n"
      "for t in file.tensors:\n"
      "    y = dequantize(t.data, t.tensor_type)\n"
      "    print(t.name, t.tensor_type.name, y.shape, y[..., :2].reshape(-1)[:2], y.sum(), t.data_offset % 32)\n";
  const test::Ran ran = test::run(python + " -c " + test::quoted(script) + " " + test::quoted(path));
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  for (const char* line :
       {"3 llama\n", "a Q8_0 (3, 64) [127.   1.] 3738.0 0\n", "b BF16 (3, 64) [127.   1.] 3738.0 0\n",
        "c F16 (64,) [127.   1.] 1246.0 0\n", "d F32 (3, 64) [127.   1.] 3738.0 0\n"})
    CHECK(contains(ran.output, line));
}

TEST_CASE("GGUF: missing values, values of another type and missing tensors are named") {
  const GgufFile file(stored_gguf("plain"));
  const std::string where = "GGUF file: " + stored_gguf("plain");
  test::check_errors({
      {where + " has no 'llama.block_count' in its metadata", [&] { file.number("llama.block_count"); }},
      {where + ": 'general.name' is of type string; it must be an integer", [&] { file.number("general.name"); }},
      {where + ": 'test.bool' is of type bool; it must be an integer", [&] { file.number("test.bool"); }},
      {where + ": 'test.float32' is of type float32; it must be an integer", [&] { file.number("test.float32"); }},
      {where + ": 'test.bool' is of type bool; it must be a number", [&] { file.real("test.bool"); }},
      {where + ": 'test.uint8' is of type uint8; it must be a bool", [&] { file.flag("test.uint8"); }},
      {where + ": 'test.uint8' is of type uint8; it must be a string", [&] { file.text("test.uint8"); }},
      {where + ": 'test.uint8' is of type uint8; it must be an array of string",
       [&] { file.array<std::string>("test.uint8"); }},
      {where + ": 'test.array.int8' is an array of int8; it must be an array of float32",
       [&] { file.array<float>("test.array.int8"); }},
      {where + " has no tensor 'output.weight'", [&] { file.tensor("output.weight"); }},
      {"GGUF file: there is no file ", [&] { GgufFile("/none/x.gguf"); }},
  });
  const test::TemporaryFolder folder;
  save_gguf(folder.path / "x.gguf", {{"general.architecture", "x"}, {"n", std::int8_t{-5}}}, {});
  CHECK(contains(error_of([&] { GgufFile(folder.path / "x.gguf").number("n"); }), "'n' is -5; it must be at least 0"));
}

TEST_CASE("GGUF: what the format does not allow is not written") {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "x.gguf";
  const GgufMetadata ok = {{"general.architecture", "llama"}};
  const Tensor x = Tensor::ones({2, 32});
  save_gguf(path, ok, {{"w", x}});
  const std::string before = test::bytes_of(path);
  const auto saved = [&](const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
    return [&path, metadata, tensors] { save_gguf(path, metadata, tensors); };
  };
  const auto with = [&](const std::string& key, const GgufValue& value) {
    GgufMetadata all = ok;
    all[key] = value;
    return all;
  };
  const std::string where = "save_gguf: " + path.string() + ": ";
  test::check_errors({
      {where + "the metadata must have the text 'general.architecture'", saved({}, {})},
      {where + "the metadata must have the text 'general.architecture'", saved({{"general.architecture", 5}}, {})},
      {where + "a key of the metadata is '', of 0 bytes; it must have from 1 to 65535 bytes", saved(with("", 1), {})},
      {where + "a key of the metadata is 'aaa", saved(with(std::string(65536, 'a'), 1), {})},
      {where + "'general.alignment' is of type int32; it must be uint32", saved(with("general.alignment", 32), {})},
      {where + "'general.alignment' is 48; it must be a power of two from 8 to 1048576",
       saved(with("general.alignment", std::uint32_t{48}), {})},
      {where + "the name of a tensor is '', of 0 bytes; it must have from 1 to 63 bytes", saved(ok, {{"", x}})},
      {where + "the name of a tensor is '" + std::string(64, 'n') + "', of 64 bytes",
       saved(ok, {{std::string(64, 'n'), x}})},
      {"none of them zero", saved(ok, {{std::string("a\0b", 3), x}})},
      {where + "two tensors have the name 'w'", saved(ok, {{"w", x}, {"w", x}})},
      {where + "tensor 'w' is undefined", saved(ok, {{"w", Tensor()}})},
      {where + "tensor 'w' is [1, 1, 1, 1, 1] float32; it must have at most 4 axes, none of size 0",
       saved(ok, {{"w", Tensor::ones({1, 1, 1, 1, 1})}})},
      {where + "tensor 'w' is [2, 0] float32; it must have at most 4 axes, none of size 0",
       saved(ok, {{"w", Tensor::ones({2, 0})}})},
      {where + "tensor 'w' has the type Q4_0; it must be one of F32, F16, BF16, Q8_0, F64, I64, I32",
       saved(ok, {{"w", x, StoredType::q4_0}})},
      {where + "tensor 'w' has the type BOOL", saved(ok, {{"w", x, StoredType::boolean}})},
      {where + "tensor 'w' is [2, 31] float32; the last axis must be a multiple of 32 for type Q8_0",
       saved(ok, {{"w", Tensor::ones({2, 31}), StoredType::q8_0}})},
      {where + "tensor 'w' is [] float32; the last axis must be a multiple of 32 for type Q8_0",
       saved(ok, {{"w", Tensor::scalar(1), StoredType::q8_0}})},
      {where + "tensor 'w' from row 0: store: ",
       saved(ok, {{"v", x}, {"w", Tensor::full({2, 2}, 1e6), StoredType::f16}})},
      {"save_gguf: there is no folder ", [&] { save_gguf(folder.path / "none" / "x.gguf", ok, {}); }},
  });
  CHECK(test::bytes_of(path) == before);
  CHECK(test::files_in(folder.path) == 1);
}
