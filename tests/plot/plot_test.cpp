// Pictures: what is seen of them, and files that cannot be drawn.
#include <filesystem>
#include <heed/data/text.hpp>
#include <heed/plot/plot.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/examples/programs.hpp"
#include "tests/foreign_locale.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::count_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("plot: one point of a line is seen") {
  const TemporaryFolder folder;
  const auto markers = [&](std::size_t points) {
    Series line{"validation", {{1, 2}, {2, 1}, {3, 0.5}}, Series::line};
    line.points.resize(points);
    heed::plot(folder.path / "p.svg", {"title", "x", "y"}, {{"training", {{1, 3}, {3, 1}}}, line});
    return count_of("#gpPt6'", bytes_of((folder.path / "p.svg").string()));
  };
  CHECK(markers(3) == 0);
  CHECK(markers(1) >= 1);
}

TEST_CASE("plot: names stand below the frame, where they hide no line") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "p.svg";
  heed::plot(file, {"title", "x", "y"}, {{"rises to the right", {{1, 1}, {2, 2}}}});
  const std::string svg = bytes_of(file.string());
  const std::size_t name = svg.rfind("rises to the right"), place = svg.rfind("translate(", name);
  REQUIRE(name != std::string::npos);
  CHECK(std::stod(svg.substr(svg.find(',', place) + 1)) > 500);  // of 540, from the top
}

TEST_CASE("plot_matrix: a label that no picture can hold is shown as a terminal would") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  plot_matrix(file, "title", {{1, 0}}, {"a\xFF"}, {"<\x01>", "caf\u00e9 'n'"});
  const std::string svg = bytes_of(file.string());
  for (const char* text : {">a\\xFF<", ">&lt;\\x01><", ">caf\u00e9 'n'<"}) CHECK(contains(svg, text));
  CHECK_FALSE(find_invalid_utf8(svg));
}

TEST_CASE("plot_matrices: the cell of a single token is seen") {
  const TemporaryFolder folder;
  const auto cells = [&](const std::string& ending) {
    const fs::path file = folder.path / ("one" + ending);
    plot_matrices(file, {"title", "rows", "columns", {"T"}, {"T"}}, {{{"head", {{1}}}, {"head", {{1}}}}});
    return count_of("0b2f63", bytes_of(file.string())) + count_of("rgb( 11,  47,  99)", bytes_of(file.string()));
  };
  CHECK(cells(".svg") >= 2);
}

TEST_CASE("plot_matrices: each cell of an .svg is a rectangle, and each token has its label") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  constexpr std::size_t kTokens = 24, kHeads = 8;
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < kTokens; ++i) labels.push_back("w" + std::to_string(i));
  const std::vector<std::vector<double>> values(kTokens, std::vector<double>(kTokens, 0.5));
  plot_matrices(file, {"title", "rows", "columns", labels, labels},
                          {std::vector<MatrixPanel>(kHeads, {"head", values})});
  const std::string svg = bytes_of(file.string());
  CHECK_FALSE(contains(svg, "<image"));
  CHECK(count_of("<polygon", svg) >= kHeads * kTokens * kTokens);
  CHECK(count_of(">w23<", svg) == 1 + kHeads);  // rows at the left panel, columns at each
  CHECK(count_of(">w22<", svg) == 1 + kHeads);
}

TEST_CASE("plot: the same picture in every locale") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "p.svg").string();
  test::check_in_every_locale([&] {
    heed::plot(file, {"title", "x", "y"}, {{"line", {{1000.5, 0.25}, {2500.75, 1.5}, {12345, 0.125}}}});
    std::string all = bytes_of(file);
    plot_matrix(file, "title", {{0.5, 0.25}, {1, 0}}, {"a", "b"}, {"c", "d"});
    return all + bytes_of(file);
  });
}
