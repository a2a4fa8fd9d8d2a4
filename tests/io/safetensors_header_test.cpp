// The parser of safetensors files and of their index: every refusal, and damaged bytes.
#include <heed/io/safetensors_header.hpp>
//
#include <algorithm>
#include <memory>
#include <string>

#include "tests/support.hpp"

using namespace heed;
using detail::parse_safetensors;
using detail::parse_safetensors_index;
using test::contains;
using test::error_of;

namespace {

std::string length_of(std::uint64_t n) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(n >> (8 * i) & 255);
  return bytes;
}

std::string file_of(const std::string& header, const std::string& values = "") {
  return length_of(header.size()) + header + values;
}

// A header with one tensor x, whose fields are given.
std::string tensor_of(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"x":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

// Parses a copy of the bytes, valid until the next call. The address sanitizer notices reads after its end.
detail::SafetensorsContent parse(const std::string& bytes) {
  static std::unique_ptr<std::byte[]> copy;
  copy.reset(new std::byte[bytes.size()]);
  std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), copy.get());
  return parse_safetensors({copy.get(), bytes.size()}, "m.safetensors");
}

void refused(const std::string& bytes, const std::string& message) {
  const std::string error = error_of([&] { parse(bytes); });
  INFO(message);
  CHECK(error == "load_safetensors: " + message);
}

void refused_index(const std::string& json, const std::string& message) {
  const std::string error = error_of([&] { parse_safetensors_index(json, "i.json"); });
  INFO(message);
  CHECK(error == "load_safetensors: " + message);
}

// A file with two tensors, an empty one, metadata, and spaces after the header.
std::string good_file() {
  return file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]},)"
                 R"("a":{"data_offsets":[0,2],"shape":[1],"dtype":"F16"},)"
                 R"("e":{"dtype":"I64","shape":[3,0],"data_offsets":[2,2]}}  )",
                 "abcdefghij");
}

}  // namespace

TEST_CASE("safetensors header: fields and tensors in any order, views of the bytes") {
  const std::string bytes = good_file();
  const detail::SafetensorsContent content = parse(bytes);
  CHECK(content.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(content.tensors.size() == 3);
  const StoredTensor &a = content.tensors.at("a"), &b = content.tensors.at("b"), &e = content.tensors.at("e");
  CHECK(a.name == "a");
  CHECK(a.type == StoredType::f16);
  CHECK(a.shape == Shape{1});
  CHECK(std::string(reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size()) == "ab");
  CHECK(b.type == StoredType::f32);
  CHECK(b.shape == Shape{2, 1});
  CHECK(std::string(reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size()) == "cdefghij");
  CHECK(e.type == StoredType::i64);
  CHECK(e.shape == Shape{3, 0});
  CHECK(e.bytes.empty());
  CHECK(parse(file_of("{}")).tensors.empty());
  CHECK(parse(file_of(R"({"__metadata__":{}})")).metadata.empty());
}

TEST_CASE("safetensors header: files that are truncated or extended at any byte are refused") {
  const std::string bytes = good_file();
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK(!error_of([&] { parse(bytes.substr(0, n)); }).empty());
  CHECK(error_of([&] { parse(bytes); }).empty());
  refused(bytes + "k",
          "m.safetensors has 11 bytes of values, but its tensors end at offset 10; they must cover the whole file");
  refused(bytes.substr(0, bytes.size() - 1),
          "m.safetensors has 9 bytes of values, but b ends at offset 10; the file is truncated");
}

TEST_CASE("safetensors header: a changed byte is refused, or all views are in the file") {
  const std::string bytes = good_file();
  int accepted = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; value += 3) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(value);
      const std::string error = error_of([&] {
        std::size_t sum = 0;
        for (const auto& [name, stored] : parse(changed).tensors) sum += stored.bytes.size();
        REQUIRE(sum == 10);
        ++accepted;
      });
      REQUIRE((error.empty() || contains(error, "load_safetensors: ")));
    }
  }
  CHECK(accepted > 500);  // changes of values, names and texts
}

