// Text: UTF-8, folders and pieces of text files, cutting, display on terminals, and errors.
#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <thread>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::TemporaryFolder;
using test::Unprivileged;

TEST_CASE("every code point survives encoding and decoding, and no other number is one") {
  std::vector<char32_t> all;
  for (char32_t c = 0; c <= 0x10FFFF; ++c)
    if (c < 0xD800 || c > 0xDFFF) all.push_back(c);
  const std::string text = encode_utf8(all);
  CHECK(text.size() == 128 + 1920 * 2 + (0x10000 - 0x800 - 0x800) * 3 + 0x100000 * 4);
  CHECK(decode_utf8(text) == all);
  CHECK_FALSE(find_invalid_utf8(text));
  CHECK_THROWS_WITH_AS(encode_utf8({0xD800}), "encode_utf8: 55296 is not a code point", Error);
  CHECK_THROWS_WITH_AS(encode_utf8({0x110000}), "encode_utf8: 1114112 is not a code point", Error);
}

TEST_CASE("invalid UTF-8 is found at its first byte") {
  const auto bad = [](std::string s) { return find_invalid_utf8(s); };
  CHECK(bad("ab\xFFz") == 2);
  CHECK(bad("\x80") == 0);
  CHECK(bad("\xC1\xBF") == 0);          // overlong
  CHECK(bad("\xC0\xAF") == 0);          // overlong
  CHECK(bad("\xE0\x9F\xBF") == 0);      // overlong
  CHECK(bad("\xF0\x8F\xBF\xBF") == 0);  // overlong
  CHECK(bad("\xED\xA0\x80") == 0);      // surrogate
  CHECK(bad("\xF4\x90\x80\x80") == 0);  // above U+10FFFF
  CHECK(bad("\xF5\x80\x80\x80") == 0);
  CHECK(bad("x\xE2\x82") == 1);  // incomplete
  CHECK(bad("\xE2\x82z") == 0);
  CHECK_FALSE(bad(""));
  CHECK_FALSE(bad(std::string("\0", 1)));
  CHECK_THROWS_WITH_AS(decode_utf8("ab\xFF"), "decode_utf8: the byte at offset 2 is not valid UTF-8", Error);
}

TEST_CASE("incomplete characters at the end are distinguished from invalid ones") {
  const std::string euro = "\xE2\x82\xAC", smile = "\xF0\x9F\x98\x80";
  CHECK(unfinished_utf8("") == 0);
  CHECK(unfinished_utf8("abc") == 0);
  CHECK(unfinished_utf8("a" + euro) == 0);
  CHECK(unfinished_utf8("a" + euro.substr(0, 2)) == 2);
  for (std::size_t n = 1; n < 4; ++n) CHECK(unfinished_utf8(smile.substr(0, n)) == n);
  CHECK(unfinished_utf8("\x80") == 0);
  CHECK(unfinished_utf8("\xC0") == 0);
  CHECK(unfinished_utf8("\xE2\x82\xAC\x80") == 0);
  CHECK(repair_utf8("a\xFF" + euro + "\xE2\x82z") == "a\xEF\xBF\xBD" + euro + "\xEF\xBF\xBDz");
  CHECK(show_character(U'\n') == "U+000A");
  CHECK(show_character(U'é') == "'é' (U+00E9)");
  CHECK(show_byte('\xE9') == "0xE9");
}

TEST_CASE("folders give their files in sorted order, without hidden ones") {
  TemporaryFolder f;
  f.write("b.txt", "two\n");
  f.write("a/z.txt", "one");
  f.write("a/.hidden", "no");
  f.write(".git/config", "no");
  f.write("c.md", "three");
  CHECK(read_text(f.path) == "one\ntwo\nthree");
  CHECK(read_text({f.path / "c.md", f.path / "b.txt"}) == "three\ntwo\n");
  CHECK(text_files({f.path}).size() == 3);
}

