// Pictures: their visible parts, and files that cannot be drawn.
#include <cmath>
#include <filesystem>
#include <heed/data/text.hpp>
#include <heed/optim/run/result.hpp>
#include <heed/plot/plot.hpp>
#include <map>
#include <regex>

#include "tests/data/temporary_folder.hpp"
#include "tests/examples/programs.hpp"
#include "tests/foreign_locale.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::count_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// A text in an .svg and its position in pixels from the upper left.
struct Text {
  double x, y, size;
  std::string text;
};

std::vector<Text> texts_of(const fs::path& file) {
  static const std::regex text(
      R"re(translate\(([0-9.]+),([0-9.]+)\)[^>]*font-size="([0-9.]+)"[^>]*>\s*<text>(?:<tspan[^>]*>)?\s*([^<]*))re");
  const std::string svg = bytes_of(file.string());
  std::vector<Text> list;
  for (std::sregex_iterator i(svg.begin(), svg.end(), text), end; i != end; ++i)
    list.push_back({std::stod((*i)[1]), std::stod((*i)[2]), std::stod((*i)[3]), (*i)[4]});
  return list;
}

std::vector<std::string> labels_of(std::size_t count, const std::string& begin) {
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < count; ++i) labels.push_back(begin + std::to_string(i));
  return labels;
}

}  // namespace

TEST_CASE("plot: a line of one point is visible") {
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

TEST_CASE("plot: names of lines are below the frame") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "p.svg";
  heed::plot(file, {"title", "x", "y"}, {{"rises to the right", {{1, 1}, {2, 2}}}});
  const std::string svg = bytes_of(file.string());
  const std::size_t name = svg.rfind("rises to the right"), place = svg.rfind("translate(", name);
  REQUIRE(name != std::string::npos);
  CHECK(std::stod(svg.substr(svg.find(',', place) + 1)) > 500);  // of 540 pixels, from the top
}

TEST_CASE("plot_matrix: control characters and invalid UTF-8 in labels are escaped") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  plot_matrix(file, "title", {{1, 0}}, {"a\xFF"}, {"<\x01>", "caf\u00e9 'n'"});
  const std::string svg = bytes_of(file.string());
  for (const char* text : {">a\\xFF<", ">&lt;\\x01><", ">caf\u00e9 'n'<"}) CHECK(contains(svg, text));
  CHECK_FALSE(find_invalid_utf8(svg));
}

TEST_CASE("plot: the title of the x-axis does not touch the names below it") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "p.svg";
  const auto gap = [&] {  // distance from the axis title to the first name
    double title = 0, name = 1e9;
    for (const Text& t : texts_of(file)) {
      if (t.text == "steps") title = t.y;
      if (t.text.starts_with("series")) name = std::min(name, t.y);
    }
    return name - title;
  };
  for (const std::size_t count : {1, 2, 9}) {
    std::vector<Series> series;
    for (const std::string& name : labels_of(count, "series of a rather long name, number "))
      series.push_back({name, {{0, 0}, {1, 1}}});
    heed::plot(file, {"title", "steps", "y"}, series);
    CHECK(gap() > 18);
    plot_frames(file, {{{"title", "steps", "y"}, series}}, false);
    CHECK(gap() > 18);
  }
}

TEST_CASE("plot: if there are more lines than colours, dashes distinguish them") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "p.svg";
  std::vector<Series> series;
  for (const std::string& name : labels_of(20, "series ")) series.push_back({name, {{0, 0}, {1, 1}, {2, 0}}});
  heed::plot(file, {"title", "steps", "y"}, series);
  // The colour and the dashes of lines, as gnuplot writes them for each name and each curve.
  static const std::regex line(R"re(<path\s+stroke='(#[0-9a-f]+|rgb\([^)]*\))'\s*(stroke-dasharray='[^']*')?)re");
  const std::string svg = bytes_of(file.string());
  std::map<std::string, int> styles;
  for (std::sregex_iterator i(svg.begin(), svg.end(), line), end; i != end; ++i)
    ++styles[(*i)[1].str() + (*i)[2].str()];
  CHECK(styles.size() >= 20);
}

TEST_CASE("plot_bars: numbers below the bars do not overlap and are inside the picture, also large ones") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "b.svg";
  for (const double max_value : {0.3, 1.0, 7.0, 9999.0, 12345.0, 309865.0, 1234567.0, 4.2e7}) {
    CAPTURE(max_value);
    plot_bars(file, "title", {"a", "b"}, {{.label = "x", .values = {max_value, max_value / 3}}});
    std::vector<Text> numbers;
    for (const Text& t : texts_of(file))
      if (std::regex_match(t.text, std::regex("[0-9.]+[kM]? *"))) numbers.push_back(t);
    REQUIRE(numbers.size() >= 3);
    CHECK(numbers.size() <= 7);
    const auto half = [](const Text& t) { return 0.32 * t.size * static_cast<double>(t.text.size()); };
    for (std::size_t i = 1; i < numbers.size(); ++i)
      CHECK(numbers[i].x - half(numbers[i]) > numbers[i - 1].x + half(numbers[i - 1]) + 4);
    CHECK(numbers.back().x + half(numbers.back()) < 480);
  }
}

