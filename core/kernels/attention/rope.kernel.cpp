// Rotary positions: pairs of numbers of a row, rotated by the angles of a table.
#include "rope.hpp"

#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
void halves(const T* x, T* y, const T* table, const RopeProblem<T>& p) {
  const long half = p.dims / 2;
  for (long d = 0; d < half; d += kWidth<T>) {
    const long n = half - d;
    const Batch<T> c = get_lanes(table + d, n), up = get_lanes(table + p.dims + half + d, n);
    const Batch<T> s = p.inverse ? neg(up) : up;
    const Batch<T> low = get_lanes(x + d, n), high = get_lanes(x + half + d, n);
    put_lanes(y + d, fnma(high, s, low * c), n, p.add);
    put_lanes(y + half + d, fma(low, s, high * c), n, p.add);
  }
}

template <class T>
void neighbours(const T* x, T* y, const T* table, const RopeProblem<T>& p) {
  for (long d = 0; d < p.dims; d += kWidth<T>) {
    const long n = p.dims - d;
    const Batch<T> v = get_lanes(x + d, n), s = get_lanes(table + p.dims + d, n);
    put_lanes(y + d, fma(swap_lanes<1>(v), p.inverse ? neg(s) : s, v * get_lanes(table + d, n)), n, p.add);
  }
}

template <class T>
void rotate(const RopeProblem<T>& p, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const long row = i % p.rows, h = i / p.rows % p.heads, b = i / p.rows / p.heads;
    const T* x = row_of(p.x, b, h, row);
    T* y = row_of(p.y, b, h, row);
    const T* table = p.table + (p.positions == nullptr ? row : p.positions[b * p.rows + row]) * 2 * p.dims;
    if (p.interleaved)
      neighbours(x, y, table, p);
    else
      halves(x, y, table, p);
    for (long d = p.dims; d < p.width; d += kWidth<T>)
      put_lanes(y + d, get_lanes(x + d, p.width - d), p.width - d, p.add);
  }
}

}  // namespace

extern const RopeTable rope_table;
const RopeTable rope_table = {rotate<float>, rotate<double>};

}  // namespace heed::kernels::HEED_LEVEL
