// Hostile GGUF files: each rule of the parser with its message, truncation and damage at every byte.
#include <heed/io/detail/gguf_format.hpp>
#include <limits>
#include <span>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

constexpr std::uint64_t kGgufHuge = std::numeric_limits<std::uint64_t>::max();
// Types of metadata, and of tensors.
constexpr std::uint32_t kGgufUint8 = 0, kGgufUint32 = 4, kGgufBool = 7, kGgufString = 8, kGgufArray = 9;
constexpr std::uint32_t kGgufF32 = 0, kGgufQ8_0 = 8;

// The bytes of a GGUF file.
struct RawGguf {
  std::string all = {};

  template <class T>
  RawGguf& put(T x) {
    all.append(reinterpret_cast<const char*>(&x), sizeof x);
    return *this;
  }
  RawGguf& text(const std::string& text) {
    put(std::uint64_t{text.size()});
    all += text;
    return *this;
  }
  // A tensor of the list: axes innermost first.
  RawGguf& tensor(const std::string& name, const std::vector<std::uint64_t>& axes, std::uint32_t type = kGgufF32,
                  std::uint64_t offset = 0) {
    text(name).put(static_cast<std::uint32_t>(axes.size()));
    for (const std::uint64_t n : axes) put(n);
    return put(type).put(offset);
  }
  RawGguf& pad(std::size_t alignment = 32) {
    all.resize(detail::padded(all.size(), alignment));
    return *this;
  }
  RawGguf& zeros(std::size_t count) {
    all.append(count, '\0');
    return *this;
  }
};

// The header of a file of version 3.
RawGguf gguf_header(std::uint64_t tensors, std::uint64_t values, std::uint32_t version = 3) {
  RawGguf b{"GGUF"};
  return b.put(version).put(tensors).put(values);
}

// A file whose only value has the key k and this type; its bytes follow.
RawGguf gguf_value(std::uint32_t type) { return gguf_header(0, 1).text("k").put(type); }

detail::GgufContents parse_raw(std::string_view bytes) {
  return detail::parse_gguf(std::as_bytes(std::span<const char>(bytes)), "GGUF file: x.gguf");
}

void check_gguf_refused(const std::vector<std::pair<RawGguf, std::string>>& cases) {
  for (const auto& one : cases) {
    const std::string error = error_of([&] { parse_raw(one.first.all); });
    CHECK_MESSAGE(contains(error, "GGUF file: x.gguf" + one.second), "wanted: ", one.second, "\ngot: ", error);
  }
}

std::string gguf_bytes(const std::string& name) {
  return test::bytes_of(test::in_source("tests/reference/gguf_" + name + ".gguf"));
}

}  // namespace

TEST_CASE("GGUF: files of another format, byte order or version are refused") {
  check_gguf_refused({
      {{""}, " is not a GGUF file: it begins with '', not with 'GGUF'"},
      {{"GGU"}, " is not a GGUF file: it begins with 'GGU'"},
      {{"PK\x03\x04 and more"}, " is not a GGUF file: it begins with 'PK\\x03\\x04'"},
      {{"FUGG"}, " is big-endian; it must be little-endian"},
      {{gguf_bytes("big_endian")}, " is big-endian; it must be little-endian"},
      {gguf_header(0, 0, 0), " has version 0; it must be 2 or 3"},
      {gguf_header(0, 0, 1), " has version 1; it must be 2 or 3"},
      {gguf_header(0, 0, 4), " has version 4; it must be 2 or 3"},
      {gguf_header(0, 0, 0x03000000), " is big-endian; it must be little-endian"},
      {{"GGUF\x03"}, " ends within the header; it is truncated or damaged"},
  });
  for (const std::uint32_t version : {2U, 3U}) CHECK(parse_raw(gguf_header(0, 0, version).all).metadata.empty());
  std::string old = gguf_bytes("plain");
  old[4] = 2;
  CHECK(parse_raw(old).metadata == parse_raw(gguf_bytes("plain")).metadata);
}

