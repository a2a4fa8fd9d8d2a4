// Runs the numbered tutorials and checks that they print what their comments promise.
#include <algorithm>
#include <filesystem>
#include <heed/data/npy.hpp>
#include <sstream>

#include "tests/data/temporary_folder.hpp"
#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::program;
using test::Ran;
using test::TemporaryFolder;

namespace {

const char* const kTutorials[] = {"01_tensors",   "02_tape",   "03_linear_regression", "04_two_moons",
                                  "05_attention", "06_own_op", "07_rank_with_depth",   "08_transformer",
                                  "09_two_processes"};

std::string output_of(const std::string& name, const std::string& flags = "") {
  const Ran ran = test::run("exec " + program(name) + " " + flags);
  INFO(name << " " << flags << "\n" << ran.output);
  REQUIRE(ran.exit_code == 0);
  return ran.output;
}

// The numbers in the first line after `from` that begins with `start`, after spaces.
std::vector<double> numbers(const std::string& output, const std::string& start, const std::string& from = "") {
  std::istringstream lines(output.substr(std::min(output.size(), output.find(from))));
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.rfind(start + " ", 0) != 0) continue;
    std::vector<double> found;
    std::istringstream words(line.substr(start.size()));
    for (std::string word; words >> word;)
      if (char* end = nullptr; std::strtod(word.c_str(), &end), end != word.c_str()) found.push_back(std::stod(word));
    if (!found.empty()) return found;
  }
  return {};
}

bool near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(a[i] - b[i]) <= tolerance)) return false;
  return true;
}

bool is_png(const std::string& bytes) {
  return bytes.size() > 1000 && bytes.rfind("\x89PNG\r\n\x1a\n", 0) == 0 && bytes.substr(12, 4) == "IHDR" &&
         bytes.substr(bytes.size() - 8, 4) == "IEND";
}

bool is_svg(const std::string& bytes) {
  return bytes.rfind("<?xml", 0) == 0 && contains(bytes, "<svg") && contains(bytes.substr(bytes.size() - 20), "</svg>");
}

}  // namespace

RELEASE_TEST_CASE("tutorials: the same output each time, wrong flags exit 2 and are named") {
  const TemporaryFolder folder;
  for (const std::string name : kTutorials) {
    const std::string flags = name == "01_tensors" ? "--npy " + test::quoted((folder.path / "x.npy").string()) : "";
    CHECK(output_of(name, flags) == output_of(name, flags));
    const Ran wrong = test::run("exec " + program(name) + " --no-such-flag");
    INFO(wrong.output);
    CHECK(wrong.exit_code == 2);
    CHECK(contains(wrong.output, "--no-such-flag"));
    CHECK(contains(output_of(name, "--help"), "Tutorial " + name.substr(1, 1)));
  }
}

RELEASE_TEST_CASE("01_tensors: views share memory, shapes broadcast, errors name the line, files come back") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "x.npy").string(),
                    out = output_of("01_tensors", "--npy " + test::quoted(file));
  CHECK(contains(out, "x =\n[[1., 2., 3.],\n [4., 5., 6.]]  [2, 3] float32\n"));
  CHECK(contains(out, "one element: 6; sum of all 6: 21\n"));
  CHECK(contains(out, "x has strides [3, 1], x.t() has [1, 3]\n"));
  CHECK(contains(out, "x.t() =\n[[1., 4.],\n [0., 0.],\n [3., 6.]]  [3, 2] float32\n"));
  CHECK(contains(out, "x is still\n[[1., 0., 3.],\n [4., 0., 6.]]"));
  CHECK(contains(out, "rows + columns =\n[[11., 12., 13.],\n [21., 22., 23.]]"));
  CHECK(contains(out, "mean over axis 0: [16., 17., 18.]"));
  CHECK(contains(out, "Error: add: a is [2, 1] float32 but b is [3, 3] float32"));
  CHECK(contains(out, "(01_tensors.cpp:"));
  CHECK(contains(out, "squares:\n[[ 0.,  1.,  4.],\n [ 9., 16., 25.]]"));
  CHECK(contains(out, "grid: [0.0000, 0.2500, 0.5000, 0.7500, 1.0000]"));
  CHECK(contains(out, ", and loaded:\n[[1., 4.],\n [2., 5.],\n [3., 6.]]"));
  CHECK(load_npy(file).to_vector<double>() == std::vector<double>{1, 4, 2, 5, 3, 6});
  const Ran nowhere = test::run("exec " + program("01_tensors") + " --npy " + test::quoted(file + "/x.npy"));
  CHECK(nowhere.exit_code == 2);
  CHECK(contains(nowhere.output, "there is no folder " + file + " for x.npy"));
}

