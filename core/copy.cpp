// Copies between tensors of any strides and dtypes.
#include <algorithm>
#include <cstring>
#include <heed/core/elementwise.hpp>
#include <heed/core/kernels/elementwise/elementwise.hpp>
#include <heed/core/kernels/elementwise/ops.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/quantized.hpp>

namespace heed::detail {
namespace {

// Copies n elements between runs with strides st and sf.
template <class To, class From>
void copy_run(To* to, Index st, const From* from, Index sf, Index n) {
  if constexpr (std::is_same_v<To, From>) {
    if (st == 1 && sf == 1) return void(std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To)));
  }
  const auto& bf16 = kernels::elementwise_table().bf16;
  if constexpr (std::is_same_v<To, bfloat16> && std::is_same_v<From, float>) {
    if (st == 1 && sf == 1) return bf16.round(&to->bits, from, n);
  }
  if constexpr (std::is_same_v<To, float> && std::is_same_v<From, bfloat16>) {
    if (st == 1 && sf == 1) return bf16.widen(to, &from->bits, n);
  }
  if (st == 1 && sf == 1) {
    for (Index i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
  } else if (st == 1 && sf == 0) {
    std::fill_n(to, n, convert<To>(*from));
  } else {
    for (Index i = 0; i < n; ++i) to[i * st] = convert<To>(from[i * sf]);
  }
}

template <class To, class From>
void copy_nest(const LoopNest& nest) {
  const int last = nest.rank - 1;
  const LoopPart &to = nest.parts[0], &from = nest.parts[1];
  parallel_for(nest.numel(), grain_for(4), [&](Index begin, Index end) {
    for (LoopCursor at(nest, begin); begin < end;) {
      const Index n = std::min(end - begin, at.left_in_run());
      copy_run(reinterpret_cast<To*>(to.data) + at.offset[0], to.strides[last],
               reinterpret_cast<const From*>(from.data) + at.offset[1], from.strides[last], n);
      at.advance(n);
      begin += n;
    }
  });
}

// A transposing copy: the innermost axis, the columns, has stride 1 in `to` only, and another axis, the rows, has
// stride 1 in `from`. It is copied in tiles.
struct Transposition {
  LoopNest outer;                                              // the other axes
  Index rows = 0, columns = 0, row_step = 0, column_step = 0;  // strides of rows in `to`, of columns in `from`
};
constexpr Index kTile = 32;

// Returns rows = 0 if the nest is no transposition.
Transposition as_transposition(const LoopNest& n) {
  Transposition t;
  t.outer.count = n.count;
  const int last = n.rank - 1;
  const auto &to = n.parts[0].strides, &from = n.parts[1].strides;
  if (n.shape[last] < 8 || to[last] != 1 || from[last] <= 1) return t;
  for (int a = 0; a < last; ++a) {
    if (t.rows == 0 && from[a] == 1 && n.shape[a] >= 8) {
      t.rows = n.shape[a];
      t.row_step = to[a];
    } else {
      t.outer.add_axis(n.shape[a], {to[a], from[a]});
    }
  }
  t.columns = n.shape[last];
  t.column_step = from[last];
  return t;
}

template <class To, class From>
void transpose_tiles(To* to, const From* from, const Transposition& t) {
  const Index tiles = (t.rows + kTile - 1) / kTile, grain = grain_for(kTile * t.columns);
  parallel_for_each(t.outer.numel() * tiles, grain, [&](Index strip) {
    const Index first = strip % tiles * kTile, count = std::min(kTile, t.rows - first);
    const LoopCursor at(t.outer, strip / tiles);
    To* out = to + first * t.row_step + at.offset[0];
    const From* in = from + first + at.offset[1];
    // Copy through a local tile, so that each cache line is read and written whole. Otherwise neighbouring lines that
    // fall on the same set of the cache would evict each other.
    From tile[kTile][kTile];
    for (Index j = 0; j < t.columns; j += kTile) {
      const Index width = std::min(kTile, t.columns - j);
      for (Index c = 0; c < width; ++c) std::copy_n(in + (j + c) * t.column_step, count, tile[c]);
      for (Index r = 0; r < count; ++r)
        for (Index c = 0; c < width; ++c) out[r * t.row_step + j + c] = convert<To>(tile[c][r]);
    }
  });
}

}  // namespace

void copy_values(Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  if (is_quantized(to.dtype()) || is_quantized(from.dtype())) return copy_quantized(to, from);
  const Operand inputs[] = {from};
  const LoopNest nest = loop_nest(to, inputs);
  const Transposition transposition = as_transposition(nest);
  visit_dtype(to.dtype(), [&]<class To>(To) {
    visit_dtype(from.dtype(), [&]<class From>(From) {
      if (transposition.rows > 0)
        transpose_tiles(to.ptr<To>(), static_cast<const From*>(from.raw()), transposition);
      else
        copy_nest<To, From>(nest);
    });
  });
}

void add_values(Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  const bool widens = from.dtype() == DType::bfloat16 && to.dtype() == DType::float32;  // elementwise() does it
  if (from.dtype() != to.dtype() && !widens) return add_values(to, cast(from, to.dtype()));
  elementwise(kernels::binary<"add">().forward[kernel_type(to.dtype())], to, {to, from});
}

}  // namespace heed::detail