TEST_CASE("lines of a text exclude line ends, and the last line needs none") {
  using Lines = std::vector<std::string_view>;
  CHECK(split_lines("a b\r\n\n\rc\r\nd") == Lines{"a b", "", "\rc", "d"});
  CHECK(split_lines("a\n") == Lines{"a"});
  CHECK(split_lines("\n") == Lines{""});
  CHECK(split_lines("").empty());
  Lines lines = split_lines("a\n\nb\n\n\n");
  drop_blank_end(lines);
  CHECK(lines == Lines{"a", "", "b"});
}

TEST_CASE("text in pieces is the same text") {
  TemporaryFolder f;
  std::string text;
  for (int i = 0; i < 400; ++i) text += ((i + 1) % 7 ? "zwölf Boxkämpfer € 😀 " : "\n");
  const auto a = f.write("a.txt", text), b = f.write("b.txt", text);
  for (std::size_t size : {1, 9, 64, 1000, 1 << 20}) {
    std::string joined;
    std::size_t broken = 0;
    read_text_pieces(
        {a, b},
        [&](const TextPiece& piece) { broken += find_invalid_utf8(piece.text).has_value(), joined += piece.text; }, {},
        size);
    CHECK((joined == text + "\n" + text));
    CHECK(broken == 0);
  }
}

TEST_CASE("each piece of a text has its offset in its file") {
  TemporaryFolder f;
  std::string text = "\xEF\xBB\xBF";
  for (int i = 0; i < 300; ++i) text += i % 11 ? "ä€😀 words " : "\n";
  const std::vector<std::filesystem::path> files = {f.write("a.txt", text), f.write("b.txt", text + "\n"),
                                                    f.write("c.txt", text)};
  std::size_t seams = 0;
  for (std::size_t size : {1, 10, 333, 1 << 20}) {
    read_text_pieces(
        files,
        [&](const TextPiece& piece) {
          std::ifstream in(piece.file, std::ios::binary);
          in.seekg(static_cast<std::streamoff>(piece.offset));
          std::string there(piece.text.size(), '?');
          in.read(there.data(), static_cast<std::streamsize>(there.size()));
          const bool seam = piece.offset == text.size() && piece.file == files[0];
          seams += seam;
          CHECK((piece.text == (seam ? "\n" : there)));
        },
        {}, size);
  }
  CHECK(seams == 4);  // b.txt ends with a line feed, and c.txt is the last file
}

TEST_CASE("texts are cut after lines, before spaces, or at least between characters") {
  CHECK(cut_text("", 0, 10) == 0);
  CHECK(cut_text("one\ntwo\n", 0, 100) == 4);
  CHECK(cut_text("one\ntwo\n", 4, 100) == 8);
  CHECK(cut_text("one\ntwo", 4, 100) == 0);  // the line may continue
  CHECK(cut_text("one two  three", 0, 11) == 7);
  CHECK(cut_text("one two  three", 0, 8) == 7);   // before all spaces of a run
  CHECK(cut_text("one two  three", 0, 14) == 0);  // a line feed may follow
  CHECK(cut_text("one two  three", 3, 6) == 6);   // no space after `min_size`
  CHECK(cut_text("aé€😀", 0, 5) == 3);
  CHECK(cut_text("aé€😀", 0, 6) == 6);
  CHECK(cut_text("aé€😀", 0, 9) == 6);
  CHECK(cut_text("aé€😀", 0, 10) == 0);
  CHECK(cut_text("one\n", 0, 3) == 3);  // the line feed is after the limit
  CHECK(cut_text("on \n", 0, 3) == 2);
  CHECK(cut_text("abe\u0301\u0323cd", 0, 5) == 2);  // not between a letter and its combining marks
  CHECK(cut_text("abe\u0301\u0323cd", 0, 7) == 7);
  CHECK(cut_text("abe\u0301\u0323cd", 3, 6) == 5);  // except as the only choice
}

