// Copies between tensors of any strides and dtypes.
#include <algorithm>
#include <cstring>
#include <heed/core/detail/elementwise.hpp>
#include <heed/core/kernels/elementwise_ops.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/tensor.hpp>
#include <type_traits>
#include <utility>

namespace heed::detail {
namespace {

// The loop nest of a copy: axes that can be walked as one are joined, the last is the inner run.
struct CopyNest {
  Shape shape;
  Strides to, from;
};

CopyNest simplify(const Tensor& to, const Tensor& from) {
  CopyNest n;
  for (int i = 0; i < to.rank(); ++i) {
    const Index size = to.shape()[i], t = to.strides()[i], f = from.strides()[i];
    if (size == 1) continue;
    const int last = n.shape.rank() - 1;
    if (last >= 0 && n.to[last] == size * t && n.from[last] == size * f) {
      n.shape[last] *= size;
      n.to[last] = t;
      n.from[last] = f;
    } else {
      n.shape.push_back(size);
      n.to.push_back(t);
      n.from.push_back(f);
    }
  }
  if (n.shape.empty()) n = {{1}, {1}, {1}};
  return n;
}

template <class To, class From>
void copy_run(To* to, Index st, const From* from, Index sf, Index n) {
  if constexpr (std::is_same_v<To, From>) {
    if (st == 1 && sf == 1) return void(std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To)));
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
void walk_nest(To* to, const From* from, const CopyNest& nest) {
  const int outer = nest.shape.rank() - 1;
  const Index run = nest.shape[outer], rows = nest.shape.first(outer).numel();
  const auto rows_of = [&](Index begin, Index end, Index lo, Index hi) {
    for (Index r = begin; r < end; ++r) {
      Index rest = r, t = 0, f = 0;
      for (int a = outer - 1; a >= 0; --a) {
        const Index i = rest % nest.shape[a];
        rest /= nest.shape[a];
        t += i * nest.to[a];
        f += i * nest.from[a];
      }
      copy_run(to + t + lo * nest.to[outer], nest.to[outer], from + f + lo * nest.from[outer], nest.from[outer],
               hi - lo);
    }
  };
  if (rows == 1) return parallel_for(run, grain_for(1), [&](Index b, Index e) { rows_of(0, 1, b, e); });
  parallel_for(rows, grain_for(run), [&](Index b, Index e) { rows_of(b, e, 0, run); });
}

// A nest whose innermost axis, the columns, lies dense in `to` alone, and another, the rows, in `from`: it is copied in
// tiles.
struct Transposition {
  CopyNest outer;                                              // the other axes
  Index rows = 0, columns = 0, row_step = 0, column_step = 0;  // steps of rows in `to`, of columns in `from`
};
constexpr Index kTile = 32;

// rows = 0 where the nest is none.
Transposition as_transposition(const CopyNest& n) {
  Transposition t;
  if (n.shape.back() < 8 || n.to.back() != 1 || n.from.back() <= 1) return t;
  for (int a = 0; a + 1 < n.shape.rank(); ++a) {
    if (t.rows == 0 && n.from[a] == 1 && n.shape[a] >= 8) {
      t.rows = n.shape[a];
      t.row_step = n.to[a];
      continue;
    }
    t.outer.shape.push_back(n.shape[a]);
    t.outer.to.push_back(n.to[a]);
    t.outer.from.push_back(n.from[a]);
  }
  t.columns = n.shape.back();
  t.column_step = n.from.back();
  return t;
}

template <class To, class From>
void transpose_tiles(To* to, const From* from, const Transposition& t) {
  const Index tiles = (t.rows + kTile - 1) / kTile, grain = grain_for(kTile * t.columns);
  parallel_for(t.outer.shape.numel() * tiles, grain, [&](Index begin, Index end) {
    for (Index strip = begin; strip < end; ++strip) {
      const Index first = strip % tiles * kTile, count = std::min(kTile, t.rows - first);
      To* out = to + first * t.row_step;
      const From* in = from + first;
      Index rest = strip / tiles;
      for (int a = t.outer.shape.rank() - 1; a >= 0; --a) {
        const Index i = rest % t.outer.shape[a];
        rest /= t.outer.shape[a];
        out += i * t.outer.to[a];
        in += i * t.outer.from[a];
      }
      // By way of a tile of our own: each line of memory is read whole and written whole, however its neighbours fall
      // on the cache's sets.
      From tile[kTile][kTile];
      for (Index j = 0; j < t.columns; j += kTile) {
        const Index width = std::min(kTile, t.columns - j);
        for (Index c = 0; c < width; ++c) std::copy_n(in + (j + c) * t.column_step, count, tile[c]);
        for (Index r = 0; r < count; ++r)
          for (Index c = 0; c < width; ++c) out[r * t.row_step + j + c] = convert<To>(tile[c][r]);
      }
    }
  });
}

}  // namespace

void copy_values(Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  const CopyNest nest = simplify(to, from);
  const Transposition transposition = as_transposition(nest);
  visit_dtype(to.dtype(), [&](auto t) {
    visit_dtype(from.dtype(), [&](auto f) {
      using To = decltype(t);
      using From = decltype(f);
      if (transposition.rows > 0)
        transpose_tiles(to.ptr<To>(), static_cast<const From*>(from.raw()), transposition);
      else
        walk_nest(to.ptr<To>(), static_cast<const From*>(from.raw()), nest);
    });
  });
}

void add_values(Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  const bool same = from.dtype() == to.dtype() || (from.dtype() == DType::bfloat16 && to.dtype() == DType::float32);
  Tensor converted;
  if (!same) {
    converted = Tensor::empty(from.shape(), to.dtype());
    copy_values(converted, from);
  }
  elementwise(kernels::binary<"add">().forward[kernel_type(to.dtype())], to, {to, same ? from : converted});
}

}  // namespace heed::detail
