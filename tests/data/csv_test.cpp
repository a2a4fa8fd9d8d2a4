// CSV files: numeric columns, classes, texts, and errors.
#include <heed/data/samples.hpp>

#include <heed/core/check.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::ids_of;
using test::TemporaryFolder;
using Ids = std::vector<std::int32_t>;
using Texts = std::vector<std::string>;

TEST_CASE("csv: numbers, classes and texts of columns") {
  const TemporaryFolder folder;
  const CsvTable t = CsvTable::read(folder.write("t.csv",
                                                 "\xEF\xBB\xBFlength,\"a \"\"wide\"\" one\",kind\r\n"
                                                 "1.5,-2,rose\r\n"
                                                 "1e-3,\"4\",\"tulip, red\nand tall\"\r\n"
                                                 "0.25,7,rose\n2e-60,8,rose"));
  CHECK(t.rows() == 4);
  CHECK(t.names() == Texts{"length", "a \"wide\" one", "kind"});
  CHECK(t.field(1, "kind") == "tulip, red\nand tall");
  const Tensor x = t.numbers({"a \"wide\" one", "length"});
  CHECK(x.shape() == Shape{4, 2});
  CHECK(x.to_vector<float>() == std::vector<float>{-2, 1.5f, 4, 1e-3f, 7, 0.25f, 8, 0});
  CHECK(t.column("length").shape() == Shape{4});
  CHECK(t.class_names("kind") == Texts{"rose", "tulip, red\nand tall"});
  CHECK(ids_of(t.classes("kind")) == Ids{0, 1, 0, 0});
  CHECK(ids_of(t.classes("kind", {"lily", "tulip, red\nand tall", "rose"})) == Ids{2, 1, 2, 2});
  const CsvTable s = CsvTable::read(folder.write("s.csv", "1;2\n3;4\n"), {.separator = ';', .names = {"a", "b"}});
  CHECK((s.numbers({"a", "b"}).to_vector<float>() == std::vector<float>{1, 2, 3, 4}));
}

TEST_CASE("csv: blank lines at the end are no rows") {
  const TemporaryFolder folder;
  for (const char* end : {"", "\n", "\n\n", "\r\n\r\n", "\n\n\n"}) {
    CHECK(CsvTable::read(folder.write("t.csv", std::string("a,b\n1,2\n3,4") + end)).rows() == 2);
    CHECK(CsvTable::read(folder.write("t.tsv", std::string("a\tb\n1\t2\n3\t4") + end), {.separator = '\t'}).rows() ==
          2);
  }
}

TEST_CASE("csv: errors name file, line and column") {
  const TemporaryFolder folder;
  const auto reading = [&](const std::string& text) {
    return [&folder, text] { CsvTable::read(folder.write("t.csv", text)); };
  };
  const auto numbers = [&](const std::string& field) {
    return [&folder, field] { CsvTable::read(folder.write("t.csv", "a,b\n\"1\n\",2\n3," + field + "\n")).column("b"); };
  };
  const std::string file = (folder.path / "t.csv").string();
  test::check_errors({
      {"missing.csv", [&] { CsvTable::read(folder.path / "missing.csv"); }},
      {"there is no text", reading("")},
      {"csv: " + file + " has no rows; it must have one or more below the column names", reading("a,b\n")},
      {"csv: two columns of " + file + " are named a; names must differ", reading("a,b,a\n1,2,3\n")},
      {"csv: " + file + ", line 3 has 1 fields; it must have 2, one per column", reading("a,b\n1,2\n\n3,4\n")},
      {"csv: " + file + ", line 4 has 3 fields; it must have 2", reading("a,b\n\"1\n\",2\n1,2,3\n")},
      {"csv: " + file + ", line 2, column 2 begins with a quote that is not closed before the end of the file",
       reading("a,b\n1,\"2\n3,4\n")},
      {"csv: " + file + ", line 2, column 1 is 5\"; a field that contains quotes must be quoted",
       reading("a,b\n5\",2\n")},
      {"csv: " + file +
           ", line 2, column 1 has x after its closing quote; a separator or the end of the line must follow",
       reading("a,b\n\"5\"x,2\n")},
      {"csv: " + file + ", line 4, column b is «two»; it must be a finite number of float32", numbers("two")},
      {"line 4, column b is «»;", numbers("")},
      {"line 4, column b is «" + std::string(80, 'x') + "...»;", numbers(std::string(100000, 'x'))},
      {"line 4, column b is «nan»;", numbers("nan")},
      {"line 4, column b is « 4»;", numbers(" 4")},
      {"line 4, column b is «1e99»;", numbers("1e99")},
      {"line 4, column b is «0x10»;", numbers("0x10")},
      {"line 4, column b is «+1»;", numbers("+1")},
  });
  const CsvTable t = CsvTable::read(folder.write("t.csv", "a,b\n1,x\n2,\n"));
  test::check_errors({
      {"csv: " + file + " has no column c; it has a, b", [&] { t.column("c"); }},
      {"csv: the list of columns of " + file + " is empty; it must name one or more", [&] { t.numbers({}); }},
      {"csv: row 2 of " + file + " is out of range; there are 2", [&] { t.field(2, "a"); }},
      {"csv: " + file + ", line 3, column b is «»; it must be one of x", [&] { t.classes("b"); }},
      {"csv: " + file + ", line 2, column b is «x»; it must be one of y, z",
       [&] {
         t.classes("b", {"y", "z"});
       }},
  });
}
