// Runs attention_race with a few steps, and tests its parts: data, answers, tables.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "examples/experiments/race.hpp"
#include "examples/experiments/race_questions.hpp"
#include "examples/experiments/race_report.hpp"
#include "tests/examples/programs.hpp"

using namespace heed;
using test::TemporaryFolder;
using namespace heed::examples;
using nlohmann::json;
using test::contains;
using test::json_lines;
using test::lines_of;
using test::program;
using test::Ran;

namespace {

std::string race(const std::string& flags) { return program("attention_race") + " " + flags; }

// The log without the values that depend on clocks and memory.
std::vector<json> without_clocks(std::vector<json> log) {
  for (json& entry : log)
    for (const char* key : {"step_seconds", "tokens_per_second", "seconds", "peak_bytes"}) entry.erase(key);
  return log;
}

GPTOptions small(Index vocabulary) {
  return {.vocabulary = vocabulary,
          .context = 16,
          .blocks = {.layers = 1, .attention = {.width = 8, .heads = 2, .key_size = 4, .value_size = 4}, .hidden = 8}};
}

struct Numbers {  // a task whose targets are the inputs
  Batch batch(std::uint64_t, std::uint64_t step) const {
    const Tensor x = Rng(1, step).integers({2, 16}, 0, 5);
    return {x, x, 32};
  }
};

std::shared_ptr<RaceTask> small_task() {
  return std::make_shared<RaceTask>(
      RaceTask{.name = "copy",
               .about = "small",
               .steps = 4,
               .model = small(5),
               .tokens = 32,
               .training = Numbers(),
               .score = [](const GPT& model, Index batches) {
                 const Batch b = Numbers().batch(0, 99);
                 return RaceScore{model.loss(b.inputs, b.targets).item(), static_cast<double>(batches), {}};
               }});
}

RaceEntry small_entry(const std::string& mechanism, Index context = 16) {
  RaceEntry e{small_task(), mechanism, mechanism, small(5), {}};
  e.options = {.heads = 2, .head_size = 4, .context = context};
  return e;
}

}  // namespace

RELEASE_TEST_CASE(
    "attention_race: all tasks leave tables, a log and pictures, with the same losses at 1 and 2 threads") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return test::quoted((folder.path / name).string()); };
  const std::string tested = test::thinned("softmax,linear ", "linear --tasks copy,stories "),
                    flags = "--steps 2 --seed 3 --mechanisms " + tested;
  const Ran ran = test::run("exec " + race(flags + "--threads 2 --plot " + file("race.svg") + " --log " + file("a")));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const std::vector<json> log = json_lines((folder.path / "a").string());
  if (!test::kSanitized) {
    REQUIRE(test::run("exec " + race(flags + "--tasks rank --threads 1 --log " + file("b"))).exit_code == 0);
    std::vector<json> rank;
    std::copy_if(log.begin(), log.end(), std::back_inserter(rank),
                 [](const json& entry) { return entry.at("task") == "rank"; });
    CHECK(without_clocks(rank) == without_clocks(json_lines((folder.path / "b").string())));
  }

  std::vector<std::string> runs;
  for (const json& entry : log) {
    CHECK(entry.at("training_loss").is_number());
    CHECK(entry.at("loss").is_number());
    if (entry.at("kind") == "evaluation") continue;
    runs.push_back(entry.at("task").get<std::string>() + ": " + entry.at("run").get<std::string>());
    CHECK(entry.at("steps") == 2);
    for (const char* key : {"parameters", "step_seconds", "tokens_per_second", "peak_bytes"}) CHECK(entry.at(key) > 0);
    const std::string task = entry.at("task");
    const bool has_questions = task != "copy" && task != "recall" && task != "tracking";
    CHECK(entry.contains("right_by_distance") == has_questions);
    CHECK(entry.contains("floor") == (entry.at("task") == "stories" || entry.at("task") == "rank"));
  }
  if (test::kSanitized) return;
  CHECK(runs == std::vector<std::string>{"copy: softmax",           "copy: linear",
                                         "recall: softmax",         "recall: linear",
                                         "tracking: softmax",       "tracking: linear",
                                         "stories: softmax",        "stories: linear",
                                         "rank: softmax",           "rank: linear",
                                         "rank: linear, 4x q k",    "rank: linear, 4x all",
                                         "linformer: softmax",      "linformer: efficient",
                                         "linformer: linformer 4",  "linformer: linformer 8",
                                         "linformer: linformer 16", "linformer: linformer 32",
                                         "lengths-40: softmax",     "lengths-40: linformer 16",
                                         "lengths-80: softmax",     "lengths-80: linformer 16",
                                         "lengths-160: softmax",    "lengths-160: linformer 16",
                                         "lengths-320: softmax",    "lengths-320: linformer 16"});
  for (const char* column : {"loss", "above", "right", "0-9", "23+", "tokens/s", "MiB"})
    CHECK(contains(ran.output, column));
  for (const std::string& line : lines_of(ran.output)) CHECK((line.size() <= 100 || contains(line, "picture: ")));
  for (const char* name : {"copy-loss", "copy-cost", "stories-loss", "stories-cost", "stories-distance", "rank-loss",
                           "rank-distance", "linformer-loss", "linformer-rows"}) {
    INFO(name);
    CHECK(contains(test::bytes_of((folder.path / ("race-" + std::string(name) + ".svg")).string()), "</svg>"));
  }
}