RELEASE_TEST_CASE("01_tensors: without --npy no file is left, and none of another's is written to") {
  const TemporaryFolder folder;
  const auto others = folder.write("heed_tensors.npy", "not ours");
  const Ran ran = test::run("TMPDIR=" + test::quoted(folder.path.string()) + " exec " + program("01_tensors"));
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, ", and loaded:\n[[1., 4.],"));
  CHECK(bytes_of(others) == "not ours");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

RELEASE_TEST_CASE("02_tape: four steps, and the derivative by hand") {
  const std::string out = output_of("02_tape");
  const double w[] = {0.5, 1, 1.5}, x[] = {1, -2, 3};
  double y = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    y += x[i] * std::sin(w[i] * w[i]);
    const double slope = 2 * x[i] * w[i] * std::cos(w[i] * w[i]);
    CHECK(near(numbers(out, std::to_string(i), "by hand"), {slope, slope}, 1e-12));
  }
  CHECK(near(numbers(out, "y"), {y}, 1e-9));
  const char* const ops[] = {"square", "sin", "mul", "sum"};
  for (std::size_t i = 0; i < 4; ++i) CHECK(contains(out, "   " + std::to_string(i) + "  " + ops[i] + " "));
  CHECK(contains(out, "4 steps keep 48 bytes"));
  CHECK(contains(out, "agree to 1e-14: yes"));
  CHECK(contains(out, "after a second tape: 1.937825"));
  CHECK(contains(out, "after zero_grad() there is a gradient: no"));
  CHECK(contains(out, "dy/d(w^2) = x cos(w^2) = [ 0.9689, -1.0806, -1.8845]  [3] float64"));
  CHECK(contains(out, "gradcheck agrees"));
}

RELEASE_TEST_CASE("03_linear_regression: finds the plane, down to the noise") {
  const std::string out = output_of("03_linear_regression");
  CHECK(near(numbers(out, "0", "epoch"), {4.81, 0, 0, 0}, 0.01));
  const std::vector<double> last = numbers(out, "10", "epoch");
  REQUIRE(last.size() == 4);
  CHECK(std::fabs(last[0] - 0.01) < 0.001);  // noise of deviation 0.1; the mean of 1024 squares has deviation 0.00044
  CHECK(near({last.begin() + 1, last.end()}, {3, -2, 0.5}, 0.025));
}

RELEASE_TEST_CASE("04_two_moons: tells the moons apart, and draws the boundary") {
  const TemporaryFolder folder;
  const std::string png = (folder.path / "moons.png").string(), svg = (folder.path / "moons.svg").string();
  const std::string out = output_of("04_two_moons", "--plot " + test::quoted(png));
  CHECK(contains(out, "1185 parameters"));  // 2 * 32 + 32 + 32 * 32 + 32 + 32 + 1
  const std::vector<double> first = numbers(out, "0", "step"), last = numbers(out, "300", "step");
  REQUIRE(first.size() == 3);
  REQUIRE(last.size() == 3);
  CHECK(std::fabs(first[0] - std::log(2.0)) < 0.05);  // an untrained model
  CHECK(last[0] < 0.02);
  CHECK(last[1] >= 99.5);
  CHECK(last[2] >= 98);
  CHECK(is_png(bytes_of(png)));
  output_of("04_two_moons", "--plot " + test::quoted(svg));
  const std::string picture = bytes_of(svg);
  CHECK(is_svg(picture));
  for (const char* label : {"boundary", "upper moon", "lower moon", "probability of lower moon"})
    CHECK(contains(picture, label));
}

RELEASE_TEST_CASE("05_attention: weights by hand, the causal mask, attention()") {
  const TemporaryFolder folder;
  const std::string png = (folder.path / "a.png").string(), svg = (folder.path / "a.svg").string();
  const std::string out = output_of("05_attention", "--plot " + test::quoted(png));
  // «it» scores 8 / sqrt(4) for the animal and 0 for other words: of all seven words, and of the first five with the
  // mask.
  const double e4 = std::exp(4.0);
  std::vector<double> all(7, 1 / (e4 + 6)), causal = {1, e4, 1, 1, 1, 0, 0};
  all[1] = e4 / (e4 + 6);
  for (double& weight : causal) weight /= e4 + 4;
  CHECK(near(numbers(out, "it", "weights:"), all, 6e-4));
  CHECK(near(numbers(out, "it", "causal weights:"), causal, 6e-4));
  CHECK(near(numbers(out, "the", "\ncausal weights:"), {1, 0, 0, 0, 0, 0, 0}, 0));
  CHECK(contains(out, "at most 1e-6: yes\nthe same with a causal mask: yes; the weights of SoftmaxAttention: yes\n"));
  CHECK(contains(out, "before attention and {thing 0.932, refers 0.017} after it"));
  CHECK(is_png(bytes_of(png)));
  output_of("05_attention", "--plot " + test::quoted(svg));
  CHECK(is_svg(bytes_of(svg)));
  CHECK(contains(bytes_of(svg), "because"));
}