TEST_CASE("safetensors header: the three parts of a file") {
  refused("", "m.safetensors has 0 bytes; a safetensors file has at least 8");
  refused("1234567", "m.safetensors has 7 bytes; a safetensors file has at least 8");
  refused(length_of(0), "the header of m.safetensors does not begin with {; it is damaged or no safetensors file");
  refused(file_of(" {}"), "the header of m.safetensors does not begin with {; it is damaged or no safetensors file");
  refused(length_of(0) + "{}",
          "the header of m.safetensors does not begin with {; it is damaged or no safetensors file");
  refused(length_of(3) + "{}",
          "m.safetensors has a header of 3 bytes by its first 8 bytes, but 2 bytes after them; it is truncated or no "
          "safetensors file");
  refused(length_of(100000001) + "{}",
          "m.safetensors has a header of 100000001 bytes by its first 8 bytes; it must have at most 100000000");
  refused(length_of(~std::uint64_t{0}) + "{}",
          "m.safetensors has a header of 18446744073709551615 bytes by its first 8 "
          "bytes; it must have at most 100000000");
  for (const std::string start : {"PK\3\4", "\x80\2\x8a\nl\xfc\x9c", "\x80\4\x95"}) {
    refused(
        start + std::string(100, 'x'),
        "m.safetensors is a pickled file of PyTorch, and unpickling can run any code; convert it to safetensors (in "
        "Python: safetensors.torch.save_file)");
  }
  CHECK(contains(error_of([] { parse("GGUF" + std::string(30, '\0')); }), "; it must have at most 100000000"));
  // A header of 0x0280 bytes begins as a pickle does.
  const std::string padded = "{}" + std::string(0x0280 - 2, ' ');
  CHECK(parse(file_of(padded)).tensors.empty());
}

TEST_CASE("safetensors header: JSON that is not a header") {
  refused(file_of("{"), "the header of m.safetensors is not JSON at byte 2; the file is damaged");
  refused(file_of("{}x"), "the header of m.safetensors is not JSON at byte 3; the file is damaged");
  refused(file_of("{}" + std::string(1, '\0')), "the header of m.safetensors has a zero byte; it must be JSON");
  CHECK(contains(error_of([] { parse(file_of("{\"\xff\":1}")); }), "is not JSON at byte "));
  CHECK(contains(error_of([] { parse(file_of(R"({"\ud800":1})")); }), "is not JSON at byte "));
  CHECK(contains(error_of([] { parse(file_of(R"({/**/})")); }), "is not JSON at byte "));
  const std::string in = "in the header of m.safetensors, ";
  const std::pair<const char*, const char*> wrong[] = {{"null", "null"},
                                                       {"true", "true or false"},
                                                       {"-1", "a negative number"},
                                                       {"7", "a number"},
                                                       {"\"t\"", "a text"},
                                                       {"1.5", "not a whole number below 2^64"},
                                                       {"[]", "an array"},
                                                       {"18446744073709551616", "not a whole number below 2^64"}};
  for (const auto& [json, kind] : wrong) {
    refused(file_of(std::string("{\"x\":") + json + "}"), in + "x is " + kind + "; it must be an object");
    refused(file_of(std::string("{\"__metadata__\":") + json + "}"),
            in + "__metadata__ is " + kind + "; it must be an object");
    if (json[0] != '"') {
      refused(file_of(std::string("{\"__metadata__\":{\"k\":") + json + "}}"),
              in + "__metadata__.k is " + kind + "; it must be a text");
      refused(file_of(std::string("{\"x\":{\"dtype\":") + json + "}}"),
              in + "x.dtype is " + kind + "; it must be a text");
    }
    if (json[0] != '7') {
      refused(file_of(std::string("{\"x\":{\"shape\":[") + json + "]}}"),
              in + "a number of x.shape is " + kind + "; it must be a whole number from 0 on");
    }
    if (json[0] != '[') {
      refused(file_of(std::string("{\"x\":{\"data_offsets\":") + json + "}}"),
              in + "x.data_offsets is " + kind + "; it must be an array of whole numbers");
    }
  }
  refused(file_of(R"({"x":{"shape":{}}})"), in + "x.shape is an object; it must be an array of whole numbers");
  const std::string deep = R"({"x":{"shape":)" + std::string(1000000, '[');
  refused(file_of(deep), in + "a number of x.shape is an array; it must be a whole number from 0 on");
}

