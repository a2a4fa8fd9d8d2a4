// Rotary positions: pairs of elements of a row are rotated by an angle that grows with the row's position.
#pragma once
#include "attention.hpp"

namespace heed::kernels {

// y[d] = x[d] * c[d] + x[partner of d] * s[d] for d < dims, where the partner is d +- dims / 2, or d ^ 1 if
// interleaved. Elements from dims on are copied.
template <class T>
struct RopeProblem {
  int64_t batch, heads, rows, width, dims;
  HeadRows<const T> x;
  HeadRows<T> y;
  const T* table;            // [positions, 2, dims]: c, and s with its sign
  const int32_t* positions;  // [batch, rows]; null: the numbers of the rows
  bool interleaved;
  bool inverse;  // rotates back: -s
  bool add;      // adds to y
};

// Rotates rows [begin, end) of batch * heads * rows.
template <class T>
using RopeKernel = void (*)(const RopeProblem<T>& p, int64_t begin, int64_t end);

using RopeTable = FloatTable<RopeKernel>;
const RopeTable& rope_table();  // for the level in use

}  // namespace heed::kernels
