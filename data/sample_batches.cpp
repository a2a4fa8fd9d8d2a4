// Which samples make a batch: buckets of similar length, shuffled by epoch, or all in order.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>
#include <heed/data/samples.hpp>
#include <numeric>

namespace heed {
namespace {

constexpr std::uint64_t kEpochStream = std::uint64_t{0xE90C4} << 44;  // of Rng, for the orders of epochs alone

// Of each sample the longest of its padded tensors; 0 where no tokens are counted.
std::vector<Index> lengths_of(const Samples& samples, const SampleBatchOptions& o) {
  require(o.rows >= 0 && o.tokens >= 0 && o.rows + o.tokens > 0, "batches: ", o.rows, " rows and ", o.tokens,
          " tokens a batch were asked for; they must be 0 or more, and one of them above 0");
  require(samples.size() > 0, "batches: there are no samples; there must be one or more");
  require(o.tokens == 0 || !o.padding.empty(), "batches: tokens is ", o.tokens,
          " but no padding is given; without, all samples have one length: give rows");
  std::vector<Index> lengths(static_cast<std::size_t>(samples.size()));
  for (Index i = 0; o.tokens > 0 && i < samples.size(); ++i) {
    Index& longest = lengths[static_cast<std::size_t>(i)];
    const Sample sample = samples.sample(i);
    for (const auto& [name, how] : o.padding) {
      const auto x = sample.find(name);
      require(x != sample.end() && x->second.rank() > 0, "batches: sample ", i, " has no ", name,
              " with an axis, which padding is given for");
      longest = std::max(longest, x->second.dim(0));
    }
    require(longest <= o.tokens, "batches: sample ", i, " is ", longest, " long, and a batch may hold ", o.tokens,
            " tokens; leave it out, or let a batch hold more");
  }
  return lengths;
}

// How many samples of such a length a batch holds.
Index rows_of(Index length, const SampleBatchOptions& o) {
  const Index fitting = o.tokens > 0 ? o.tokens / std::max<Index>(length, 1) : o.rows;
  return o.rows > 0 ? std::min(fitting, o.rows) : fitting;
}

Batch batch_of(const Samples& samples, std::span<const Index> chosen, const PaddingByName& padding) {
  std::vector<Sample> list;
  for (const Index i : chosen) list.push_back(samples.sample(i));
  return collate(list, padding);
}

}  // namespace

struct SampleBatches::Epoch {
  std::uint64_t seed, number;
  std::vector<std::vector<Index>> batches;
};

struct SampleBatches::Cache {
  std::mutex mutex;
  std::shared_ptr<const Epoch> epoch;
};

SampleBatches::SampleBatches(Samples samples, SampleBatchOptions options)
    : samples_(std::move(samples)), options_(std::move(options)), cache_(std::make_shared<Cache>()) {
  const std::vector<Index> lengths = lengths_of(samples_, options_);
  const auto length = [&](Index i) { return lengths[static_cast<std::size_t>(i)]; };
  std::vector<Index> order(lengths.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return length(a) < length(b); });
  for (auto begin = order.begin(), end = begin; begin != order.end(); begin = end) {
    const Index longest = length(*begin) + length(*begin) / 10;
    end = std::find_if(begin, order.end(), [&](Index i) { return length(i) > longest; });
    buckets_.push_back({{begin, end}, rows_of(length(end[-1]), options_)});
    batches_ += (end - begin + buckets_.back().rows - 1) / buckets_.back().rows;
  }
}

std::shared_ptr<const SampleBatches::Epoch> SampleBatches::epoch(std::uint64_t seed, std::uint64_t number) const {
  const std::lock_guard lock(cache_->mutex);
  std::shared_ptr<const Epoch>& last = cache_->epoch;
  if (last && last->seed == seed && last->number == number) return last;
  Rng rng(seed, kEpochStream + number);
  std::vector<std::vector<Index>> in_order;
  for (const Bucket& bucket : buckets_) {
    const std::vector<Index> places = rng.permutation(static_cast<Index>(bucket.samples.size()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i % static_cast<std::size_t>(bucket.rows) == 0) in_order.emplace_back();
      in_order.back().push_back(bucket.samples[static_cast<std::size_t>(places[i])]);
    }
  }
  Epoch made{seed, number, {}};
  for (const Index i : rng.permutation(batches_))
    made.batches.push_back(std::move(in_order[static_cast<std::size_t>(i)]));
  return last = std::make_shared<const Epoch>(std::move(made));
}

Batch SampleBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  const auto count = static_cast<std::uint64_t>(batches_);
  return batch_of(samples_, epoch(seed, step / count)->batches[step % count], options_.padding);
}

SampleEvaluation::SampleEvaluation(Samples samples, SampleBatchOptions options)
    : samples_(std::move(samples)), options_(std::move(options)) {
  const std::vector<Index> lengths = lengths_of(samples_, options_);
  Index longest = 0;  // of the batch that is being filled
  for (Index i = 0; i < samples_.size(); ++i) {
    longest = std::max(longest, lengths[static_cast<std::size_t>(i)]);
    if (!begins_.empty() && i - begins_.back() < rows_of(longest, options_)) continue;
    begins_.push_back(i);
    longest = lengths[static_cast<std::size_t>(i)];
  }
  begins_.push_back(samples_.size());
}

Batch SampleEvaluation::batch(Index i) const {
  require(i >= 0 && i < size(), "batches: batch ", i, " was asked for; there are ", size());
  const Index begin = begins_[static_cast<std::size_t>(i)], end = begins_[static_cast<std::size_t>(i) + 1];
  std::vector<Index> chosen(static_cast<std::size_t>(end - begin));
  std::iota(chosen.begin(), chosen.end(), begin);
  return batch_of(samples_, chosen, options_.padding);
}

}  // namespace heed
