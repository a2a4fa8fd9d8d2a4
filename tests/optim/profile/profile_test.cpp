// Profiles: assignment to ops, modules and parts, sums, and the trace. Above 400 lines: each case tests another part of
// one step.
#include <cmath>
#include <fstream>
#include <heed/core/profiler.hpp>
#include <heed/heed.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// A training step whose ops are known.
struct Training {
  static constexpr Index kBatch = 3, kContext = 16, kWidth = 32, kVocabulary = 20;
  Rng rng{1};
  GPT model{{.vocabulary = kVocabulary,
             .context = kContext,
             .blocks = {.layers = 2, .attention = {.width = kWidth, .heads = 2, .bias = false}}},
            rng};
  AdamW optimizer{named_parameters(model), {.lr = 1e-3}};
  Tensor x = rng.integers({kBatch, kContext}, 0, kVocabulary), y = rng.integers({kBatch, kContext}, 0, kVocabulary);

  double step() {
    double loss = 0;
    {
      Tape tape;
      const Tensor l = model.loss(x, y);
      tape.backward(l);
      loss = l.item();
    }
    optimizer.clipped_step(1);
    optimizer.zero_grad();
    return loss;
  }
};

ProfileRow row(const std::vector<ProfileRow>& rows, const std::string& name, const std::string& module = "") {
  for (const ProfileRow& r : rows)
    if (r.name == name && r.module == module) return r;
  INFO("there is no row ", name, " of ", module);
  CHECK(false);
  return {};
}

bool has(const std::vector<ProfileRow>& rows, const std::string& name) {
  return std::any_of(rows.begin(), rows.end(), [&](const ProfileRow& r) { return r.name == name; });
}

// True if ops, parts and the rest add up to the step, and none is negative. A step that has not ended grows during the
// call.
bool adds_up(const Profile& profile) {
  const double before = profile.seconds();
  double sum = 0;
  for (const ProfileRow& r : profile.key_averages()) {
    if (r.forward.seconds < 0 || r.backward.seconds < 0) return false;
    if (r.kind != ProfileRow::span) sum += r.seconds();
  }
  return before > 0 && sum > before * (1 - 1e-9) && sum < profile.seconds() * (1 + 1e-9);
}

}  // namespace

