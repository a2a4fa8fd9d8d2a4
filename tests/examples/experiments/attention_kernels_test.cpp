// Runs attention_kernels on short sequences.
#include <map>
#include <sstream>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;
using test::TemporaryFolder;

namespace {

// The distances of each kernel, by the spread of the scores.
std::map<std::string, std::vector<double>> distances_in(const std::string& output) {
  std::map<std::string, std::vector<double>> rows;
  for (const std::string& line : test::lines_of(output)) {
    if (!contains(line, " +- 0")) continue;
    std::istringstream numbers(line.substr(16));
    std::string name = line.substr(0, 16), word;
    name.erase(name.find_last_not_of(' ') + 1);
    for (double mean = 0, error = 0; numbers >> mean >> word >> error;) rows[name].push_back(mean);
  }
  return rows;
}

std::map<std::string, std::vector<double>> run_kernels(const std::string& flags) {
  const Ran ran = test::run("exec " + test::program("attention_kernels") + " --draws 3 --length 64 " + flags);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  return distances_in(ran.output);
}

}  // namespace

RELEASE_TEST_CASE("attention_kernels: distances to softmax grow with the spread of the scores") {
  const TemporaryFolder folder;
  const std::string plot = (folder.path / "kernels.svg").string(), log = (folder.path / "kernels.jsonl").string();
  auto rows = run_kernels("--plot " + test::quoted(plot) + " --log " + test::quoted(log));
  CHECK(rows.size() == 15);
  for (const auto& row : rows) {
    const auto& name = row.first;
    const auto& distances = row.second;
    CAPTURE(name);
    REQUIRE(distances.size() == 5);
    for (const double d : distances) CHECK((d > 0 && d < 2));
  }
  const auto& equal = rows.at("equal weights");
  CHECK(std::is_sorted(equal.begin(), equal.end()));
  // (1 + s / p)^p tends to e^s.
  for (const std::size_t spread : {0, 1, 2}) {
    CHECK(rows.at("polynomial 4")[spread] < rows.at("polynomial 2")[spread]);
    CHECK(rows.at("polynomial 8")[spread] < rows.at("polynomial 4")[spread]);
    CHECK(rows.at("polynomial 8")[spread] < 0.5 * equal[spread]);
  }
  CHECK(contains(bytes_of(plot), "linear elu"));
  CHECK(test::lines_of(bytes_of(log)).size() == 15 * 5);
  // Softmax of cosines does not depend on the spread, and the first two terms of its series are close to it.
  auto cosines = run_kernels("--reference cosine");
  CHECK(cosines.at("cosine")[0] == 0);
  CHECK(cosines.at("taylor")[0] < 0.1 * cosines.at("equal weights")[0]);
}

RELEASE_TEST_CASE("attention_kernels: the weights of mechanisms are drawn, of each causal one that has weights") {
  const TemporaryFolder folder;
  const std::string picture = (folder.path / "weights.svg").string();
  const Ran ran = test::run("exec " + test::program("attention_kernels") + " --weights " + test::quoted(picture));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const std::string drawn = bytes_of(picture);
  for (const char* name : {"softmax", "linear", "bahdanau", "window", "strided", "lsh", "favor"})
    CHECK(contains(drawn, ">" + std::string(name) + "<"));
  CHECK_FALSE(contains(drawn, ">retention<"));
}

RELEASE_TEST_CASE("attention_kernels: wrong flags are refused in one sentence") {
  test::check_refused(test::run("exec " + test::program("attention_kernels") + " --reference dot"), 2, "--reference");
  test::check_refused(test::run("exec " + test::program("attention_kernels") + " --plot a.gif"), 2, "a.gif");
  test::check_refused(test::run("exec " + test::program("attention_kernels") + " --weights a.svg --plot b.svg"), 2,
                      "--plot is given with --weights, which measures nothing");
}
