// Luna: softmax attention of a learned memory and to what it packed, and the causal form by sums.
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/gated_attention.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/luna.hpp>
#include <heed/layers/linear.hpp>

namespace heed {

static constexpr const char* kLuna = "luna attention";

// The memory [heads, vectors, size], after checking the sizes.
static Parameter luna_memory(Index heads, Index size, Rng& rng, const LunaOptions& o) {
  require(heads > 0 && size > 0 && o.value_size >= 0 && o.memory > 0, "LunaAttention: heads is ", heads, ", size is ",
          size, ", value_size is ", o.value_size, " and memory is ", o.memory, "; each must be 1 or more");
  Parameter memory(Tensor::empty({heads, o.memory, size}));
  init::normal_(memory, rng);
  return memory;
}

static void check_luna_queries(In q, const Parameter& memory) {
  check(memory.dim(0) == q.dim(1) && memory.dim(2) == q.dim(3) && memory.dtype() == q.dtype(), q.where(), kLuna,
        ": q is ", q.tensor(), " and the memory is ", memory,
        "; it must be [heads, vectors, size] of q's heads, size and dtype");
}

LunaAttention::LunaAttention(Exactly<Index> head_count, Exactly<Index> head_size, Rng& rng, const LunaOptions& o)
    : memory(luna_memory(head_count, head_size, rng, o)) {
  const Index heads = head_count, size = head_size, value_size = o.value_size == 0 ? size : o.value_size;
  keys = Parameter(Tensor::empty({heads * size, heads * value_size}));
  values = Parameter(Tensor::empty({heads * value_size, heads * value_size}));
  for (Parameter* map : {&keys, &values})
    init::normal_(*map, rng, 0, 1 / std::sqrt(static_cast<double>(heads * value_size)));
}

Tensor LunaAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  detail::check_heads(kLuna, q, k, v);
  detail::check_key_masks(kLuna, k, call);
  const Index batch = q.dim(0), heads = q.dim(1), size = q.dim(3);
  check_luna_queries(q, memory);
  check(heads * v.dim(3) == keys.dim(1), q.where(), kLuna, ": v is ", v.tensor(), "; its last axis must be ",
        keys.dim(1) / heads);
  const Tensor queries = memory.unsqueeze(0).expand({batch, heads, memory.dim(1), size});
  const AttentionCall of_keys{.key_lengths = call.key_lengths, .key_mask = call.key_mask};
  const Tensor packed = attention({queries, q.where()}, k, v, of_keys);
  const Tensor context = merge_heads(packed);
  const auto map = [&](const Parameter& weight) { return split_heads(linear(context, weight, Tensor()), heads); };
  return attention(q, map(keys), map(values));
}

// ---- The causal form ----

CausalLunaAttention::CausalLunaAttention(Exactly<Index> head_count, Exactly<Index> head_size, Rng& rng,
                                         const LunaOptions& o)
    : memory(luna_memory(head_count, head_size, rng, o)) {}

namespace {

// Calls sums(q, k, v, scale, which) for both sums of a_j. `before`: positions before the first, [B, 1, 1, 1] or 0.
template <class Sums>
Tensor causal_luna(In q, In k, In v, In memory, const AttentionCall& call, const Tensor& before, const Sums& sums) {
  const auto clear = [&](const Tensor& x) { return without_padding({x, q.where()}, call, kLuna); };
  const double scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  const Tensor keys = clear(k), packed = clear(softplus(matmul(keys, memory->t()) * scale));
  Tensor count = cumsum(clear(Tensor::ones({q.dim(0), 1, q.dim(2), 1}, q.dtype())), 2);
  if (before.defined()) count = count + before;
  count = maximum(count, 1.0);
  const Tensor weights = softmax(sums(q, keys, packed, scale, 0) / count, -1);
  return sums(In(weights, q.where()), packed, clear(v), 1.0, 1) / count;
}

void check_causal_luna(In q, In k, In v, const Parameter& memory) {
  detail::check_heads(kLuna, q, k, v);
  check(q.shape() == k.shape(), q.where(), kLuna, ": q is ", q.tensor(), " and k is ", k.tensor(),
        "; they must have the same shape");
  check_luna_queries(q, memory);
}

struct LunaState {
  Tensor memory;
  Tensor keys = {}, values = {};  // both sums: [B, H, D, m] and [B, H, m, Dv]
  Tensor seen = Tensor::zeros({0}, DType::int32);

  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    check(!call.bias.defined(), q.where(), "AttentionState: bias is ", call.bias,
          ", but this state has no scores of single pairs to add a bias to; it must be undefined");
    const NoTape guard;
    const Tensor after = detail::lengths_after(kLuna, seen, k, call);
    const Tensor before = seen.numel() == 0 ? Tensor() : seen.to(q.dtype()).view({-1, 1, 1, 1});
    const AttentionCall lengths{.key_lengths = call.key_lengths};
    const Tensor y =
        causal_luna(q, k, v, memory, lengths, before, [&](In x, In of_keys, In of_values, double scale, int which) {
          Tensor& state = which == 0 ? keys : values;
          return gated_attention_step(x, of_keys, of_values, state, {.scale = scale});
        });
    seen = after;
    return y;
  }
  Tensor lengths() const { return seen; }
  void members(auto&& visit) {
    visit.buffer("lengths", seen);
    visit.buffer("keys", keys);
    visit.buffer("values", values);
  }
};

}  // namespace

Tensor CausalLunaAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  check_causal_luna(q, k, v, memory);
  detail::check_key_masks(kLuna, k, call);
  return causal_luna(q, k, v, memory, call, {}, [](In x, In of_keys, In of_values, double scale, int) {
    return gated_attention(x, of_keys, of_values, {.scale = scale});
  });
}

AttentionState CausalLunaAttention::make_state() const { return LunaState{memory}; }

}  // namespace heed
