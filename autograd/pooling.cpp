// max_pool1d(), max_pool2d(), avg_pool1d(), avg_pool2d().
#include <algorithm>
#include <cmath>
#include <heed/autograd/convolution.hpp>
#include <heed/autograd/detail/windows.hpp>
#include <heed/core/parallel.hpp>
#include <limits>

namespace heed {

using detail::Windows;

namespace {

constexpr Index kPoolColumns = 256;  // of the inner axis, per task of backward

// A pooling of x [outer, H, W, inner] to y [outer, H', W', inner]. If the channels of x are next to each other, they
// are the inner axis; otherwise the inner axis has one element.
struct PoolSizes {
  Index outer = 0, inner = 1;
  Windows h = {}, w = {};
  Index after_h = 0, after_w = 0;  // positions of padding after the last position
  bool counts_padding = true;      // divide by the positions of a window in x or its padding, not by those in x

  Index lines() const { return outer * h.count; }
  Index size() const { return h.size * w.size * inner; }      // of x, per outer
  Index result() const { return h.count * w.count * inner; }  // of y, per outer
};

// The positions of a window in x, along one axis: taps [begin, end).
struct Taps {
  Index begin, end;
};
Taps taps_in(const Windows& windows, Index window) {
  const Index first = windows.position(window, 0), d = windows.dilation;
  const Index begin = first >= 0 ? 0 : (-first + d - 1) / d;
  const Index end = first >= windows.size ? 0 : (windows.size - first + d - 1) / d;
  return {std::min(begin, windows.kernel), std::min(end, windows.kernel)};
}

// Calls f(position) for the positions of window (i, j) in x, in order. A position counts steps of `inner` elements.
template <class F>
void each_position(const PoolSizes& p, Index i, Index j, const F& f) {
  const Taps rows = taps_in(p.h, i), columns = taps_in(p.w, j);
  for (Index a = rows.begin; a < rows.end; ++a)
    for (Index b = columns.begin; b < columns.end; ++b) f(p.h.position(i, a) * p.w.size + p.w.position(j, b));
}

// Calls f(o, i, j, window) for all windows, in parallel over lines; `window` is the offset of the result.
template <class F>
void each_window(const PoolSizes& p, const F& f) {
  parallel_for_each(p.lines(), grain_for(p.w.count * p.inner * (p.h.kernel * p.w.kernel + 1)), [&](Index line) {
    for (Index j = 0; j < p.w.count; ++j) f(line / p.h.count, line % p.h.count, j, (line * p.w.count + j) * p.inner);
  });
}

// The gradient of x: calls add(to, i, j, window, n), which adds the gradient of window (i, j) to an image of x. `to`
// and `window` are at the first of n columns of the inner axis. Tasks write different images or columns.
template <class T, class Add>
void gather_gradient(const PoolSizes& p, const Target& dx, const Add& add) {
  const Index parts = std::max<Index>(1, (p.inner + kPoolColumns - 1) / kPoolColumns);
  const Index work = (p.size() + p.result() * p.h.kernel * p.w.kernel) / parts;
  parallel_for_each(p.outer * parts, grain_for(work), [&](Index task) {
    const Index o = task / parts, first = task % parts * kPoolColumns, n = std::min(kPoolColumns, p.inner - first);
    T* to = dx.gradient.ptr<T>() + o * p.size();
    if (!dx.accumulate)
      for (Index at = 0; at < p.size(); at += p.inner) std::fill_n(to + at + first, n, T(0));
    for (Index i = 0; i < p.h.count; ++i)
      for (Index j = 0; j < p.w.count; ++j)
        add(to + first, i, j, ((o * p.h.count + i) * p.w.count + j) * p.inner + first, n);
  });
}

// ---- Maxima ----

// y = the largest elements; `places` the positions of the first of them; -1 for a window in the padding.
template <class T>
void largest(const PoolSizes& p, const T* x, T* y, std::int32_t* places) {
  each_window(p, [&](Index o, Index i, Index j, Index window) {
    T* to = y + window;
    std::int32_t* place = places + window;
    std::fill_n(to, p.inner, -std::numeric_limits<T>::infinity());
    std::fill_n(place, p.inner, -1);
    each_position(p, i, j, [&](Index position) {
      const T* from = x + o * p.size() + position * p.inner;
      for (Index k = 0; k < p.inner; ++k)
        if (place[k] < 0 || from[k] > to[k] || (std::isnan(from[k]) && !std::isnan(to[k]))) {
          to[k] = from[k];
          place[k] = static_cast<std::int32_t>(position);
        }
    });
  });
}

void largest_gradient(const PoolSizes& p, const Tensor& dy, const Tensor& places, const Target& dx) {
  detail::with_float(dy.dtype(), [&]<class T>(T) {
    gather_gradient<T>(p, dx, [&](T* to, Index, Index, Index window, Index n) {
      const T* from = dy.ptr<T>() + window;
      const std::int32_t* place = places.ptr<std::int32_t>() + window;
      for (Index k = 0; k < n; ++k)
        if (place[k] >= 0) to[place[k] * p.inner + k] += from[k];
    });
  });
}

// ---- Means ----

// The positions of a window along an axis, in x or its padding.
Index padded_taps(const Windows& windows, Index window, Index after) {
  const Index first = windows.position(window, 0);
  return std::min(first + windows.kernel, windows.size + after) - first;
}

// The number by which the sum of a window is divided.
Index divisor(const PoolSizes& p, Index i, Index j) {
  if (p.counts_padding) return padded_taps(p.h, i, p.after_h) * padded_taps(p.w, j, p.after_w);
  const Taps rows = taps_in(p.h, i), columns = taps_in(p.w, j);
  return (rows.end - rows.begin) * (columns.end - columns.begin);
}

template <class T>
void means(const PoolSizes& p, const T* x, T* y) {
  each_window(p, [&](Index o, Index i, Index j, Index window) {
    T* to = y + window;
    std::fill_n(to, p.inner, T(0));
    each_position(p, i, j, [&](Index position) {
      const T* from = x + o * p.size() + position * p.inner;
      for (Index k = 0; k < p.inner; ++k) to[k] += from[k];
    });
    const T count = static_cast<T>(divisor(p, i, j));
    for (Index k = 0; k < p.inner; ++k) to[k] /= count;
  });
}

void means_gradient(const PoolSizes& p, const Tensor& dy, const Target& dx) {
  detail::with_float(dy.dtype(), [&]<class T>(T) {
    gather_gradient<T>(p, dx, [&](T* to, Index i, Index j, Index window, Index n) {
      const T* from = dy.ptr<T>() + window;
      const T count = static_cast<T>(divisor(p, i, j));
      each_position(p, i, j, [&](Index position) {
        for (Index k = 0; k < n; ++k) to[position * p.inner + k] += from[k] / count;
      });
    });
  });
}

// ---- The ops ----

// The arguments of a pooling, of both axes.
struct PoolArguments {
  HeightWidth kernel, stride, padding, dilation = 1;
  bool ceil_mode, counts_padding = true;
};

Windows windows_of(const char* op, In x, int axis, const char* name, const Index (&a)[4], bool ceil_mode) {
  const auto [kernel, stride, padding, dilation] = a;
  Windows w{.size = x.dim(axis),
            .kernel = kernel,
            .stride = stride == 0 ? kernel : stride,
            .dilation = dilation,
            .before = padding};
  check(padding <= kernel / 2, x.where(), op, ": along ", name, " the padding is ", padding, " and kernel_size is ",
        kernel, "; the padding must be at most half of kernel_size");
  detail::count_windows(op, x, name, w, padding, ceil_mode);
  return w;
}

PoolSizes pooling_of(const char* op, int rank, In x, const PoolArguments& a) {
  check(x->defined() && is_floating(x.dtype()), x.where(), op, ": x is ", x.tensor(), "; it must be floating");
  check(x.rank() == rank, x.where(), op, ": x is ", x.tensor(), "; it must be ",
        rank == 3 ? "[N, C, L]" : "[N, C, H, W]");
  PoolSizes p{.outer = x.dim(0), .after_w = a.padding.w, .counts_padding = a.counts_padding};
  (detail::has_channels_last(x) ? p.inner : p.outer) *= x.dim(1);
  p.w = windows_of(op, x, -1, rank == 3 ? "L" : "W", {a.kernel.w, a.stride.w, a.padding.w, a.dilation.w}, a.ceil_mode);
  if (rank == 3) return p;
  p.h = windows_of(op, x, 2, "H", {a.kernel.h, a.stride.h, a.padding.h, a.dilation.h}, a.ceil_mode);
  p.after_h = a.padding.h;
  return p;
}

// x as a pooling reads it: [N, H, W, C] if the channels are next to each other, else [N, C, H, W].
Tensor pool_input(const Tensor& x) {
  if (detail::has_channels_last(x)) return detail::with_channels_last(x);
  return x.rank() == 3 ? x.unsqueeze(2) : x;
}

// Memory for the result, in the type of the computation.
Tensor pool_result(const PoolSizes& p, const Tensor& x, const Tensor& in) {
  Shape shape = in.shape();
  const int last = detail::has_channels_last(x) ? 2 : 3;
  shape[last - 1] = p.h.count, shape[last] = p.w.count;
  return Tensor::empty(shape, x.dtype() == DType::float64 ? DType::float64 : DType::float32);
}

// A result as a view with x's axes.
Tensor with_axes_of(const Tensor& x, const Tensor& y) {
  if (detail::has_channels_last(x)) return detail::with_channels_first(y, x.rank());
  return x.rank() == 3 ? y.squeeze(2) : y;
}

Tensor max_pool(const char* op, int rank, In x, const PoolArguments& a) {
  const PoolSizes p = pooling_of(op, rank, x, a);
  check(p.h.size * p.w.size <= std::numeric_limits<std::int32_t>::max(), x.where(), op, ": x is ", x.tensor(),
        "; it must have fewer than 2^31 positions");
  const Tensor in = pool_input(x), wide = detail::widened(in.detach()).dense(), maxima = pool_result(p, x, in);
  const Tensor places = Tensor::empty(maxima.shape(), DType::int32);
  detail::with_float(wide.dtype(),
                     [&]<class T>(T) { largest(p, wide.ptr<T>(), maxima.ptr<T>(), places.ptr<std::int32_t>()); });
  Tensor y = detail::cast(maxima, x.dtype());
  record(op, x.where(), y, {In(in, x.where())}, saved(places), [p](Grads& d, const Tensor& dy, const Tensor& at) {
    if (const Target dx = d.dense(0)) largest_gradient(p, dy, at, dx);
  });
  return with_axes_of(x, y);
}

Tensor avg_pool(const char* op, int rank, In x, const PoolArguments& a) {
  const PoolSizes p = pooling_of(op, rank, x, a);
  const Tensor in = pool_input(x), wide = detail::widened(in.detach()).dense(), sums = pool_result(p, x, in);
  detail::with_float(wide.dtype(), [&]<class T>(T) { means(p, wide.ptr<T>(), sums.ptr<T>()); });
  Tensor y = detail::cast(sums, x.dtype());
  record(op, x.where(), y, {In(in, x.where())}, saved(), [p](Grads& d, const Tensor& dy) {
    if (const Target dx = d.dense(0)) means_gradient(p, dy, dx);
  });
  return with_axes_of(x, y);
}

}  // namespace

Tensor max_pool1d(In x, Exactly<Index> kernel_size, const MaxPool1dOptions& o) {
  return max_pool("max_pool1d", 3, x, {{1, kernel_size}, {1, o.stride}, {0, o.padding}, {1, o.dilation}, o.ceil_mode});
}

Tensor max_pool2d(In x, HeightWidth kernel_size, const MaxPool2dOptions& o) {
  return max_pool("max_pool2d", 4, x, {kernel_size, o.stride, o.padding, o.dilation, o.ceil_mode});
}

Tensor avg_pool1d(In x, Exactly<Index> kernel_size, const AvgPool1dOptions& o) {
  return avg_pool("avg_pool1d", 3, x,
                  {{1, kernel_size}, {1, o.stride}, {0, o.padding}, 1, o.ceil_mode, o.count_include_pad});
}

Tensor avg_pool2d(In x, HeightWidth kernel_size, const AvgPool2dOptions& o) {
  return avg_pool("avg_pool2d", 4, x, {kernel_size, o.stride, o.padding, 1, o.ceil_mode, o.count_include_pad});
}

}  // namespace heed
