// The steps of a run: batches, gradients, optimizer steps and averages.
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/loss_weight.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/core/clock.hpp>
#include <heed/core/profiler.hpp>
#include <heed/optim/ranks/messages.hpp>
#include <heed/optim/run/metrics.hpp>
#include <heed/optim/run/steps.hpp>
#include <numeric>
#include <optional>
#include <sstream>

namespace heed::detail {
namespace {

// Streams of default_rng() in training steps, with the run's seed: the stream of the first shard, and the distance to
// that of the next shard.
constexpr std::uint64_t kDropoutStream = 1, kNextShard = 1 << 20;

// RunSteps::Totals of these shards.
template <class Shard>
std::vector<double> totals_of(const std::vector<Shard>& shards) {
  std::vector<double> sums(5);
  for (const Shard& shard : shards)
    for (const Batch& batch : shard.batches) {
      sums[0] += static_cast<double>(batch.counted);
      sums[1] += static_cast<double>(batch.read());
      sums[2] += static_cast<double>(batch.samples());
      sums[3] += batch.has_token_targets() ? 1 : 0;
      sums[4] += has_tensors(batch) ? 1 : 0;
    }
  return sums;
}

}  // namespace

void check_loss(const Tensor& loss) {
  require(loss.defined() && loss.numel() == 1, "run: the loss of a batch is ", loss,
          "; it must be one number, such as the mean() of the losses of rows");
}

// Advice for an Error about numbers that are not finite.
std::string RunSteps::advice() const {
  std::ostringstream text;
  text << ": the learning rate is " << lr_ << "; lower it";
  if (!run_.options.find_nan) text << ", or find the op that made the first NaN with RunOptions::find_nan (--find-nan)";
  return text.str();
}

// Computes the gradients of this rank's shards, and sums them over all shards. Each batch is weighted by its weight
// divided by the counted targets of the step. apply() corrects the result if weights are not counts.
std::vector<RunSteps::ShardSums> RunSteps::compute(const Loss& loss, std::vector<Shard>& shards, const Totals& totals,
                                                   StepGradients& gradients) {
  std::vector<ShardSums> sums;
  for (Shard& shard : shards) {
    const bool is_last = &shard == &shards.back();
    default_rng() = shard.rng;
    sums.push_back(compute(loss, shard, is_last, totals, gradients));
    shard.rng = default_rng();
    if (!is_last) gradients.add_shard();
  }
  totals();  // also if no target counts on this rank
  gradients.finish();
  return sums;
}

// Adds the gradients of the shard's batches to those of the parameters.
RunSteps::ShardSums RunSteps::compute(const Loss& loss, const Shard& shard, bool is_last, const Totals& totals,
                                      StepGradients& gradients) {
  ShardSums sums;
  const auto counts = [](const Batch& b) { return b.counted > 0; };  // the mean over no target is NaN
  const auto last = std::find_if(shard.batches.rbegin(), shard.batches.rend(), counts);
  for (const Batch& batch : shard.batches) {
    if (!counts(batch)) continue;
    Tape tape({.find_nan = run_.options.find_nan});
    if (is_last && &batch == &*last) gradients.watch(tape);
    const MatmulPrecision precision(run_.options.precision);
    std::optional<LossWeights> weights(std::in_place);
    const Tensor l = loss(batch);
    check_loss(l);
    const double value = l.item(), weight = weights->of("run", value, static_cast<double>(batch.counted));
    if (loss_unit_.empty() && weights->is_cross_entropy(value))
      loss_unit_ = batch.has_token_targets() ? "nats per token" : "nats";
    weights.reset();  // losses that backward computes again do not count
    if (weight == 0) continue;
    sums.weight += weight;
    if (!std::isfinite(value)) {
      const std::string empty = empty_tensor(batch);
      fail("run: the loss of step ", run_.done + 1, " is ", value, "; it must be finite",
           empty.empty() ? advice() : ": " + empty);
    }
    const double share = weight / (is_one_batch() ? weight : totals()[0]);
    sums.loss += share * value;
    tape.backward(l, Tensor::full(l.shape(), share, l.dtype()));
  }
  return sums;
}

// The norm of an optimizer's gradients. Throws Error if it is not finite. `of_shards`: as for StepGradients::norm().
double RunSteps::checked_norm(const Optimizer& optimizer, StepGradients& gradients, std::span<double> of_shards) const {
  const double norm = gradients.norm(optimizer, of_shards);
  if (std::isfinite(norm)) return norm;
  try {
    gradients.fail_non_finite(optimizer, norm);
  } catch (const Error& e) {
    fail("run: step ", run_.done + 1, ": ", e.what(), advice());
  }
}

// Makes the steps of the optimizers `first` to `end` - 1, whose gradients are of one loss and are clipped together.
// Gradients and losses were divided by `counted`. Their proper divisor is the sum of the weights of all shards, which
// is known here.
RunSteps::Applied RunSteps::apply(std::size_t first, std::size_t end, StepGradients& gradients,
                                  const std::vector<ShardSums>& sums, double counted) {
  const double max_norm = run_.options.grad_clip > 0 ? run_.options.grad_clip : detail::kInfinity;
  std::vector<double> weights(static_cast<std::size_t>(run_.options.shards));
  std::ranges::transform(sums, weights.begin() + run_.ranks.begin(), &ShardSums::weight);
  double norm = 0, squares = 0;
  for (std::size_t i = first; i < end; ++i) {
    const std::span<double> of_shards = i == first ? std::span<double>(weights) : std::span<double>();
    norm = checked_norm(run_.parts.updates[i].optimizer, gradients, of_shards);
    squares += norm * norm;
  }
  if (end - first > 1) norm = std::sqrt(squares);
  const double weight = std::accumulate(weights.begin(), weights.end(), 0.0);
  require(weight > 0, "run: the target weights of step ", run_.done + 1, " add up to ", weight,
          "; at least one must be above 0");
  const double scale = is_one_batch() ? 1 : counted / weight;
  norm *= scale;
  const double factor = clip_coefficient(norm, max_norm) * scale;
  for (std::size_t i = first; i < end; ++i) gradients.apply(run_.parts.updates[i].optimizer, factor);
  return {norm, scale};
}

// Makes the updates of running statistics of all shards, in their order. `here`: those of this rank's shards. `of_any`:
// whether any rank has some.
void RunSteps::update_running(std::vector<StatisticsUpdate>& here, bool of_any) {
  if (run_.ranks.is_alone()) {
    for (StatisticsUpdate& u : here) u.apply();
    return;
  }
  if (!of_any) return;
  await_values();  // so that no other exchange is in progress
  std::map<std::string, Tensor> buffers;
  if (run_.parts.buffers)
    for (const NamedBuffer& b : run_.parts.buffers()) buffers[b.name] = *b.buffer;
  Packed mine;
  for (const StatisticsUpdate& u : here) {
    const auto named =
        std::ranges::find_if(buffers, [&](const auto& b) { return b.second.storage() == u.buffer.storage(); });
    require(named != buffers.end(), "run: the buffer of running statistics ", u.buffer,
            " is not a member of the model; members() must name it, and RunParts::buffers must list it");
    mine.add(named->first);
    mine.add(u.momentum);
    for (const double v : u.values) mine.add(v);
  }
  for (std::string& bytes : run_.ranks.gather(mine.bytes()))
    for (Packed all(std::move(bytes)); !all.at_end();) {
      StatisticsUpdate u{.buffer = buffers.at(all.text()), .momentum = all.number()};
      for (Index i = 0; i < u.buffer.numel(); ++i) u.values.push_back(all.number());
      u.apply();
    }
}

// This rank's shards of the next step. The numbers for dropout depend on the seed, the step and the shard only.
std::vector<RunSteps::Shard> RunSteps::shards() const {
  const RunOptions& o = run_.options;
  const auto step = static_cast<std::uint64_t>(run_.done), end = static_cast<std::uint64_t>(run_.ranks.end());
  std::vector<Shard> shards;
  for (auto s = static_cast<std::uint64_t>(run_.ranks.begin()); s < end; ++s) {
    Shard& shard = shards.emplace_back(Shard{{}, Rng(o.seed, kDropoutStream + s * kNextShard)});
    shard.rng.set_position(step << 40);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(o.accumulate); ++i) {
      const ProfileScope scope("batch");
      shard.batches.push_back(run_.data.batch(run_.done, s, i));
    }
  }
  return shards;
}