TEST_CASE("GGUF: damaged metadata are refused") {
  const auto alignment = [](std::uint32_t n) {
    return gguf_header(0, 1).text("general.alignment").put(kGgufUint32).put(n);
  };
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return gguf_value(kGgufArray).put(type).put(count);
  };
  check_gguf_refused({
      {gguf_header(0, 1), " ends within the metadata; it is truncated or damaged"},
      {gguf_header(0, kGgufHuge), " ends within the metadata"},
      {gguf_header(0, 1).put(kGgufHuge), " ends within the metadata"},
      {gguf_header(0, 1).text(""), ": a key of the metadata is '', of 0 bytes; it must have from 1 to 65535 bytes"},
      {gguf_header(0, 1).text(std::string(65536, 'k')), ": a key of the metadata is 'kkk"},
      {gguf_header(0, 1).text(std::string("a\0b", 3)), ": a key of the metadata is 'a\\x00b', of 3 bytes"},
      {gguf_header(0, 2).text("k").put(kGgufUint32).put(5).text("k").put(kGgufUint32).put(5), " has the key 'k' twice"},
      {gguf_value(13), ": the value of 'k' is of the unknown type 13"},
      {gguf_value(0xffffffff), ": the value of 'k' is of the unknown type 4294967295"},
      {gguf_value(kGgufBool).put('\2'), ": the value of 'k' has a bool that is 2; it must be 0 or 1"},
      {gguf_value(kGgufUint32).put('\0'), " ends within the value of 'k'; it is truncated or damaged"},
      {gguf_value(kGgufString).put(kGgufHuge), " ends within the value of 'k'"},
      {gguf_value(kGgufString).put(std::uint64_t{4}).put('a'), " ends within the value of 'k'"},
      {array(13, 0), ": the value of 'k' is an array of the unknown type 13"},
      {array(kGgufUint32, kGgufHuge), " ends within the value of 'k'"},
      // The following counts give sizes of a few bytes if the sizes wrap around.
      {array(kGgufUint32, kGgufHuge / 4 + 2).zeros(8), " ends within the value of 'k'"},
      {array(kGgufString, kGgufHuge / 8 + 2).zeros(16), " ends within the value of 'k'"},
      {array(kGgufArray, kGgufHuge / 12 + 2).zeros(24), " ends within the value of 'k'"},
      {array(kGgufUint8, 5).zeros(4), " ends within the value of 'k'"},
      {array(kGgufBool, kGgufHuge), " ends within the value of 'k'"},
      {array(kGgufBool, 2).put('\1').put('\7'), ": the value of 'k' has a bool that is 7"},
      {array(kGgufString, 2).text("ab"), " ends within the value of 'k'"},
      {gguf_header(0, 1).text("general.alignment").put(kGgufUint8).put('\10'),
       ": 'general.alignment' is of type uint8"},
      {alignment(0), ": 'general.alignment' is 0; it must be a power of two from 8 to 1048576"},
      {alignment(4), ": 'general.alignment' is 4; it must be a power of two"},
      {alignment(24), ": 'general.alignment' is 24; it must be a power of two"},
      {alignment(1 << 21), ": 'general.alignment' is 2097152; it must be a power of two"},
  });
  CHECK(parse_raw(alignment(8).all).metadata.size() == 1);
  // Names from the file are cut, and their control characters escaped.
  const std::string error =
      error_of([&] { parse_raw(gguf_header(0, 1).text("\x1B[2J" + std::string(500, 'k')).put(13).all); });
  CHECK(contains(error, "the value of '\\x1B[2Jkkk"));
  CHECK(error.size() < 200);
}

TEST_CASE("GGUF: arrays of arrays have at most 4 levels") {
  const auto levels = [](int n) {
    RawGguf b = gguf_value(kGgufArray);
    for (int level = 1; level < n; ++level) b.put(kGgufArray).put(std::uint64_t{1});
    return b.put(kGgufUint8).put(std::uint64_t{1}).put('\5');
  };
  GgufArray array = std::vector<std::uint8_t>{5};
  for (int level = 1; level <= 4; ++level) {
    CHECK(parse_raw(levels(level).all).metadata.at("k") == GgufValue(array));
    array = std::vector<GgufArray>{array};
  }
  check_gguf_refused({{levels(5), ": the value of 'k' has more than 4 levels of arrays in arrays"},
                      {levels(100000), ": the value of 'k' has more than 4 levels of arrays in arrays"}});
}