TEST_CASE("profile: ops of a language model by name and module, with calls, operations and bytes") {
  Training t;
  Profile profile({.warmup = 1, .active = 3});
  while (!profile.done()) t.step(), profile.step();
  CHECK(profile.steps() == 3);
  CHECK(adds_up(profile));
  const std::vector<ProfileRow> rows = profile.key_averages();
  const double tokens = t.kBatch * t.kContext, w = t.kWidth;
  const struct {
    const char *name, *module;
    double calls, flops, bytes;  // of forward
  } cases[] = {
      {"embedding", "tokens", 1, 0, 4 * (tokens + t.kVocabulary * w + tokens * w)},
      {"add", "positions", 1, 0, 4 * (2 * tokens * w + t.kContext * w)},
      {"layer_norm", "blocks.0.norm1", 1, 0, 4 * (2 * tokens * w + w + 3 * tokens)},
      {"linear", "blocks.0.attention.qkv", 1, 6 * tokens * w * w, 4 * (4 * tokens * w + 3 * w * w)},
      {"attention", "blocks.0.attention", 1, 2 * tokens * t.kContext * w, 4 * (4 * tokens * w + 2 * tokens)},
      {"linear", "blocks.0.attention.proj", 1, 2 * tokens * w * w, 4 * (2 * tokens * w + w * w)},
      {"add", "blocks.0", 1, 0, 4 * 3 * tokens * w},
      {"layer_norm", "blocks.1.norm2", 1, 0, 4 * (2 * tokens * w + w + 3 * tokens)},
      {"feed_forward", "blocks.1.mlp", 1, 16 * tokens * w * w, 4 * (6 * tokens * w + 8 * w * w)},
      {"add", "blocks", 1, 0, 4 * 3 * tokens * w},  // between the blocks
      {"add", "", 1, 0, 4 * 3 * tokens * w},        // after the blocks
      {"linear_cross_entropy", "tokens", 1, 6 * tokens * w * t.kVocabulary,
       4 * (1 + 2 * tokens * w + 2 * t.kVocabulary * w)},
  };
  double products = 0;
  for (const auto& expected : cases) {
    const ProfileRow r = row(rows, expected.name, expected.module);
    INFO(expected.name, " of ", expected.module);
    CHECK(r.kind == ProfileRow::op);
    CHECK(r.forward.calls == expected.calls);
    CHECK(r.backward.calls == expected.calls);
    CHECK(r.forward.seconds > 0);
    CHECK(r.forward.flops == doctest::Approx(expected.flops));
    CHECK(r.forward.bytes == doctest::Approx(expected.bytes));
    if (r.name != "linear" && r.name != "feed_forward") continue;
    CHECK(r.backward.flops == doctest::Approx(2 * expected.flops));
    CHECK(r.backward.share_of_peak > 0);
    CHECK(r.backward.share_of_memory > 0);
    ++products;
  }
  CHECK(products == 3);
  CHECK(std::count_if(rows.begin(), rows.end(), [](const ProfileRow& r) { return r.name == "linear"; }) == 4);
  CHECK(row(rows, "attention", "blocks.1.attention").backward.flops == doctest::Approx(5 * tokens * t.kContext * w));
  CHECK(row(rows, "optimizer").kind == ProfileRow::part);
  CHECK(row(rows, "clipping").forward.calls == 1);
  CHECK(row(rows, "everything else").kind == ProfileRow::rest);
  for (std::size_t i = 1; i < rows.size(); ++i)  // the longest of a kind first
    CHECK((rows[i - 1].kind < rows[i].kind || rows[i - 1].seconds() >= rows[i].seconds()));
}

TEST_CASE("profile: products of bfloat16 and of float64, recurrent ones, linear attention") {
  Rng rng(1);
  const Tensor x = rng.normal({6, 10, 8});
  {
    const Linear layer(8, 4, rng, {.bias = false});
    Profile profile;
    const MatmulPrecision precision(DType::bfloat16);
    layer(x);
    CHECK(profile.key_averages().front().forward.flops == 2 * 60 * 8 * 4);
  }
  {
    Profile profile;
    matmul(x.to(DType::float64), rng.normal({8, 3}).to(DType::float64));
    CHECK(row(profile.key_averages(), "matmul").forward.flops == 2 * 60 * 8 * 3);
  }
  {
    GRU layer({.input = 8, .hidden = 5}, rng);
    named_parameters(layer);
    Profile profile;
    layer(x);
    double flops = 0;
    for (const ProfileRow& r : profile.key_averages()) flops += r.forward.flops;
    CHECK(flops == 2 * 60 * (8 + 5) * 15);
  }
  const Tensor q = rng.normal({2, 3, 10, 8});
  Profile profile;
  linear_attention(q, q, q);
  CHECK(row(profile.key_averages(), "linear_attention").forward.flops == 4 * 2 * 3 * 10 * 8 * 8);
}

