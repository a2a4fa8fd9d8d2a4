// LastWeights, the mean of a run's last weights: alone, in a run, and from several checkpoints.
#include <fstream>
#include <heed/optim/optimizers/average.hpp>

#include "tests/core/levels.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/optim/optim_testing.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// The parameters of the run's model after load_mean().
std::vector<Tensor> mean_weights(PlaneRun& s, LastWeights& last) {
  last.load_mean();
  return {s.model.up.weight.clone(), s.model.up.bias.clone(), s.model.down.weight.clone(), s.model.down.bias.clone()};
}

bool all_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
}

struct LastRun : PlaneRun {
  LastWeights last{named_parameters(model), 3};
};

}  // namespace

TEST_CASE_TEMPLATE("last weights: the mean is over the last ones, rounded once, at any number of threads", T, float,
                   double) {
  const ThreadScope scope;
  for (const Index n : {1, 7, 8, 9, 17, 50001}) {
    Tensor at_one_thread;
    for (const int n_threads : {1, 2, 3, 8}) {
      set_threads(n_threads);
      Parameter p(Tensor::from(std::vector<T>(static_cast<std::size_t>(n)), {n}));
      LastWeights last(std::vector<NamedParameter>{{"p", &p}}, 3);
      std::vector<double> sum(static_cast<std::size_t>(n));
      for (Index t = 0; t < 5; ++t) {
        const std::vector<T> x = spread_values<T>(n, static_cast<unsigned>(50 + t));
        p.copy_(Tensor::from(x, {n}));
        last.keep();
        CHECK(last.kept() == std::min<Index>(t + 1, 3));
        for (std::size_t i = 0; t >= 2 && i < sum.size(); ++i) sum[i] += static_cast<double>(x[i]);
      }
      const auto version = p.version();
      last.load_mean();
      CHECK(p.version() > version);
      const std::vector<T> got = p.to_vector<T>();
      bool same = true;
      for (std::size_t i = 0; i < sum.size(); ++i) same = same && got[i] == static_cast<T>(sum[i] / 3);
      CHECK(same);
      if (n_threads == 1) at_one_thread = p.detach().clone();
      CHECK(same_bits(p, at_one_thread));
    }
  }
}

TEST_CASE("last weights: the mean of one is identical, and fewer than the limit are averaged") {
  Parameter p(Tensor::from({0.1F, 3}));
  LastWeights last(std::vector<NamedParameter>{{"p", &p}}, 3);
  last.keep();
  p.fill_(7);
  last.load_mean();
  CHECK(same_bits(p, Tensor::from({0.1F, 3})));
  p.fill_(5);
  last.keep();
  last.load_mean();
  CHECK(same_bits(p, Tensor::from({2.55F, 4})));
}

TEST_CASE("last weights: state continues with the same bits, and a state that does not fit is refused") {
  Parameter p(Tensor::from({1, 2, 3})), q(Tensor::from({9, 9, 9}));
  LastWeights a(std::vector<NamedParameter>{{"p", &p}}, 3), b(std::vector<NamedParameter>{{"p", &q}}, 3);
  for (int t = 0; t < 4; ++t) p.fill_(t), a.keep();
  const auto saved = [&] {
    std::vector<NamedTensor> list;
    for (const NamedTensor& part : a.state()) list.push_back({part.name, part.tensor.clone()});
    return list;
  };
  b.keep();
  b.load_state(saved());
  CHECK(b.kept() == 3);
  p.fill_(8), q.fill_(8);
  a.keep(), b.keep();
  a.load_mean(), b.load_mean();
  CHECK(same_bits(p, q));
  CHECK(p.at({0}) == doctest::Approx((2 + 3 + 8) / 3.0));

  const auto with = [&](auto change) {
    return [&, change] {
      std::vector<NamedTensor> list = saved();
      change(list);
      b.load_state(list);
    };
  };
  const auto number = [](double x) { return Tensor::scalar(x, DType::int32); };
  LastWeights five(std::vector<NamedParameter>{{"p", &p}}, 5), none(std::vector<NamedParameter>{{"p", &p}}, 2);
  check_errors({
      {"LastWeights: '0.p' in the state is [4] float32; it must be [3] float32",
       with([](auto& s) { s[0].tensor = Tensor::zeros({4}); })},
      {"LastWeights: the state has no '2.p'", with([](auto& s) { s.erase(s.begin() + 2); })},
      {"LastWeights: the state has an unknown '2.p'", with([&](auto& s) { s[4].tensor = number(2); })},
      {"LastWeights: the state has no int32 scalar 'kept'; it must be the state of LastWeights",
       with([](auto& s) { s.pop_back(); })},
      {"the state has no int32 scalar 'count'", with([](auto& s) { s[3].tensor = Tensor::zeros({1}, DType::int32); })},
      {"LastWeights: kept is 4 in the state; it must be from 0 to count, 3",
       with([&](auto& s) { s[4].tensor = number(4); })},
      {"LastWeights: count is 3 in the state but 5 here; they must be the same", [&] { five.load_state(saved()); }},
      {"LastWeights: count is 0; it must be 1 or more",
       [&] {
         LastWeights(std::vector<NamedParameter>{{"p", &p}}, 0);
       }},
      {"LastWeights: load_mean() has no weights to average; call keep() first", [&] { none.load_mean(); }},
  });
  b.load_mean();
  CHECK(q.at({0}) == doctest::Approx((2 + 3 + 8) / 3.0));  // unchanged by the errors
}

