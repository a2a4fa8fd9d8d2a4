// Tests attention_cost: counts against numbers computed by hand and by loops, crossovers of known curves, and the
// program.
#include <algorithm>
#include <heed/core/random.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <map>
#include <sstream>

#include "examples/experiments/cost.hpp"
#include "examples/experiments/linear_forms.hpp"
#include "examples/experiments/median.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/examples/programs.hpp"

using namespace heed;
using test::TemporaryFolder;
using namespace heed::examples;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::program;
using test::Ran;

namespace {

double count(Part part, Index n, const LayerShape& shape = {}) { return multiplications(part, n, shape); }

// Counts the pairs of the strided pattern one by one.
double strided_pairs(Index n, bool causal) {
  const Index l = stride_for(n);
  double pairs = 0;
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < (causal ? i + 1 : n); ++j) pairs += std::abs(i - j) < l || (i - j) % l == 0 ? 1 : 0;
  return pairs;
}

std::vector<double> power(const std::vector<Index>& lengths, double factor, double exponent) {
  std::vector<double> values;
  for (Index n : lengths) values.push_back(factor * std::pow(static_cast<double>(n), exponent));
  return values;
}

// attention_cost with tiny sizes, and the files that it writes.
struct Tiny {
  TemporaryFolder folder;
  std::string log = (folder.path / "log.jsonl").string(), plot = (folder.path / "cost.svg").string();

  std::string command(const std::string& flags) const {
    return program("attention_cost") +
           " --threads 1 --lengths 16,48 --heads 2 --head-size 8 --ffn 0 --repeats 3 --positions 6 "
           "--generation-layers 1 --generation-heads 2 --generation-width 16 --at 70,200 --token-repeats 3 " +
           flags;
  }
  Ran run(const std::string& flags) const { return test::run("exec " + command(flags)); }
};

// The times in a log, by part and length.
std::map<std::string, std::map<Index, std::vector<double>>> times_of(const std::vector<nlohmann::json>& log) {
  std::map<std::string, std::map<Index, std::vector<double>>> times;
  for (const nlohmann::json& entry : log)
    if (entry.at("section") == "layer") times[entry.at("part")][entry.at("n")].push_back(entry.at("ms"));
  return times;
}

}  // namespace

TEST_CASE("attention_cost: the counts of BERT-base, by hand") {
  CHECK(count(Part::projections, 512) == 1207959552);   // 4 * 512 * 768^2
  CHECK(count(Part::feed_forward, 512) == 2415919104);  // 8 * 512 * 768^2
  CHECK(count(Part::no_attention, 512) == 3623878656);
  CHECK(count(Part::softmax, 512) == 402653184);      // 2 * 512^2 * 768
  CHECK(count(Part::linear, 512) == 50331648);        // 2 * 512 * 12 * 64^2
  CHECK(count(Part::linear_wide, 512) == 805306368);  // 2 * 512 * 12 * 256^2
  CHECK(count(Part::linformer, 512) == 402653184);    // 4 * 512 * 256 * 768
  CHECK(count(Part::linformer, 128) == 4 * 128 * 128 * 768);
  CHECK(count(Part::softmax, 512, {.causal = true}) == 512 * 513 * 768);
  CHECK(count(Part::recurrent, 512) == 1811939328);   // 6 * 512 * 768^2
  CHECK(count(Part::convolution, 512) == 905969664);  // 3 * 512 * 768^2
  CHECK(count(Part::dilated, 512, {.kernel = 5}) == 1509949440);
  CHECK(count(Part::poly2, 512) == 512.0 * 12 * 64 * 64 * 65);
  CHECK(count(Part::favor, 512) == 4.0 * 512 * 12 * 256 * 64);
  // 128 keys per query, and 4 rounds of 32 columns per query and per key.
  CHECK(count(Part::lsh, 512) == 512 * (2 * 128 + 2 * 128) * 768);
  // 32 keys per query and round; a bucket of 16 has one digit, a bucket of 512 has three.
  CHECK(count(Part::reformer, 512) == 512.0 * 4 * (2 * 32 + 8) * 768);
  CHECK(count(Part::reformer, 16384) == 16384.0 * 4 * (2 * 32 + 24) * 768);
  CHECK(count(Part::luna, 512) == 4.0 * 512 * 16 * 768 + 2.0 * 16 * 768 * 768);
  CHECK(count(Part::lsh, 4, {.causal = true}) == (2 * (1 + 1 + 2 + 3) + 4 * 256) * 768);
}

