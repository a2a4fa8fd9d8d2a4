// .npz files: those of NumPy and of Python's zipfile, and errors for damaged and hostile files.
#include <bit>
#include <cstdint>
#include <heed/data/npy.hpp>
#include <heed/io/npz.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;

namespace npz_test {  // several sources of tests are compiled as one
namespace {

using test::contains;
using test::error_of;

TensorsByName parsed(const std::string& bytes, std::optional<std::size_t> max_bytes = {}) {
  return parse_npz(std::as_bytes(std::span(bytes)), "x.npz", max_bytes);
}
std::string refusal(const std::string& bytes, std::optional<std::size_t> max_bytes = {}) {
  return error_of([&] { parsed(bytes, max_bytes); });
}
void check_refused(const std::string& bytes, const std::string& text) {
  const std::string error = refusal(bytes);
  CHECK_MESSAGE((error.starts_with("parse_npz: x.npz") && contains(error, text)), "wanted: ", text, "\ngot: ", error);
}

// Whether names, shapes, dtypes and values are the same.
bool same(const TensorsByName& a, const TensorsByName& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.first == y.first && test::same_bits(x.second, y.second); });
}

// tests/reference/npz_files.json, written by npz_files.py.
const nlohmann::json& reference() {
  static const nlohmann::json all = test::json_file(test::in_source("tests/reference/npz_files.json"));
  return all;
}

std::string reference_file(const char* kind, const std::string& name) {
  const std::string hex = reference().at(kind).at(name);
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TensorsByName reference_arrays() {
  TensorsByName all;
  for (const auto& [name, x] : reference().at("arrays").items()) {
    const auto shape = x.at("shape").get<std::vector<Index>>();
    const Tensor values = Tensor::from(x.at("values").get<std::vector<double>>(), Shape(shape.begin(), shape.end()));
    for (DType dtype : {DType::float32, DType::float64, DType::int32, DType::bool8})
      if (x.at("dtype") == name_of(dtype)) all[name] = values.to(dtype);
  }
  return all;
}

// ---- Archives made here, by the tables of PKWARE's APPNOTE ----

std::string little_endian(std::uint64_t n, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(n >> (8 * i) & 255);
  return bytes;
}

std::uint32_t crc_of(const std::string& bytes) {
  std::uint32_t crc = ~0U;
  for (char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
  }
  return ~crc;
}

struct Member {
  std::string name, packed;
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  unsigned method = 0, flags = 0;
};

Member stored(const std::string& name, const std::string& bytes) { return {name, bytes, bytes.size(), crc_of(bytes)}; }

// Deflated without compression: blocks of at most 65535 bytes, each with a byte that marks the last, and its length.
Member deflated(const std::string& name, const std::string& bytes) {
  std::string packed;
  for (std::size_t at = 0; at < bytes.size(); at += 65535) {
    const std::size_t n = std::min<std::size_t>(65535, bytes.size() - at);
    packed += (at + n == bytes.size() ? '\1' : '\0') + little_endian(n, 2) + little_endian(~n, 2) + bytes.substr(at, n);
  }
  return {name, packed, bytes.size(), crc_of(bytes), 8};
}

// The fields that a header and an entry of the directory share.
std::string fields(const Member& m) {
  return little_endian(20, 2) + little_endian(m.flags, 2) + little_endian(m.method, 2) + little_endian(0, 4) +
         little_endian(m.crc, 4) + little_endian(m.packed.size(), 4) + little_endian(m.size, 4) +
         little_endian(m.name.size(), 2) + little_endian(0, 2);
}

std::string archive(const std::vector<Member>& members) {
  std::string file, directory;
  for (const Member& m : members) {
    directory +=
        "PK\1\2" + little_endian(20, 2) + fields(m) + std::string(10, '\0') + little_endian(file.size(), 4) + m.name;
    file += "PK\3\4" + fields(m) + m.name + m.packed;
  }
  return file + directory + "PK\5\6" + little_endian(0, 4) + little_endian(members.size(), 2) +
         little_endian(members.size(), 2) + little_endian(directory.size(), 4) + little_endian(file.size(), 4) +
         little_endian(0, 2);
}

// A .npy file of float32 values.
std::string npy(const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(values.size()) + ",), }";
  header += std::string(117 - header.size(), ' ') + "\n";
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + little_endian(header.size(), 2) + header;
  for (float v : values) bytes += little_endian(std::bit_cast<std::uint32_t>(v), 4);
  return bytes;
}

const std::string kX = npy({1, 2, 3, 4});  // 144 bytes
const Tensor kValues = Tensor::from({1, 2, 3, 4});

std::string patched(std::string bytes, std::size_t at, const std::string& by) {
  return bytes.replace(at, by.size(), by);
}

}  // namespace

