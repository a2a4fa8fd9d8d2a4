// Rotary positions: pairs of numbers of a row, rotated by the angles of a table.
#include "rope.hpp"

#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
Batch<T> load_lanes(const T* x, long n) {
  return n >= kWidth<T> ? load(x) : load_part(x, static_cast<int>(n));
}
template <class T>
void put(T* y, Batch<T> v, long n, bool add) {
  if (add) v = v + load_lanes<T>(y, n);
  if (n >= kWidth<T>)
    store(y, v);
  else
    store_part(y, v, static_cast<int>(n));
}

template <class T>
void halves(const T* x, T* y, const T* table, const RopeProblem<T>& p) {
  const long half = p.dims / 2;
  for (long d = 0; d < half; d += kWidth<T>) {
    const long n = half - d;
    const Batch<T> c = load_lanes(table + d, n), up = load_lanes(table + p.dims + half + d, n),
                   s = p.inverse ? -up : up;
    const Batch<T> low = load_lanes(x + d, n), high = load_lanes(x + half + d, n);
    put(y + d, fnma(high, s, low * c), n, p.add);
    put(y + half + d, fma(low, s, high * c), n, p.add);
  }
}

template <class T>
void neighbours(const T* x, T* y, const T* table, const RopeProblem<T>& p) {
  for (long d = 0; d < p.dims; d += kWidth<T>) {
    const long n = p.dims - d;
    const Batch<T> v = load_lanes(x + d, n), s = load_lanes(table + p.dims + d, n);
    put(y + d, fma(swap_lanes<1>(v), p.inverse ? -s : s, v * load_lanes(table + d, n)), n, p.add);
  }
}

template <class T>
void rotate(const RopeProblem<T>& p, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const long row = i % p.rows, h = i / p.rows % p.heads, b = i / p.rows / p.heads;
    const T* x = p.x.data + b * p.x.batch + h * p.x.head + row * p.x.row;
    T* y = p.y.data + b * p.y.batch + h * p.y.head + row * p.y.row;
    const T* table = p.table + row * 2 * p.dims;
    if (p.interleaved)
      neighbours(x, y, table, p);
    else
      halves(x, y, table, p);
    for (long d = p.dims; d < p.width; d += kWidth<T>) put(y + d, load_lanes(x + d, p.width - d), p.width - d, p.add);
  }
}

}  // namespace

extern const RopeTable rope_table;
const RopeTable rope_table = {rotate<float>, rotate<double>};

}  // namespace heed::kernels::HEED_LEVEL