RELEASE_TEST_CASE("attention_race: wrong flags say what is right and exit 2") {
  const auto refused = [](const std::string& flags, const std::string& sentence) {
    test::check_refused(test::run("exec " + race(flags)), 2, sentence);
  };
  refused("--mechanisms softmax,sotfmax", "it is 'sotfmax'; it must be softmax, linear, ");
  refused("--mechanisms linformer", "it is 'linformer'; it must be");
  refused("--tasks copies", "it is 'copies'; it must be copy, recall, tracking, stories, rank, linformer or lengths");
  refused("--mechanisms softmax,linear --window 8",
          "--window is 8 and --mechanisms is softmax,linear; --mechanisms must be window or longformer or lsh, or "
          "leave --window "
          "out");
  refused("--tasks rank --feature-map relu",
          "--feature-map is relu and --tasks is rank; --tasks must include copy, recall, tracking or stories, or leave "
          "--feature-map out");
  refused("--mechanisms lsh --lsh-buckets 3", "--mechanisms is lsh: lsh attention: buckets is 3; it must be even");
  refused("--steps 0", "a whole number, 1 or more");
  refused("--stepps 1", "the nearest is --steps");
  const Ran plot = test::run("exec " + race("--plot race.gif"));
  CHECK(plot.exit_code == 2);
  CHECK(contains(plot.output, "it must end with .svg or .png"));
  const Ran log = test::run("exec " + race("--log /no/such/folder/log"));
  CHECK(log.exit_code == 2);
  CHECK(contains(log.output, "/no/such/folder"));
}

RELEASE_TEST_CASE("attention_race: Ctrl-C ends with the table so far and 130") {
  const TemporaryFolder folder;
  const std::string out = test::quoted((folder.path / "out").string());
  // A run with more steps than it has time for, interrupted during the first entry.
  const Ran ran = test::run(
      test::in_background(race("--mechanisms softmax,linear --tasks copy --steps 100000 > " + out) + " 2>&1") +
      "for i in " + "$(seq 600); do grep -q 'step 1/' " + out +
      " && break; sleep 0.1; done; kill -INT $pid; wait $pid; " + "code=$?; cat " + out + "; exit $code");
  INFO(ran.output);
  CHECK(ran.exit_code == 130);
  CHECK(contains(ran.output, "copy: 63 symbols of 10 kinds"));
  CHECK(contains(ran.output, "softmax: stopped after "));
  CHECK(contains(ran.output, " in total\n"));  // the planned time
  CHECK(!contains(ran.output, "2/2 copy"));
}

TEST_CASE("attention_race: a failed run is reported in its row, after the others, and the exit code is 1") {
  const RaceRunOptions options{.steps = 4, .points = 2};
  // luong-location has weights for 8 positions, but the rows have 16.
  const RaceResult good = run_entry(small_entry("softmax"), options),
                   bad = run_entry(small_entry("luong-location", 8), options);
  CHECK(good.error.empty());
  CHECK(good.losses.size() == 4);
  REQUIRE(good.points.size() == 2);
  CHECK(good.points[0].step == 2);
  CHECK(good.points[1].step == 4);
  CHECK(good.points[1].training_loss == doctest::Approx((good.losses[2] + good.losses[3]) / 2).epsilon(1e-12));
  CHECK(good.points[1].score.right == 4);  // at most as many batches as steps
  CHECK(contains(bad.error, "8"));
  CHECK(bad.losses.empty());
  const std::vector<std::string> lines = lines_of(race_table(*small_task(), {bad, good}));
  REQUIRE(lines.size() == 4);
  CHECK(contains(lines[2], "softmax"));
  CHECK(contains(lines[3], "luong-location    failed: "));
  CHECK(test::parse_json(race_json(*small_task(), bad)).at("error") == bad.error);
  CHECK(race_pictures("none.svg", *small_task(), {bad}).empty());
  const TemporaryFolder folder;
  RaceSettings settings;
  settings.steps = 2;
  settings.log = (folder.path / "log").string();
  CHECK(examples::race(settings, {small_entry("luong-location", 8), small_entry("linear")}) == 1);
  CHECK(json_lines(settings.log).size() == 4);  // the failed run, two evaluations, the other run
  CHECK(examples::race(settings, {small_entry("linear")}) == 0);
}