RELEASE_TEST_CASE("attention_cost: at the article's crossovers the counts are equal") {
  const auto sum = [](const std::vector<Part>& parts, Index n) {
    return total(parts, [&](Part p) { return count(p, n); });
  };
  const std::vector<Comparison> all = comparisons({});
  const Index expected[] = {1536, 4608, 64, 1024, 2080, 512};
  REQUIRE(all.size() == 15);
  for (std::size_t i = 0; i < 6; ++i) {
    const Comparison& c = all[i];
    CAPTURE(c.name);
    CHECK(sum(c.a, expected[i]) == sum(c.b, expected[i]));
    CHECK(sum(c.a, expected[i] - 1) < sum(c.b, expected[i] - 1));
    CHECK(counted_crossover([&](Index n) { return sum(c.a, n); }, [&](Index n) { return sum(c.b, n); }) == expected[i]);
  }
  CHECK(counted_crossover([](Index n) { return static_cast<double>(n); }, [](Index) { return 101.0; }, 100) ==
        std::nullopt);
  CHECK(counted_crossover([](Index) { return 1.0; }, [](Index) { return 1.0; }, 100) == 1);
  const auto crossing = [&](const Comparison& c) {
    return counted_crossover([&](Index n) { return sum(c.a, n); }, [&](Index n) { return sum(c.b, n); });
  };
  CHECK(crossing(all[13]) == 3 * 768);
  CHECK(crossing(all[14]) == 3 * 768 / 2);
  // a is above b, below at n = 7, and above again: the last crossover counts.
  CHECK(counted_crossover([](Index n) { return n == 7 ? 0.0 : 2.0; }, [](Index) { return 1.0; }, 100) == 8);
}

TEST_CASE("attention_cost: sequential operations and longest paths, by following connections one by one") {
  CHECK(sequential_operations(Part::recurrent, 100) == 100);
  CHECK(sequential_operations(Part::softmax, 100) == 1);
  CHECK(longest_path(Part::recurrent, 100, {}) == 100);
  CHECK(longest_path(Part::linear, 100, {}) == 1);
  CHECK(longest_path(Part::strided, 100, {}) == 2);
  for (const Part part : {Part::projections, Part::feed_forward, Part::lsh})
    CHECK(longest_path(part, 100, {}) == std::nullopt);
  CHECK(longest_path(Part::convolution, 100, {.kernel = 1}) == std::nullopt);
  CHECK(longest_path(Part::dilated, 100, {.kernel = 1}) == std::nullopt);
  for (const bool causal : {false, true})
    for (const Index kernel : {3, 5})
      for (Index n = 1; n < 200; ++n) {
        // The layers until the last position depends on the first.
        const auto layers = [&](bool dilated) {
          Index count = 0, reach = 0, dilation = 1;
          do {
            reach += dilation * (causal ? kernel - 1 : kernel / 2);
            if (dilated) dilation *= kernel;
            ++count;
          } while (reach < n - 1);
          return count;
        };
        CAPTURE(n);
        CHECK(longest_path(Part::convolution, n, {.causal = causal, .kernel = kernel}) == layers(false));
        CHECK(longest_path(Part::dilated, n, {.causal = causal, .kernel = kernel}) == layers(true));
        CHECK(longest_path(Part::window, n, {.causal = causal, .window = kernel}) == layers(false));
      }
}

