// Softmax attention with a forget gate: running sums of log gates, used in a function of scores.
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/kernels/attention/score_functions.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

// Smaller log gates are replaced by this number, which no score compensates. Sums of rounded log gates are then exact
// over 2^23 positions.
constexpr double kClosed = -1e9;

Tensor log_sigmoid(const Tensor& x) { return -softplus(-x); }

// The running sums c of log gates [B, Hk, S, 1] in float64, and the values that the kernel reads per query.
struct RunningGates : kernels::ForgetGates {
  Tensor sums;   // [2, B, H, S]: whole and part
  Tensor rows;   // [2, B, H, T]: row_whole and row_part
  Tensor hides;  // int32 [B, H, T]: start

  RunningGates(const Tensor& log_gates, const AttentionCall& call, const Shape& grid)
      : sums(Tensor::empty({2, grid[0], grid[1], grid[3]}, DType::float64)),
        rows(Tensor::empty({2, grid[0], grid[1], grid[2]}, DType::float64)),
        hides(Tensor::empty({grid[0], grid[1], grid[2]}, DType::int32)) {
    const Index n = grid[0] * grid[1];
    heads = grid[1], queries = grid[2], keys = grid[3];
    whole = sums.ptr<double>(), part = whole + n * keys;
    row_whole = rows.ptr<double>(), row_part = row_whole + n * queries;
    start = hides.ptr<std::int32_t>();
    const detail::PairMasks masks(call, grid);
    const Tensor bias = call.bias.defined() ? call.bias.expand(grid) : Tensor();
    const Index shared = heads / log_gates.dim(1);
    parallel_for_each(n, grain_for(4 * (keys + queries)), [&](Index i) {
      of_head(i / heads, i % heads, log_gates.ptr<double>() + i / shared * keys, call.causal, masks, bias);
    });
  }

 private:
  void of_head(Index b, Index h, const double* log_gate, bool causal, const detail::PairMasks& masks,
               const Tensor& bias) {
    const Index at = b * heads + h;
    double *to_whole = sums.ptr<double>() + at * keys, *to_part = to_whole + sums.numel() / 2;
    double *to_row = rows.ptr<double>() + at * queries, *to_rest = to_row + rows.numel() / 2;
    std::int32_t* to_start = hides.ptr<std::int32_t>() + at * queries;
    double sum = 0, rest = 0;
    Index reset = 0, query = 0;
    // Writes the values of queries up to `last`, whose positions must be in the sums.
    const auto rows_until = [&](Index last) {
      for (; query <= last; ++query) {
        Index j = masks.end(b, query) - 1;
        while (j >= 0 && !(masks.allows(b, h, query, j) && (!bias.defined() || shown_by(bias, b, h, query, j)))) --j;
        to_row[query] = j < 0 ? 0 : to_whole[j], to_rest[query] = j < 0 ? 0 : to_part[j];
        to_start[query] = static_cast<std::int32_t>(reset);
      }
    };
    const Index first = query_position(0, queries, keys);
    if (causal) rows_until(-first - 1);
    for (Index j = 0; j < keys; ++j) {
      const double gate = log_gate[j] < kClosed ? kClosed : log_gate[j], near = std::nearbyint(gate);
      if (log_gate[j] == -detail::kInfinity)
        reset = j;
      else
        sum += near, rest += gate - near;
      to_whole[j] = sum, to_part[j] = rest;
      if (causal) rows_until(j - first);
    }
    rows_until(queries - 1);
  }
  // Whether the bias allows the pair; a bias of -inf excludes it like a mask.
  static bool shown_by(const Tensor& bias, Index b, Index h, Index i, Index j) {
    const Strides& s = bias.strides();
    const Index at = b * s[0] + h * s[1] + i * s[2] + j * s[3];
    return bias.dtype() == DType::float64 ? bias.ptr<double>()[at] != -detail::kInfinity
                                          : bias.ptr<float>()[at] != -detail::kInfinity;
  }
};

template <class T>
ScoreFunction<T> forget_function() {
  return kernels::of<T>(kernels::score_function_table()).forget;
}

constexpr const char* kForgetting = "forgetting attention";

// Attention with gates given as log f [B, Hk, S, 1].
Tensor attend(In q, In k, In v, const AttentionCall& call, const Tensor& log_gates, std::optional<double> scale) {
  detail::check_heads(kForgetting, q, k, v, true);
  detail::check_pairs(kForgetting, q, k, call);
  const Tensor kept = without_padding(log_gates.to(DType::float64), call).contiguous();
  const auto gates = std::allocate_shared<RunningGates>(
      PoolAllocator<RunningGates>(), kept, call, Shape{q.dim(0), q.dim(1), q.dim(2), k.dim(2)});
  // The gradient of c reaches the gates through this sum. A gate that is fully closed gets none.
  Tensor c;
  if (q.dim(0) * q.dim(1) * k.dim(2) > 0)
    c = cumsum(detail::repeat_heads(where(kept > kClosed, kept, 0.0), q.dim(1)), 2)
            .view({q.dim(0), q.dim(1), k.dim(2)});
  const ScoreMod forget =
      detail::ScoreModAccess::of_kernels(gates, forget_function<float>, forget_function<double>, c, true);
  return flex_attention(q, k, v, {.score_mod = forget, .scale = scale}, call);
}

// Stores log f as an additional element of each key.
struct ForgettingState {
  KeyValueState all;

  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
    const NoTape guard;
    return all.apply(q, {concatenate({k, log_sigmoid(inputs[0])}, 3), k.where()}, v, call);
  }
  Tensor lengths() const { return all.lengths(); }
  void members(auto&& visit) { all.members(visit); }
};

}  // namespace

Tensor ForgettingAttention::apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const {
  detail::check_heads(kForgetting, q, k, v, true);
  const Shape one_each = k.shape().with(-1, 1);
  check(inputs.size() == 1 && inputs[0].shape() == one_each, q.where(), kForgetting, ": k is ", k.tensor(),
        " and forget is ", inputs.empty() ? Tensor() : inputs[0], "; it must be ", one_each);
  // Padding may hold NaN, whose derivative would be NaN even times 0. So padding is cleared both before and after the
  // sigmoid.
  const Tensor gates = without_padding({inputs[0], q.where()}, call).to(DType::float64);
  return attend(q, k, v, call, log_sigmoid(gates), scale);
}

AttentionState ForgettingAttention::make_state() const {
  const auto by_cache = [scale = scale](In q, In k, In v, const AttentionCall& call) {
    const Index size = k.dim(3) - 1;
    return attend(q, k->slice(3, 0, size), v, call, k->slice(3, size, size + 1), scale);
  };
  return AttentionState(ForgettingState{KeyValueState(by_cache)}, inputs());
}

}  // namespace heed
