// Sums and copies by distance between query and key.
#include <algorithm>
#include <heed/autograd/detail/relative_vectors.hpp>
#include <heed/core/kernel_interface.hpp>
#include <heed/core/parallel.hpp>

namespace heed::detail {
namespace {

// The keys of one query at distances within the clip: [begin, end). Keys before them have distance 0, the others
// distance 2 clip; `first` is the distance of key `begin`.
struct Near {
  Index begin, end, first;

  Near(Index position, Index keys, Index clip)
      : begin(std::clamp<Index>(position - clip, 0, keys)),
        end(std::clamp<Index>(position + clip + 1, begin, keys)),
        first(begin - position + clip) {}
};

// Calls f(n, near) for each row n of x [B, H, T, ...].
template <class F>
void each_query(const Tensor& x, const Distances& at, F&& f) {
  const Index heads = x.dim(1), queries = x.dim(2);
  parallel_for_each(x.dim(0) * heads * queries, grain_for(at.keys), [&](Index n) {
    const Index position = at.first[static_cast<std::size_t>(n / queries / heads)] + n % queries;
    f(n, Near(position, at.keys, at.clip));
  });
}

}  // namespace

Tensor spread_by_distance(const Tensor& given, const Distances& at) {
  const Tensor x = given.dense();
  Tensor y = Tensor::empty(x.shape().with(3, at.keys), x.dtype());
  with_float(x.dtype(), [&]<class T>(T) {
    const Index size = 2 * at.clip + 1;
    each_query(x, at, [&, from = x.ptr<T>(), to = y.ptr<T>()](Index n, const Near& near) {
      const T* row = from + n * size;
      T* out = to + n * at.keys;
      std::fill(out, out + near.begin, row[0]);
      std::copy_n(row + near.first, near.end - near.begin, out + near.begin);
      std::fill(out + near.end, out + at.keys, row[size - 1]);
    });
  });
  return y;
}

Tensor sum_by_distance(const Tensor& given, const Distances& at) {
  const Tensor w = given.dense();
  Tensor y = Tensor::zeros(w.shape().with(3, 2 * at.clip + 1), w.dtype());
  with_float(w.dtype(), [&]<class T>(T) {
    const Index size = 2 * at.clip + 1;
    each_query(w, at, [&, from = w.ptr<T>(), to = y.ptr<T>()](Index n, const Near& near) {
      const T* row = from + n * at.keys;
      T* out = to + n * size;
      double before = 0, after = 0;
      for (Index j = 0; j < near.begin; ++j) before += static_cast<double>(row[j]);
      for (Index j = near.end; j < at.keys; ++j) after += static_cast<double>(row[j]);
      std::copy_n(row + near.begin, near.end - near.begin, out + near.first);
      out[0] = static_cast<T>(static_cast<double>(out[0]) + before);
      out[size - 1] = static_cast<T>(static_cast<double>(out[size - 1]) + after);
    });
  });
  return y;
}

}  // namespace heed::detail