TEST_CASE("safetensors header: duplicate, missing and unknown keys") {
  const std::string x = R"("x":{"dtype":"U8","shape":[],"data_offsets":[0,1]})";
  CHECK(parse(file_of("{" + x + "}", "1")).tensors.size() == 1);
  const std::string two = "the header of m.safetensors has two entries ";
  refused(file_of("{" + x + "," + x + "}", "1"), two + "x; keys must be unique");
  refused(file_of(R"({"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\u0078":{}})", "1"),
          two + "x; keys must be unique");
  refused(file_of(R"({"__metadata__":{},"__metadata__":{}})"), two + "__metadata__; keys must be unique");
  refused(file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), two + "k; keys must be unique");
  for (const std::string field : {"dtype", "shape", "data_offsets"}) {
    const std::string value = field == "dtype" ? "\"U8\"" : "[]";
    refused(file_of("{\"x\":{\"" + field + "\":" + value + ",\"" + field + "\":" + value + "}}"),
            two + "x." + field + "; keys must be unique");
    std::string fields;
    for (const std::string other : {"dtype", "shape", "data_offsets"})
      if (other != field)
        fields += (fields.empty() ? "\"" : ",\"") + other + "\":" + (other == "dtype" ? "\"U8\"" : "[]");
    refused(file_of("{\"x\":{" + fields + "}}"),
            "in the header of m.safetensors, x has no " + field + "; it must have dtype, shape and data_offsets");
  }
  refused(file_of(R"({"x":{"strides":[1]}})"),
          "in the header of m.safetensors, x has the field strides; it must have "
          "only dtype, shape and data_offsets");
  refused(file_of(R"({"a\n\u001b[2J":{"strides":[1]}})"),
          "in the header of m.safetensors, a\\n\\x1B[2J has the field strides; it must have only dtype, shape and "
          "data_offsets");
  const std::string error = error_of([] { parse(file_of("{\"" + std::string(10000, 'n') + "\":{\"strides\":[]}}")); });
  CHECK(contains(error, std::string(80, 'n') + "..."));
  CHECK(error.size() < 300);
}

TEST_CASE("safetensors header: types, shapes and offsets") {
  const std::string x = "in the header of m.safetensors, x";
  for (const std::string type : {"F8_E4M3", "C64", "Q8_0", "f32", "", "F4"}) {
    refused(
        file_of(tensor_of(type, "[1]", "[0,1]"), "1"),
        x + " has the type " + type + "; it must be F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8 or BOOL");
  }
  refused(file_of(tensor_of("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), "1"),
          x + " has more than 8 axes; tensors have at most 8");
  CHECK(parse(file_of(tensor_of("U8", "[1,1,1,1,1,1,1,1]", "[0,1]"), "1")).tensors.at("x").shape.rank() == 8);
  refused(file_of(tensor_of("U8", "[9223372036854775808]", "[0,1]"), "1"),
          x + " has an axis of size 9223372036854775808; it must be below 2^63");
  for (const std::string shape : {"[9223372036854775807, 2]", "[4294967296, 4294967296]", "[2305843009213693952]"}) {
    CHECK(contains(error_of([&] { parse(file_of(tensor_of("F64", shape, "[0,0]"))); }),
                   x + " has the shape " + shape + "; the product of its sizes must be at most 2^60"));
  }
  refused(file_of(tensor_of("U8", "[1]", "[0,1,1]"), "1"), x + " has more than 2 data_offsets; there must be 2");
  refused(file_of(tensor_of("U8", "[1]", "[0]"), "1"),
          x + " has 1 data_offsets; there must be 2, the begin and the end");
  refused(file_of(tensor_of("U8", "[1]", "[1,0]"), "1"),
          x + " has the data_offsets 1 and 0; the end must not be before the begin");
  refused(file_of(tensor_of("F32", "[2]", "[0,4]"), "1234"),
          x + " is [2] F32, which has 8 bytes, but its data_offsets span 4; they must agree");
  refused(file_of(tensor_of("U8", "[0]", "[0,1]"), "1"),
          x + " is [0] U8, which has 0 bytes, but its data_offsets span 1; they must agree");
  refused(file_of(tensor_of("U8", "[1]", "[1,2]"), "12"),
          x + " begins at offset 1, but the tensor before it ends at 0; there must be no gap and no overlap");
  refused(file_of(tensor_of("U8", "[1152921504606846976]", "[0,1152921504606846976]"), "1"),
          "m.safetensors has 1 bytes of values, but x ends at offset 1152921504606846976; the file is truncated");
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  const std::string b = "in the header of m.safetensors, b begins at offset ";
  const std::string rule = ", but the tensor before it ends at 2; there must be no gap and no overlap";
  CHECK(parse(file_of(two("[2,4]", "[0,2]"), "1234")).tensors.size() == 2);
  refused(file_of(two("[0,2]", "[1,3]"), "1234"), b + "1" + rule);
  refused(file_of(two("[0,2]", "[0,2]"), "1234"), b + "0" + rule);
  refused(file_of(two("[0,2]", "[3,5]"), "12345"), b + "3" + rule);
}

TEST_CASE("safetensors index: the file of each tensor") {
  const auto files = parse_safetensors_index(
      R"({"metadata":{"total_size":1e3,"a":[null,true,-1,"t",{"weight_map":{"y":"z"}}]},
          "weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors"}})",
      "i.json");
  CHECK(files == std::map<std::string, std::string, std::less<>>{{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}});
  const std::string deep = R"({"metadata":)" + std::string(1000000, '[') + std::string(1000000, ']') +
                           R"(,"weight_map":{"a":"m.safetensors"}})";
  CHECK(parse_safetensors_index(deep, "i.json").size() == 1);
}

