// Reading text files: line ends, byte order marks, and files that are not UTF-8.
#include <heed/core/check.hpp>
#include <heed/data/samples.hpp>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>
#include <heed/data/tokenizer.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

std::string with_ends(const std::string& text, const std::string& end) {
  std::string made;
  for (const char c : text) made += c == '\n' ? end : std::string(1, c);
  return made;
}

// The text of the file. Checks that pieces of all sizes give the same text.
std::string read_in_pieces(const std::filesystem::path& file, const ReadTextOptions& o = {}) {
  std::string first;
  for (const std::size_t size : {1, 9, 13, 64, 1 << 20}) {
    std::string text;
    read_text_pieces(
        {file}, [&](const TextPiece& piece) { text += piece.text; }, o, size);
    if (first.empty()) first = text;
    CAPTURE(size);
    CHECK((text == first));
  }
  CHECK((read_text(file, o) == first));
  return first;
}

const std::string kText = "der Zug fährt\n\nzwei  Wörter \n ein Hund 😀\nzwei\n";

}  // namespace

TEST_CASE("text files: CR LF is read as LF, and with LineEnds::any so is a CR alone") {
  const TemporaryFolder f;
  for (const std::string& text : {kText, kText.substr(0, kText.size() - 1), std::string("\n"), std::string("\n\na")}) {
    CAPTURE(text);
    const auto crlf = f.write("crlf", with_ends(text, "\r\n")), cr = f.write("cr", with_ends(text, "\r"));
    CHECK(read_in_pieces(crlf) == text);
    CHECK(read_in_pieces(crlf, {.line_ends = LineEnds::any}) == text);
    CHECK(read_in_pieces(cr, {.line_ends = LineEnds::any}) == text);
    CHECK(read_in_pieces(crlf, {.line_ends = LineEnds::keep}) == with_ends(text, "\r\n"));
    CHECK(read_in_pieces(cr, {.line_ends = LineEnds::keep}) == with_ends(text, "\r"));
  }
  const std::string mixed = "a\nb\r\nc\n\r\nd\r\n\r\n";
  CHECK(read_in_pieces(f.write("mixed", mixed)) == "a\nb\nc\n\nd\n\n");
  CHECK(read_in_pieces(f.write("mixed", mixed + "e\rf\r"), {.line_ends = LineEnds::any}) == "a\nb\nc\n\nd\n\ne\nf\n");
}

TEST_CASE("text files: a single CR is refused, with its line and the option that allows it") {
  const TemporaryFolder f;
  const auto cr = f.write("cr", "a\rb\rc\r"), one = f.write("one", "a\r\nb\r\nc\rd\r\n"),
             end = f.write("end", "a\nb\r");
  check_errors({
      {"text: the first line of " + cr.string() +
           " ends with a carriage return (offset 1), but lines must end with a "
           "line feed; LineEnds::any (--line-ends any) reads such line ends",
       [&] { read_text(cr); }},
      {"text: line 3 of " + one.string() + " has a carriage return without a line feed (offset 7)",
       [&] { read_text(one); }},
      {"line 2 of " + end.string() + " has a carriage return without a line feed (offset 3)", [&] { read_text(end); }},
      {"carriage return", [&] { read_text_pairs(cr, cr); }},
      {"carriage return", [&] { read_text_pairs(cr); }},
      {"carriage return", [&] { CsvTable::read(cr); }},
      {"carriage return", [&] { WordTokenizer::train({cr}); }},
      {"carriage return", [&] { CharTokenizer::train({cr}); }},
      {"carriage return", [&] { SentencePieceTokenizer::train({cr}); }},
      {"carriage return", [&] { write_tokens(f.path / "x.tokens", {cr}, ByteTokenizer()); }},
  });
}

