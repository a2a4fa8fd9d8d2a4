// embedding(): rows of a table by indices, and their gradient, summed in order.
#include <algorithm>
#include <cstring>
#include <heed/autograd/embedding.hpp>
#include <heed/core/index.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/embedding.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/quantized.hpp>

namespace heed {
namespace {

// Reads rows of the weight, of type S. They may be apart (a slice of columns), but each row is contiguous.
template <class T, class S>
void gather(Tensor& y, const Tensor& weight, const Tensor& indices) {
  const Index d = weight.dim(1), apart = weight.strides()[0];
  const std::int32_t* index = indices.ptr<std::int32_t>();
  parallel_for_each(indices.numel(), grain_for(d), [&](Index i) {
    const S* row = weight.ptr<S>() + index[i] * apart;
    std::transform(row, row + d, y.ptr<T>() + i * d, [](S x) { return static_cast<T>(x); });
  });
}

// The same for quantized rows.
void unpack(Tensor& y, const Tensor& weight, const Tensor& indices) {
  const Index d = weight.dim(1), apart = weight.strides()[0];
  const auto* const table = static_cast<const std::byte*>(weight.memory());
  const std::int32_t* index = indices.ptr<std::int32_t>();
  parallel_for_each(indices.numel(), grain_for(2 * d), [&](Index i) {
    const std::byte* row = table + bytes_of(weight.dtype(), index[i] * apart);
    detail::read_blocks(weight.dtype(), row, d / kBlockNumbers, y.ptr<float>() + i * d);
  });
}

// dweight[v] = sum of dy[i] over indices[i] = v. Work is split by columns, so that each sum runs in the order of i at
// any number of threads. Rows without an index are written only if there is no gradient yet.
void scatter_add(const Target& dweight, const Tensor& dy, const Tensor& indices, Index padding) {
  Tensor to = dweight.gradient;
  if (!dweight.accumulate) {
    parallel_for(to.numel() * static_cast<Index>(size_of(to.dtype())), Index{1} << 20, [&](Index begin, Index end) {
      std::memset(static_cast<char*>(to.raw()) + begin, 0, static_cast<std::size_t>(end - begin));
    });
  }
  const Index n = indices.numel(), d = to.dim(1);
  if (n == 0) return;
  const Index columns = std::clamp((grain_for(n) + 31) / 32 * 32, Index{32}, Index{4096});
  detail::with_float(to.dtype(), [&]<class T>(T) {
    const auto add_rows = kernels::of<T>(kernels::embedding_table());
    const kernels::EmbeddingGradient<T> x{to.ptr<T>(), dy.ptr<T>(), indices.ptr<std::int32_t>(), n, d, padding};
    parallel_for(d, columns, [&](Index begin, Index end) { add_rows(x, begin, end); });
  });
}

}  // namespace

// y[i] = weight[indices[i]]. Backward: dweight[v] = sum of dy[i] over all i with indices[i] = v.
Tensor embedding(In indices, In weight, std::optional<Index> padding_idx) {
  const Where& where = indices.where();
  const bool quantized = weight->defined() && is_quantized(weight.dtype());
  check(weight->defined() && weight.rank() == 2 &&
            (quantized ? detail::has_whole_rows(weight) : is_floating(weight.dtype())),
        where, "embedding: weight is ", weight.tensor(),
        "; it must be [V, D], float32, float64 or bfloat16, or quantized in whole rows");
  const bool narrow = weight.dtype() == DType::bfloat16;
  check(!narrow || !needs_gradient({weight}), where, "embedding: weight is ", weight.tensor(),
        "; if it requires a gradient, it must be float32 or float64");
  const Index rows = weight.dim(0);
  check(!padding_idx || (*padding_idx >= -rows && *padding_idx < rows), where, "embedding: padding_idx is ",
        padding_idx.value_or(0), " and weight is ", weight.tensor(), "; padding_idx must be in [", -rows, ", ", rows,
        ")");
  check(indices->defined() && indices.dtype() == DType::int32, where, "embedding: indices are ", indices.tensor(),
        "; they must be int32");
  const Tensor index = indices->dense();
  detail::check_indices("embedding", "indices", where, index, rows);
  const bool rows_contiguous = quantized || weight.dim(1) <= 1 || weight->strides()[1] == 1;
  const Tensor w = rows_contiguous ? weight->detach() : weight->dense();
  Tensor y =
      Tensor::empty(indices.shape() + Shape{weight.dim(1)}, narrow || quantized ? DType::float32 : weight.dtype());
  if (quantized)
    unpack(y, w, index);
  else if (narrow)
    gather<float, bfloat16>(y, w, index);
  else
    detail::with_float(weight.dtype(), [&]<class T>(T) { gather<T, T>(y, w, index); });
  record("embedding", where, y, {indices, weight}, saved(index),
         [padding = padding_idx.value_or(0) < 0 ? *padding_idx + rows : padding_idx.value_or(-1)](
             Grads& d, const Tensor& dy, const Tensor& i) {
           if (const Target dweight = d.dense(1)) scatter_add(dweight, dy, i, padding);
         });
  return y;
}

}  // namespace heed
