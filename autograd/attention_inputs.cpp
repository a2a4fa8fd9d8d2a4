#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>

namespace heed::detail {

void check_heads(const char* op, In q, In k, In v) {
  const Where& at = q.where();
  check(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, at, op, ": q is ", q.tensor(), ", k is ", k.tensor(),
        " and v is ", v.tensor(), "; they must be [batch, heads, length, width]");
  check(
      (q.dtype() == DType::float32 || q.dtype() == DType::float64) && k.dtype() == q.dtype() && v.dtype() == q.dtype(),
      at, op, ": q is ", q.tensor(), ", k is ", k.tensor(), " and v is ", v.tensor(),
      "; all must be float32, or all float64");
  check(k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3), at, op, ": q is ", q.tensor(), " but k is ", k.tensor(),
        "; batch and width must be the same");
  check(v.dim(0) == k.dim(0) && v.dim(1) == k.dim(1) && v.dim(2) == k.dim(2), at, op, ": k is ", k.tensor(),
        " but v is ", v.tensor(), "; all axes but the last must be the same");
  check(k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0, at, op, ": q is ", q.tensor(), " and k is ", k.tensor(),
        "; the heads of k and v must divide the heads of q");
  check(q.dim(3) > 0, at, op, ": q is ", q.tensor(), "; its last axis must not be empty");
}

void check_key_masks(const char* op, In k, const Tensor& key_lengths, const Tensor& key_mask) {
  const Shape lengths = {k.dim(0)}, mask = {k.dim(0), k.dim(2)};
  if (key_lengths.defined()) {
    check(key_lengths.shape() == lengths && key_lengths.dtype() == DType::int32, k.where(), op, ": key_lengths is ",
          key_lengths, "; it must be ", lengths, " int32");
    const Tensor all = key_lengths.dense();
    for (Index b = 0; b < k.dim(0); ++b) {
      const Index length = all.ptr<std::int32_t>()[b];
      check(length >= 0 && length <= k.dim(2), k.where(), op, ": key_lengths[", b, "] is ", length,
            "; it must be from 0 to the number of keys, ", k.dim(2));
    }
  }
  if (key_mask.defined())
    check(key_mask.shape() == mask && key_mask.dtype() == DType::bool8, k.where(), op, ": key_mask is ", key_mask,
          "; it must be ", mask, " bool8");
}

Tensor unit_rows(const Tensor& x) { return x.dim(-1) <= 1 || x.strides()[-1] == 1 ? x : x.contiguous(); }

Tensor heads_of(const Tensor& y, bool merged, Index heads) {
  return merged ? y.view({y.dim(0), y.dim(1), heads, y.dim(2) / heads}).transpose(1, 2) : y;
}

Tensor without_padding(In k, const Tensor& key_lengths, const Tensor& key_mask) {
  Tensor dead;  // [B, S]
  if (key_lengths.defined()) dead = Tensor::arange(k.dim(2)) >= key_lengths.unsqueeze(1);
  if (key_mask.defined()) {
    const Tensor masked = logical_not(key_mask);
    dead = dead.defined() ? logical_or(dead, masked) : masked;
  }
  return dead.defined() ? masked_fill(k, dead.unsqueeze(1).unsqueeze(3), 0) : k.tensor();
}

}  // namespace heed::detail