TEST_CASE("text files: every reader gives the same of CR LF as of LF") {
  const TemporaryFolder f;
  std::string text;
  for (int i = 0; i < 40; ++i) text += kText;
  const auto lf = f.write("lf", text), crlf = f.write("crlf", with_ends(text, "\r\n"));
  CHECK(WordTokenizer::train({lf}).state() == WordTokenizer::train({crlf}).state());
  CHECK(CharTokenizer::train({lf}).state() == CharTokenizer::train({crlf}).state());
  const SentencePieceOptions pieces{.vocabulary = 290};
  CHECK(SentencePieceTokenizer::train({lf}, pieces).state() == SentencePieceTokenizer::train({crlf}, pieces).state());
  for (const auto& file : {lf, crlf}) write_tokens(file.string() + ".tokens", {file}, ByteTokenizer());
  CHECK(bytes_of(lf.string() + ".tokens") == bytes_of(crlf.string() + ".tokens"));
  const auto a = read_text_pairs(lf, lf), b = read_text_pairs(crlf, crlf);
  REQUIRE(a.size() == b.size());
  CHECK((a[2].source == "zwei  Wörter " && b[2].source == a[2].source && b[2].line == 3));
  const std::string rows = "a,b\n1,\"x\ny\"\n2,z\n";
  const CsvTable t = CsvTable::read(f.write("t.csv", with_ends(rows, "\r\n")));
  CHECK(t.field(0, "b") == "x\ny");
  CHECK(t.rows() == 2);
  CHECK(CsvTable::read(f.write("t.csv", with_ends(rows, "\r\n")), {.reading = {.line_ends = LineEnds::keep}})
            .field(0, "b") == "x\r\ny");
}

TEST_CASE("text files: only line feeds and carriage returns end lines, and bytes of zero are text") {
  const TemporaryFolder f;
  const std::string text = std::string("a\u2028b\u2029c\u0085d\vf\fg") + '\0' + "h\uFEFF\ni\n";
  CHECK(read_in_pieces(f.write("x", text)) == text);
  CHECK(split_lines(text).size() == 2);
  CHECK(read_text_pairs(f.path / "x", f.path / "x").size() == 2);
}

TEST_CASE("text files: the byte order mark of each file is dropped, and U+FEFF within one is kept") {
  const TemporaryFolder f;
  const std::string mark = "\uFEFF";
  const auto a = f.write("a", mark + "one"), b = f.write("b", mark + "two\n" + mark + "three\n");
  CHECK(read_text({a, b}) == "one\ntwo\n" + mark + "three\n");
  CHECK(read_text({f.write("only", mark)}, {.may_be_empty = true}).empty());
  CHECK(contains(error_of([&] { read_text(f.path / "only"); }), "there is no text in"));
}

TEST_CASE("text files: compressed files and other encodings are recognized, with any options") {
  const TemporaryFolder f;
  std::string utf16, utf16_be, utf32;
  for (const char c : std::string("Zwei Hunde\nlaufen\n")) {
    utf16 += c, utf16 += '\0', utf16_be += '\0', utf16_be += c;
    utf32 += c, utf32.append(3, '\0');
  }
  const std::pair<std::string, std::string> cases[] = {
      {"\x1F\x8B\x08 xyz", "a gzip file, not UTF-8 text; convert it (gunzip)"},
      {"\x28\xB5\x2F\xFDxyz", "a zstd file"},
      {std::string("\xFD\x37zXZ\0x", 7), "an xz file"},
      {"BZh91AY&SYx", "a bzip2 file"},
      {"PK\x03\x04x", "a zip file"},
      {"\xFF\xFE" + utf16, "UTF-16 (little-endian), not UTF-8 text; convert it (iconv -f UTF-16 -t UTF-8)"},
      {"\xFE\xFF" + utf16_be, "UTF-16 (big-endian)"},
      {utf16, "UTF-16 (little-endian)"},
      {utf16_be, "UTF-16 (big-endian)"},
      {std::string("\xFF\xFE\0\0", 4) + utf32, "UTF-32 (little-endian)"},
      {utf32, "UTF-32 (little-endian)"},
      {std::string("\0\0\xFE\xFF", 4) + std::string(3, '\0') + utf32, "UTF-32 (big-endian)"},
      {std::string(3, '\0') + utf32.substr(0, utf32.size() - 3), "UTF-32 (big-endian)"},
  };
  for (const auto& each : cases)
    for (const InvalidUtf8 invalid : {InvalidUtf8::refuse, InvalidUtf8::replace, InvalidUtf8::skip}) {
      const auto& bytes = each.first;
      const auto& message = each.second;
      const auto file = f.write("x", bytes);
      CAPTURE(message);
      CHECK(contains(error_of([&] { read_text(file, {.invalid = invalid}); }),
                     "text: " + file.string() + " is " + message));
    }
}

