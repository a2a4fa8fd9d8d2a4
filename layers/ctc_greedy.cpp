// ctc_greedy(): label sequences from scores per step.
#include <heed/autograd/reductions.hpp>
#include <heed/core/check.hpp>
#include <heed/layers/decoding.hpp>

namespace heed {

std::vector<Tokens> ctc_greedy(const Tensor& scores, const Tensor& lengths, Index blank) {
  require(scores.defined() && scores.rank() == 3 && is_floating(scores.dtype()), "ctc_greedy: scores are ", scores,
          "; they must be [N, T, C] of a floating type");
  const Index rows = scores.dim(0), steps = scores.dim(1), classes = scores.dim(2);
  require(blank >= 0 && blank < classes, "ctc_greedy: blank is ", blank, "; it must be one of the ", classes,
          " classes");
  require(!lengths.defined() || (lengths.shape() == Shape{rows} && lengths.dtype() == DType::int32),
          "ctc_greedy: lengths are ", lengths, "; they must be ", Shape{rows}, " int32");
  std::vector<Tokens> all(static_cast<std::size_t>(rows));
  if (rows == 0 || steps == 0) return all;
  const std::vector<std::int32_t> best = argmax(scores.detach(), 2).to_vector<std::int32_t>();
  const auto given = lengths.defined() ? lengths.to_vector<std::int32_t>() : std::vector<std::int32_t>();
  for (Index i = 0; i < rows; ++i) {
    const Index length = lengths.defined() ? given[static_cast<std::size_t>(i)] : steps;
    require(length >= 0 && length <= steps, "ctc_greedy: lengths[", i, "] is ", length, "; it must be in [0, ", steps,
            "]");
    std::int32_t last = static_cast<std::int32_t>(blank);
    for (Index t = 0; t < length; ++t) {
      const std::int32_t label = best[static_cast<std::size_t>(i * steps + t)];
      if (label != last && label != blank) all[static_cast<std::size_t>(i)].push_back(label);
      last = label;
    }
  }
  return all;
}

}  // namespace heed