TEST_CASE("attention_cost: pairs of sparse patterns, counted one by one") {
  for (Index n = 1; n < 130; ++n) {
    CHECK(count(Part::strided, n, {.heads = 1, .head_size = 1}) == 2 * strided_pairs(n, false));
    CHECK(count(Part::strided, n, {.heads = 1, .head_size = 1, .causal = true}) == 2 * strided_pairs(n, true));
  }
  for (const Index n : {1, 2, 3, 7, 8, 9, 40})
    for (const bool causal : {false, true}) {
      const LayerShape shape{.heads = 1, .head_size = 1, .causal = causal, .window = 8};
      const auto pairs = [&](const WindowAttention& m) {
        return static_cast<double>(m.lists(n, n, causal).keys.numel());
      };
      CHECK(count(Part::window, n, shape) == 2 * pairs(WindowAttention({.window = 8})));
      CHECK(count(Part::longformer, n, shape) ==
            2 * (pairs(WindowAttention({.window = 8, .globals = {0}})) + static_cast<double>(causal ? 1 : n)));
    }
  // If all positions share a bucket, LSH finds as many keys as are counted.
  for (const bool causal : {false, true}) {
    for (const Index n : {1, 2, 3, 5, 60}) {
      const LshAttention lsh({.size = 4, .buckets = 2, .rounds = 2, .window = 3});
      const Tensor same = Tensor::ones({1, 1, n, 4});
      const LayerShape shape{
          .heads = 1, .head_size = 1, .causal = causal, .lsh_rounds = 1, .lsh_window = 3, .lsh_buckets = 0};
      CHECK(2 * static_cast<double>(lsh.lists(same, same, {.causal = causal}).keys.numel()) ==
            multiplications(Part::lsh, n, shape));
    }
  }
}

TEST_CASE("attention_cost: measured crossovers lie between the neighbours, on straight lines in logarithms") {
  const std::vector<Index> lengths = {10, 100, 1000, 10000};
  // 0.001 n^2 exceeds n from 1000 on, and 0.5 n from 500 on.
  const MeasuredCrossover at = measured_crossover(lengths, power(lengths, 0.001, 2), power(lengths, 0.5, 1));
  CHECK(at.kind == MeasuredCrossover::between);
  CHECK(at.n == doctest::Approx(500).epsilon(1e-9));
  CHECK(describe(at, lengths) == "500");
  const MeasuredCrossover never = measured_crossover(lengths, power(lengths, 1e-6, 2), power(lengths, 1, 1));
  CHECK(never.kind == MeasuredCrossover::never);
  CHECK(describe(never, lengths) == "none up to 10000");
  CHECK(describe(measured_crossover(lengths, power(lengths, 2, 2), power(lengths, 1, 1)), lengths) == "at or below 10");
  CHECK(measured_crossover({8}, {1}, {2}).kind == MeasuredCrossover::never);
  // Times at small n are noisy, so the last crossover counts.
  CHECK(measured_crossover(lengths, {2, 1, 1, 4}, {1, 2, 2, 1}).n ==
        doctest::Approx(1000 * std::pow(10.0, 1.0 / 3)).epsilon(1e-9));
  CHECK(contains(test::error_of([&] { measured_crossover(lengths, {1}, {1}); }), "4 lengths, 1 and 1 times"));
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(contains(test::error_of([] { median({}); }), "there is no value"));
}