// Makes the part of a step that belongs to one loss: the updates `first` to `end` - 1.
void RunSteps::follow_loss(std::size_t first, std::size_t end, std::vector<Shard>& shards, const Totals& totals,
                           const std::function<RunEnd()>& end_here, RunStep& made) {
  const std::vector<Update>& updates = run_.parts.updates;
  for (const Update& u : updates) u.optimizer.zero_grad();  // losses of a GAN reach the weights of both players
  for (std::size_t i = first; i < end; ++i) updates[i].optimizer.set_lr(updates[i].schedule(run_.done));
  lr_ = updates[first].optimizer.lr();
  std::unique_ptr<StepGradients>& gradients = gradients_[first];
  if (gradients == nullptr) gradients = run_.ranks.gradients();
  gradients->begin();
  const Loss& loss_of = updates[first].loss ? updates[first].loss : run_.parts.loss;
  StatisticsUpdates statistics;
  const std::vector<ShardSums> sums = compute(loss_of, shards, totals, *gradients);
  // The loss and the reasons to end are summed over all ranks while optimizers step.
  const RunEnd here = end_here();
  bool flags[] = {here.stop, here.out_of_time, !statistics.list().empty()};
  std::vector<double> losses;
  for (const ShardSums& s : sums) losses.push_back(s.loss);
  run_.ranks.start_sum_of_shards(std::move(losses), flags);
  const auto [norm, scale] = apply(first, end, *gradients, sums, totals()[0]);
  const double loss = scale * run_.ranks.finish_sum_of_shards(flags);
  end_ = {flags[0], flags[1]};
  update_running(statistics.list(), flags[2]);
  const std::string& name = run_.names[first];
  for (std::size_t i = first; i < end; ++i)
    (i == 0 ? made.lr : made.others["lr_" + run_.names[i]]) = updates[i].optimizer.lr();
  (first == 0 ? made.loss : made.others["loss_" + name]) = loss;
  (first == 0 ? made.grad_norm : made.others["grad_norm_" + name]) = norm;
  (first == 0 ? run_.history.losses : run_.history.other_losses[name]).push_back(loss);
}