TEST_CASE("profile: an op without parameters counts for the innermost module around it") {
  struct Inner {
    Linear a, b;
    explicit Inner(Rng& rng) : a(4, 4, rng), b(4, 4, rng) {}
    Tensor operator()(In x) const { return b(relu(a(x))); }
    void members(MemberVisitor& visit) { visit("a", a), visit("b", b); }
  };
  struct Outer {
    Inner one, other;
    Parameter scale{Tensor::ones({4})};
    explicit Outer(Rng& rng) : one(rng), other(rng) {}
    Tensor operator()(In x) const { return exp(tanh(scale * sigmoid(other(sin(one(cos(x))))))); }
    void members(MemberVisitor& visit) { visit("one", one), visit("other", other), visit("scale", scale); }
  };
  Rng rng(1);
  Outer model(rng);
  named_parameters(model);
  const Tensor x = rng.normal({3, 4});
  for (const bool on_tape : {true, false}) {
    Profile profile;
    if (on_tape) {
      Tape tape;
      tape.backward(mean(model(x)));
    } else {
      const NoTape no_tape;
      model(x);
    }
    const std::vector<ProfileRow> rows = profile.key_averages();
    CHECK(adds_up(profile));
    row(rows, "relu", "one"), row(rows, "relu", "other");
    for (const char* name : {"cos", "sin", "sigmoid", "tanh", "exp"}) {
      const ProfileRow r = row(rows, name);
      CHECK(r.forward.calls == 1);
      CHECK(r.backward.calls == (on_tape && r.name != "cos" ? 1 : 0));  // x needs no gradient
    }
    row(rows, "mul", "scale"), row(rows, "linear", "other.a");
  }
  Profile profile;
  linear(x, model.one.a.weight, model.one.b.bias);  // counts for the module that contains both
  linear(x, model.one.a.weight, model.other.b.bias);
  const std::vector<ProfileRow> rows = profile.key_averages();
  row(rows, "linear", "one"), row(rows, "linear", "");
}

TEST_CASE("profile: a part includes the time of its ops, a span does not") {
  Training t;
  const LanguageModelBatches data(TokenSource(t.x.to_vector<std::int32_t>(), t.kVocabulary),
                                  {.batch = 2, .context = 8});
  const WholeSplit split(TokenSource(t.x.to_vector<std::int32_t>(), t.kVocabulary), {.batch = 2, .context = 8});
  Profile profile;
  {
    const RecordFunction all("all of it");
    {
      const RecordFunction first("the first loss");
      t.model.loss(t.x, t.y);
    }
    evaluate([&](const Batch& b) { return t.model.loss(b.inputs, b.targets); }, split);
  }
  const std::vector<ProfileRow> rows = profile.key_averages();
  CHECK(adds_up(profile));
  CHECK(row(rows, "attention", "blocks.0.attention").forward.calls == 1);
  const ProfileRow &all = row(rows, "all of it"), &first = row(rows, "the first loss"), &part = row(rows, "evaluation");
  CHECK(part.kind == ProfileRow::part);
  CHECK(all.kind == ProfileRow::span);
  CHECK(all.seconds() >= first.seconds() + part.seconds());
  double ops = 0;
  for (const ProfileRow& r : rows) ops += r.kind == ProfileRow::op ? r.seconds() : 0;
  CHECK(first.seconds() >= ops);
  CHECK(part.forward.calls == 1);
}

TEST_CASE("profile: warm-up, active steps, and ops outside of steps") {
  Training t;
  {
    Profile profile({.warmup = 2, .active = 2});
    std::ostringstream text;
    profile.print(text);
    CHECK(contains(text.str(), "no step was measured: the warm-up is not over"));
    CHECK(profile.key_averages().empty());
    for (int i = 1; i <= 6; ++i) {
      t.step();
      profile.step();
      CHECK(profile.steps() == std::clamp(i - 2, 0, 2));
      CHECK(profile.done() == (i >= 4));
    }
    CHECK(row(profile.key_averages(), "optimizer").forward.calls == 1);
  }
  {
    Profile profile;  // without step(), all is one step
    t.step();
    t.step();
    CHECK(adds_up(profile));
    CHECK(profile.steps() == 0);
    CHECK(row(profile.key_averages(), "optimizer").forward.calls == 2);
    profile.step();
    t.step();  // not a complete step
    CHECK(profile.steps() == 1);
    CHECK(row(profile.key_averages(), "optimizer").forward.calls == 2);
    profile.start();  // drops it
    profile.step();
    CHECK(row(profile.key_averages(), "optimizer").forward.calls == 1);  // 2 and 0 in two steps
  }
  CHECK(error_of([] { Profile({.warmup = -1}); }) ==
        "Profile: warmup is -1, active 0 and trace_events 1048576; they must be 0 or more");
}