TEST_CASE("GGUF: damaged lists of tensors are refused") {
  const Index axis = Index{1} << 40;
  const auto large = static_cast<std::uint64_t>(axis);
  const auto one = [](const std::vector<std::uint64_t>& axes, std::uint32_t type = kGgufF32, std::uint64_t offset = 0) {
    return gguf_header(1, 0).tensor("w", axes, type, offset).pad().zeros(64);
  };
  check_gguf_refused({
      {gguf_header(1, 0), " ends within the list of tensors; it is truncated or damaged"},
      {gguf_header(kGgufHuge, 0), " ends within the list of tensors"},
      {gguf_header(1, 0).put(kGgufHuge), " ends within the list of tensors"},
      {gguf_header(1, 0).text("w").put(std::uint32_t{2}).put(std::uint64_t{1}).zeros(7), " ends within tensor 'w'"},
      {gguf_header(1, 0).tensor("", {1}), ": the name of a tensor is '', of 0 bytes; it must have from 1 to 63 bytes"},
      {gguf_header(1, 0).tensor(std::string(64, 'w'), {1}), ": the name of a tensor is 'www"},
      {gguf_header(1, 0).tensor(std::string("a\0b", 3), {1}), ": the name of a tensor is 'a\\x00b', of 3 bytes"},
      {one({1, 1, 1, 1, 1}), ": tensor 'w' has 5 axes; it must have at most 4"},
      {gguf_header(1, 0).text("w").put(0xffffffffU), ": tensor 'w' has 4294967295 axes; it must have at most 4"},
      {one({2, 0}), ": tensor 'w' has an axis of size 0; it must be at least 1 and less than 2^63"},
      {one({kGgufHuge}), ": tensor 'w' has an axis of size 18446744073709551615; it must be at least 1"},
      {one({std::uint64_t{1} << 63}), ": tensor 'w' has an axis of size 9223372036854775808"},
      {one({256}, 13), ": tensor 'w' is of type Q5_K; it must be F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K"},
      {one({32}, 20), ": tensor 'w' is of type IQ4_NL; it must be F32"},
      {one({32}, 4), ": tensor 'w' is of the unknown type 4"},
      {one({32}, 0xffffffff), ": tensor 'w' is of the unknown type 4294967295"},
      {one({33}, kGgufQ8_0), ": tensor 'w' has rows of 33 numbers; Q8_0 has blocks of 32"},
      {one({16, 2}, kGgufQ8_0), ": tensor 'w' has rows of 16 numbers; Q8_0 has blocks of 32"},
      {one({large, large}),
       ": tensor 'w' of shape " + to_string(Shape{axis, axis}) + " and type F32 is larger than any"},
      {one({large, large, large, large}), ": tensor 'w' of shape " + to_string(Shape{axis, axis, axis, axis})},
      {one({std::uint64_t{1} << 62}), ": tensor 'w' of shape [4611686018427387904]"},  // 0 bytes if sizes wrap around
      {one({large}), " ends within the bytes of tensor 'w'; it is truncated or damaged"},
      {one({1}, kGgufF32, 32), ": tensor 'w' begins at byte 32 after the header; it must begin at 0"},
      {one({1}, kGgufF32, kGgufHuge), ": tensor 'w' begins at byte 18446744073709551615 after the header"},
      {gguf_header(2, 0).tensor("v", {1}).tensor("w", {1}, kGgufF32, 4).pad().zeros(64),
       ": tensor 'w' begins at byte 4 after the header; it must begin at 32, the aligned end of the tensor before it"},
      {gguf_header(2, 0).tensor("v", {9}).tensor("w", {1}, kGgufF32, 32).pad().zeros(96),
       ": tensor 'w' begins at byte 32 after the header; it must begin at 64"},
      {gguf_header(2, 0).tensor("w", {1}).tensor("w", {1}, kGgufF32, 32).pad().zeros(64),
       " has two tensors with the name 'w'"},
  });
}

TEST_CASE("GGUF: a file ends with its last tensor, or with the padding after it") {
  const RawGguf start = gguf_header(1, 0).tensor("w", {3, 5}).pad();  // 60 bytes, padded to 64
  const auto file = [&](std::size_t bytes) { return RawGguf(start).zeros(bytes); };
  check_gguf_refused({{file(0), " ends within the bytes of tensor 'w'"},
                      {file(59), " ends within the bytes of tensor 'w'"},
                      {file(65), " has 161 bytes; its header describes 156, or 160 with padding"}});
  for (std::size_t bytes = 60; bytes <= 64; ++bytes) {
    const std::string all = file(bytes).all;
    const detail::GgufContents contents = parse_raw(all);
    const StoredTensor& w = contents.tensors.at("w");
    CHECK(w.shape == Shape{5, 3});
    CHECK(w.bytes.size() == 60);
    CHECK(reinterpret_cast<const char*>(w.bytes.data()) == all.data() + start.all.size());
  }
  check_gguf_refused({{gguf_header(0, 0).zeros(9), " has 33 bytes; its header describes 24, or 32 with padding"}});
}

TEST_CASE("GGUF: a file that is truncated at any byte is refused") {
  for (const char* name : {"plain", "quantized", "aligned"}) {
    const std::string whole = gguf_bytes(name);
    const auto tensors = parse_raw(whole).tensors;
    std::size_t end = 0;  // of the last tensor; padding follows
    for (const auto& [key, t] : tensors)
      end = std::max(
          end, static_cast<std::size_t>(reinterpret_cast<const char*>(t.bytes.data()) - whole.data()) + t.bytes.size());
    CHECK(end < whole.size());
    for (std::size_t n = 0; n <= whole.size(); ++n) {
      const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
      const std::string error = error_of([&] { parse_raw({part.data(), n}); });
      CHECK(error.empty() == (n >= end));
    }
  }
}

TEST_CASE("GGUF: damage of any byte gives a file or an Error") {
  for (const char* name : {"plain", "quantized", "aligned"}) {
    const std::string whole = gguf_bytes(name);
    std::size_t refused = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (!test::is_taken(static_cast<long>(i), 3)) continue;
      for (const int change : {1, 0x80, 0xff}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ change);
        const std::string error = error_of([&] {
          for (const auto& [key, t] : parse_raw(damaged).tensors)
            CHECK(stored_bytes(t.type, t.shape) == t.bytes.size());
        });
        if (!error.empty()) ++refused;
      }
    }
    CHECK(refused > 100);
  }
}