TEST_CASE("attention_race: models of a seed begin with the same weights in all that they share") {
  const auto model = [](const std::string& name, std::uint64_t seed) {
    return race_model(small(5), seed, mechanism_by_name(name, {.heads = 2, .head_size = 4, .context = 16}));
  };
  GPT a = model("softmax", 7), b = model("luong-general", 7), c = model("softmax", 8);
  const std::vector<NamedParameter> x = named_parameters(a), y = named_parameters(b), z = named_parameters(c);
  std::size_t shared = 0, differ = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (const NamedParameter& p : y) {
      if (p.name != x[i].name) continue;
      ++shared;
      CHECK(p.parameter->to_vector<float>() == x[i].parameter->to_vector<float>());
    }
    differ += x[i].parameter->to_vector<float>() != z[i].parameter->to_vector<float>() ? 1 : 0;
  }
  CHECK(shared == x.size());
  CHECK(y.size() > x.size());
  CHECK(differ == 6);  // embedding, positions and four matrices; biases and norms start as 0 and 1
}

TEST_CASE("attention_race: the words of a story") {
  using Words = std::vector<std::string_view>;
  CHECK(words_of("A cat ran. Who?\n") == Words{"A", "cat", "ran", ".", "Who", "?", "\n"});
  CHECK(words_of(" ..a") == Words{".", ".", "a"});
  CHECK(words_of("").empty());
}

TEST_CASE("attention_race: places of answers, right answers, and masked answers") {
  const StoryReader reader;
  const StoryRows rows = reader.rows(5, 100, 20);
  REQUIRE(rows.tokens.shape() == Shape{20, StoryReader::kLength});
  REQUIRE(!rows.answers.empty());
  const auto part = [&](Index row, Index begin, Index end) {
    std::string words;
    for (const std::int32_t id : rows.tokens[row].slice(0, begin, end).to_vector<std::int32_t>())
      words += reader.word(id) + (reader.word(id) == "\n" ? "" : " ");
    return words;
  };
  const auto tokens_of = [](const std::string& text, std::size_t begin, std::size_t end) {  // in the form of part()
    const std::string words = text.substr(begin, end - begin);
    std::string spaced;
    for (const char c : words) spaced += c == '.' || c == '?' ? std::string(" ") + c : std::string(1, c);
    while (spaced.ends_with('\n') || spaced.ends_with(' ')) spaced.pop_back();
    return spaced + " ";
  };
  Index answers = 0;
  double nats = 0;
  for (Index r = 0; r < 20; ++r) {
    const Story story = reader.stories().story(5, 100 + static_cast<std::uint64_t>(r));
    const Index length = rows.lengths[static_cast<std::size_t>(r)];
    CHECK(part(r, 0, 1) == "\n");
    CHECK(part(r, 1, length - 1) == tokens_of(story.text, 0, story.text.size()));
    CHECK(part(r, length - 1, StoryReader::kLength).find_first_not_of('\n') == std::string::npos);
    for (const StoryQuestion& q : story.questions) {
      const QuestionAnswer& a = rows.answers[static_cast<std::size_t>(answers++)];
      CHECK(a.row == r);
      CHECK(part(r, a.begin, a.end) == tokens_of(story.text, q.answer, q.answer_end));
      CHECK(part(r, a.begin - a.distance, a.begin) == tokens_of(story.text, q.fact, q.answer));
    }
    nats -= story.log_probability;
  }
  CHECK(answers == static_cast<Index>(rows.answers.size()));
  CHECK(rows.nats == doctest::Approx(nats).epsilon(1e-12));

  const Batch next = next_words(rows);
  Index counted = 0;
  for (Index r = 0; r < 20; ++r)
    for (Index i = 0; i < StoryReader::kLength; ++i) {
      const bool counts = i + 1 < rows.lengths[static_cast<std::size_t>(r)];
      CHECK(next.targets.at({r, i}) == (counts ? rows.tokens.at({r, i + 1}) : kIgnoreIndex));
      counted += counts ? 1 : 0;
    }
  CHECK(next.counted == counted);

  AnswerCount all, but_one;
  all.add(rows, rows.tokens);
  Tensor wrong = rows.tokens.clone();
  const QuestionAnswer& last = rows.answers.back();
  wrong.ptr<std::int32_t>()[last.row * wrong.dim(1) + last.end - 1] += 1;  // the last word of one answer
  but_one.add(rows, wrong);
  CHECK(all.share() == 1);
  CHECK(but_one.share() == doctest::Approx(1 - 1 / static_cast<double>(answers)).epsilon(1e-12));
  CHECK(distance_name(1) == "10-12");

  const Batch b = masked_answers(rows, 999);
  Index masked = 0;
  for (const QuestionAnswer& a : rows.answers) {
    for (Index i = a.begin; i < a.end; ++i) {
      CHECK(b.inputs.at({a.row, i}) == 999);
      CHECK(b.targets.at({a.row, i}) == rows.tokens.at({a.row, i}));
      ++masked;
    }
    CHECK(b.targets.at({a.row, a.begin - 1}) == kIgnoreIndex);
    CHECK(b.inputs.at({a.row, a.begin - 1}) != 999);
  }
  CHECK(b.counted == masked);
  const std::vector<std::int32_t> targets = b.targets.to_vector<std::int32_t>();
  CHECK(std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t != kIgnoreIndex; }) == masked);
}
