// Steps whose losses are weighted means, and which several batches share.
#include <cmath>
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/thread_ranks.hpp"
#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::close;
using test::contains;
using test::error_of;
using test::on_ranks;
using test::same_bits;

namespace {

const Tensor& torch_step(const std::string& name) {
  static const test::Named all = test::stored_tensors("weighted_torch.json");
  const auto found = all.find(name);
  REQUIRE_MESSAGE(found != all.end(), name);
  return found->second;
}

struct WeightModel {
  Parameter weight, bias;  // [4, 3], [3]
  explicit WeightModel(DType dtype)
      : weight(torch_step("weight").to(dtype).clone()), bias(torch_step("bias").to(dtype).clone()) {}
  Tensor operator()(In x) const { return matmul(x, weight) + bias; }
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

// Rows [begin, end) of the data written by weighted_torch.py.
Batch batch_of_rows(DType dtype, Index begin, Index end) {
  Batch b;
  b.inputs = torch_step("x").slice(0, begin, end).to(dtype).contiguous();
  b.targets = torch_step("targets").slice(0, begin, end).to(DType::int32).contiguous();
  b["numbers"] = torch_step("numbers").slice(0, begin, end).to(dtype).contiguous();
  b["weights"] = torch_step("sample_weight").slice(0, begin, end).to(dtype).contiguous();
  b["class_weight"] = torch_step("class_weight").to(dtype);
  b.counted = end - begin;
  return b;
}

// Two rows that have weight 0 in all losses below except "element weights".
Batch of_no_weight(DType dtype) {
  Batch b = batch_of_rows(dtype, 0, 2);
  b.targets = Tensor::zeros({2}, DType::int32);
  b["weights"] = Tensor::zeros({2}, dtype);
  return b;
}

std::vector<Batch> parts_of(DType dtype, const std::vector<Index>& sizes) {
  std::vector<Batch> list;
  Index begin = 0;
  for (const Index n : sizes) list.push_back(batch_of_rows(dtype, begin, begin + n)), begin += n;
  return list;
}

struct ListedBatches {
  std::vector<Batch> all;
  Batch batch(std::uint64_t, std::uint64_t step) const { return all[step % all.size()]; }
  Index size() const { return static_cast<Index>(all.size()); }
  Batch batch(Index i) const { return all[static_cast<std::size_t>(i)]; }
};

using WeightLoss = Tensor (*)(const WeightModel& m, const Batch& b);
const std::pair<const char*, WeightLoss> kWeightLosses[] = {
    {"class weights",
     [](const WeightModel& m, const Batch& b) {
       return cross_entropy(m(b.inputs), b.targets, {.weight = b["class_weight"]});
     }},
    {"smoothed class weights",
     [](const WeightModel& m, const Batch& b) {
       return linear_cross_entropy(b.inputs, m.weight.t(), m.bias, b.targets,
                                   {.label_smoothing = 0.1, .weight = b["class_weight"]});
     }},
    {"ignored class",
     [](const WeightModel& m, const Batch& b) { return cross_entropy(m(b.inputs), b.targets, {.ignore_index = 0}); }},
    {"sample weights",
     [](const WeightModel& m, const Batch& b) {
       return weighted_mean(square(m(b.inputs) - b["numbers"]), b["weights"].unsqueeze(1));
     }},
    {"sample weights",  // the same by hand: a sum and its weight
     [](const WeightModel& m, const Batch& b) {
       const double weight = 3 * sum(b["weights"]).item();
       const Tensor all = sum(square(m(b.inputs) - b["numbers"]) * b["weights"].unsqueeze(1));
       return weighted_loss(all / weight, weight);
     }},
    {"element weights",  // a mean over all elements, for any weights
     [](const WeightModel& m, const Batch& b) {
       return binary_cross_entropy_with_logits(m(b.inputs), sigmoid(b["numbers"]),
                                               {.weight = b["weights"].unsqueeze(1)});
     }},
};
Tensor class_weighted(const WeightModel& m, const Batch& b) { return kWeightLosses[0].second(m, b); }
Tensor sample_weighted(const WeightModel& m, const Batch& b) { return kWeightLosses[3].second(m, b); }

// The results of a run.
struct WeightOutcome {
  Tensor weight, bias, average;
  double loss = 0, norm = 0, validation = 0;
};

struct WeightTrial {
  std::vector<Batch> training, held_out = {};
  Index accumulate = 1, shards = 1;
  Ranks* ranks = nullptr;
  double clip = 0;
  Index steps = 1;
};

WeightOutcome train_by(const std::function<Tensor(const WeightModel&, const Batch&)>& loss, const WeightTrial& t) {
  WeightModel model(t.training[0].inputs.dtype());
  SGD optimizer(named_parameters(model), {.lr = 0.1});
  WeightAverage average(named_parameters(model), 0.5);
  Schedule schedule("constant", {.lr = 0.1});
  WeightOutcome outcome;
  RunOptions o{.steps = t.steps,
               .accumulate = t.accumulate,
               .shards = t.shards,
               .grad_clip = t.clip,
               .ranks = {.communicator = t.ranks}};
  o.average = &average;
  o.after_step = [&](RunStep& s) { outcome.norm = s.grad_norm; };
  const RunResult r = run(model, optimizer, schedule, ListedBatches{t.training},
                          t.held_out.empty() ? EvaluationSet() : EvaluationSet(ListedBatches{t.held_out}), o,
                          [&](const Batch& b) { return loss(model, b); });
  outcome.loss = r.history.losses.back(), outcome.validation = r.validation_loss.value_or(0);
  outcome.weight = model.weight.detach().clone(), outcome.bias = model.bias.detach().clone();
  const AveragedWeights averaged(average);
  outcome.average = model.weight.detach().clone();
  return outcome;
}

std::string outcome_difference(const WeightOutcome& a, const WeightOutcome& b, double tolerance) {
  const auto off = [&](double x, double y) { return !(std::fabs(x - y) <= tolerance * std::fabs(y)); };
  std::string names;
  if (!close(a.weight, b.weight, tolerance, tolerance)) names += " weight";
  if (!close(a.bias, b.bias, tolerance, tolerance)) names += " bias";
  if (!close(a.average, b.average, tolerance, tolerance)) names += " average";
  if (off(a.loss, b.loss)) names += " loss";
  if (off(a.norm, b.norm)) names += " norm";
  if (off(a.validation, b.validation)) names += " validation";
  return names;
}

bool same_outcome(const WeightOutcome& a, const WeightOutcome& b) {
  return same_bits(a.weight, b.weight) && same_bits(a.bias, b.bias) && same_bits(a.average, b.average) &&
         a.loss == b.loss && a.norm == b.norm && a.validation == b.validation;
}

}  // namespace

TEST_CASE("run: a step of one batch by a weighted loss is PyTorch's, clipped or not") {
  for (const auto& each : kWeightLosses)
    for (const double clip : {0.0, 0.1}) {
      const auto& name = each.first;
      const auto& loss = each.second;
      CAPTURE(name);
      CAPTURE(clip);
      const WeightOutcome o = train_by(loss, {.training = parts_of(DType::float64, {8}), .clip = clip});
      const std::string title = std::string(name) + (clip > 0 ? " 0.1 " : " 0 ");
      CHECK(o.loss == doctest::Approx(torch_step(title + "loss").item()).epsilon(1e-12));
      CHECK(o.norm == doctest::Approx(torch_step(title + "norm").item()).epsilon(1e-12));
      CHECK(close(o.weight, torch_step(title + "weight"), 1e-12, 1e-12));
      CHECK(close(o.bias, torch_step(title + "bias"), 1e-12, 1e-12));
    }
}

TEST_CASE("run: batches, shards and evaluations of a weighted loss are joined to the result of one batch") {
  for (const DType dtype : {DType::float64, DType::float32}) {
    const double tolerance = dtype == DType::float64 ? 1e-12 : 1e-6;
    const auto of = [&](const std::vector<Index>& sizes) { return parts_of(dtype, sizes); };
    for (const auto& each : kWeightLosses)
      for (const double clip : {0.0, 0.1}) {
        const auto& name = each.first;
        const auto& loss = each.second;
        CAPTURE(name);
        CAPTURE(clip);
        const WeightOutcome one = train_by(loss, {.training = of({8}), .held_out = of({8}), .clip = clip});
        const auto check = [&](WeightTrial t) {
          t.clip = clip;
          CHECK(outcome_difference(train_by(loss, t), one, tolerance) == "");
        };
        check({.training = of({4, 4}), .held_out = of({4, 4}), .accumulate = 2});
        check({.training = of({3, 5}), .held_out = of({5, 3}), .accumulate = 2});
        check({.training = of({1, 2, 5}), .held_out = of({1, 2, 5}), .accumulate = 3});
        check({.training = of({4, 4}), .held_out = of({7, 1}), .shards = 2});
        check({.training = of({5, 1, 2}), .held_out = of({5, 1, 2}), .shards = 3});
        check({.training = of({1, 2, 3, 2}), .held_out = of({1, 2, 3, 2}), .accumulate = 2, .shards = 2});
      }
  }
}

TEST_CASE("run: ranks join a weighted loss to the bits of one process") {
  const auto training = parts_of(DType::float32, {1, 2, 3, 2}), held_out = parts_of(DType::float32, {3, 4, 1});
  for (const auto& each : kWeightLosses)
    for (const int size : {1, 2, 3, 4}) {
      const auto& name = each.first;
      const auto& loss = each.second;
      CAPTURE(name);
      CAPTURE(size);
      const WeightTrial t{.training = training, .held_out = held_out, .shards = 4, .clip = 0.1};
      const WeightOutcome one = train_by(loss, t);
      const auto f = loss;
      CHECK(on_ranks(size, [&](Ranks& ranks) {
              WeightTrial on = t;
              on.ranks = &ranks;
              require(same_outcome(train_by(f, on), one), "other bits");
            }).empty());
    }
}

TEST_CASE("run: a batch of weight 0 has no effect, at any position") {
  const DType dtype = DType::float32;
  const Batch none = of_no_weight(dtype);
  int number = 0;
  for (const auto& each : kWeightLosses) {
    const auto& name = each.first;
    const auto& loss = each.second;
    if (std::string(name) == "element weights") continue;  // counts all elements
    if (!test::is_taken(number++, 2)) continue;
    CAPTURE(name);
    const auto two = parts_of(dtype, {3, 5});
    const WeightOutcome one = train_by(loss, {.training = {two[0]}, .held_out = {two[0]}}),
                        both = train_by(loss, {.training = two, .held_out = two, .accumulate = 2});
    CHECK(std::isfinite(one.loss));
    for (const bool first : {false, true}) {
      const auto with = [&](const Batch& b) {
        return first ? std::vector<Batch>{none, b} : std::vector<Batch>{b, none};
      };
      const std::vector<Batch> list = with(two[0]);
      for (const Index shards : {1, 2}) {
        const WeightTrial t{.training = list, .held_out = list, .accumulate = 2 / shards, .shards = shards};
        CHECK(outcome_difference(train_by(loss, t), one, 1e-6) == "");
      }
    }
    for (const std::vector<Batch>& spread :
         {std::vector<Batch>{none, two[0], none, two[1], none, none}, {two[0], none, two[1], none, none, none}})
      for (const Index shards : {1, 2, 3, 6}) {
        const WeightTrial t{.training = spread, .held_out = spread, .accumulate = 6 / shards, .shards = shards};
        const WeightOutcome o = train_by(loss, t);
        CHECK(outcome_difference(o, both, 1e-6) == "");
        if (shards < 3) continue;
        const auto f = loss;
        CHECK(on_ranks(3, [&](Ranks& ranks) {
                WeightTrial on = t;
                on.ranks = &ranks;
                require(same_outcome(train_by(f, on), o), "other bits");
              }).empty());
      }
    // At a different position in each of several steps.
    const WeightTrial rotating{
        .training = {two[0], two[1], none, two[1], none}, .accumulate = 2, .shards = 2, .steps = 4};
    const WeightOutcome o = train_by(loss, rotating);
    const auto f = loss;
    CHECK(on_ranks(2, [&](Ranks& ranks) {
            WeightTrial on = rotating;
            on.ranks = &ranks;
            require(same_outcome(train_by(f, on), o), "other bits");
          }).empty());
  }
}

TEST_CASE("run: a step or an evaluation whose weights are all 0 is refused, on all ranks") {
  const DType dtype = DType::float32;
  const Batch none = of_no_weight(dtype), some = batch_of_rows(dtype, 0, 3);
  const std::string step = "run: the target weights of step 1 add up to 0; at least one must be above 0",
                    evaluation =
                        "evaluate: the target weights of all 2 batches add up to 0; at least one must be "
                        "above 0";
  for (const auto& each : kWeightLosses) {
    const auto& name = each.first;
    const auto& loss = each.second;
    if (std::string(name) == "element weights") continue;
    CAPTURE(name);
    const auto refusal = [f = loss](const WeightTrial& t) { return error_of([&] { train_by(f, t); }); };
    CHECK(refusal({.training = {none}}) == step);
    CHECK(refusal({.training = {none, none}, .accumulate = 2}) == step);
    CHECK(refusal({.training = {none, none}, .shards = 2}) == step);
    CHECK(refusal({.training = {some}, .held_out = {none, none}}) == evaluation);
    const auto reasons = [f = loss](const WeightTrial& t) {
      return on_ranks(2, [&](Ranks& ranks) {
        WeightTrial on = t;
        on.ranks = &ranks;
        train_by(f, on);
      });
    };
    const auto of_step = reasons({.training = {none, none}, .shards = 2}),
               of_evaluation = reasons({.training = {some, some}, .held_out = {none, none}, .shards = 2});
    CHECK(of_step == std::map<int, std::string>{{0, step}, {1, step}});
    CHECK(of_evaluation == std::map<int, std::string>{{0, evaluation}, {1, evaluation}});
  }
}

namespace {

struct TwoWeighted {
  WeightModel a{DType::float64}, b{DType::float64};
  void members(auto&& visit) { visit("a", a), visit("b", b); }
};

}  // namespace

TEST_CASE("run: each loss of a step has weights of its own") {
  const auto go = [](const std::vector<Batch>& training, Index accumulate) {
    TwoWeighted m;
    SGD first(named_parameters(m.a), {.lr = 0.1}), second(named_parameters(m.b), {.lr = 0.1});
    Schedule schedule("constant", {.lr = 0.1});
    const RunResult r = run(m,
                            {{first, schedule, [&](const Batch& b) { return class_weighted(m.a, b); }},
                             {second, schedule, [&](const Batch& b) { return sample_weighted(m.b, b); }, "other"}},
                            ListedBatches{training}, {}, {.steps = 1, .accumulate = accumulate, .grad_clip = 0.1});
    return WeightOutcome{m.a.weight.detach(), m.b.weight.detach(), m.b.bias.detach(), r.history.losses[0],
                         r.history.other_losses.at("other")[0]};
  };
  const WeightOutcome one = go(parts_of(DType::float64, {8}), 1), three = go(parts_of(DType::float64, {1, 2, 5}), 3);
  CHECK(outcome_difference(three, one, 1e-12) == "");
}

TEST_CASE("run: contradicting weights are refused, unless the weight of the whole is given") {
  const auto contradicting = [](const WeightModel& m, const Batch& b) {
    return class_weighted(m, b) + sample_weighted(m, b);
  };
  const auto float32 = parts_of(DType::float32, {8});
  const std::string refusal = error_of([&] { train_by(contradicting, {.training = float32}); });
  CHECK(contains(refusal, "run: the loss of a batch has parts with the weights "));
  CHECK(contains(refusal, "return weighted_loss(loss, weight) with the weight of the whole"));
  CHECK(contains(error_of([&] {
                   const WeightModel m(DType::float32);
                   evaluate([&](const Batch& b) { return contradicting(m, b); }, ListedBatches{float32});
                 }),
                 "evaluate: the loss of a batch has parts with the weights "));
  const auto stated = [&](const WeightModel& m, const Batch& b) {
    return weighted_loss(contradicting(m, b), static_cast<double>(b.counted));
  };
  const auto two = parts_of(DType::float64, {3, 5});
  const WeightOutcome a = train_by(stated, {.training = {two[0]}}), b = train_by(stated, {.training = {two[1]}}),
                      both = train_by(stated, {.training = two, .accumulate = 2});
  CHECK(both.loss == doctest::Approx((3 * a.loss + 5 * b.loss) / 8).epsilon(1e-12));
}

TEST_CASE("run: if weights are the counted targets, the bits are those without weights") {
  // cross_entropy without class weights, and the same loss as a computation without a known weight.
  const auto plain = [](const WeightModel& m, const Batch& b) { return cross_entropy(m(b.inputs), b.targets); };
  const auto silent = [](const WeightModel& m, const Batch& b) {
    return sum(cross_entropy(m(b.inputs), b.targets, {.reduction = Reduction::sum})) / static_cast<double>(b.counted);
  };
  for (const std::vector<Index>& sizes : {std::vector<Index>{8}, {4, 4}, {3, 5}, {1, 2, 5}}) {
    const WeightTrial t{.training = parts_of(DType::float32, sizes), .accumulate = static_cast<Index>(sizes.size())};
    const WeightOutcome a = train_by(plain, t), b = train_by(silent, t);
    CHECK(outcome_difference(a, b, 1e-6) == "");
    const auto stated = [&](const WeightModel& m, const Batch& x) {
      return weighted_loss(plain(m, x), static_cast<double>(x.counted));
    };
    CHECK(same_outcome(train_by(stated, t), a));
  }
}

TEST_CASE("evaluate: the loss is a mean over weights, other metrics over the counted targets") {
  const DType dtype = DType::float64;
  const WeightModel m(dtype);
  const auto measure = [&](const Batch& b) {
    Metrics metrics = classification_metrics(m(b.inputs), b.targets);
    metrics["plain"] = metrics["loss"];
    metrics["loss"] = class_weighted(m, b).item();
    metrics["perplexity"] = std::exp(metrics["loss"]);
    return metrics;
  };
  const Metrics whole = evaluate_metrics(measure, ListedBatches{parts_of(dtype, {8})}),
                joined = evaluate_metrics(measure, ListedBatches{parts_of(dtype, {1, 5, 2})});
  for (const char* name : {"loss", "accuracy", "plain"})
    CHECK(joined.at(name) == doctest::Approx(whole.at(name)).epsilon(1e-12));
  CHECK(evaluate([&](const Batch& b) { return class_weighted(m, b); }, ListedBatches{parts_of(dtype, {3, 3, 2})}) ==
        doctest::Approx(whole.at("loss")).epsilon(1e-12));
  // For a batch of weight 0, the loss and metrics that depend on it are NaN and left out. The accuracy counts.
  const Batch none = of_no_weight(dtype);
  Batch all = batch_of_rows(dtype, 0, 8);
  for (const char* name : {"weights", "class_weight", "numbers"}) all.others.erase(name);
  all.inputs = concatenate({all.inputs, none.inputs}, 0), all.targets = concatenate({all.targets, none.targets}, 0);
  all["class_weight"] = none["class_weight"], all.counted = 10;
  const Metrics ten = evaluate_metrics(measure, ListedBatches{{all}});
  for (const bool first : {false, true}) {
    std::vector<Batch> list = parts_of(dtype, {8});
    list.insert(first ? list.begin() : list.end(), none);
    const Metrics two = evaluate_metrics(measure, ListedBatches{list});
    CHECK(two.at("loss") == doctest::Approx(whole.at("loss")).epsilon(1e-12));
    CHECK(two.at("perplexity") == doctest::Approx(whole.at("perplexity")).epsilon(1e-12));
    CHECK(two.at("accuracy") == doctest::Approx(ten.at("accuracy")).epsilon(1e-12));
    CHECK(two.at("plain") == doctest::Approx(ten.at("plain")).epsilon(1e-12));
  }
}
