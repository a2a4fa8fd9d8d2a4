// Chooses the samples of each batch: by buckets of similar length, shuffled per epoch, or in order.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>
#include <heed/data/samples.hpp>
#include <limits>
#include <numeric>

namespace heed {
namespace {

constexpr std::uint64_t kEpochStream = std::uint64_t{0xE90C4} << 44;  // of Rng, reserved for the order of epochs

void check_options(const Samples& samples, const SampleBatchOptions& o) {
  require(o.rows >= 0 && o.tokens >= 0 && (o.rows > 0 || o.tokens > 0), "batches: rows is ", o.rows, " and tokens is ",
          o.tokens, "; both must be 0 or more, and one of them above 0");
  require(samples.size() > 0, "batches: there are no samples; there must be one or more");
  require(o.tokens == 0 || !o.padding.empty(), "batches: tokens is ", o.tokens,
          " but padding is empty; without padding all samples have one length, so give rows instead");
}

// The length of the longest padded tensor of each sample; 0 if tokens are not limited.
std::vector<Index> lengths_of(const Samples& samples, const SampleBatchOptions& o) {
  check_options(samples, o);
  std::vector<Index> lengths(static_cast<std::size_t>(samples.size()));
  for (Index i = 0; o.tokens > 0 && i < samples.size(); ++i) {
    Index& longest = lengths[static_cast<std::size_t>(i)];
    const Sample sample = samples.sample(i);
    for (const auto& [name, how] : o.padding) {
      const auto x = sample.find(name);
      require(x != sample.end() && x->second.rank() > 0, "batches: ", samples.where(i), " has no ", name,
              " with an axis, but padding is given for it");
      longest = std::max(longest, x->second.dim(0));
    }
    require(longest <= o.tokens, "batches: ", samples.where(i), " has length ", longest, ", but a batch has at most ",
            o.tokens, " tokens; remove the sample or increase tokens");
  }
  return lengths;
}

// The number of samples of this length that fit into a batch.
Index rows_of(Index length, const Batching& b) {
  const Index fitting = b.tokens > 0 ? b.tokens / std::max<Index>(length, 1) : b.rows;
  return b.rows > 0 ? std::min(fitting, b.rows) : fitting;
}

// Samples of similar length, and the number of rows of their batches.
struct Bucket {
  std::vector<Index> samples;
  Index rows;
};

std::vector<Bucket> buckets_of(const std::vector<Index>& lengths, const Batching& b) {
  const auto length = [&](Index i) { return b.tokens > 0 ? lengths[static_cast<std::size_t>(i)] : 0; };
  std::vector<Index> order(lengths.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index x, Index y) { return length(x) < length(y); });
  std::vector<Bucket> buckets;
  for (auto begin = order.begin(), end = begin; begin != order.end(); begin = end) {
    const Index longest = length(*begin) + length(*begin) / 10;
    end = std::find_if(begin, order.end(), [&](Index i) { return length(i) > longest; });
    buckets.push_back({{begin, end}, rows_of(length(end[-1]), b)});
  }
  return buckets;
}

Index batches_in(const std::vector<Bucket>& buckets) {
  Index count = 0;
  for (const Bucket& b : buckets) count += (static_cast<Index>(b.samples.size()) - 1) / b.rows + 1;
  return count;
}

// The batches of an epoch, without the samples that are `taken` (empty: none).
std::vector<std::vector<Index>> plan_of(const std::vector<Bucket>& buckets, const std::vector<bool>& taken, Rng rng) {
  std::vector<std::vector<Index>> in_order, batches;
  for (const Bucket& bucket : buckets) {
    Index in_bucket = 0;
    for (const Index place : rng.permutation(static_cast<Index>(bucket.samples.size()))) {
      const Index sample = bucket.samples[static_cast<std::size_t>(place)];
      if (!taken.empty() && taken[static_cast<std::size_t>(sample)]) continue;
      if (in_bucket++ % bucket.rows == 0) in_order.emplace_back();
      in_order.back().push_back(sample);
    }
  }
  for (const Index i : rng.permutation(static_cast<Index>(in_order.size())))
    batches.push_back(std::move(in_order[static_cast<std::size_t>(i)]));
  return batches;
}

Rng rng_of_epoch(std::uint64_t seed, std::uint64_t number) { return Rng(seed, kEpochStream + number); }

Batch batch_of(const Samples& samples, std::span<const Index> chosen, const PaddingByName& padding) {
  std::vector<Sample> list;
  for (const Index i : chosen) list.push_back(samples.sample(i));
  return collate(list, padding);
}

}  // namespace

struct SampleBatches::Plan {
  std::uint64_t seed, epoch;
  std::vector<std::vector<Index>> batches;
};

struct SampleBatches::Cache {
  std::mutex mutex;
  std::shared_ptr<const Plan> plan, start;
};