TEST_CASE("npz: the files of NumPy and of Python's zipfile") {
  const TensorsByName arrays = reference_arrays();
  REQUIRE(arrays.size() == 16);
  const test::TemporaryFolder folder;
  for (auto name : {"savez", "savez_compressed", "piped", "zip64", "comment"}) {
    INFO(name);
    const std::string bytes = reference_file("files", name);
    CHECK(same(parsed(bytes), arrays));
    CHECK(same(load_npz(folder.write("x.npz", bytes)), arrays));
  }
  CHECK(parsed(reference_file("files", "empty")).empty());
  CHECK_FALSE(same(parsed(reference_file("files", "savez")), {}));
}

TEST_CASE("npz: files that cannot be read") {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path / "x.npz").string();
  CHECK(error_of([&] { load_npz(path); }) == "load_npz: there is no file " + path);
  CHECK(contains(error_of([&] { load_npz(folder.path); }), " is a folder; it must be a file"));
  folder.write("x.npz", "text");
  CHECK(error_of([&] { load_npz(path); }) ==
        "load_npz: " + path + " is not a .npz file, or is truncated: it has no end record of a ZIP archive");
}

TEST_CASE("npz: arrays of other types, other files and other compressions are refused by name") {
  const std::pair<const char*, const char*> all[] = {
      {"bzip2", ": member 'x.npy' is compressed by bzip2; it must be stored or deflated"},
      {"lzma", ": member 'x.npy' is compressed by LZMA; it must be stored or deflated"},
      {"fortran", ": member 'x.npy' is in Fortran order; it must be in C order"},
      {"object", ": member 'x.npy' has dtype '|O'; it must be little-endian float16"},
      {"text", ": member 'x.npy' has dtype '<U1'; it must be"},
      {"complex", ": member 'x.npy' has dtype '<c16'; it must be"},
      {"big_endian", ": member 'x.npy' has dtype '>f4'; it must be"},
      {"record", ": member 'x.npy' has dtype [('a'; it must be"},
      {"large_integer", ": member 'x.npy': the value 2147483648 does not fit int32"},
      {"pickled",
       ": member 'archive/data.pkl' is not a .npy file; a .npz file has no others (save a model of PyTorch "
       "as safetensors)"},
  };
  for (const auto& [name, text] : all) check_refused(reference_file("refused", name), text);
  CHECK(reference().at("refused").size() == std::size(all));
  Member m = stored("x.npy", kX);
  m.method = 77;
  check_refused(archive({m}), ": member 'x.npy' is compressed by method 77; it must be stored or deflated");
  m.method = 0;
  for (unsigned flag : {1U, 1U << 6, 1U << 13}) {
    m.flags = flag;
    check_refused(archive({m}), ": member 'x.npy' is encrypted; it must be stored or deflated");
  }
}

TEST_CASE("npz: sizes are checked before arrays are inflated") {
  const std::string zeros = reference_file("files", "zeros");  // 5 MiB in 5 KB
  check_refused(zeros,
                ": member 'zeros.npy' of 5243008 bytes makes the arrays larger than 4194304 bytes; if the file is "
                "trusted, set max_bytes");
  CHECK(same(parsed(zeros, 5243008), {{"zeros", Tensor::zeros({5 << 20}, DType::bool8)}}));
  CHECK(contains(refusal(zeros, 5243007), "larger than 5243007 bytes"));
  const std::string two = archive({stored("x.npy", kX), deflated("y.npy", kX)});
  CHECK(same(parsed(two, 288), {{"x", kValues}, {"y", kValues}}));
  CHECK(contains(refusal(two, 287), ": member 'y.npy' of 144 bytes makes the arrays larger than 287 bytes"));
  CHECK(contains(refusal(two, 0), ": member 'x.npy' of 144 bytes makes"));

  Member m = deflated("x.npy", kX);
  REQUIRE(m.packed.size() == 149);
  m.size = 1032 * 150;
  check_refused(archive({m}), ": member 'x.npy' has 149 bytes in the file, which cannot give its size of 154800 bytes");
  m.size = 0xfffffffe;
  CHECK(contains(refusal(archive({m}), SIZE_MAX), "which cannot give its size of 4294967294 bytes"));
  m = stored("x.npy", kX);
  m.size = 143;
  check_refused(archive({m}), ": member 'x.npy' has 144 bytes in the file, which cannot give its size of 143 bytes");
}

