// Steps of several shards: gradients are summed in a fixed order, independent of the threads.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::killed_after;
using test::Plane;
using test::PlaneRun;
using test::same_bits;

namespace {

using Gradients = std::vector<Tensor>;  // per parameter; undefined: no gradient

Gradients take_gradients(const std::vector<NamedParameter>& parameters) {
  Gradients all;
  for (const NamedParameter& p : parameters) {
    all.push_back(p.parameter->grad());
    p.parameter->zero_grad();
  }
  return all;
}

// The nearest number with 8 binary digits, ties to even.
float rounded(float x) {
  int exponent = 0;
  const double digits = std::frexp(static_cast<double>(x), &exponent) * 256;
  return static_cast<float>(std::ldexp(std::nearbyint(digits), exponent - 8));
}

Gradients rounded(const Gradients& gradients) {
  Gradients all;
  for (const Tensor& g : gradients) {
    std::vector<float> numbers = g.defined() ? g.to_vector<float>() : std::vector<float>();
    for (float& x : numbers) x = rounded(x);
    all.push_back(g.defined() ? Tensor::from(numbers, g.shape()) : g);
  }
  return all;
}

// Element by element. The left part of n shards is the largest power of two below n.
Gradients tree_of(const std::vector<Gradients>& shards, std::size_t begin, std::size_t end, bool rounds = false) {
  if (end - begin == 1) return shards[begin];
  std::size_t left = 1;
  while (2 * left < end - begin) left *= 2;
  Gradients a = tree_of(shards, begin, begin + left, rounds);
  Gradients b = tree_of(shards, begin + left, end, rounds);
  if (rounds) a = rounded(a), b = rounded(b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].defined() || !b[i].defined()) {
      if (!a[i].defined()) a[i] = b[i];
      continue;
    }
    std::vector<float> sum = a[i].to_vector<float>();
    const std::vector<float> more = b[i].to_vector<float>();
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += more[k];
    a[i] = Tensor::from(sum, a[i].shape());
  }
  return a;
}

// The gradients of shard `s` in a step, as the run must compute them: from seed, step and shard only.
template <class Loss>
Gradients gradients_of_shard(const std::vector<NamedParameter>& parameters, const Loss& loss, std::uint64_t seed,
                             std::uint64_t step, std::uint64_t s, double share) {
  default_rng() = Rng(seed, 1 + (s << 20));
  default_rng().set_position(step << 40);
  Tape tape;
  const Tensor l = loss();
  tape.backward(l, Tensor::full(l.shape(), share));
  return take_gradients(parameters);
}

struct TwoParts {
  Linear first, second;
  explicit TwoParts(Rng& rng) : first(8, 1, rng), second(8, 1, rng) {}
  Tensor loss(const Batch& b) const {
    Tensor y = first(b.inputs);
    if (b.has("second")) y = y + second(b.inputs);
    return mse_loss(y, b.targets);
  }
  void members(auto&& visit) {
    visit("first", first);
    visit("second", second);
  }
};
struct SometimesBoth {  // batches 1, 2 and 4 of five use the second part
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Batch b = Plane{}.batch(seed, step);
    if (step == 1 || step == 2 || step == 4) b["second"] = Tensor::zeros({1});
    return b;
  }
};

}  // namespace

TEST_CASE("shards: gradients are those of each shard alone, summed in a binary tree") {
  for (const auto& given : std::vector<std::pair<std::uint64_t, bool>>{
           {2, false}, {3, false}, {5, false}, {6, false}, {7, false}, {8, false}, {1, true}, {2, true}, {7, true}}) {
    const std::uint64_t shards = given.first;
    const bool rounds = given.second;
    CAPTURE(shards);
    PlaneRun before, s;
    s.go({.steps = 1,
          .shards = static_cast<Index>(shards),
          .grad_clip = 0,
          .seed = 5,
          .ranks = {.dtype = rounds ? DType::bfloat16 : DType::float32}});
    std::vector<Gradients> each;
    for (std::uint64_t i = 0; i < shards; ++i)
      each.push_back(gradients_of_shard(
          named_parameters(before.model),
          [&] {
            const Batch b = Plane{}.batch(5, i);
            return before.model.loss(b.inputs, b.targets);
          },
          5, 0, i, 1.0 / static_cast<double>(shards)));
    const Gradients expected = tree_of(each, 0, each.size(), rounds), got = take_gradients(named_parameters(s.model));
    REQUIRE(got.size() == 4);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], expected[i]));
  }
}

namespace {

struct Noted {
  std::vector<std::uint64_t>* requested;
  Batch batch(std::uint64_t seed, std::uint64_t number) const {
    requested->push_back(number);
    return Plane{}.batch(seed, number);
  }
};

}  // namespace

