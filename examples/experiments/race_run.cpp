// Trains one entry of the race with AdamW and measures its steps.
#include "examples/experiments/race_run.hpp"

#include <algorithm>
#include <cmath>
#include <heed/autograd/tape.hpp>
#include <heed/core/clock.hpp>
#include <heed/core/memory.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/schedule.hpp>

#include "examples/experiments/median.hpp"

namespace heed::examples {
namespace {

constexpr double kRate = 1e-3;  // the highest learning rate, in every task

Schedule schedule_of(Index steps) {
  return Schedule("cosine",
                  {.lr = kRate, .min_lr = kRate / 10, .warmup = std::min<Index>(100, steps / 10), .steps = steps});
}

// A model in training.
class Trainee {
 public:
  Trainee(const RaceEntry& entry, std::uint64_t seed, Index steps)
      : model_(race_model(entry.model, seed, mechanism_by_name(entry.mechanism, entry.options))),
        optimizer_(decay_groups(model_, 0.1), {.betas = {0.9, 0.99}}),
        schedule_(schedule_of(steps)),
        training_(entry.task->training),
        seed_(seed) {}

  double step(Index s) {  // returns the loss
    const Batch batch = training_.batch(seed_, static_cast<std::uint64_t>(s));
    optimizer_.zero_grad();
    Tape tape;
    const Tensor loss = model_.loss(batch.inputs, batch.targets);
    tokens_ += static_cast<double>(batch.read());
    tape.backward(loss);
    optimizer_.set_lr(schedule_(s));
    optimizer_.clipped_step(1);
    return loss.item();
  }
  GPT& model() { return model_; }
  double tokens() const { return tokens_; }  // of all steps so far

 private:
  GPT model_;
  AdamW optimizer_;
  Schedule schedule_;
  Dataset training_;
  std::uint64_t seed_;
  double tokens_ = 0;
};

// Whether an evaluation follows step `done` of `steps`. There are `points` evaluations, evenly spread.
bool is_point(Index done, Index steps, Index points) {
  return done == steps || done * points / steps != (done - 1) * points / steps;
}

void score(RaceResult& r, const RaceEntry& entry, Trainee& trainee, const RaceRunOptions& o) {
  const auto done = static_cast<Index>(r.losses.size());
  r.peak_bytes = std::max(r.peak_bytes, memory_use().peak);
  const Index since = r.points.empty() ? 0 : r.points.back().step;
  RacePoint point{done, 0, {}};
  for (Index i = since; i < done; ++i)
    point.training_loss += r.losses[static_cast<std::size_t>(i)] / static_cast<double>(done - since);
  // Evaluations during training use a few batches; the last one uses all.
  const Index max_batches = done < o.steps ? std::min<Index>(4, o.steps) : o.steps;
  point.score = entry.task->score(trainee.model(), max_batches);
  r.points.push_back(point);
  if (o.scored) o.scored(r, point);
  reset_peak_memory();  // the memory of an evaluation is not counted
}

void train(RaceResult& r, const RaceEntry& entry, const RaceRunOptions& o) {
  release_cached_memory();
  reset_peak_memory();
  Trainee trainee(entry, o.seed, o.steps);
  r.parameters = parameter_count(trainee.model());
  std::vector<double> seconds;
  for (Index s = 0; s < o.steps; ++s) {
    if (o.stop && o.stop()) {
      r.stopped = true;
      break;
    }
    const double begin = detail::seconds_now();
    r.losses.push_back(trainee.step(s));
    seconds.push_back(detail::seconds_now() - begin);
    require(std::isfinite(r.losses.back()), "the loss of step ", s + 1, " is ", r.losses.back(), "; it must be finite");
    if (s % 16 == 0 || s + 1 == o.steps || is_point(s + 1, o.steps, o.points)) {
      r.step_seconds = median(seconds);
      r.tokens_per_second = trainee.tokens() / static_cast<double>(r.losses.size()) / r.step_seconds;
    }
    if (o.stepped) o.stepped(r);
    if (is_point(s + 1, o.steps, o.points)) score(r, entry, trainee, o);
  }
  r.peak_bytes = std::max(r.peak_bytes, memory_use().peak);
}

}  // namespace

RaceResult run_entry(const RaceEntry& entry, const RaceRunOptions& o) {
  RaceResult r;
  r.task = entry.task->name;
  r.label = entry.label;
  r.mechanism = entry.mechanism;
  r.planned_steps = o.steps;
  const double begin = detail::seconds_now();
  try {
    train(r, entry, o);
  } catch (const std::exception& e) {
    r.error = e.what();
  }
  r.seconds = detail::seconds_now() - begin;
  return r;
}

double measure_step(const RaceEntry& entry, std::uint64_t seed) {
  Trainee trainee(entry, seed, 3);
  double min_seconds = 1e300;
  for (Index s = 0; s < 3; ++s) {
    const double begin = detail::seconds_now();
    trainee.step(s);
    if (s > 0) min_seconds = std::min(min_seconds, detail::seconds_now() - begin);
  }
  return min_seconds;
}

}  // namespace heed::examples