TEST_CASE("profile: one at a time on a thread, and each thread has its own") {
  Training t;
  {
    Profile profile;
    CHECK(error_of([] { Profile another; }) ==
          "Profile: this thread has a profile already; it must end before another begins");
    Profile* const of_here = &profile;
    std::string message;
    std::thread([&] {
      message = error_of([&] { of_here->step(); });
      Rng rng(2);
      const Linear layer(4, 4, rng);
      {
        layer(rng.normal({2, 4}));  // no profile records it
        Profile own;
        layer(rng.normal({2, 4}));
        CHECK(own.key_averages().front().name == "linear");
        CHECK(own.key_averages().front().forward.calls == 1);
        CHECK(adds_up(own));
      }
      layer(rng.normal({2, 4}));
    }).join();
    CHECK(message == "Profile: step() is called on another thread; call it on the thread that created the profile");
    t.step();
    CHECK(row(profile.key_averages(), "optimizer").forward.calls == 1);
    CHECK(row(profile.key_averages(), "feed_forward", "blocks.0.mlp").forward.calls == 1);
  }
  t.step();  // without a profile
  Profile profile;
  t.step();
  CHECK(row(profile.key_averages(), "optimizer").forward.calls == 1);
}

TEST_CASE("profile: it may begin and end inside a tape, and a tape and a span outlive it") {
  Training t;
  const std::optional<RecordFunction> before("before");
  {
    Tape tape;
    const Tensor loss = t.model.loss(t.x, t.y);
    Profile profile;
    tape.backward(loss);  // ops whose forward it has not recorded
    const ProfileRow up = row(profile.key_averages(), "feed_forward", "blocks.1.mlp");
    CHECK(up.forward.calls == 0);
    CHECK(up.backward.calls == 1);
    CHECK(adds_up(profile));
  }
  Tape tape;
  std::optional<RecordFunction> span;
  Tensor loss;
  {
    Profile profile;
    span.emplace("span");
    loss = t.model.loss(t.x, t.y);
    profile.step();  // the span covers both steps
    CHECK(row(profile.key_averages(), "span").forward.calls == 1);
    profile.step();
    CHECK(row(profile.key_averages(), "span").forward.calls == 1);
    CHECK(adds_up(profile));
  }
  Profile another;
  span.reset();  // belongs to the first profile
  tape.backward(loss);
  CHECK(row(another.key_averages(), "feed_forward", "blocks.1.mlp").backward.calls == 1);
  CHECK(!has(another.key_averages(), "span"));
}

TEST_CASE("profile: exceptions leave it as it was") {
  Training t;
  Profile profile;
  for (int i = 0; i < 3; ++i) {
    CHECK(contains(error_of([&] {
                     const RecordFunction span("fails");
                     const detail::ProfileScope part("part");
                     matmul(t.rng.normal({2, 3}), t.rng.normal({2, 3}));
                   }),
                   "matmul"));
    CHECK(contains(error_of([&] {
                     Tape tape;
                     const Tensor x = tape.watch(t.rng.normal({3}));
                     Tensor y = x.detach().clone();
                     record("failing", Where::current(), y, {x}, saved(),
                            [](Grads&, const Tensor&) { fail("the derivative fails"); });
                     tape.backward(sum(y));
                   }),
                   "the derivative fails"));
    t.step();
    profile.step();  // no backward pass is open
  }
  CHECK(adds_up(profile));
  CHECK(row(profile.key_averages(), "fails").forward.calls == 1);
  CHECK(row(profile.key_averages(), "part").forward.calls == 1);
  CHECK(row(profile.key_averages(), "failing").backward.calls == 1);
  CHECK(row(profile.key_averages(), "feed_forward", "blocks.1.mlp").backward.calls == 1);
  Profile* const p = &profile;
  CHECK(contains(error_of([&] {
                   Tape tape;
                   const Tensor x = tape.watch(t.rng.normal({3}));
                   Tensor y = x.detach().clone();
                   record("stepping", Where::current(), y, {x}, saved(), [p](Grads&, const Tensor&) { p->step(); });
                   tape.backward(sum(y));
                 }),
                 "step() is called inside a backward pass"));
}