TEST_CASE("shards: each may accumulate batches") {
  std::vector<std::uint64_t> requested;
  PlaneRun many, one;
  RunParts parts = {.store = [](Checkpoint&) {},
                    .load = [](const Checkpoint&) {},
                    .loss = [&](const Batch& b) { return many.model.loss(b.inputs, b.targets); },
                    .updates = {{many.optimizer, many.schedule}},
                    .data = Noted{&requested},
                    .validation = {}};
  run(parts, {.steps = 2, .accumulate = 2, .shards = 3});
  requested.resize(12);  // one more batch may have been prepared
  CHECK(requested == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  // Except for rounding, the sum equals that of the same batches in one shard.
  many.model.drop = one.model.drop = Dropout{0.0};
  one.go({.steps = 1, .accumulate = 4});
  PlaneRun two;
  two.model.drop = Dropout{0.0};
  two.go({.steps = 1, .accumulate = 2, .shards = 2});
  CHECK(test::close(two.model.up.weight.grad(), one.model.up.weight.grad(), 1e-5, 1e-6));
}

TEST_CASE("shards: a parameter that only some shards use gets the sum of their gradients") {
  Rng rng(1);
  TwoParts other(rng);
  Schedule schedule("constant", {.lr = 0.1});
  std::vector<Gradients> each;
  for (std::uint64_t i = 0; i < 5; ++i)
    each.push_back(gradients_of_shard(
        named_parameters(other), [&] { return other.loss(SometimesBoth{}.batch(5, i)); }, 5, 0, i, 0.2));
  CHECK(!each[0][2].defined());
  for (const bool rounds : {false, true}) {
    Rng fresh(1);
    TwoParts trained(fresh);
    SGD its(named_parameters(trained), {.lr = 0.1});
    run(trained, its, schedule, SometimesBoth{}, {},
        {.steps = 1,
         .shards = 5,
         .grad_clip = 0,
         .seed = 5,
         .ranks = {.dtype = rounds ? DType::bfloat16 : DType::float32}});
    const Gradients expected = tree_of(each, 0, 5, rounds), got = take_gradients(named_parameters(trained));
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], expected[i]));
  }
}

TEST_CASE("shards: with bfloat16 communication, the change of each weight is rounded to bfloat16") {
  Rng rng(1), again(1);
  TwoParts model(rng), before(again);
  SGD optimizer(named_parameters(model), {.lr = 0.1});
  Schedule schedule("constant", {.lr = 0.1});
  run(model, optimizer, schedule, Plane{}, {}, {.steps = 1, .grad_clip = 0, .ranks = {.dtype = DType::bfloat16}});
  const Tensor w = model.first.weight.detach(), old = before.first.weight.detach(), g = model.first.weight.grad();
  for (Index i = 0; i < w.numel(); ++i) {
    const auto at = [i](const Tensor& x) { return static_cast<float>(x.at({0, i})); };
    // SGD's exact value p - lr g, with one rounding or two.
    const float fused = std::fma(-0.1f, at(g), at(old)), plain = at(old) - 0.1f * at(g);
    const float a = at(old) + rounded(fused - at(old)), b = at(old) + rounded(plain - at(old));
    CHECK((at(w) == a || at(w) == b));
    CHECK(at(w) != fused);
  }
}

TEST_CASE("shards: with several losses per step, the dropout of each shard continues from its previous loss") {
  PlaneRun s;
  struct Place {
    std::uint64_t stream, position;
    bool operator==(const Place&) const = default;
  };
  std::vector<Place> places;
  const auto loss = [&](const Batch& b) {
    places.push_back({default_rng().stream(), default_rng().position()});
    return s.model.loss(b.inputs, b.targets);
  };
  Rng rng(1);
  test::Regression other(rng);
  SGD others(named_parameters(other), {.lr = 0.1});
  const auto other_loss = [&](const Batch& b) {
    places.push_back({default_rng().stream(), default_rng().position()});
    return other.loss(b.inputs, b.targets);
  };
  run({.store = [](Checkpoint&) {},
       .load = [](const Checkpoint&) {},
       .loss = loss,
       .updates = {{s.optimizer, s.schedule, loss}, {others, s.schedule, other_loss, "other"}},
       .data = Plane{},
       .validation = {}},
      {.steps = 1, .shards = 2});
  const std::uint64_t next = 1 + (1 << 20);
  REQUIRE(places.size() == 4);
  CHECK(places[0] == Place{1, 0});
  CHECK(places[1] == Place{next, 0});
  CHECK(places[2].stream == 1);
  CHECK(places[3].stream == next);
  CHECK(places[2].position > 0);
  CHECK(places[3].position == places[2].position);
}

TEST_CASE("shards: the same bits at any number of threads, and when killed and resumed") {
  const test::TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps, bool resume) {
    return RunOptions{
        .steps = steps,
        .shards = 5,
        .seed = 5,
        .checkpoint = {
            .path = folder.path / name, .every = 2, .start = resume ? RunStart::resume_or_start : RunStart::overwrite}};
  };
  std::string first;
  for (const int n : {1, 2, 3}) {
    set_threads(n);
    PlaneRun s, killed, rest;
    s.go(options("whole.h5", 6, false));
    const std::string bytes = test::bytes_of(folder.path / "whole.h5");
    if (n == 1) first = bytes;
    CHECK((bytes == first));
    try {
      killed.go(killed_after(options("part.h5", 6, false), 3));
    } catch (const test::Killed&) {
    }
    CHECK(rest.go(options("part.h5", 6, true)).resumed_from == 2);
    CHECK((test::bytes_of(folder.path / "part.h5") == first));
  }
  set_threads(0);
}

TEST_CASE("shards: their number is checked") {
  CHECK(PlaneRun().refusal({.shards = 0}) == "run: shards is 0; it must be from 1 to 65536");
  CHECK(PlaneRun().refusal({.shards = 65537}) == "run: shards is 65537; it must be from 1 to 65536");
}