TEST_CASE("text files: text that is not UTF-8 is an Error with its line and a guess") {
  const TemporaryFolder f;
  const auto latin = f.write("latin", "Die K\xC3\xBChe\nstehen auf der gr\xFCnen Wiese und fressen. Sch\xF6n!\n");
  const std::string error = error_of([&] { read_text(latin); });
  CHECK(contains(error, "is not UTF-8: the byte 0xFC at offset 27 is invalid (line 2)"));
  CHECK(contains(error, "; it looks like "));
  CHECK(contains(error, "InvalidUtf8::replace or skip (--invalid-utf8)"));
  for (const char* bad : {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"})  // overlong, a surrogate, ...
    CHECK(contains(error_of([&] { read_text(f.write("bad", std::string("one\ntwo\nab") + bad)); }),
                   "at offset 10 is invalid (line 3)"));
}

TEST_CASE("text files: invalid UTF-8 is replaced, or its lines are skipped, and counted") {
  const TemporaryFolder f;
  const auto file = f.write("x", "one\r\nt\xFFw\xE2\x82o\r\nthree\n\xFF\nfive \xE2\x82");
  TextReport replaced, skipped;
  CHECK(read_in_pieces(file, {.invalid = InvalidUtf8::replace}) == "one\nt\uFFFDw\uFFFDo\nthree\n\uFFFD\nfive \uFFFD");
  CHECK(read_in_pieces(file, {.invalid = InvalidUtf8::skip}) == "one\nthree\n");
  read_text(file, {.invalid = InvalidUtf8::replace, .report = &replaced});
  read_text(file, {.invalid = InvalidUtf8::skip, .report = &skipped});
  CHECK(replaced.text() ==
        "4 parts were replaced by U+FFFD, because they are not UTF-8 (the first: line 2 of " + file.string() + ")");
  CHECK(skipped.text() ==
        "3 lines were skipped, because they are not UTF-8 (the first: line 2 of " + file.string() + ")");
  CHECK(TextReport().text().empty());
  CHECK(contains(error_of([&] { read_text(f.write("y", "\xFF\n"), {.invalid = InvalidUtf8::skip}); }),
                 "there is no text in"));
}

TEST_CASE("text files: an offset in a text is mapped to its file, whatever a reader changed") {
  const TemporaryFolder f;
  std::string text = "\uFEFF";
  for (int i = 0; i < 9000; ++i) text += "ab c\r\n";
  const std::string broken = text + "a\xFF\r\nab x\r\n";
  const CharTokenizer t("abc \n\uFFFD");
  const std::string place = "at byte offset " + std::to_string(broken.find('x')) + " of ";
  for (const InvalidUtf8 invalid : {InvalidUtf8::replace, InvalidUtf8::skip})
    CHECK(contains(
        error_of([&] { write_tokens(f.path / "x.tokens", {f.write("x", broken)}, t, {}, {.invalid = invalid}); }),
        place + (f.path / "x").string()));
}

TEST_CASE("text files: pairs and rows with a side that is not UTF-8 are left out together") {
  const TemporaryFolder f;
  const auto a = f.write("a", "one\nt\xFFwo\nthree\nfour\n"), b = f.write("b", "1\n2\n\xFE\n4\n");
  TextReport report;
  const auto pairs = read_text_pairs(a, b, {.invalid = InvalidUtf8::skip, .report = &report});
  REQUIRE(pairs.size() == 2);
  CHECK((pairs[1].source == "four" && pairs[1].target == "4" && pairs[1].line == 4));
  CHECK(report.text() == "2 lines were skipped, because they are not UTF-8 (the first: line 2 of " + a.string() +
                             " and " + b.string() + ")");
  CHECK(read_text_pairs(f.write("t", "a\tb\nc\t\xFF\nd\te\n"), {.invalid = InvalidUtf8::skip}).size() == 2);
  CHECK(contains(error_of([&] { read_text_pairs(a, b); }), "a is not UTF-8: the byte 0xFF at offset 5"));
  TextReport rows;
  const auto table = f.write("t.csv", "a,b\n1,x\n2,\"y\n\xFF\"\n3,z\n");
  const CsvTable t = CsvTable::read(table, {.reading = {.invalid = InvalidUtf8::skip, .report = &rows}});
  CHECK(t.rows() == 2);
  CHECK(t.field(1, "b") == "z");
  CHECK(rows.text() == "1 line was skipped, because it is not UTF-8 (the first: line 3 of " + table.string() + ")");
  CHECK(contains(error_of([&] {
                   CsvTable::read(f.write("n.csv", "a\xFF,b\n1,2\n"), {.reading = {.invalid = InvalidUtf8::skip}});
                 }),
                 "the column names of " + (f.path / "n.csv").string() + " must be UTF-8"));
}