TEST_CASE("profile: ops that recompute runs again are counted as ops, once") {
  Rng rng(1);
  Linear layer(32, 32, rng);
  named_parameters(layer);
  const Tensor x = rng.normal({64, 32});
  Profile profile;
  {
    Tape tape;
    tape.backward(mean(recompute([&](const std::vector<Tensor>& in) { return gelu(layer(in[0])); }, {x})));
  }
  CHECK(adds_up(profile));
  const std::vector<ProfileRow> rows = profile.key_averages();
  CHECK(row(rows, "linear").forward.calls == 2);
  CHECK(row(rows, "linear").backward.calls == 1);
  CHECK(row(rows, "gelu").forward.calls == 2);
  CHECK(row(rows, "recompute").backward.calls == 1);
  CHECK(row(rows, "linear").forward.flops == 2 * 2 * 64 * 32 * 32);
}

TEST_CASE("profile: a run has its parts, and the same bits as without a profile") {
  TemporaryFolder folder;
  std::vector<double> losses[2];
  for (const bool profiled : {false, true}) {
    Training t;
    Rng rng(3);
    const TokenSource tokens(rng.integers({500}, 0, t.kVocabulary).to_vector<std::int32_t>(), t.kVocabulary);
    Schedule schedule("constant", {.lr = 1e-3});
    std::optional<Profile> profile;
    if (profiled) profile.emplace(ProfileOptions{.warmup = 2, .active = 6});
    losses[profiled] = run(t.model, t.optimizer, schedule, LanguageModelBatches(tokens, {.batch = 2, .context = 16}),
                           WholeSplit(tokens, {.batch = 8, .context = 16}),
                           {.steps = 10,
                            .accumulate = 2,
                            .evaluation = {.every = 3},
                            .checkpoint = {.path = folder.path / "model.h5", .every = 6, .start = RunStart::overwrite},
                            .output = {.log = folder.path / "log.jsonl", .profile = profile ? &*profile : nullptr}})
                           .history.losses;
    if (!profiled) continue;
    CHECK(profile->done());
    CHECK(adds_up(*profile));
    const std::vector<ProfileRow> rows = profile->key_averages();
    CHECK(row(rows, "batch").forward.calls == 2);
    CHECK(row(rows, "optimizer").forward.calls == 1);
    CHECK(row(rows, "clipping").forward.calls == 1);
    CHECK(row(rows, "log").forward.calls == 1);
    CHECK(row(rows, "evaluation").forward.calls == doctest::Approx(2.0 / 6));  // after steps 3 and 6 of 3 to 8
    CHECK(row(rows, "checkpoint").forward.calls == doctest::Approx(1.0 / 6));
    CHECK(row(rows, "feed_forward", "blocks.0.mlp").forward.calls == 2);  // not counting evaluations
  }
  CHECK(losses[0] == losses[1]);
  std::filesystem::remove(folder.path / "log.jsonl");
}