RunStep RunSteps::make(const std::function<RunEnd()>& end_here) {
  const RunOptions& o = run_.options;
  const double start = seconds_now();
  std::vector<Shard> mine = shards();
  run_.ranks.start_sum(totals_of(mine));
  std::vector<double> sums;                                    // over all ranks
  const Totals totals = [&]() -> const std::vector<double>& {  // first needed by backward
    if (!sums.empty()) return sums;
    sums = run_.ranks.finish_sum();
    require(sums[0] > 0 || sums[4] > 0, "run: the batches of step ", run_.done + 1,
            " are empty: they have no tensors, and Batch::counted is 0; the data set must fill them");
    require(sums[0] > 0, "run: all targets of step ", run_.done + 1,
            " are ignored: Batch::counted, the number of other targets, is 0 in all ", o.shards * o.accumulate,
            " batches; it must be above 0 in at least one");
    return sums;
  };
  RunStep made;
  const std::vector<Update>& updates = run_.parts.updates;
  for (std::size_t first = 0, end = 1; first < updates.size(); first = end++) {
    while (end < updates.size() && !updates[end].loss) ++end;  // updates that share the loss
    follow_loss(first, end, mine, totals, end_here, made);
  }
  if (o.average != nullptr) {
    await_values();
    const ProfileScope scope("average");
    o.average->update();
  }
  made.step = ++run_.done;
  if (o.last_weights != nullptr && run_.done % keep_every(o) == 0) {
    await_values();
    o.last_weights->keep();
  }
  const double seconds = seconds_now() - start;
  seconds_ += seconds;
  const std::vector<double>& all = totals();
  read_ += all[1];
  samples_ += all[2];
  of_tokens_ = all[3] > 0;
  made.tokens_per_second = of_tokens_ ? all[1] / seconds : 0;
  made.samples_per_second = all[2] / seconds;
  return made;
}

}  // namespace heed::detail