TEST_CASE("plot_matrix: numbers are in their cells if all fit, and do not overlap") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  int number = 0;
  for (const std::size_t n : {1, 2, 5, 12, 20, 40, 60})
    for (const std::size_t columns : {n, n / 2 + 1})
      for (const std::string label : {"w", "a label of many letters "}) {
        if (!test::is_taken(number++, 9)) continue;
        CAPTURE(n);
        CAPTURE(columns);
        CAPTURE(label);
        std::vector<std::vector<double>> values(n, std::vector<double>(columns));
        for (std::size_t r = 0; r < n; ++r)
          for (std::size_t c = 0; c < columns; ++c) values[r][c] = 0.1 + 0.001 * static_cast<double>((7 * r + c) % 800);
        plot_matrix(file, "a title that is longer than a small matrix is wide", values, labels_of(n, label),
                    labels_of(columns, label));
        std::vector<Text> numbers;
        for (const Text& t : texts_of(file))
          if (t.size < 12) numbers.push_back(t);
        CHECK(numbers.size() == (columns < 60 ? n * columns : 0));
        for (std::size_t i = 1; i < numbers.size(); ++i) {
          const Text &a = numbers[i - 1], &b = numbers[i];
          CHECK(a.text.size() == 4);
          const bool side_by_side = i % columns != 0;  // otherwise it is below
          CHECK((side_by_side ? b.x - a.x > 0.62 * a.size * 4 : b.y - a.y > 1.3 * a.size));
        }
        // Nothing is cut: labels and title are inside the picture.
        const std::string svg = bytes_of(file.string());
        const double width = std::stod(svg.substr(svg.find("viewBox=\"0 0 ") + 13));
        for (const Text& t : texts_of(file)) CHECK((t.x > 0 && t.x < width));
      }
}

TEST_CASE("plot_matrix: the greatest number decides how numbers are written") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  const auto written = [&](const std::vector<double>& row) {
    plot_matrix(file, "title", {row}, {"r"}, labels_of(row.size(), "c"));
    std::string all;
    for (const Text& t : texts_of(file))
      if (t.size < 12) all += t.text + " ";
    return all;
  };
  CHECK(written({0, 1, 250}) == "0 1 250 ");
  CHECK(written({0.125, 1}) == "0.12 1.00 ");
  CHECK(written({0.01, 0.0625}) == "0.010 0.062 ");
  CHECK(written({0.5, 12.25}) == "0.5 12.2 ");
  CHECK(written({0.5, 512.75}) == "0 513 ");
  CHECK(written({0.00002, 0}) == "2.0e-05 0.0e+00 ");
  CHECK(written({-2.5, 1}) == "-2.50 1.00 ");
  CHECK(written({1, std::nan(""), 2}) == "1 2 ");  // the cell of a NaN is empty
  CHECK(written({0, 0}) == "0 0 ");
}

TEST_CASE("plot_matrix: sizes that do not agree are named") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  CHECK(test::error_of([&] {
          plot_matrix(file, "title", {{1, 2}, {3, 4}}, {"a"}, {"b", "c"});
        }) == "plot_matrix: 2 x 2 values, 1 row and 2 column labels; there must be one label per row and column");
  CHECK(test::error_of([&] {
          plot_matrix(file, "title", {{1, 2}, {3}}, {"a", "b"}, {"c", "d"});
        }) == "plot_matrix: a row has 1 values but the first has 2; all rows must have the same number");
}

TEST_CASE("plot_losses: the axis has the unit of the loss") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "l.svg";
  const auto title = [&](const std::string& unit) {
    RunResult r;
    r.steps = 2, r.loss_unit = unit, r.history.losses = {2, 1};
    plot_losses(file, r);
    const std::string svg = bytes_of(file.string());
    return svg.substr(svg.find(">loss") + 1, svg.find('<', svg.find(">loss")) - svg.find(">loss") - 1);
  };
  CHECK(title("nats per token") == "loss, nats per token");
  CHECK(title("nats") == "loss, nats");
  CHECK(title("") == "loss");
}

TEST_CASE("plot_matrices: the cell of a single token is visible") {
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
  CHECK(count_of(">w23<", svg) == 1 + kHeads);  // at the rows of the left panel, and at the columns of each
  CHECK(count_of(">w22<", svg) == 1 + kHeads);
}

TEST_CASE("plot_matrices: the last row may have fewer panels, and no other row") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  const MatrixLabels labels{"title", "rows", "columns", {"row"}, {"last"}};
  const MatrixPanel panel{"head", {{0.5}}};
  plot_matrices(file, labels, {{panel, panel}, {panel}});
  const std::string svg = bytes_of(file.string());
  CHECK(count_of(">head<", svg) == 3);
  CHECK(count_of(">last<", svg) == 2);  // below the lowest panel of each column
  CHECK(contains(test::error_of([&] { plot_matrices(file, labels, {{panel}, {panel, panel}}); }), "the panels differ"));
}

RELEASE_TEST_CASE("plot: the same picture in every locale") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "p.svg").string();
  test::check_in_every_locale([&] {
    heed::plot(file, {"title", "x", "y"}, {{"line", {{1000.5, 0.25}, {2500.75, 1.5}, {12345, 0.125}}}});
    std::string all = bytes_of(file);
    plot_matrix(file, "title", {{0.5, 0.25}, {1, 0}}, {"a", "b"}, {"c", "d"});
    return all + bytes_of(file);
  });
}