RELEASE_TEST_CASE("attention_cost: tables, log and picture of a tiny run") {
  const Tiny t;
  const Ran ran = t.run("--log " + t.log + " --plot " + t.plot);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const std::vector<nlohmann::json> log = json_lines(t.log);
  const auto times = times_of(log);
  const LayerShape shape{.heads = 2, .head_size = 8, .hidden = 64};
  const std::vector<Index> lengths = {16, 48};
  REQUIRE(times.size() == parts_of(shape).size());
  std::map<Part, std::vector<double>> medians;
  for (Part part : parts_of(shape))
    for (Index n : lengths) {
      CAPTURE(name_of(part));
      REQUIRE(times.at(name_of(part)).at(n).size() >= 3);
      medians[part].push_back(median(times.at(name_of(part)).at(n)));
      char row[80];
      std::snprintf(row, sizeof row, "%-14s %14.2f %12.4g ", name_of(part).c_str(),
                    multiplications(part, n, shape) / 1e6, medians[part].back());
      CHECK(contains(ran.output, row));
    }
  std::size_t crossovers = 0, sequences = 0, tokens = 0;
  double state = 0;
  for (const nlohmann::json& entry : log) {
    CHECK(entry.at("threads") == 1);
    CHECK(entry.at("arch").is_string());
    if (entry.at("section") == "layer") {
      CHECK(entry.at("peak_mib") > 0);
      CHECK(entry.at("multiplications") > 0);
      CHECK(entry.at("sequential") == (entry.at("part") == "recurrent" ? entry.at("n").get<Index>() : 1));
      CHECK(entry.at("backward") == true);
      CHECK(entry.at("causal") == false);
    } else if (entry.at("section") == "crossover") {
      // Crossovers are computed from the medians of the logged times.
      const Comparison c = comparisons(shape)[crossovers++];
      const auto sums = [&](const std::vector<Part>& parts) {
        return std::vector<double>{total(parts, [&](Part p) { return medians[p][0]; }),
                                   total(parts, [&](Part p) { return medians[p][1]; })};
      };
      CHECK(entry.at("name") == c.name);
      CHECK(entry.at("measured") == describe(measured_crossover(lengths, sums(c.a), sums(c.b)), lengths));
    } else if (entry.at("section") == "sequence") {
      ++sequences;
      CHECK(entry.at("seconds") > 0);
      CHECK(entry.at("ratio") > 0);
    } else {
      ++tokens;
      const double bytes = entry.at("state_mib").get<double>() * (1 << 20);
      const bool far = entry.at("position") == 200;
      // Keys and values of width 16, with room for 128 or 256 positions, and the length.
      if (entry.at("way") == "softmax, cache") CHECK(bytes == 2 * 16 * 4 * (far ? 256 : 128) + 4);
      if (entry.at("way") == "linear, sums" && state == 0) state = bytes;
      if (entry.at("way") == "linear, sums") CHECK(bytes == state);
      CHECK(entry.at("ms") > 0);
    }
  }
  CHECK(crossovers == 15);
  CHECK(sequences == 3);
  CHECK(tokens == 2 * 2 * 3);
  for (const char* text : {"16.8x", "317.0x", "                   8 ", "softmax over linformer"})
    CHECK(contains(ran.output, text));
  const std::string picture = bytes_of(t.plot);
  for (const char* text : {"<svg", "Measured, forward and backward", "Counted, forward", "linformer",
                           "Memory of tensors, forward and backward", "One more token", "Memory of the state"})
    CHECK(contains(picture, text));
}

TEST_CASE("attention_cost: forms of linear attention and of softmax agree") {
  const Tensor q = test::normal({1, 2, 9, 4}, 1), k = test::normal({1, 2, 9, 4}, 2), v = test::normal({1, 2, 9, 4}, 3);
  const Tensor linear = attend_by(AttentionForm::chunks, q, k, v), softmax = attend_by(AttentionForm::softmax, q, k, v);
  CHECK(test::close(attend_by(AttentionForm::cumsum, q, k, v), linear, 1e-12, 1e-12));
  CHECK(test::close(attend_by(AttentionForm::recurrence, q, k, v), linear, 1e-12, 1e-12));
  CHECK(test::close(attend_by(AttentionForm::softmax_matrix, q, k, v), softmax, 1e-12, 1e-12));
}