TEST_CASE("npz: a large array is inflated in parts") {
  std::vector<float> values(100000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7;
  const std::string bytes = npy(values);
  const TensorsByName expected = {{"x", Tensor::from(values)}};
  CHECK(same(parsed(archive({deflated("x.npy", bytes)})), expected));
  CHECK(same(parsed(archive({stored("x.npy", bytes)})), expected));
}

TEST_CASE("npz: damaged arrays") {
  const auto altered = [](auto&& change) {
    Member m = deflated("x.npy", kX);
    change(m);
    return archive({m});
  };
  const std::string what = ": member 'x.npy' is damaged: ";
  CHECK(same(parsed(altered([](Member&) {})), {{"x", kValues}}));
  check_refused(altered([](Member& m) { m.crc ^= 1; }), what + "its CRC differs from the one in the directory");
  check_refused(altered([](Member& m) { m.packed.back() ^= 1; }), what + "its CRC differs");
  check_refused(archive({{"x.npy", kX, kX.size(), crc_of(kX) ^ 0x80000000}}), what + "its CRC differs");
  check_refused(altered([](Member& m) { m.packed += '\0'; }), what + "it has more bytes than the directory says");
  check_refused(altered([](Member& m) { m.packed = deflated("", kX + '\0').packed; }), what + "it has more bytes");
  check_refused(altered([](Member& m) { m.packed = deflated("", kX.substr(0, 140)).packed; }),
                what + "it has fewer bytes than the directory says");
  check_refused(altered([](Member& m) { m.packed.pop_back(); }), what + "its bytes end too early");
  check_refused(altered([](Member& m) { m.packed = "", m.size = 0; }), ": member 'x.npy' is not a .npy file");
  check_refused(altered([](Member& m) { m.packed = "", m.size = 10; }), what + "its bytes end too early");
  check_refused(altered([](Member& m) { m.packed[0] = 7; }), what + "invalid block type");
  check_refused(altered([](Member& m) { m.packed[3] ^= 1; }), what + "invalid stored block lengths");
  // The last block is not marked as the last: its values are complete, but the end is missing.
  check_refused(altered([](Member& m) { m.packed[0] = 0; }), what + "its bytes end too early");
  check_refused(altered([](Member& m) { m = deflated("x.npy", "not an array"); }),
                ": member 'x.npy' is not a .npy file");
  check_refused(archive({stored("x.npy", kX.substr(0, 20))}), ": member 'x.npy' ends within its header");
  check_refused(archive({stored("x.npy", kX + "1234")}), ": member 'x.npy' has 148 bytes; its header says 144");
}

TEST_CASE("npz: names") {
  const auto named = [](const std::string& name, unsigned flags = 0) {
    Member m = stored(name, kX);
    m.flags = flags;
    return archive({m});
  };
  CHECK(same(parsed(named(".npy")), {{"", kValues}}));
  CHECK(same(parsed(named("../a/b.npy.npy")), {{"../a/b.npy", kValues}}));
  CHECK(same(parsed(named("\xC3\xA9.npy", 1 << 11)), {{"\xC3\xA9", kValues}}));
  check_refused(named("\xC3\xA9.npy"), ": member '\xC3\xA9.npy' has a name that is not UTF-8");  // code page 437
  check_refused(named("\xE9.npy", 1 << 11), ": member '\\xE9.npy' has a name that is not UTF-8");
  check_refused(named("\x1B[2J\n"), ": member '\\x1B[2J\\n' is not a .npy file");
  check_refused(named(std::string(60000, 'a')), ": member '" + std::string(80, 'a') + "...' is not a .npy file");
  check_refused(named("x.NPY"), ": member 'x.NPY' is not a .npy file");
  check_refused(named(""), ": member '' is not a .npy file");
  check_refused(archive({stored("x.npy", kX), stored("y.npy", kX), deflated("x.npy", kX)}),
                ": member 'x.npy' appears twice");
}

// The offsets of records in kTwo.
static const std::string kTwo = archive({stored("x.npy", kX), deflated("y.npy", kX)});
constexpr std::size_t kHeaderY = 30 + 5 + 144, kEntryX = kHeaderY + 30 + 5 + 149, kEntryY = kEntryX + 46 + 5,
                      kEnd = kEntryY + 46 + 5;

static void check_patch(std::size_t at, std::uint64_t number, int width, const std::string& text) {
  INFO(at);
  check_refused(patched(kTwo, at, little_endian(number, width)), text);
}

TEST_CASE("npz: directories that are wrong") {
  REQUIRE(kTwo.size() == kEnd + 22);
  REQUIRE(same(parsed(kTwo), {{"x", kValues}, {"y", kValues}}));
  const std::string bytes = std::to_string(kEntryX), end = std::to_string(kEnd);
  check_patch(kEnd + 12, 103, 4,
              " is damaged: its directory has 103 bytes from offset " + bytes +
                  "; it must end at the end record, at offset " + end);
  check_patch(kEnd + 12, 0xffffffff, 4, " is damaged: its directory has 4294967295 bytes from offset " + bytes);
  check_patch(kEnd + 16, 0xffffffff, 4, " is damaged: its directory has 102 bytes from offset 4294967295");
  check_patch(kEnd + 10, 1, 2, " is damaged: its directory says 1 members, but has 51 more bytes");
  check_patch(kEnd + 10, 3, 2, " is damaged: its directory says 3 members, but has 2 complete entries");
  check_patch(kEnd + 10, 0xffff, 2, " is damaged: its directory says 65535 members, but has 2 complete entries");
  check_patch(kEntryY, 0, 4, " is damaged: its directory says 2 members, but has 1 complete entries");
  for (std::size_t field : {28, 30, 32})  // lengths of the name, of extra fields and of a comment
    check_patch(kEntryY + field, 0xffff, 2, " is damaged: its directory says 2 members, but has 1 complete entries");
  check_patch(kEntryY + 28, 1, 2, " is damaged: its directory says 2 members, but has 4 more bytes");
  check_refused(kTwo + '\0', " is not a .npz file, or is truncated");
  // A comment that looks like an end record is no end record, because its comment would have another length.
  const std::string comment = "PK\5\6" + std::string(30, '\0');
  CHECK(same(parsed(patched(kTwo, kEnd + 20, little_endian(comment.size(), 2)) + comment), parsed(kTwo)));
}

TEST_CASE("npz: members whose header and entry differ, or that are outside of their place") {
  const std::string differs = ": member 'y.npy' has a header that differs from its entry in the directory";
  check_patch(kHeaderY + 8, 0, 2, differs);                   // method
  check_patch(kHeaderY + 14, 0, 4, differs);                  // CRC
  check_patch(kHeaderY + 18, 148, 4, differs);                // size in the file
  check_patch(kHeaderY + 22, 145, 4, differs);                // size
  check_refused(patched(kTwo, kHeaderY + 30, "z"), differs);  // name
  check_patch(kHeaderY + 26, 6, 2, ": member 'y.npy' has 149 bytes from offset 179; it must end before the directory");
  check_patch(kHeaderY + 26, 0xffff, 2, ": member 'y.npy' has 149 bytes from offset 179; it must end before");
  check_patch(kHeaderY + 28, 0xffff, 2, ": member 'y.npy' has 149 bytes from offset 179; it must end before");
  check_patch(kHeaderY, 0, 4, ": member 'y.npy' has no header at offset 179");
  check_patch(kEntryY + 20, 150, 4, ": member 'y.npy' has 150 bytes from offset 179; it must end before the directory");
  check_patch(kEntryY + 20, 0xfffffffe, 4, ": member 'y.npy' has 4294967294 bytes from offset 179");
  check_patch(kEntryY + 42, kEntryX - 29, 4, ": member 'y.npy' has no header at offset ");
  check_patch(kEntryY + 42, 0xfffffffe, 4, ": member 'y.npy' has no header at offset 4294967294");
  check_patch(kEntryY + 42, 5, 4,
              ": member 'y.npy' begins at offset 5; it must not overlap the member that ends at 179");
  check_patch(kEntryX + 42, 180, 4,
              ": member 'x.npy' begins at offset 180; it must not overlap the member that ends at");

  // The sizes may follow the bytes: then those in the header are without meaning.
  std::string late = patched(kTwo, kHeaderY + 6, little_endian(8, 2));
  late = patched(late, kHeaderY + 14, std::string(12, '\0'));
  CHECK(same(parsed(late), parsed(kTwo)));
}

TEST_CASE("npz: ZIP64 fields that are wrong") {
  const std::string file = reference_file("files", "zip64");
  const std::size_t end = file.size() - 22, locator = end - 20, end64 = locator - 56;
  REQUIRE(file.substr(locator, 4) == "PK\6\7");
  REQUIRE(file.substr(end64, 4) == "PK\6\6");
  const auto refused = [&](std::size_t at, std::uint64_t n, int width, const std::string& text) {
    check_refused(patched(file, at, little_endian(n, width)), text);
  };
  const std::string wrong_end = " is damaged: its ZIP64 end record is at offset ";
  refused(locator + 8, locator - 55, 8, wrong_end + std::to_string(locator - 55) + "; it must end at its locator");
  refused(locator + 8, ~std::uint64_t{0}, 8,
          wrong_end + "18446744073709551615; it must end at its locator, at offset ");
  refused(locator + 8, 0, 8, " is damaged: its ZIP64 end record at offset 0 has a wrong signature or length");
  refused(end64 + 4, 45, 8, " has a wrong signature or length");
  refused(end64 + 32, 1000001, 8, " has a directory of 1000001 members in ");
  refused(end64 + 40, ~std::uint64_t{0}, 8, " is damaged: its directory has 18446744073709551615 bytes from offset ");
  refused(end64 + 48, ~std::uint64_t{0}, 8, " bytes from offset 18446744073709551615; it must end at the end record");

  const std::size_t entry = file.find("PK\1\2"), second = file.find("PK\1\2", entry + 4);
  const std::string name = "float32.npy";
  REQUIRE(file.substr(entry + 46, name.size()) == name);
  const std::size_t extra = entry + 46 + name.size();  // number and length of the field, size, size in the file
  const std::string what = ": member 'float32.npy' ";
  refused(extra + 2, 15, 2, what + "has an incomplete extra field in the directory");
  refused(extra + 2, 8, 2, what + "has an incomplete extra field in the directory");
  refused(extra + 2, 0xffff, 2, what + "has an incomplete extra field in the directory");
  refused(extra, 2, 2, what + "of 4294967295 bytes makes");  // without the field, the numbers count as they are
  refused(extra + 4, ~std::uint64_t{0}, 8,
          what + "has 92 bytes in the file, which cannot give its size of 18446744073709");
  refused(extra + 12, ~std::uint64_t{0}, 8, what + "has 18446744073709551615 bytes from offset 0; it must end before");
  refused(30 + name.size() + 2, 17, 2, what + "has an incomplete extra field in its header");
  refused(30 + name.size() + 4, 1, 8, what + "has a header that differs from its entry in the directory");
  const std::size_t offset = second + 46 + std::string("float64.npy").size() + 4 + 16;  // of the header
  refused(offset, ~std::uint64_t{0}, 8, ": member 'float64.npy' has no header at offset 18446744073709551615");
}

TEST_CASE("npz: files that end anywhere are refused") {
  for (const char* name : {"savez_compressed", "zip64", "empty"}) {
    const std::string file = reference_file("files", name);
    for (std::size_t n = 0; n < file.size(); ++n) {
      if (!test::is_taken(static_cast<long>(n), 7)) continue;
      INFO(name, " of ", n, " bytes");
      CHECK(contains(refusal(file.substr(0, n)), " is not a .npz file, or is truncated: it has no end record"));
    }
  }
}

TEST_CASE("npz: a changed byte is refused or without effect") {
  for (const std::string& file : {kTwo, reference_file("files", "zip64")}) {
    const TensorsByName expected = parsed(file);
    int refused = 0, harmless = 0;
    for (std::size_t at = 0; at < file.size(); ++at) {
      for (int change : {1, 0x80, 0xff}) {
        if (!test::is_taken(static_cast<long>(at), 5)) continue;
        std::string damaged = file;
        damaged[at] = static_cast<char>(damaged[at] ^ change);
        TensorsByName read;
        const std::string error = error_of([&] { read = parsed(damaged); });
        INFO("byte ", at, ", change ", change, ": ", error);
        CHECK((!error.empty() || same(read, expected)));
        ++(error.empty() ? harmless : refused);
      }
    }
    CHECK(refused > 4 * harmless);  // times, versions, attributes
  }
}

RELEASE_TEST_CASE("npz: files are read alike in every locale") {
  test::check_in_every_locale([] {
    const TensorsByName all = parsed(reference_file("files", "savez_compressed"));
    return to_string(all.at("cube").shape()) + refusal(reference_file("files", "zeros"));
  });
}

}  // namespace npz_test
