// Shared by the attention ops: checks of arguments, the inputs kept for backward, and the conversion of inputs to
// problems of kernels. For the sources of attention ops and mechanisms only.
#pragma once
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/record.hpp>
#include <heed/core/kernels/attention/attention.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>
#include <type_traits>

namespace heed::detail {

// ---- Checks: each throws Error that begins with `op` ----

// q [B, H, T, D], k [B, Hk, S, D] and v [B, Hk, S, Dv]: all float32 or all float64, or all bfloat16 if `bfloat16`. Hk
// divides H, and D is not 0.
void check_heads(const char* op, In q, In k, In v, bool bfloat16 = false);
// The dtype of scores, bias and gradients for q, k and v of `dtype`: float32 for bfloat16.
inline DType score_dtype(DType dtype) { return dtype == DType::bfloat16 ? DType::float32 : dtype; }
// key_lengths and key_mask of the call, for k [B, Hk, S, D].
void check_key_masks(const char* op, In k, const AttentionCall& call);
// documents of the call, for q [B, H, T, D] and k [B, Hk, S, D].
void check_documents(const char* op, In q, In k, const AttentionCall& call);
// The rest of the call except first_query, key masks included, and the scale. q and k must have been checked.
void check_pairs(const char* op, In q, In k, const AttentionCall& call, double scale = 1);

// The call with `documents` as a part of its mask, for kernels that do not read `documents`. q and k must have been
// checked.
AttentionCall with_document_mask(In q, In k, const AttentionCall& call);

// ---- One application ----

// x, copied if its last axis has gaps.
Tensor unit_rows(const Tensor& x);

// The inputs of one application, as drivers take them and backward keeps them. Rows of q, k and v have no gaps,
// key_lengths, key_mask and documents are contiguous, and dropout is 0 unless it acts. Its random numbers begin at
// `position`.
struct AttentionInputs {
  Tensor q, k, v;
  AttentionCall call;
  double scale = 1;
  std::uint64_t seed = 0, stream = 0, position = 0;

  auto tensors() { return std::tie(q, k, v, call.key_lengths, call.key_mask, call.documents, call.mask, call.bias); }
  Shape grid() const { return {q.dim(0), q.dim(1), q.dim(2), k.dim(2)}; }  // [B, H, T, S]
};
AttentionInputs attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                                 double scale = 1);

// The result, uninitialised: [B, T, H, Dv], so that the heads of a position are adjacent and merging them is a view.
// Ops return its transpose(1, 2).
Tensor attention_output(const AttentionInputs& x);

// The memory for the gradients of q, k and v (inputs 0 to 2 of the op), and for the gradient of the bias if it is
// needed.
struct AttentionTargets {
  Target q, k, v;
  Tensor bias;
};
AttentionTargets attention_targets(Grads& d);

// ---- Problems of kernels ----

// Calls f(T{}, S{}), with the type T that kernels compute in and the type S of q, k, v and out in memory.
template <class F>
void with_format(DType dtype, F f) {
  if (dtype == DType::bfloat16)
    f(float{}, std::uint16_t{});
  else
    with_float(dtype, [&](auto t) { f(t, t); });
}

// Null if x is undefined.
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

// Sets sizes, rows and key masks, which the problems of all kernels have.
template <class T, class Problem>
void set_rows(Problem& p, const AttentionInputs& x) {
  p.batch = x.q.dim(0), p.heads = x.q.dim(1), p.kv_heads = x.k.dim(1);
  p.queries = x.q.dim(2), p.keys = x.k.dim(2), p.width = x.q.dim(3), p.value_width = x.v.dim(3);
  using Stored = std::remove_pointer_t<decltype(p.q.data)>;
  p.q = rows_of<Stored>(x.q), p.k = rows_of<Stored>(x.k), p.v = rows_of<Stored>(x.v);
  p.lengths = pointer<const std::int32_t>(x.call.key_lengths);
  p.key_mask = pointer<const std::uint8_t>(x.call.key_mask);
}

// Also sets scale, documents, mask, bias and dropout, for kernels with a score per pair.
template <class T, class Problem>
void set_pairs(Problem& p, const AttentionInputs& x) {
  set_rows<T>(p, x);
  p.scale = static_cast<T>(x.scale);
  p.documents = pointer<const std::int32_t>(x.call.documents);
  p.mask = grid_of<std::uint8_t>(x.call.mask, x.grid());
  p.bias = grid_of<T>(x.call.bias, x.grid());
  p.seed = x.seed, p.stream = x.stream, p.position = x.position;
  p.drop_below = static_cast<std::uint32_t>(std::min(std::floor(x.call.dropout * 0x1p32), 0x1p32 - 1));
  p.keep = static_cast<T>(dropout_scale(x.call.dropout));
}

// Sets the inputs and outputs that the gradients of all kernels have; out and dout are [B, H, T, Dv].
template <class T, class Gradients>
void set_gradients(Gradients& g, const Tensor& out, const Tensor& dout, const AttentionTargets& to) {
  g.out = rows_of<std::remove_pointer_t<decltype(g.out.data)>>(out), g.dout = rows_of<const T>(dout);
  g.dq = rows_of<T>(to.q.gradient), g.dk = rows_of<T>(to.k.gradient), g.dv = rows_of<T>(to.v.gradient);
  g.add_dq = to.q.accumulate, g.add_dk = to.k.accumulate, g.add_dv = to.v.accumulate;
}

}  // namespace heed::detail
