// Batches with hidden tokens, for masked language modelling.
#include <algorithm>
#include <cmath>
#include <functional>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>
#include <heed/data/batches.hpp>

namespace heed {
namespace {

// Random streams reserved for masks.
constexpr std::uint64_t kTrainingStream = std::uint64_t{0x3A5C4} << 44,
                        kEvaluationStream = std::uint64_t{0x3A5C5} << 44;

void check_options(const MaskOptions& o) {
  require(o.vocabulary > 0, "masks: the vocabulary is ", o.vocabulary, "; it must be 1 or more");
  require(o.special >= 0 && o.special < o.vocabulary, "masks: special is ", o.special, " and the vocabulary ",
          o.vocabulary, "; special must be 0 or more, and below the vocabulary");
  require(o.mask >= 0, "masks: the mask token is ", o.mask, "; it must be 0 or more");
  require(o.share > 0 && o.share <= 1, "masks: the share of chosen positions is ", o.share,
          "; it must be above 0 and at most 1");
  require(o.masked >= 0 && o.random >= 0 && o.masked + o.random <= 1, "masks: masked is ", o.masked, " and random is ",
          o.random, "; both must be 0 or more, and their sum at most 1");
}

// The chosen positions of one row, in random order.
std::vector<Index> choose(const std::int32_t* tokens, Index length, const MaskOptions& o, Rng& rng) {
  std::vector<Index> positions;
  for (Index t = 0; t < length; ++t)
    if (tokens[t] >= o.special && tokens[t] != o.separator) positions.push_back(t);
  const auto all = static_cast<Index>(positions.size());
  const Index count = std::min(all, std::max<Index>(1, std::lround(o.share * static_cast<double>(all))));
  for (Index i = 0; i < count; ++i)  // the first swaps of a shuffle (Fisher and Yates)
    std::swap(positions[static_cast<std::size_t>(i)], positions[static_cast<std::size_t>(i + rng.integer(all - i))]);
  positions.resize(static_cast<std::size_t>(count));
  return positions;
}

// `counts`, if defined, are the targets of the text: where they are kIgnoreIndex, the new targets are too. rng_of(row)
// returns the generator of a row.
Batch hide(const Batch& text, const MaskOptions& o, const std::function<Rng(Index row)>& rng_of, const Tensor& counts) {
  const Tensor x = text.inputs;
  require(x.rank() == 2 && x.dtype() == DType::int32, "masks: the texts are ", x,
          "; they must be int32 [batch, positions]");
  require(!counts.defined() || (counts.dtype() == DType::int32 && counts.shape() == x.shape()),
          "masks: the targets of the texts are ", counts, " and their inputs ", x,
          "; targets must be int32 and have the shape of the inputs");
  const Tensor own = counts.dense();  // row-major
  const Index rows = x.dim(0), length = x.dim(1);
  Batch b = text;  // keeps the other tensors, such as lengths
  b.inputs = x.clone(), b.targets = Tensor::full({rows, length}, kIgnoreIndex, DType::int32), b.counted = 0;
  for (Index row = 0; row < rows; ++row) {
    Rng rng = rng_of(row);
    std::int32_t *input = b.inputs.ptr<std::int32_t>() + row * length,
                 *target = b.targets.ptr<std::int32_t>() + row * length;
    for (const Index t : choose(input, length, o, rng)) {
      const bool counted = !own.defined() || own.ptr<std::int32_t>()[row * length + t] != kIgnoreIndex;
      if (counted) target[t] = input[t], ++b.counted;
      const double kind = rng.uniform();
      if (kind < o.masked)
        input[t] = o.mask;
      else if (kind < o.masked + o.random)
        input[t] = o.special + static_cast<std::int32_t>(rng.integer(o.vocabulary - o.special));
    }
  }
  return b;
}

// The generator of a row, with room for all draws of the row.
Rng rng_of_row(std::uint64_t seed, std::uint64_t stream, std::uint64_t row) {
  Rng rng(seed, stream);
  rng.set_position(row << 32);
  return rng;
}

}  // namespace

MaskedBatches::MaskedBatches(Dataset texts, const MaskOptions& options)
    : texts_(std::move(texts)), options_(options), order_(batching()) {
  check_options(options_);
}

Batch MaskedBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  const auto rng_of = [&](Index row) {
    const auto [stream, place] = order_.place(step, row);
    return rng_of_row(seed, kTrainingStream + stream, place);
  };
  return hide(texts_.batch(seed, step), options_, rng_of, Tensor());
}

MaskedBatches MaskedBatches::continued(const std::vector<BatchesRead>& read) const {
  MaskedBatches next = *this;
  next.texts_ = texts_.continued(read);
  next.order_ = order_.continued(read);
  return next;
}

MaskedEvaluation::MaskedEvaluation(EvaluationSet texts, const MaskOptions& options, std::uint64_t seed)
    : texts_(std::move(texts)), options_(options), seed_(seed) {
  check_options(options_);
}

Batch MaskedEvaluation::batch(Index i) const {
  const Batch text = texts_.batch(i);
  const auto rng_of = [&](Index row) {
    return rng_of_row(seed_, kEvaluationStream + static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(row));
  };
  return hide(text, options_, rng_of, text.targets);
}

}  // namespace heed