TEST_CASE("last weights: parameters that left the model are errors that name them") {
  Rng rng(1);
  Linear model(3, 2, rng);
  LastWeights last(named_parameters(model), 2);
  last.keep();
  to(model, DType::float64);
  const char* const message = "; create a new LastWeights";
  check_errors({{message, [&] { last.keep(); }}, {message, [&] { last.load_mean(); }}});
}

RELEASE_TEST_CASE("run: the last weights are kept over kills and resumes, to the same bits, and change no training") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps, LastRun& s) {
    return RunOptions{
        .steps = steps,
        .last_weights = &s.last,
        .evaluation = {.every = 4},
        .checkpoint = {.path = folder.path / (name + ".h5"), .every = 2, .start = RunStart::resume_or_start}};
  };
  LastRun whole;
  whole.go(options("whole", 13, whole));
  CHECK(whole.last.kept() == 3);
  const Checkpoint c = load_checkpoint(folder.path / "whole.h5");
  CHECK(c.tensor("last_weights/kept").item<Index>() == 3);
  CHECK_FALSE(same_bits(c.tensor("last_weights/2.up.weight"), c.tensor("model/up.weight")));  // of steps 12 and 13
  PlaneRun plain;
  plain.go({.steps = 13, .evaluation = {.every = 4}});
  CHECK(same_bits(plain.model.up.weight, whole.model.up.weight));
  const std::vector<Tensor> means = mean_weights(whole, whole.last);
  const Checkpoint mean = mean_of_last_weights(c);  // from the file only
  CHECK(same_bits(mean.tensor("model/up.weight"), means[0]));
  CHECK(same_bits(mean.tensor("model/down.bias"), means[3]));
  CHECK(mean.tensors.size() == 4);
  CHECK(mean.counters.empty());
  const Checkpoint none = mean_of_last_weights(mean);
  CHECK(same_bits(none.tensor("model/up.weight"), means[0]));
  // Killed without a checkpoint, between two checkpoints, and after a step whose weights are kept but not yet saved.
  for (const Index last : {1, 3, 6, 7, 12}) {
    LastRun killed, resumed;
    const std::string name = "killed" + std::to_string(last);
    CHECK_THROWS_AS(killed.go(killed_after(options(name, 13, killed), last)), Killed);
    CHECK(resumed.go(options(name, 13, resumed)).resumed_from == (last - 1) / 2 * 2);
    CHECK((bytes_of(folder.path / (name + ".h5")) == bytes_of(folder.path / "whole.h5")));
    CHECK(all_same(mean_weights(resumed, resumed.last), means));
  }
  // Stopped after steps whose weights are not kept.
  LastRun first, second;
  for (LastRun* s : {&first, &second}) {
    RunOptions o = options("parts", s == &first ? 5 : 13, *s);
    o.evaluation.every = 0;
    s->go(o, Plane{}, EvaluationSet(HeldOutPlane{}));
  }
  CHECK(all_same(mean_weights(second, second.last), means));
}