TEST_CASE("profile: tables join rows that differ only in a number, and add up") {
  Training t;
  Profile profile;
  for (int i = 0; i < 4; ++i) t.step(), profile.step();
  std::ostringstream text;
  text.precision(3);
  profile.print(text);
  for (const char* part : {"profile of 4 steps", "of the peak", "blocks.*.mlp", "(the model)", "all ops", "optimizer",
                           "clipping", "everything else", "100.0%", arch()}) {
    INFO(part, " in ", text.str());
    CHECK(contains(text.str(), part));
  }
  CHECK(!contains(text.str(), "blocks.0"));
  // The shares of ops, parts and the rest, and the shares of modules.
  double sums[2] = {}, all_ops = 0;
  int table = -1;
  std::istringstream lines(text.str());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("op  ")) ++table;
    if (table < 0 || !line.ends_with('%') || line.starts_with("step ")) continue;
    const double share = std::stod(line.substr(line.rfind(' ')));
    if (line.starts_with("all ops"))
      all_ops = share;
    else
      sums[table] += share;
  }
  CHECK(table == 1);
  CHECK(std::abs(sums[0] - 100) < 0.05 * 20);  // each share is rounded to a tenth
  CHECK(std::abs(sums[1] - all_ops) < 0.05 * 20);

  std::ostringstream few;
  profile.print(few, 3);
  CHECK(contains(few.str(), " others"));
  CHECK(contains(few.str(), "all ops"));
}

TEST_CASE("profile: a trace is complete JSON, and nests steps, passes, modules and ops") {
  TemporaryFolder folder;
  Training t;
  Profile profile({.warmup = 1});
  for (int i = 0; i < 3; ++i) {
    {
      const RecordFunction span("\"a\"\\\n\xff");
      t.step();
    }
    profile.step();
  }
  const auto file = folder.path / "trace.json";
  std::ofstream(file) << "an old one";
  profile.export_chrome_trace(file);
  const nlohmann::json trace = test::json_file(file);
  CHECK(trace.at("otherData").at("steps") == 2);
  std::map<std::string, int> names;
  struct Span {
    double begin, end;
  };
  std::vector<Span> open;
  double last = 0;
  std::size_t deepest = 0;
  bool nests = true, ordered = true;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    ++names[e.at("name")];
    const double begin = e.at("ts"), end = begin + e.at("dur").get<double>();
    ordered = ordered && begin >= last;
    last = begin;
    while (!open.empty() && open.back().end <= begin + 1e-6) open.pop_back();
    nests = nests && (open.empty() || end <= open.back().end + 1e-6);
    open.push_back({begin, end});
    deepest = std::max(deepest, open.size());
    if (e.at("name") == "linear") CHECK(e.at("args").at("GFLOP/s").get<double>() > 0);
  }
  CHECK(ordered);
  CHECK(nests);
  CHECK(deepest == 8);  // step, span, forward, blocks, blocks.0, blocks.0.attention, blocks.0.attention.qkv, linear
  const std::pair<const char*, int> expected[] = {{"step 1", 1},    {"step 2", 1},
                                                  {"forward", 2},   {"backward", 2},
                                                  {"blocks.0", 4},  {"blocks.1.attention.qkv", 4},
                                                  {"attention", 4}, {"attention backward", 4},
                                                  {"linear", 8},    {"linear backward", 8},
                                                  {"optimizer", 2}, {"step 3", 0}};
  for (const auto& scope : expected) {
    const auto& name = scope.first;
    const auto& count = scope.second;
    INFO(name);
    CHECK(names[name] == count);
  }
  CHECK(!std::filesystem::exists(file.string() + ".tmp"));
  CHECK(contains(error_of([&] { profile.export_chrome_trace(folder.path / "nowhere" / "trace.json"); }),
                 "export_chrome_trace: "));
}

TEST_CASE("profile: a trace has a maximum length, a table has none") {
  TemporaryFolder folder;
  Training t;
  Profile profile({.trace_events = 100});
  for (int i = 0; i < 4; ++i) t.step(), profile.step();
  profile.export_chrome_trace(folder.path / "trace.json");
  const nlohmann::json trace = test::json_file(folder.path / "trace.json");
  CHECK(trace.at("otherData").at("steps_left_out").get<int>() + 1 >= 3);
  CHECK(profile.steps() == 4);
  CHECK(adds_up(profile));
}
