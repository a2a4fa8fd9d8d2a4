// What the attention ops share: the checks of what they are given, what they keep of it for backward, and the way from
// there to what kernels take. For the sources of attention ops and mechanisms alone.
#pragma once
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/record.hpp>
#include <heed/core/kernels/attention.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>
#include <type_traits>

namespace heed::detail {

// ---- Checks: Errors that begin with `op` ----

// q [B, H, T, D], k [B, Hk, S, D] and v [B, Hk, S, Dv] of float32 or of float64, or of bfloat16 where the op has it; Hk
// a divisor of H, D not 0.
void check_heads(const char* op, In q, In k, In v, bool bfloat16 = false);
// Of scores, bias and gradients where q, k and v are of `dtype`: float32 for bfloat16.
inline DType score_dtype(DType dtype) { return dtype == DType::bfloat16 ? DType::float32 : dtype; }
// key_lengths and key_mask of the call, for k [B, Hk, S, D].
void check_key_masks(const char* op, In k, const AttentionCall& call);
// All of the call but causal, and a scale, for q and k that fit.
void check_pairs(const char* op, In q, In k, const AttentionCall& call, double scale = 1);

// ---- One application ----

// As drivers take it and backward keeps it: rows of q, k and v without gaps, key_lengths and key_mask contiguous,
// dropout 0 unless it acts, and where its random numbers begin.
struct AttentionInputs {
  Tensor q, k, v;
  AttentionCall call;
  double scale = 1;
  std::uint64_t seed = 0, stream = 0, position = 0;

  auto tensors() { return std::tie(q, k, v, call.key_lengths, call.key_mask, call.mask, call.bias); }
  Shape grid() const { return {q.dim(0), q.dim(1), q.dim(2), k.dim(2)}; }  // [B, H, T, S]
};
AttentionInputs attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                                 double scale = 1);

// The result as it is made, uninitialised: [B, T, H, Dv], so that the heads lie side by side and merging them is a
// view. Ops return its transpose(1, 2).
Tensor attention_output(const AttentionInputs& x);

// The gradients of q, k and v, inputs 0 to 2 of the op, and of the bias where that is wanted.
struct AttentionTargets {
  Target q, k, v;
  Tensor bias;
};
AttentionTargets attention_targets(Grads& d);

// ---- To the kernels ----

// Calls f(T{}, S{}) with the types that kernels compute in, and of q, k, v and out in memory.
template <class F>
void with_format(DType dtype, F f) {
  if (dtype == DType::bfloat16)
    f(float{}, std::uint16_t{});
  else
    with_float(dtype, [&](auto t) { f(t, t); });
}

// Null where x is undefined.
template <class T>
T* pointer(const Tensor& x) {
  return x.defined() ? x.ptr<std::remove_const_t<T>>() : nullptr;
}

// x is [B, H, rows, width], its last axis of stride 1, or undefined.
template <class T>
kernels::HeadRows<T> rows_of(const Tensor& x) {
  if (!x.defined()) return {nullptr, 0, 0, 0};
  return {pointer<T>(x), x.strides()[0], x.strides()[1], x.strides()[2]};
}

// x broadcasts to `shape`, [B, H, T, S], or is undefined.
template <class T>
kernels::ScoreGrid<const T> grid_of(const Tensor& x, const Shape& shape) {
  if (!x.defined()) return {nullptr, 0, 0, 0, 0};
  const Tensor y = x.expand(shape);
  const Strides& s = y.strides();
  return {static_cast<const T*>(y.raw()), s[0], s[1], s[2], s[3]};
}

// Sizes, rows and masked keys: what the problems of all kernels have.
template <class T, class Problem>
void set_rows(Problem& p, const AttentionInputs& x) {
  p.batch = x.q.dim(0), p.heads = x.q.dim(1), p.kv_heads = x.k.dim(1);
  p.queries = x.q.dim(2), p.keys = x.k.dim(2), p.width = x.q.dim(3), p.value_width = x.v.dim(3);
  using Stored = std::remove_pointer_t<decltype(p.q.data)>;
  p.q = rows_of<Stored>(x.q), p.k = rows_of<Stored>(x.k), p.v = rows_of<Stored>(x.v);
  p.lengths = pointer<const std::int32_t>(x.call.key_lengths);
  p.key_mask = pointer<const std::uint8_t>(x.call.key_mask);
}

// And scale, mask, bias and dropout, where each pair has a score.
template <class T, class Problem>
void set_pairs(Problem& p, const AttentionInputs& x) {
  set_rows<T>(p, x);
  p.scale = static_cast<T>(x.scale);
  p.mask = grid_of<std::uint8_t>(x.call.mask, x.grid());
  p.bias = grid_of<T>(x.call.bias, x.grid());
  p.seed = x.seed, p.stream = x.stream, p.position = x.position;
  p.drop_below = static_cast<std::uint32_t>(std::min(std::floor(x.call.dropout * 0x1p32), 0x1p32 - 1));
  p.keep = static_cast<T>(dropout_scale(x.call.dropout));
}

// What comes in and goes out, which all kernels' gradients have: out and dout [B, H, T, Dv].
template <class T, class Gradients>
void set_gradients(Gradients& g, const Tensor& out, const Tensor& dout, const AttentionTargets& to) {
  g.out = rows_of<std::remove_pointer_t<decltype(g.out.data)>>(out), g.dout = rows_of<const T>(dout);
  g.dq = rows_of<T>(to.q.gradient), g.dk = rows_of<T>(to.k.gradient), g.dv = rows_of<T>(to.v.gradient);
  g.add_dq = to.q.accumulate, g.add_dk = to.k.accumulate, g.add_dv = to.v.accumulate;
}

}  // namespace heed::detail
