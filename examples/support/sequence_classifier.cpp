// The mean over tokens that are not padding, and its classes.
#include "examples/support/sequence_classifier.hpp"

#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>

namespace heed::examples {
namespace {

struct Padding {
  Tensor lengths;  // int32 [B]: tokens before the padding
  Tensor shares;   // [B, T, 1]: 1 / length for tokens, 0 for padding
};

Padding padding_of(In x, std::int32_t padding) {
  const Index rows = x.dim(0), length = x.dim(1);
  const Tensor tokens = x->contiguous();
  Padding p{Tensor::empty({rows}, DType::int32), Tensor::zeros({rows, length, 1})};
  for (Index r = 0; r < rows; ++r) {
    const std::int32_t* row = tokens.data<std::int32_t>() + r * length;
    const Index n = std::find(row, row + length, padding) - row;
    p.lengths.mutable_data<std::int32_t>()[r] = static_cast<std::int32_t>(n);
    float* shares = p.shares.mutable_data<float>() + r * length;
    std::fill(shares, shares + n, 1 / static_cast<float>(n));
  }
  return p;
}

}  // namespace

SequenceClassifier::SequenceClassifier(const BERTOptions& options, const SequenceClasses& classes, Rng& rng,
                                       const MechanismFactory& mechanism)
    : encoder(options, rng, mechanism),
      head((classes.pairs ? 4 : 1) * options.blocks.attention.width, classes.classes, rng),
      classes_(classes) {}

Tensor SequenceClassifier::means(In x) const {
  const auto [lengths, shares] = padding_of(x, classes_.padding);
  return sum(encoder.hidden(x, lengths) * shares, {1});
}

Tensor SequenceClassifier::operator()(In x) const {
  if (!classes_.pairs) return head(means(x));
  const Index rows = x.dim(0);
  const Tensor both = means(x->contiguous().reshape({2 * rows, x.dim(1) / 2})).reshape({rows, 2, -1});
  const Tensor a = both.select(1, 0), b = both.select(1, 1);
  return head(concatenate({a, b, a * b, abs(a - b)}, 1));
}

Tensor SequenceClassifier::loss(In x, In y) const { return cross_entropy((*this)(x), y); }

}  // namespace heed::examples