RELEASE_TEST_CASE(
    "04_two_moons, 05_attention, 07_rank_with_depth: a plot that cannot be drawn is an error before the work") {
  for (const std::string name : {"04_two_moons", "05_attention", "07_rank_with_depth"}) {
    const Ran ran = test::run("exec " + program(name) + " --plot picture.gif");
    INFO(ran.output);
    CHECK(ran.exit_code == 2);
    CHECK(contains(ran.output, ".svg"));
    CHECK(std::count(ran.output.begin(), ran.output.end(), '\n') == 1);
  }
}

RELEASE_TEST_CASE("06_own_op: the derivative is right, and the wrong one is found out") {
  const std::string out = output_of("06_own_op");
  for (const char* at : {"-1.00", "0.00", "0.50", "2.00"}) {
    const double slope = 1 + std::sin(2 * std::stod(at));
    CHECK(near(numbers(out, at), {slope, slope}, 6e-5));
  }
  CHECK(contains(out, "gradcheck agrees with snake\n"));
  CHECK(contains(out, "wrong_snake: gradcheck: the derivative with respect to element "));
  CHECK(contains(out, " but finite differences give "));
  CHECK(contains(out, "wrong input: snake: x is [3] int32; it must be float32 or float64 (06_own_op.cpp:"));
}

RELEASE_TEST_CASE(
    "07_rank_with_depth: attention alone falls to rank 1 faster than any power, residual sums keep the tokens apart") {
  const TemporaryFolder folder;
  const std::string svg = (folder.path / "rank.svg").string();
  const std::string out = output_of("07_rank_with_depth", "--plot " + test::quoted(svg));
  const auto layer = [&](const char* title, int i) { return numbers(out, std::to_string(i), title); };
  std::vector<std::vector<double>> residuals, ranks;  // [layer][attention, + ffn, + residual, + both]
  for (int i = 0; i <= 8; ++i) {
    residuals.push_back(layer("distance from rank 1", i));
    ranks.push_back(layer("stable rank", i));
    REQUIRE(residuals.back().size() == 4);
    REQUIRE(ranks.back().size() == 4);
  }
  // Doubly exponential: the logarithm of the distance falls by more per layer, as long as float64 has the digits.
  std::size_t i = 1;
  for (; i + 1 < residuals.size() && residuals[i + 1][0] > 1e-13; ++i) {
    INFO("layer " << i + 1);
    CHECK(std::log(residuals[i + 1][0] / residuals[i][0]) < 1.5 * std::log(residuals[i][0] / residuals[i - 1][0]));
  }
  CHECK(i >= 3);
  for (const std::size_t c : {0, 1}) {
    CHECK(residuals[0][c] > 0.9);
    CHECK(residuals[8][c] < 1e-13);
    CHECK(ranks[8][c] == 1);
  }
  const std::vector<double> last = layer("distance from rank 1", 24), last_rank = layer("stable rank", 24);
  REQUIRE(last.size() == 4);
  REQUIRE(last_rank.size() == 4);
  for (const std::size_t c : {2, 3}) {
    CHECK(last[c] > 0.5);
    CHECK(last_rank[c] > 4);
  }
  CHECK(is_svg(bytes_of(svg)));
  CHECK(contains(bytes_of(svg), "+ residual"));
}

RELEASE_TEST_CASE("08_transformer: the pieces are the library's model, and it reverses words") {
  const std::string out = output_of("08_transformer");
  double product = 0;  // of waves at distance 3
  for (int i = 0; i < 16; ++i) product += std::cos(3 / std::pow(10000.0, i / 16.0));
  char line[100];
  std::snprintf(line, sizeof line, "positions 5 and 8 have the dot product %.4f, 85 and 88 %.4f", product, product);
  CHECK(contains(out, line));
  CHECK(contains(out, "agree to 1e-4: yes"));
  CHECK(contains(out, "after training, they agree to 1e-3: yes"));
  const std::vector<double> source = numbers(out, "source"), translation = numbers(out, "translation");
  CHECK(source.size() == 8);
  CHECK(std::equal(source.rbegin(), source.rend(), translation.begin(), translation.end()));
}

RELEASE_TEST_CASE("09_two_processes: the model learns, and its fingerprint is told") {
  const std::string out = output_of("09_two_processes");
  CHECK(contains(out, "1 process\n"));
  const std::vector<double> losses = numbers(out, "loss");
  REQUIRE(losses.size() == 2);
  CHECK(losses[1] < losses[0]);
  CHECK(contains(out, "hash of the weights: "));
}
