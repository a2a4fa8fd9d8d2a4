// Checks of attention arguments, and the inputs that ops keep for backward.
#include <heed/autograd/detail/attention_inputs.hpp>

namespace heed::detail {

void check_heads(const char* op, In q, In k, In v, bool bfloat16) {
  const Where& at = q.where();
  check(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, at, op, ": q is ", q.tensor(), ", k is ", k.tensor(),
        " and v is ", v.tensor(), "; they must be [batch, heads, length, width]");
  const bool known =
      q.dtype() == DType::float32 || q.dtype() == DType::float64 || (bfloat16 && q.dtype() == DType::bfloat16);
  check(known && k.dtype() == q.dtype() && v.dtype() == q.dtype(), at, op, ": q is ", q.tensor(), ", k is ",
        k.tensor(), " and v is ", v.tensor(),
        bfloat16 ? "; all must be float32, all bfloat16, or all float64" : "; all must be float32, or all float64");
  check(k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3), at, op, ": q is ", q.tensor(), " but k is ", k.tensor(),
        "; batch and width must be the same");
  check(v.dim(0) == k.dim(0) && v.dim(1) == k.dim(1) && v.dim(2) == k.dim(2), at, op, ": k is ", k.tensor(),
        " but v is ", v.tensor(), "; all axes except the last must be the same");
  check(k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0, at, op, ": q is ", q.tensor(), " and k is ", k.tensor(),
        "; the heads of k and v must divide the heads of q");
  check(q.dim(3) > 0, at, op, ": q is ", q.tensor(), "; its last axis must not be empty");
}

void check_key_masks(const char* op, In k, const AttentionCall& call) {
  const Shape lengths = {k.dim(0)}, mask = {k.dim(0), k.dim(2)};
  if (call.key_lengths.defined()) {
    check(call.key_lengths.shape() == lengths && call.key_lengths.dtype() == DType::int32, k.where(), op,
          ": key_lengths is ", call.key_lengths, "; it must be ", lengths, " int32");
    const Tensor all = call.key_lengths.dense();
    for (Index b = 0; b < k.dim(0); ++b) {
      const Index length = all.ptr<std::int32_t>()[b];
      check(length >= 0 && length <= k.dim(2), k.where(), op, ": key_lengths[", b, "] is ", length,
            "; it must be from 0 to the number of keys, ", k.dim(2));
    }
  }
  if (call.key_mask.defined())
    check(call.key_mask.shape() == mask && call.key_mask.dtype() == DType::bool8, k.where(), op, ": key_mask is ",
          call.key_mask, "; it must be ", mask, " bool8");
}

static void check_grid(const char* op, In q, const char* name, const Tensor& x, const Shape& grid) {
  Shape both;
  check(broadcast(x.shape(), grid, both) && both == grid, q.where(), op, ": ", name, " is ", x,
        "; it must broadcast to [batch, heads, queries, keys] ", grid);
}

void check_documents(const char* op, In q, In k, const AttentionCall& call) {
  if (!call.documents.defined()) return;
  const Shape places = {q.dim(0), q.dim(2)};
  check(call.causal && q.dim(2) == k.dim(2), q.where(), op, ": q is ", q.tensor(), ", k is ", k.tensor(),
        " and causal is ", call.causal ? "true" : "false",
        "; documents require a causal call with as many queries as keys");
  check(call.documents.shape() == places, q.where(), op, ": documents is ", call.documents,
        "; it must be [batch, positions] ", places, " int32");
  positions_in_documents(call.documents);
}

void check_pairs(const char* op, In q, In k, const AttentionCall& call, double scale) {
  const Where& at = q.where();
  const Shape grid = {q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
  check_key_masks(op, k, call);
  check_documents(op, q, k, call);
  if (call.mask.defined()) {
    check(call.mask.dtype() == DType::bool8, at, op, ": mask is ", call.mask,
          "; it must be bool8 (a bias is added to scores)");
    check_grid(op, q, "mask", call.mask, grid);
  }
  if (call.bias.defined()) {
    check(call.bias.dtype() == score_dtype(q.dtype()), at, op, ": bias is ", call.bias, " and q is ", q.tensor(),
          q.dtype() == DType::bfloat16 ? "; it must be float32, as scores are" : "; the dtypes must be the same");
    check_grid(op, q, "bias", call.bias, grid);
  }
  check(call.dropout >= 0 && call.dropout <= 1, at, op, ": dropout is ", call.dropout, "; it must be in [0, 1]");
  check(std::isfinite(scale), at, op, ": scale is ", scale, "; it must be a finite number");
}

Tensor unit_rows(const Tensor& x) { return x.dim(-1) <= 1 || x.strides()[-1] == 1 ? x : x.contiguous(); }

AttentionInputs attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                                 double scale) {
  AttentionInputs x{unit_rows(q), unit_rows(k), unit_rows(v), call, scale};
  if (call.key_lengths.defined()) x.call.key_lengths = call.key_lengths.dense();
  if (call.key_mask.defined()) x.call.key_mask = call.key_mask.dense();
  if (call.documents.defined()) x.call.documents = call.documents.dense();
  if (!is_training() || call.dropout <= 0) {
    x.call.dropout = 0;
    return x;
  }
  // Four weights of a query use one counter of the generator: see core/kernels/attention/attention.hpp.
  const Index counters = q.dim(0) * q.dim(1) * q.dim(2) * ((k.dim(2) + 3) / 4);
  x.seed = default_rng().seed(), x.stream = default_rng().stream();
  x.position = default_rng().advance(static_cast<std::uint64_t>(counters));
  return x;
}

Tensor attention_output(const AttentionInputs& x) {
  return Tensor::empty({x.q.dim(0), x.q.dim(2), x.q.dim(1), x.v.dim(3)}, x.q.dtype());
}

AttentionTargets attention_targets(Grads& d) { return {d.strided(0), d.strided(1), d.strided(2), {}}; }

}  // namespace heed::detail
