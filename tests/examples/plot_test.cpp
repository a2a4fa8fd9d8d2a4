// Pictures: what is seen of them, and files that cannot be drawn.
#include "examples/support/plot.hpp"

#include <filesystem>
#include <fstream>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::quoted;
using test::Ran;
using test::TemporaryFolder;
using test::Training;
namespace fs = std::filesystem;

namespace {

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("plot: one point of a line is seen") {
  const TemporaryFolder folder;
  const auto markers = [&](std::size_t points) {
    examples::Series line{"validation", {{1, 2}, {2, 1}, {3, 0.5}}, examples::Series::line};
    line.points.resize(points);
    examples::plot(folder.path / "p.svg", {"title", "x", "y"}, {{"training", {{1, 3}, {3, 1}}}, line});
    return times(bytes_of((folder.path / "p.svg").string()), "#gpPt6'");
  };
  CHECK(markers(3) == 0);
  CHECK(markers(1) >= 1);
}

TEST_CASE("plot_matrices: each cell of an .svg is a rectangle, and each token has its label") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.svg";
  constexpr std::size_t kTokens = 24, kHeads = 8;
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < kTokens; ++i) labels.push_back("w" + std::to_string(i));
  const std::vector<std::vector<double>> values(kTokens, std::vector<double>(kTokens, 0.5));
  examples::plot_matrices(file, {"title", "rows", "columns", labels, labels},
                          {std::vector<examples::MatrixPanel>(kHeads, {"head", values})});
  const std::string svg = bytes_of(file.string());
  CHECK_FALSE(contains(svg, "<image"));
  CHECK(times(svg, "<polygon") >= kHeads * kTokens * kTokens);
  CHECK(times(svg, ">w23<") == 1 + kHeads);  // rows at the left panel, columns at each
  CHECK(times(svg, ">w22<") == 1 + kHeads);
}

TEST_CASE("plot: where gnuplot fails its reason is told, and an old picture stays") {
  const Training t;
  std::ofstream(t.file("gnuplot"))
      << "#!/bin/sh\ncat > /dev/null\necho '\"-\" line 7: no room for fonts' >&2\nexit 1\n";
  fs::permissions(t.file("gnuplot"), fs::perms::owner_all);
  const std::string path = "PATH=" + quoted(t.folder()) + ":$PATH ";
  Ran ran = test::run(path + t.arguments("--steps 2 --plot loss.svg"));
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "plot: loss.svg could not be drawn; gnuplot says: no room for fonts"));
  CHECK_FALSE(fs::exists(t.file("loss.svg")));
  CHECK(fs::exists(t.file("lm.h5")));
  std::ofstream(t.file("loss.svg")) << "old";
  std::ofstream(t.file("gnuplot")) << "#!/bin/sh\ncat > /dev/null\n";
  ran = test::run(path + t.arguments("--steps 2 --plot loss.svg"));
  CHECK(contains(ran.output, "gnuplot says: it drew nothing and ended with status 0"));
  CHECK(bytes_of(t.file("loss.svg")) == "old");
}