TEST_CASE("text shown on a terminal has no control characters, and is UTF-8") {
  CHECK(printable("a b ~ \xC3\xA9 \xE2\x82\xAC") == "a b ~ \xC3\xA9 \xE2\x82\xAC");
  CHECK(printable("\x1B[2J\n\t\x7F\xC2\x9B\xFF\xE2\x82.") == "\\x1B[2J\\n\\t\\x7F\\xC2\\x9B\\xFF\\xE2\\x82.");
  CHECK(printable(std::string("\0", 1)) == "\\x00");
  CHECK(excerpt("a\u00e9\n", 3) == "a\u00e9\\n");
  CHECK(excerpt("a\u00e9\nx", 3) == "a\u00e9\\n...");
  CHECK(excerpt(std::string(1000, 'x')) == std::string(80, 'x') + "...");
}

TEST_CASE("files that cannot be read are errors") {
  TemporaryFolder f;
  const std::string at = f.path.native();
  CHECK(error_of([&] { read_text(f.path / "none.txt"); }) == "text: " + at + "/none.txt does not exist");
  CHECK(contains(error_of([&] { read_text(f.path); }), at + " has no files"));
  CHECK(contains(error_of([&] { read_text(f.write("empty.txt", "")); }), "there is no text in " + at + "/empty.txt"));
  CHECK(contains(error_of([&] { read_text(std::vector<std::filesystem::path>{}); }),
                 "there is no text in an empty list of files"));
  const auto bad = f.write("bad.txt", std::string(100, 'x') + "\xFE rest");
  CHECK(contains(error_of([&] { read_text(bad); }),
                 "text: " + at + "/bad.txt is not UTF-8: the byte 0xFE at offset 100 is invalid (line 1)"));
  for (std::size_t size : {1, 16, 99, 101})
    CHECK(contains(error_of([&] {
                     read_text_pieces(
                         {bad}, [](const TextPiece&) {}, {}, size);
                   }),
                   "0xFE at offset 100"));
  CHECK(contains(error_of([&] { read_text(f.write("cut.txt", "ab\n\xE2\x82")); }), "0xE2 at offset 3"));
  CHECK(error_of([&] { read_text(bad / "x"); }) == "text: " + at + "/bad.txt/x does not exist");
  std::filesystem::create_symlink("loop", f.path / "loop");
  CHECK(error_of([&] { read_text(f.path / "loop"); }) ==
        "text: " + at + "/loop cannot be read: Too many levels of symbolic links");
  const auto closed = f.write("closed/file.txt", "x");
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  {
    const Unprivileged scope;
    CHECK(contains(error_of([&] { read_text(closed); }),
                   "text: " + at + "/closed/file.txt cannot be opened: Permission denied"));
  }
  std::filesystem::permissions(closed.parent_path(), std::filesystem::perms::none);
  {
    const Unprivileged scope;
    CHECK(error_of([&] { read_text(closed); }) == "text: " + at + "/closed/file.txt cannot be read: Permission denied");
    CHECK(contains(error_of([&] { read_text(closed.parent_path()); }),
                   "text: the folder " + at + "/closed cannot be read: Permission denied"));
  }
  std::filesystem::permissions(closed.parent_path(), std::filesystem::perms::owner_all);
  // The first page of a program's memory cannot be read.
  CHECK(contains(error_of([] { read_text("/proc/self/mem"); }),
                 "text: /proc/self/mem cannot be read: Input/output error"));
}

TEST_CASE("a signal while a text is read does no harm") {
  TemporaryFolder f;
  const auto pipe = f.path / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  struct sigaction quiet = {}, before = {};
  quiet.sa_handler = [](int) {};  // without SA_RESTART, so that it interrupts
  REQUIRE(::sigaction(SIGUSR1, &quiet, &before) == 0);
  const pthread_t reader = ::pthread_self();
  std::thread writer([&] {
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
    std::ofstream to(pipe);
    to << "first " << std::flush;
    pause();  // the reader waits for more
    ::pthread_kill(reader, SIGUSR1);
    pause();
    to << "last\n";
  });
  std::string text;
  const std::string error = error_of([&] { text = read_text(pipe); });
  writer.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  CHECK(error.empty());
  CHECK(text == "first last\n");
}
