// Arguments of flex_attention(): parameters of functions, and block masks. The op itself is in attention.cpp.
#include <heed/autograd/flex_attention.hpp>
//
#include <algorithm>
#include <heed/core/parallel.hpp>

namespace heed {

using detail::ScoreModAccess;

void ScoreMod::add_parameter(const Tensor& x) {
  require(count_ < kMaxScoreParameters, "ScoreMod: more than ", kMaxScoreParameters,
          " parameters; a function of scores has at most that many");
  require(x.defined() && is_floating(x.dtype()) && x.rank() <= 4 && x.numel() > 0, "ScoreMod: a parameter is ", x,
          "; it must be floating, of up to 4 axes, and not empty");
  parameters_[static_cast<std::size_t>(count_++)] = x;
}

ScoreMod ScoreModAccess::of_kernels(std::shared_ptr<const void> function, ScoreFunction<float> (*f32)(),
                                    ScoreFunction<double> (*f64)(), const Tensor& parameter, bool by_row) {
  ScoreMod f;
  f.function_ = std::move(function), f.f32_ = f32, f.f64_ = f64, f.by_head_ = !by_row, f.by_row_ = by_row;
  if (parameter.defined() || !by_row) f.add_parameter(parameter);
  return f;
}

struct BlockMask::State {
  MaskMod mask;
  Shape shape;
  std::vector<BlockKind> kinds;  // [B or 1, H or 1, blocks of queries, blocks of keys]
};

const Shape& BlockMask::shape() const {
  require(defined(),
          "BlockMask: shape() was called on a mask that allows all pairs; it must be made by create_block_mask()");
  return state_->shape;
}

double BlockMask::sparsity() const {
  if (!defined() || state_->kinds.empty()) return 0;
  const auto skipped = std::count(state_->kinds.begin(), state_->kinds.end(), BlockKind::none);
  return static_cast<double>(skipped) / static_cast<double>(state_->kinds.size());
}

const MaskMod& ScoreModAccess::mask(const BlockMask& m) { return m.state_->mask; }
const BlockKind* ScoreModAccess::blocks(const BlockMask& m) { return m.state_->kinds.data(); }

BlockMask create_block_mask(const MaskMod& mask_mod, Index batch, Index heads, Index queries, Index keys,
                            const Tensor& positions) {
  const Shape shape = {batch, heads, queries, keys};
  require(mask_mod.defined(), "create_block_mask: mask_mod is empty; it must be a function");
  require(batch > 0 && heads > 0 && queries >= 0 && keys >= 0 && std::max(queries, keys) < Index{1} << 30,
          "create_block_mask: [batch, heads, queries, keys] is ", shape,
          "; batch and heads must be 1 or more, queries and keys 0 or more and below 2^30");
  require(!positions.defined() || (positions.shape() == Shape{batch} && positions.dtype() == DType::int32),
          "create_block_mask: positions is ", positions, "; it must be ", Shape{batch}, " int32");
  const Index rows = (queries + kBlockQueries - 1) / kBlockQueries, columns = (keys + kBlockKeys - 1) / kBlockKeys;
  const auto state = std::make_shared<BlockMask::State>(BlockMask::State{
      mask_mod, shape, std::vector<BlockKind>(static_cast<std::size_t>(batch * heads * rows * columns))});
  const Tensor starts = positions.dense();
  parallel_for(batch * heads * rows, std::max<Index>(1, 8 / std::max<Index>(1, columns)), [&](Index begin, Index end) {
    const auto number = [](Index n) { return static_cast<std::int32_t>(n); };
    for (Index n = begin; n < end; ++n) {
      const Index b = n / (heads * rows), query = n % rows * kBlockQueries;
      const Index first = starts.defined() ? starts.ptr<std::int32_t>()[b] : query_position(0, queries, keys);
      for (Index c = 0; c < columns; ++c) {
        const Index key = c * kBlockKeys, height = std::min<Index>(kBlockQueries, queries - query),
                    width = std::min<Index>(kBlockKeys, keys - key);
        const int allowed = ScoreModAccess::count(mask_mod, {number(b), number(n / rows % heads), number(first + query),
                                                             number(height), number(key), number(width), 0});
        state->kinds[static_cast<std::size_t>(n * columns + c)] = allowed == 0                ? BlockKind::none
                                                                  : allowed == height * width ? BlockKind::all
                                                                                              : BlockKind::part;
      }
    }
  });
  BlockMask mask;
  mask.state_ = state;
  return mask;
}

}  // namespace heed
