// Reductions of floating tensors, as trees whose shape depends on the sizes alone.
#include <algorithm>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/reduce/reduce.hpp>

namespace heed {
namespace detail {

using kernels::Reduction;

namespace {

template <class T>
const kernels::ReduceKernels<T>& reduce_table_of() {
  return kernels::of<T>(kernels::reduce_table());
}

// The reduction that combines the results of parts.
Reduction combination(Reduction op) {
  switch (op) {
    case Reduction::max:
    case Reduction::max_abs: return Reduction::max;
    case Reduction::min: return Reduction::min;
    default: return Reduction::sum;
  }
}

// p + n, or null if p is null.
template <class T>
const T* shifted(const T* p, Index n) {
  return p == nullptr ? nullptr : p + n;
}

constexpr Index kRowPart = 16384;    // longer rows are reduced in parts of this length, and so are the results of parts
constexpr Index kRowBlock = 64;      // columns are reduced in blocks of this number of rows
constexpr Index kColumnPart = 1024;  // columns per chunk

template <class T>
void reduce_rows(Reduction op, const T* x, Index rows, Index n, const T* center, T* y) {
  const Index parts = (n + kRowPart - 1) / kRowPart;
  if (parts <= 1) {
    return parallel_for(rows, grain_for(n), [&](Index b, Index e) {
      reduce_table_of<T>().rows(op, x + b * n, n, e - b, n, shifted(center, b), y + b);
    });
  }
  Scratch<T> partial(static_cast<std::size_t>(rows * parts));
  parallel_for_each(rows * parts, grain_for(kRowPart), [&](Index i) {
    const Index r = i / parts, from = i % parts * kRowPart;
    reduce_table_of<T>().rows(op, x + r * n + from, n, 1, std::min(kRowPart, n - from), shifted(center, r),
                              &partial[static_cast<std::size_t>(i)]);
  });
  reduce_rows<T>(combination(op), partial.data(), rows, parts, nullptr, y);
}

template <class T>
void reduce_columns(Reduction op, const T* x, Index outer, Index n, Index inner, const T* center, T* y) {
  const Index blocks = (n + kRowBlock - 1) / kRowBlock, parts = (inner + kColumnPart - 1) / kColumnPart;
  const Index work = std::min(n, kRowBlock) * std::min(inner, kColumnPart);
  const auto run = [&](T* to) {
    parallel_for_each(outer * blocks * parts, grain_for(work), [&](Index i) {
      const Index part = i % parts, block = i / parts % blocks, o = i / parts / blocks;
      const Index column = part * kColumnPart, row = block * kRowBlock;
      reduce_table_of<T>().columns(op, x + (o * n + row) * inner + column, inner, std::min(kRowBlock, n - row),
                                   std::min(kColumnPart, inner - column), shifted(center, o * inner + column),
                                   to + (o * blocks + block) * inner + column);
    });
  };
  if (blocks == 1) return run(y);
  Scratch<T> partial(static_cast<std::size_t>(outer * blocks * inner));
  run(partial.data());
  reduce_columns<T>(combination(op), partial.data(), outer, blocks, inner, nullptr, y);
}

// For rows narrower than a few vectors: k rows are treated as one long row. Reducing these columns leaves k rows, which
// are reduced again.
template <class T>
void reduce_narrow(Reduction op, const T* x, Index n, Index inner, T* y) {
  const Index k = 64 / inner, wide = n / k;
  Scratch<T> rest(static_cast<std::size_t>((k + 1) * inner));
  reduce_columns<T>(op, x, 1, wide, k * inner, nullptr, rest.data());
  const Index left = n - wide * k;
  if (left > 0) reduce_columns<T>(op, x + wide * k * inner, 1, left, inner, nullptr, rest.data() + k * inner);
  reduce_columns<T>(combination(op), rest.data(), 1, k + (left > 0), inner, nullptr, y);
}

}  // namespace

Tensor reduce(Reduction op, const Grouped& g, const Tensor& center) {
  Tensor y = Tensor::empty(g.result_shape(), g.x.dtype());
  with_float(g.x.dtype(), [&]<class T>(T) {
    const T* x = g.x.ptr<T>();
    const T* c = center.ptr<T>();
    if (g.n == 0)
      std::fill_n(y.ptr<T>(), y.numel(), T(0));
    else if (y.numel() == 0)
      return;
    else if (g.inner == 1)
      reduce_rows<T>(op, x, g.outer, g.n, c, y.ptr<T>());
    else if (g.outer == 1 && g.inner <= 32 && g.n >= 128 && c == nullptr)
      reduce_narrow<T>(op, x, g.n, g.inner, y.ptr<T>());
    else
      reduce_columns<T>(op, x, g.outer, g.n, g.inner, c, y.ptr<T>());
  });
  return y;
}

Tensor find(const Grouped& g, const Tensor& value) {
  Tensor y = Tensor::empty(g.result_shape(), DType::int32);
  if (y.numel() == 0) return y;
  with_float(g.x.dtype(), [&]<class T>(T) {
    const T *x = g.x.ptr<T>(), *v = value.ptr<T>();
    parallel_for(g.outer, grain_for(g.n * g.inner), [&](Index b, Index e) {
      if (g.inner == 1)
        return reduce_table_of<T>().find_rows(x + b * g.n, e - b, g.n, v + b, y.ptr<std::int32_t>() + b);
      for (Index o = b; o < e; ++o)
        reduce_table_of<T>().find_columns(x + o * g.n * g.inner, g.n, g.inner, v + o * g.inner,
                                          y.ptr<std::int32_t>() + o * g.inner);
    });
  });
  return y;
}

Tensor share(const Grouped& g, const Tensor& value, const Tensor& dy) {
  const Tensor count = reduce(Reduction::equal, g, value), y = Tensor::empty_like(dy);
  with_float(dy.dtype(), [&]<class T>(T) {
    for (Index i = 0; i < dy.numel(); ++i) y.ptr<T>()[i] = dy.ptr<T>()[i] / count.ptr<T>()[i];
  });
  return y;
}

void spread(kernels::Spread op, const Grouped& g, const Center& center, const Tensor& a, Tensor& dx, bool accumulate) {
  if (g.x.numel() == 0) return;
  with_float(g.x.dtype(), [&]<class T>(T) {
    const T *x = g.x.ptr<T>(), *c = center.value.ptr<T>(), *rest = center.rest.ptr<T>();
    if (g.inner == 1) {
      // A long row is split into parts; several short rows are one call.
      const Index parts = (g.n + kRowPart - 1) / kRowPart;
      return parallel_for(g.outer * parts, grain_for(std::min(g.n, kRowPart)), [&](Index b, Index e) {
        for (Index i = b; i < e;) {
          const Index r = i / parts, at = r * g.n + i % parts * kRowPart, rows = parts == 1 ? e - b : 1;
          const Index n = parts == 1 ? g.n : std::min(kRowPart, (r + 1) * g.n - at);
          reduce_table_of<T>().spread_rows(op, x + at, rows, n, {shifted(c, r), shifted(rest, r), a.ptr<T>() + r},
                                           dx.ptr<T>() + at, accumulate);
          i += rows;
        }
      });
    }
    // outer * n rows of `inner`; their centers change every n rows.
    parallel_for(g.outer * g.n, grain_for(g.inner), [&](Index b, Index e) {
      for (Index r = b; r < e;) {
        const Index o = r / g.n, rows = std::min(e, (o + 1) * g.n) - r;
        const Index at = o * g.inner;
        reduce_table_of<T>().spread_columns(op, x + r * g.inner, rows, g.inner,
                                            {shifted(c, at), shifted(rest, at), a.ptr<T>() + at},
                                            dx.ptr<T>() + r * g.inner, accumulate);
        r += rows;
      }
    });
  });
}

Tensor sum_axes(const Tensor& x, unsigned reduced) {
  // If the axes are not next to each other in contiguous memory, the innermost run of axes is summed first. This needs
  // no copy.
  if (x.is_contiguous() && x.numel() > 0) {
    const auto summed = [&](int a) { return (reduced >> a & 1u) && x.shape()[a] != 1; };
    int a = x.rank() - 1;
    while (a >= 0 && !summed(a)) --a;
    unsigned run = 0;
    for (; a >= 0 && (summed(a) || x.shape()[a] == 1); --a)
      if (summed(a)) run |= 1u << a;
    while (a >= 0 && !summed(a)) --a;
    if (a >= 0) return sum_axes(sum_axes(x, run), reduced);
  }
  const Grouped g(x, reduced);
  return g.to_result(reduce(Reduction::sum, g), true);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (x.dtype() == DType::bfloat16) return sum_to(x.to(DType::float32), shape);
  const int extra = x.rank() - shape.rank();
  unsigned reduced = 0;
  for (int i = 0; i < x.rank(); ++i)
    if (i < extra || shape[i - extra] != x.shape()[i]) reduced |= 1u << i;
  return sum_axes(x, reduced).view(shape);
}

}  // namespace detail
}  // namespace heed
