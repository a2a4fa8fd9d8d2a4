// Attention by a state with gates and a delta rule, in linear time: the op of RetNet (Sun et al., 2023), Mamba-2 (Dao
// and Gu, 2024), GLA (Yang et al., 2023), DeltaNet (Yang et al., "Parallelizing linear Transformers with the delta rule
// over sequence length", 2024), Gated DeltaNet (Yang et al., 2024) and KDA (Kimi Linear, 2025). Derivation in
// core/kernels/gated_attention/gated_attention.hpp.
//
// Example:
//
//   Rng rng(1);
//   const Tensor q = rng.normal({1, 2, 1000, 8}), k = rng.normal({1, 2, 1000, 8}), v = rng.normal({1, 2, 1000, 16});
//   const Tensor log_gate = log(sigmoid(rng.normal({1, 2, 1000})));
//   const Tensor y = gated_attention(q, k, v, {.log_gate = log_gate});  // [1, 2, 1000, 16]
#pragma once
#include <heed/autograd/record.hpp>
#include <optional>

namespace heed {

// Gates and rule of gated_attention(), for q and k [B, Hk, T, K] and v [B, H, T, V]. Undefined tensors: none.
struct GatedAttentionOptions {
  // The logarithm of the factor of the state before each position; -infinity is a reset. One per head, broadcast to
  // [B, H, T] (a tensor of rank 3 or less), or one per channel of the keys, broadcast to [B, H, T, K] (rank 4).
  Tensor log_gate = {};
  Tensor beta = {};     // rates of the delta rule, broadcast to [B, H, T]; undefined: values are added as they are
  Tensor state = {};    // [B, H, K, V] before the first position; undefined: zeros
  Tensor lengths = {};  // int32 [B]: row b has lengths[b] positions; the result at the others is 0
  // int32 [B, T], as in AttentionCall: the position at which each position's document begins. The state is reset there.
  Tensor documents = {};
  std::optional<double> scale = {};  // of the queries; 1 / sqrt(K) by default
  // Positions per block: 16, 32 or 64; 0: 32, or 16 with a gate per channel. Any choice gives the same result, to
  // rounding.
  Index block = 0;
};

// Per head, with the factor a_t = exp(log_gate), and S_0 the state or zeros:
//
//   S' = diag(a_t) S_(t-1)    S_t = S' + k_t^T u_t    o_t = scale q_t S_t    [K, V] and rows
//   u_t = v_t without beta, else u_t = beta_t (v_t - k_t S')
//
// q, k [B, Hk, T, K], v [B, H, T, V] -> [B, H, T, V]. The heads of a position are adjacent in memory. Hk divides H:
// value heads h * (H / Hk) ... share query and key head h. float32, float64, or bfloat16, which is computed in float32
// and rounded at the end. With beta, keys should have norm 1 and beta should be in [0, 2]; otherwise the state may grow
// without bound. Time and memory grow linearly with T: backward keeps the state before each 64 positions, and with beta
// a tensor of v's size. The same bits at any number of threads. Throws Error for other shapes and dtypes.
Tensor gated_attention(In q, In k, In v, const GatedAttentionOptions& options = {});

// The results of gated_attention_states().
struct GatedAttentionResult {
  Tensor out = {};    // [B, H, T, V]
  Tensor state = {};  // [B, H, K, V] after the last position of each row
};

// The same, and the state at the end of each row. Gradients flow through both. Another call continues from the state.
// Both results are views of one tensor [B, T + K, H, V], so for B > 1 the merged heads of `out` are a copy.
GatedAttentionResult gated_attention_states(In q, In k, In v, const GatedAttentionOptions& options = {});

// Continues from `state`, which is replaced in its own memory (undefined: zeros at first, and then made): q, k
// [B, Hk, T, K], v [B, H, T, V] -> [B, H, T, V]. For decoding: up to a few positions are computed by the recurrence, so
// a token takes the time to read and write the state. options.state is not read. No gradient. bfloat16 q, k and v have
// a float32 state. Throws Error as gated_attention(), and for a state of other shapes.
Tensor gated_attention_step(In q, In k, In v, Tensor& state, const GatedAttentionOptions& options = {});

}  // namespace heed