TEST_CASE("safetensors index: refusals") {
  for (const std::string file : {"../m.safetensors", "/m.safetensors", "sub/m.safetensors", "..\\m.safetensors", "",
                                 ".", "..", "model.safetensors.index.json", "m.h5"}) {
    std::string quoted = file;
    if (const std::size_t at = quoted.find('\\'); at != quoted.npos) quoted.insert(at, "\\");
    refused_index(R"({"weight_map":{"x":")" + quoted + "\"}}",
                  "i.json has the file " + file +
                      " for x; it must be the name of a .safetensors file in the folder of the index");
  }
  refused_index(R"({"weight_map":{"x":"/etc/passwd\u0000.safetensors"}})",
                "i.json has the file /etc/passwd\\x00.safetensors for x; it must be the name of a .safetensors file in "
                "the folder of the index");
  for (const std::string file : {"pytorch_model-1.bin", "m.pt", "m.pth", "m.pkl"}) {
    refused_index(R"({"weight_map":{"x":")" + file + "\"}}",
                  file +
                      " is a pickled file of PyTorch, and unpickling can run any code; convert it to safetensors (in "
                      "Python: safetensors.torch.save_file)");
  }
  refused_index("", "i.json is not JSON at byte 1; the file is damaged");
  refused_index("{} ", "i.json has no weight_map with tensors; it is no index of safetensors files");
  refused_index(R"({"weight_map":{}})", "i.json has no weight_map with tensors; it is no index of safetensors files");
  refused_index(R"({"weights":{}})", "i.json has the entry weights; it must have only metadata and weight_map");
  refused_index(R"({"weight_map":{},"weight_map":{}})", "i.json has two entries weight_map; keys must be unique");
  refused_index(R"({"weight_map":{"x":"a.safetensors","x":"a.safetensors"}})",
                "i.json has two entries x; keys must be unique");
  refused_index(std::string("{}\0", 3), "i.json has a zero byte; it must be JSON");
  for (const std::string value : {"null", "true", "-1", "1", "1.5", "\"t\"", "[]"}) {
    CHECK(contains(error_of([&] { parse_safetensors_index(value, "i.json"); }), "in i.json, the whole is "));
    CHECK(contains(error_of([&] { parse_safetensors_index("{\"weight_map\":" + value + "}", "i.json"); }),
                   "; it must be an object"));
    if (value[0] == '"') continue;
    CHECK(contains(error_of([&] { parse_safetensors_index("{\"weight_map\":{\"x\":" + value + "}}", "i.json"); }),
                   "; it must be the name of a file"));
  }
  refused_index(R"({"weight_map":{"x":{}}})", "in i.json, x is an object; it must be the name of a file");
}

TEST_CASE("safetensors index: truncated at any byte, it is refused") {
  const std::string json = R"({"metadata":{"total_size":8},"weight_map":{"x":"m.safetensors"}})";
  for (std::size_t n = 0; n < json.size(); ++n)
    CHECK(!error_of([&] { parse_safetensors_index(json.substr(0, n), "i.json"); }).empty());
  CHECK(parse_safetensors_index(json, "i.json").size() == 1);
}
