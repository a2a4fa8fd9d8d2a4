// Rows that hold several samples: first fit over a window of open rows.
#include <algorithm>
#include <deque>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/fine_tuning.hpp>
#include <numeric>

namespace heed {
namespace {

constexpr std::uint64_t kPackStream = std::uint64_t{0x9AC4E} << 44;  // of Rng, reserved for the order of packing

// A row that is being filled.
struct OpenRow {
  std::vector<Index> samples;
  Index room;
};

// The tokens of a sample. Throws Error unless it fits a row of the context.
Index packed_length(const Samples& samples, Index i, Index context) {
  const Sample sample = samples.sample(i);
  const auto inputs = sample.find("inputs"), targets = sample.find("targets");
  const bool both = inputs != sample.end() && targets != sample.end();
  require(both, "packing: ", samples.where(i), " lacks inputs or targets; it must have both");
  const auto is_tokens = [](const Tensor& x) { return x.defined() && x.rank() == 1 && x.dtype() == DType::int32; };
  const Tensor &x = inputs->second, &y = targets->second;
  require(is_tokens(x) && is_tokens(y) && x.dim(0) == y.dim(0) && x.dim(0) >= 1 && x.dim(0) <= context,
          "packing: ", samples.where(i), " has the inputs ", x, " and the targets ", y,
          "; both must be int32 of one length, from 1 to the context, ", context);
  return x.dim(0);
}

}  // namespace

PackedSamples::PackedSamples(Samples samples, const PackOptions& options)
    : samples_(std::move(samples)), options_(options) {
  require(options.context >= 1 && options.window >= 1, "packing: context is ", options.context, " and window is ",
          options.window, "; both must be 1 or more");
  require(samples_.size() > 0, "packing: there are no samples; there must be one or more");
  std::vector<Index> order(static_cast<std::size_t>(samples_.size()));
  std::iota(order.begin(), order.end(), Index{0});
  if (options.seed) order = Rng(*options.seed, kPackStream).permutation(samples_.size());
  std::deque<OpenRow> open;
  const auto close = [&](std::deque<OpenRow>::iterator row) {
    rows_.push_back(std::move(row->samples));
    open.erase(row);
  };
  for (const Index i : order) {
    const Index length = packed_length(samples_, i, options.context);
    tokens_ += length;
    auto row = std::find_if(open.begin(), open.end(), [&](const OpenRow& r) { return r.room >= length; });
    if (row == open.end()) {
      if (static_cast<Index>(open.size()) == options.window) close(open.begin());
      row = open.insert(open.end(), {{}, options.context});
    }
    row->samples.push_back(i);
    row->room -= length;
    if (row->room == 0) close(row);
  }
  while (!open.empty()) close(open.begin());
}

Sample PackedSamples::sample(Index i) const {
  detail::check_index("packing: row", i, size());
  const Index context = options_.context;
  Tensor inputs = Tensor::full({context}, options_.padding, DType::int32),
         targets = Tensor::full({context}, kIgnoreIndex, DType::int32), documents = Tensor::arange(context);
  Index at = 0;
  for (const Index n : rows_[static_cast<std::size_t>(i)]) {
    const Sample sample = samples_.sample(n);
    const Tensor x = sample.find("inputs")->second.dense(), y = sample.find("targets")->second.dense();
    std::copy_n(x.ptr<std::int32_t>(), x.numel(), inputs.ptr<std::int32_t>() + at);
    std::copy_n(y.ptr<std::int32_t>(), y.numel(), targets.ptr<std::int32_t>() + at);
    std::fill_n(documents.ptr<std::int32_t>() + at, x.numel(), static_cast<std::int32_t>(at));
    at += x.numel();
  }
  return {{"inputs", inputs}, {"targets", targets}, {"documents", documents}};
}

std::optional<std::string> PackedSamples::fingerprint() const {
  const std::optional<std::string> of_samples = samples_.fingerprint();
  if (!of_samples) return std::nullopt;
  detail::ContentHash hash;
  hash.add(*of_samples);
  for (const std::vector<Index>& row : rows_) {
    const std::uint64_t count = row.size();
    hash.add(&count, sizeof count);
    hash.add(row.data(), row.size() * sizeof row[0]);
  }
  const std::int64_t shape[] = {options_.context, options_.padding};
  hash.add(shape, sizeof shape);
  return std::to_string(size()) + " packed rows with the hash " + hash.hex();
}

double PackedSamples::filled() const {
  return static_cast<double>(tokens_) / (static_cast<double>(size()) * static_cast<double>(options_.context));
}

}  // namespace heed