RELEASE_TEST_CASE("attention_cost: forms of causal attention, in a table and in a picture") {
  const Tiny t;
  const Ran ran = t.run("--measure forms --log " + t.log + " --plot " + t.plot);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(json_lines(t.log).size() == 10);
  for (const char* text : {"linear, cumsum", "Memory of the forms"}) CHECK(contains(bytes_of(t.plot), text));
  const Ran large = t.run("--measure forms --forward --repeats 1 --lengths 64,20000");
  INFO(large.output);
  CHECK(large.exit_code == 0);
  CHECK(contains(large.output, "                    -"));  // n x n
}

RELEASE_TEST_CASE("attention_cost: causal and forward alone, without linformer") {
  const Tiny t;
  const Ran ran = t.run("--causal --forward --measure layer --log " + t.log);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "reformer, linformer and luna are left out"));
  CHECK(!contains(ran.output, "Generating"));
  const std::vector<nlohmann::json> log = json_lines(t.log);
  CHECK(times_of(log).count("linformer") == 0);
  CHECK(times_of(log).size() == 15);
  CHECK(log.front().at("backward") == false);
  CHECK(log.front().at("causal") == true);
  const Ran generation = t.run("--measure generation --batch 2");
  CHECK(generation.exit_code == 0);
  CHECK(!contains(generation.output, "projections"));
  CHECK(contains(generation.output, "batch 2"));
}

RELEASE_TEST_CASE("attention_cost: a log that cannot be opened or written is an error, and not lost silently") {
  const Tiny t;
  const std::string command = t.command("--measure layer --log " + t.log), folder = t.folder.path.string(),
                    calls = folder + "/calls";
  REQUIRE(test::run(command, {.prefix = folder, .mode = "", .log = calls}).exit_code == 0);
  std::vector<int> of_log;  // calls on the log, after those that check whether it can be written
  int call = 0;
  for (const std::string& line : test::lines_of(bytes_of(calls))) {
    ++call;
    if (line.ends_with(" " + t.log)) of_log.push_back(call);
  }
  REQUIRE(of_log.size() > 20);  // opening, then one call per time
  for (const std::size_t i : {0, 1, 12}) {
    const Ran ran = test::run(command, {.prefix = folder, .mode = "enospc", .at = of_log[i]});
    INFO("call " << of_log[i] << ": " << ran.output);
    CHECK(ran.exit_code == 1);
    CHECK(contains(ran.output, "log: " + t.log + " cannot be "));
  }
}

RELEASE_TEST_CASE("attention_cost: wrong flags say what is right and exit 2, bad files exit 1") {
  const Tiny t;
  const auto refused = [&](const std::string& flags, int exit_code, const std::string& sentence) {
    test::check_refused(t.run(flags), exit_code, sentence);
  };
  const auto program_alone = [](const std::string& flags) {
    return test::run("exec " + program("attention_cost") + " " + flags);
  };
  CHECK(program_alone("--lengths 64,32").exit_code == 2);
  CHECK(contains(program_alone("--lengths 64,32").output, "--lengths has 32 after 64; lengths must increase"));
  CHECK(contains(program_alone("--lengths 64,0").output, "it is '0'; it must be a whole number, from 1"));
  CHECK(program_alone("--lengths 64,few").exit_code == 2);
  const Ran heads = program_alone("--generation-width 18 --generation-heads 4");
  CHECK(heads.exit_code == 2);
  CHECK(contains(heads.output, "--generation-width is 18 and --generation-heads is 4; heads must divide the width"));
  refused("--measure time", 2, "it must be layer, generation, all or forms");
  refused("--length 5", 2, "there is no flag --length; the nearest is --lengths");
  refused("--repeats 0", 2, "a whole number, from 1 to 1000");
  refused("--kernel 4", 2, "--kernel is 4; it must be odd");
  refused("--plot cost.gif", 2, "it must end with .svg or .png");
  refused("--log /nowhere/log", 2, "--log: there is no folder /nowhere for log");
  const Ran help = program_alone("--help");
  CHECK(help.exit_code == 0);
  std::istringstream lines(help.output);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}