SampleBatches::SampleBatches(Samples samples, SampleBatchOptions options)
    : samples_(std::move(samples)),
      options_(std::move(options)),
      lengths_(std::make_shared<const std::vector<Index>>(lengths_of(samples_, options_))),
      batches_(batches_in(buckets_of(*lengths_, batching()))),
      cache_(std::make_shared<Cache>()) {}

std::shared_ptr<const SampleBatches::Plan> SampleBatches::epoch(std::uint64_t seed, std::uint64_t number) const {
  std::shared_ptr<const Plan>& last = cache_->plan;
  if (!last || last->seed != seed || last->epoch != number)
    last = std::make_shared<const Plan>(
        Plan{seed, number, plan_of(buckets_of(*lengths_, batching()), {}, rng_of_epoch(seed, number))});
  return last;
}

// Replays the earlier batches by their numbers to find which samples of the last epoch they contained.
std::shared_ptr<const SampleBatches::Plan> SampleBatches::start(std::uint64_t seed) const {
  std::shared_ptr<const Plan>& last = cache_->start;
  if (last && last->seed == seed) return last;
  Plan start{seed, 0, {}};
  std::vector<bool> taken;
  for (const BatchesRead& read : read_) {
    const std::vector<Bucket> buckets = buckets_of(*lengths_, read.batching);
    const auto whole = static_cast<std::uint64_t>(batches_in(buckets));
    for (std::uint64_t left = read.count; left > 0;) {
      if (taken.empty() && left >= whole) {
        start.epoch += left / whole, left %= whole;
        continue;
      }
      const auto plan = plan_of(buckets, taken, rng_of_epoch(seed, start.epoch));
      taken.resize(lengths_->size());
      const std::uint64_t now = std::min<std::uint64_t>(left, plan.size());
      for (std::uint64_t i = 0; i < now; ++i)
        for (const Index sample : plan[i]) taken[static_cast<std::size_t>(sample)] = true;
      left -= now;
      if (now == plan.size()) ++start.epoch, taken.clear();
    }
  }
  if (!taken.empty()) {
    start.batches = plan_of(buckets_of(*lengths_, batching()), taken, rng_of_epoch(seed, start.epoch));
    ++start.epoch;
  }
  return last = std::make_shared<const Plan>(std::move(start));
}

Batch SampleBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  std::vector<Index> chosen;
  {
    const std::lock_guard lock(cache_->mutex);
    const std::shared_ptr<const Plan> first = start(seed);
    if (step < first->batches.size()) {
      chosen = first->batches[step];
    } else {
      const std::uint64_t count = static_cast<std::uint64_t>(batches_), n = step - first->batches.size();
      chosen = epoch(seed, first->epoch + n / count)->batches[n % count];
    }
  }
  return batch_of(samples_, chosen, options_.padding);
}

SampleBatches SampleBatches::continued(const std::vector<BatchesRead>& read) const {
  SampleBatches next = *this;
  next.read_ = read;
  next.cache_ = std::make_shared<Cache>();
  const bool by_length = std::ranges::any_of(read, [](const BatchesRead& r) { return r.batching.tokens > 0; });
  if (by_length && options_.tokens == 0) {
    SampleBatchOptions any_length = options_;
    any_length.tokens = std::numeric_limits<Index>::max();
    next.lengths_ = std::make_shared<const std::vector<Index>>(lengths_of(samples_, any_length));
  }
  return next;
}

std::uint64_t SampleBatches::batches_until(std::uint64_t seed, std::uint64_t epochs) const {
  const std::lock_guard lock(cache_->mutex);
  const std::shared_ptr<const Plan> first = start(seed);
  const std::uint64_t before = first->batches.empty() ? first->epoch : first->epoch - 1;
  if (epochs <= before) return 0;
  return first->batches.size() + (epochs - first->epoch) * static_cast<std::uint64_t>(batches_);
}

SampleEvaluation::SampleEvaluation(Samples samples, SampleBatchOptions options)
    : samples_(std::move(samples)), options_(std::move(options)) {
  const std::vector<Index> lengths = lengths_of(samples_, options_);
  Index longest = 0;  // of the current batch
  for (Index i = 0; i < samples_.size(); ++i) {
    longest = std::max(longest, lengths[static_cast<std::size_t>(i)]);
    if (!begins_.empty() && i - begins_.back() < rows_of(longest, {options_.rows, options_.tokens})) continue;
    begins_.push_back(i);
    longest = lengths[static_cast<std::size_t>(i)];
  }
  begins_.push_back(samples_.size());
}

Batch SampleEvaluation::batch(Index i) const {
  detail::check_index("batches: batch", i, size());
  const Index begin = begins_[static_cast<std::size_t>(i)], end = begins_[static_cast<std::size_t>(i) + 1];
  std::vector<Index> chosen(static_cast<std::size_t>(end - begin));
  std::iota(chosen.begin(), chosen.end(), begin);
  return batch_of(samples_, chosen, options_.padding);
}

}  // namespace heed
