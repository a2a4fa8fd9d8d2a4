// Sinusoidal positions, and the bias of relative positions with its gradient.
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/embedding.hpp>

namespace heed {
namespace {

template <class T>
void fill_bias(const Tensor& table, Tensor& bias) {
  const Index heads = bias.dim(0), queries = bias.dim(1), keys = bias.dim(2), size = table.dim(1), clip = size / 2;
  const T* entries = table.ptr<T>();
  T* to = bias.ptr<T>();
  parallel_for_each(heads * queries, grain_for(keys), [=](Index n) {
    const T* row = entries + n / queries * size;
    const Index position = query_position(n % queries, queries, keys);
    for (Index j = 0; j < keys; ++j) to[n * keys + j] = row[clip + std::clamp(j - position, -clip, clip)];
  });
}

// Each thread sums the rows of its heads in order, so the bits do not depend on the number of threads.
template <class T>
void sum_bias(const Tensor& dbias, Tensor& dtable) {
  const Index heads = dbias.dim(0), queries = dbias.dim(1), keys = dbias.dim(2), size = dtable.dim(1), clip = size / 2;
  const T* from = dbias.ptr<T>();
  T* to = dtable.ptr<T>();
  parallel_for_each(heads, grain_for(queries * keys), [=](Index h) {
    std::vector<double> sums(static_cast<std::size_t>(size));
    for (Index i = 0; i < queries; ++i)
      for (Index j = 0; j < keys; ++j)
        sums[static_cast<std::size_t>(clip + std::clamp(j - query_position(i, queries, keys), -clip, clip))] +=
            static_cast<double>(from[(h * queries + i) * keys + j]);
    for (Index c = 0; c < size; ++c) to[h * size + c] = static_cast<T>(sums[static_cast<std::size_t>(c)]);
  });
}

}  // namespace

Tensor relative_position_bias(In table, Index queries, Index keys) {
  check(table.rank() == 2 && table.dim(1) % 2 == 1 &&
            (table.dtype() == DType::float32 || table.dtype() == DType::float64),
        table.where(), "relative_position_bias: table is ", table.tensor(),
        "; it must be [heads, 2 clip + 1], float32 or float64");
  check(queries >= 0 && keys >= 0, table.where(), "relative_position_bias: queries is ", queries, " and keys is ", keys,
        "; both must be 0 or more");
  const Tensor entries = table->dense();
  Tensor bias = Tensor::empty({table.dim(0), queries, keys}, table.dtype());
  table.dtype() == DType::float32 ? fill_bias<float>(entries, bias) : fill_bias<double>(entries, bias);
  record("relative_position_bias", table.where(), bias, {table}, saved(),
         [shape = table.shape()](Grads& d, const Tensor& dbias) {
           Tensor dtable = Tensor::empty(shape, dbias.dtype());
           dbias.dtype() == DType::float32 ? sum_bias<float>(dbias, dtable) : sum_bias<double>(dbias, dtable);
           d.add(0, dtable);
         });
  return bias;
}

RelativePositionBias::RelativePositionBias(Exactly<Index> heads, Exactly<Index> clip, Rng& rng) {
  require(heads > 0 && clip > 0 && clip < Index{1} << 31, "RelativePositionBias: heads is ", heads, " and clip is ",
          clip, "; both must be 1 or more, and clip below 2^31");
  weight = Parameter(Tensor::empty({heads, 2 * clip + 1}));
  init::normal_(weight, rng, 0, 0.02);
}

Tensor RelativePositionBias::of_rows(Index queries, const Tensor& seen) const {
  const Index rows = seen.numel(), keys = detail::longest_of(seen) + queries, clip = weight.dim(1) / 2;
  Tensor entries = Tensor::empty({rows * queries * keys}, DType::int32);
  std::int32_t* to = entries.ptr<std::int32_t>();
  for (Index n = 0; n < rows * queries; ++n)
    for (Index j = 0; j < keys; ++j)
      *to++ = static_cast<std::int32_t>(
          clip + std::clamp(j - (seen.ptr<std::int32_t>()[n / queries] + n % queries), -clip, clip));
  return index_select(weight, 1, entries).view({weight.dim(0), rows, queries, keys}).transpose(0, 1);
}

void detail::check_positions(const char* layer, Index offset, Index length, Index count, const Where& where) {
  check(length >= 0 && offset >= 0 && offset <= count - length, where, layer, ": offset is ", offset, " and length is ",
        length, "; the positions must be in [0, ", count, ")");
}

Tensor sinusoidal_positions(Index count, Index width, DType dtype) {
  require(count >= 0 && width > 0, "sinusoidal_positions: count is ", count, " and width is ", width,
          "; count must be 0 or more and width 1 or more");
  Tensor table = Tensor::empty({count, width}, DType::float64);
  for (Index i = 0; i < width; ++i) {
    const double wave = scalar::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
    for (Index position = 0; position < count; ++position) {
      const double angle = static_cast<double>(position) / wave;
      table.ptr<double>()[position * width + i] = i % 2 == 0 ? scalar::quick_sin(angle) : scalar::quick_cos(angle);
    }
  }
  return table.to(dtype).detach();
}

}  // namespace heed