TEST_CASE("run: the last weights are at equal distances, and a change that prevents this is refused on resume") {
  const TemporaryFolder folder;
  LastRun s;
  RunOptions o{.steps = 6, .last_weights = &s.last, .keep_every = 3, .evaluation = {.every = 0}};
  s.go(o);
  CHECK(s.last.kept() == 2);
  o.checkpoint.path = folder.path / "with.h5";
  LastRun again, other;
  o.last_weights = &again.last;
  again.go(o);
  PlaneRun without;
  without.go({.steps = 2, .evaluation = {.every = 0}, .checkpoint = {.path = folder.path / "without.h5"}});
  const std::string with = (folder.path / "with.h5").string();
  CHECK(contains(without.refusal({.steps = 8, .checkpoint = {.path = with, .start = RunStart::resume_or_start}}),
                 "resume: " + with + " has last weights but this run has none; both must have them, or neither"));
  CHECK(
      contains(other.refusal({.steps = 8,
                              .last_weights = &other.last,
                              .keep_every = 3,
                              .checkpoint = {.path = folder.path / "without.h5", .start = RunStart::resume_or_start}}),
               "has no last weights but this run has some; both must have them, or neither"));
  CHECK(contains(other.refusal({.steps = 8, .last_weights = &other.last}),
                 "run: last_weights is given, but keep_every and checkpoint.every are 0; one of them must be the "
                 "number of steps between kept weights"));
  CHECK(contains(other.refusal({.steps = 8, .last_weights = &other.last, .keep_every = -1}),
                 "run: keep_every is -1; it must be 0 (checkpoint.every) or more"));
}

TEST_CASE("average_checkpoints: the mean of files equals the mean of kept weights, bit for bit") {
  const TemporaryFolder folder;
  LastRun s;
  std::vector<std::filesystem::path> files;
  for (const Index steps : {4, 8, 12}) {
    files.push_back(folder.path / (std::to_string(steps) + ".h5"));
    if (steps > 4) std::filesystem::copy_file(files[files.size() - 2], files.back());
    LastRun part;
    part.go({.steps = steps,
             .last_weights = &part.last,
             .keep_every = 4,
             .evaluation = {.every = 0},
             .checkpoint = {.path = files.back(),
                            .start = RunStart::resume_or_start,
                            .texts = {{"config", "of step " + std::to_string(steps)}}}});
    if (steps == 12) part.last.load_mean(), copy_values(part.model, s.model);
  }
  const Checkpoint mean = average_checkpoints(files);
  CHECK(mean.text("config") == "of step 12");
  CHECK(mean.counters.empty());
  CHECK(mean.tensors.size() == 4);
  PlaneRun loaded;
  load_model(mean, loaded.model);
  CHECK(same_bits(loaded.model.up.weight, s.model.up.weight));
  CHECK(same_bits(loaded.model.down.bias, s.model.down.bias));
  CHECK(same_bits(average_checkpoints({files[1]}).tensor("model/up.weight"),
                  load_checkpoint(files[1]).tensor("model/up.weight")));

  const auto saved = [&](const std::string& name, const TensorsByName& tensors) {
    Checkpoint c;
    c.tensors = tensors;
    save_checkpoint(folder.path / name, c);
    return folder.path / name;
  };
  const auto words = [](double x) { return Tensor::full({2}, x, DType::int32); };
  const auto a = saved("a.h5", {{"model/w", Tensor::ones({2})}, {"model/ids", words(1)}});
  const auto b = saved("b.h5", {{"model/w", Tensor::zeros({2})}, {"model/ids", words(2)}});
  const auto fewer = saved("fewer.h5", {{"model/w", Tensor::ones({2})}});
  const auto wider = saved("wider.h5", {{"model/w", Tensor::ones({3})}, {"model/ids", words(1)}});
  const auto no_model = saved("none.h5", {{"other/w", Tensor::ones({2})}});
  CHECK(average_checkpoints({a, b}).tensor("model/w").to_vector<float>() == std::vector<float>{0.5F, 0.5F});
  CHECK(same_bits(average_checkpoints({a, b}).tensor("model/ids"), words(2)));  // integers are not averaged
  check_errors({
      {"average_checkpoints: there are no files; there must be one or more", [] { average_checkpoints({}); }},
      {"average_checkpoints: model/ids is missing in " + fewer.string() + " but [2] int32 in " + a.string() +
           "; the files must be of the same model",
       [&] {
         average_checkpoints({a, fewer});
       }},
      {"average_checkpoints: model/ids is [2] int32 in " + a.string() + " but missing in " + fewer.string(),
       [&] {
         average_checkpoints({fewer, a});
       }},
      {"average_checkpoints: model/w is [3] float32 in " + wider.string() + " but [2] float32 in " + a.string(),
       [&] {
         average_checkpoints({a, wider});
       }},
      {"average_checkpoints: " + no_model.string() + " holds no model", [&] { average_checkpoints({no_model}); }},
  });
}
