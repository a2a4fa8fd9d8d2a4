// Convolutions by matrix products. The windows that some rows of the result read are copied next to each other, and the
// copy is multiplied by the filters. A task copies the windows of its rows alone, so the copy stays in its caches.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <heed/autograd/detail/convolution.hpp>
#include <heed/autograd/detail/products.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>

namespace heed::detail {
namespace {

// Rows of a task that multiplies with packed filters, if there are enough tasks of this size, and else.
constexpr Index kPackedRows = 96, kFewPackedRows = 48;
constexpr Index kGatheredRows = 512;            // up to this number, all windows are copied before one product
constexpr Index kChunkBytes = Index{16} << 20;  // of copied windows, in products over chunks of rows
constexpr Index kMinChunkRows = 512;            // of such a chunk: each adds to all of the filters' gradient

Index size_in_bytes(DType type) { return static_cast<Index>(size_of(type)); }

// Numbers between two copied rows. Rows at distances of a multiple of 4 KB would share few lines of the first-level
// cache, and the product would copy them again.
Index row_stride(const Convolution& c, DType type) {
  const Index n = c.taps() * c.width();
  return n * size_in_bytes(type) % 4096 == 0 ? n + 64 / size_in_bytes(type) : n;
}

// The positions that a run of taps reads along W.
struct Line {
  const char* data;  // position 0 of the line; null if the line is padding
  Index step;        // bytes between two positions
  Index bytes;       // of the channels that are copied
};

// Copies the taps of window `w` of a line, one after the other.
void copy_taps(const Windows& windows, const Line& line, Index w, char* out) {
  const Index first = windows.position(w, 0);
  const bool joined = windows.dilation == 1 && line.step == line.bytes;
  if (line.data == nullptr) {
    std::memset(out, 0, static_cast<std::size_t>(windows.kernel * line.bytes));
  } else if (joined && first >= 0 && first + windows.kernel <= windows.size) {
    std::memcpy(out, line.data + first * line.step, static_cast<std::size_t>(windows.kernel * line.bytes));
  } else {
    for (Index tap = 0; tap < windows.kernel; ++tap, out += line.bytes) {
      const Index position = windows.position(w, tap);
      const auto n = static_cast<std::size_t>(line.bytes);
      windows.has(position) ? void(std::memcpy(out, line.data + position * line.step, n))
                            : void(std::memset(out, 0, n));
    }
  }
}

// Copies what a row of the result reads: [groups][KH][KW][channels].
void copy_window(const Convolution& c, const Tensor& x, Index row, char* out) {
  const Index size = size_in_bytes(x.dtype()), step = c.width() * size;
  const Index image = row / (c.h.count * c.w.count), h = row / c.w.count % c.h.count, w = row % c.w.count;
  const char* data = static_cast<const char*>(x.raw());
  for (Index group = 0; group < c.groups; ++group)
    for (Index tap = 0; tap < c.h.kernel; ++tap, out += c.w.kernel * c.channels * size) {
      const Index position = c.h.position(h, tap);
      const Index first = (image * c.h.size + position) * c.w.size * step + group * c.channels * size;
      copy_taps(c.w, {c.h.has(position) ? data + first : nullptr, step, c.channels * size}, w, out);
    }
}

// to [groups][channels][taps] = from [groups][taps][channels]. T has the size of the elements.
template <class T>
void turn_window(const Convolution& c, const void* from, void* to) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  for (Index group = 0; group < c.groups; ++group, x += c.depth())
    for (Index j = 0; j < c.channels; ++j)
      for (Index tap = 0; tap < c.taps(); ++tap) *y++ = x[tap * c.channels + j];
}

// Calls f() with an unsigned number of the size of the type.
template <class F>
void with_size_of(DType type, const F& f) {
  switch (size_of(type)) {
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

// copy_window() in c's order. `scratch` has the size of a window.
void copy_ordered(const Convolution& c, const Tensor& x, Index row, char* out, char* scratch) {
  if (!c.by_channel) return copy_window(c, x, row, out);
  copy_window(c, x, row, scratch);
  with_size_of(x.dtype(), [&]<class T>(T) { turn_window<T>(c, scratch, out); });
}

// Whether the rows of x are the windows.
bool reads_rows(const Convolution& c) { return c.h.is_identity() && c.w.is_identity(); }

// The copied windows of some rows: element (i, j) of group g is data[i * stride + g * depth + j].
struct CopiedRows {
  const void* data;
  Index stride;
};

// Calls f(first, rows, CopiedRows) for chunks of rows. The chunks depend on the shape alone.
template <class F>
void each_chunk(const Convolution& c, const Tensor& x, Index chunk, const F& f) {
  const Index rows = c.rows(), size = size_in_bytes(x.dtype());
  if (reads_rows(c)) return f(Index{0}, rows, CopiedRows{x.raw(), c.width()});
  const Index stride = row_stride(c, x.dtype());
  Scratch<char> copy(static_cast<std::size_t>(std::min(chunk, rows) * stride * size));
  ThreadScratch<char> turned(c.by_channel ? stride * size : 0);
  for (Index first = 0; first == 0 || first < rows; first += chunk) {
    const Index count = std::min(chunk, rows - first);
    parallel_for_each(count, grain_for((c.by_channel ? 4 : 1) * stride),
                      [&](Index i) { copy_ordered(c, x, first + i, copy.data() + i * stride * size, turned.mine()); });
    f(first, count, CopiedRows{copy.data(), stride});
  }
}

// Rows per chunk of about kChunkBytes.
Index chunk_rows(const Convolution& c, DType type) {
  return std::max(kMinChunkRows, kChunkBytes / std::max<Index>(1, row_stride(c, type) * size_in_bytes(type)));
}

// y (+)= bias + windows times filters, for one group per product.
Gemm product_with(const Convolution& c, const ConvolutionTensors& t, Index first, Index rows, const CopiedRows& a) {
  Gemm g{.m = rows,
         .n = c.filters,
         .k = c.depth(),
         .a = {a.data, t.x.dtype(), a.stride, 1},
         .b = {t.filters.raw(), t.filters.dtype(), 1, c.depth()},
         .c = static_cast<char*>(t.y.raw()) + first * c.outputs() * size_in_bytes(t.y.dtype()),
         .ldc = c.outputs()};
  g.batch[1] = {.count = c.groups, .a = c.depth(), .b = c.filters * c.depth(), .c = c.filters};
  return g;
}

void convolve_chunks(const Convolution& c, const ConvolutionTensors& t, bool accumulate, DType products) {
  // The bias of a batch of products would be the same for all groups, so it is stored first.
  const bool fills = c.groups > 1 && t.bias.defined();
  if (fills) {
    Tensor y = t.y;
    copy_values(y, t.bias.expand(y.shape()));
  }
  each_chunk(c, t.x, std::max(kGatheredRows, chunk_rows(c, t.x.dtype())),
             [&](Index first, Index rows, const CopiedRows& a) {
               Gemm g = product_with(c, t, first, rows, a);
               g.products = products, g.accumulate = accumulate || fills;
               if (!fills) g.bias = t.bias.raw();
               gemm(g);
             });
}

// Each task copies the windows of its rows and multiplies them with the packed filters.
void convolve_packed(const Convolution& c, const ConvolutionTensors& t, bool accumulate, DType products) {
  const PackedMatrix packed({t.filters.raw(), t.filters.dtype(), 1, c.depth()}, c.depth(), c.filters, t.x.dtype(),
                            products);
  const Index stride = row_stride(c, t.x.dtype()), size = size_in_bytes(t.x.dtype());
  count_flops(products == DType::bfloat16 ? products : t.y.dtype(),
              2 * static_cast<double>(c.rows()) * static_cast<double>(c.depth() * c.filters));
  // The bits of a row do not depend on the other rows of its task.
  const Index step = c.rows() >= 8 * kPackedRows * threads() ? kPackedRows : kFewPackedRows;
  ThreadScratch<char> copies(step * stride * size);
  parallel_for_each((c.rows() + step - 1) / step, 1, [&](Index task) {
    const Index first = task * step, rows = std::min(step, c.rows() - first);
    char* copy = copies.mine();
    for (Index i = 0; i < rows; ++i) copy_window(c, t.x, first + i, copy + i * stride * size);
    Gemm g = product_with(c, t, first, rows, {copy, stride});
    g.accumulate = accumulate, g.bias = t.bias.raw();
    packed.multiply_here(g);
  });
}

// to [filters, taps, channels] = from [filters, channels, taps], for all groups. T has the size of the elements.
template <class T>
void order_by_tap(const Convolution& c, const Tensor& from, const Tensor& to) {
  const Index channels = c.channels, taps = c.taps();
  parallel_for_each(c.outputs(), grain_for(c.depth()), [&](Index filter) {
    const T* x = static_cast<const T*>(from.raw()) + filter * c.depth();
    T* y = static_cast<T*>(to.raw()) + filter * c.depth();
    for (Index tap = 0; tap < taps; ++tap)
      for (Index j = 0; j < channels; ++j) y[tap * channels + j] = x[j * taps + tap];
  });
}

// The inverse for gradients: adds to `to` if it accumulates.
template <class T>
void order_by_channel(const Convolution& c, const Tensor& from, const Target& to) {
  const Index channels = c.channels, taps = c.taps();
  parallel_for_each(c.outputs(), grain_for(c.depth()), [&](Index filter) {
    const T* x = from.ptr<T>() + filter * c.depth();
    T* y = to.gradient.ptr<T>() + filter * c.depth();
    for (Index j = 0; j < channels; ++j)
      for (Index tap = 0; tap < taps; ++tap, ++y) *y = x[tap * channels + j] + (to.accumulate ? *y : T(0));
  });
}

}  // namespace

// Turning the windows costs less than turning the filters if there are fewer rows than filters.
bool suits_order_of_weight(const Convolution& c) {
  return c.taps() > 1 && c.rows() <= kGatheredRows && c.rows() <= c.filters;
}

Tensor filters_of(const Convolution& c, const Tensor& weight) {
  const Tensor from = weight.dense();
  if (c.taps() == 1 || c.by_channel) return from.view({c.outputs(), c.depth()});
  const Tensor to = Tensor::empty({c.outputs(), c.depth()}, weight.dtype());
  with_size_of(weight.dtype(), [&]<class T>(T) { order_by_tap<T>(c, from, to); });
  return to;
}

// Reversing the order of all taps reverses it along both axes.
Tensor transposed_filters(const Convolution& c, const Tensor& weight) {
  const Index taps = c.taps();
  const Tensor from = filters_of(c, weight).view({c.groups, c.filters, taps, c.channels});
  const Tensor to = Tensor::empty({c.groups, c.channels, taps, c.filters}, weight.dtype());
  for (Index tap = 0; tap < taps; ++tap) {
    Tensor part = to.select(2, tap);  // [groups, channels, filters]
    copy_values(part, from.select(2, taps - 1 - tap).t());
  }
  return to.view({c.width(), taps * c.filters});
}

Convolution transposed(const Convolution& c) {
  const auto turned = [](const Windows& w) {
    return Windows{.size = w.count,
                   .kernel = w.kernel,
                   .stride = 1,
                   .dilation = w.dilation,
                   .before = w.dilation * (w.kernel - 1) - w.before,
                   .count = w.size};
  };
  return {c.batch, turned(c.h), turned(c.w), c.groups, c.filters, c.channels};
}

void convolve(const Convolution& c, const ConvolutionTensors& t, bool accumulate, DType products) {
  if (c.rows() == 0 || c.outputs() == 0) return;
  if (c.groups > 1 || c.by_channel || c.rows() <= kGatheredRows || reads_rows(c))
    return convolve_chunks(c, t, accumulate, products);
  convolve_packed(c, t, accumulate, products);
}

namespace {

// dfilters [outputs, depth] (+)= the gradient of the filters, in c's order.
void add_filters_gradient(const Convolution& c, const Tensor& x, const Tensor& dy, const Target& dfilters,
                          DType products) {
  const Index size = size_in_bytes(dy.dtype());
  each_chunk(c, x, chunk_rows(c, x.dtype()), [&](Index first, Index rows, const CopiedRows& b) {
    Gemm g{.m = c.filters,
           .n = c.depth(),
           .k = rows,
           .a = {static_cast<const char*>(dy.raw()) + first * c.outputs() * size, dy.dtype(), 1, c.outputs()},
           .b = {b.data, x.dtype(), b.stride, 1},
           .products = products,
           .c = dfilters.gradient.raw(),
           .ldc = c.depth(),
           .accumulate = dfilters.accumulate || first > 0};
    g.batch[1] = {.count = c.groups, .a = c.filters, .b = c.depth(), .c = c.filters * c.depth()};
    gemm(g);
  });
}

}  // namespace

void weight_gradient(const Convolution& c, const Tensor& x, const Tensor& dy, const Target& dweight, DType products) {
  if (dweight.gradient.numel() == 0) return;
  if (c.taps() == 1 || c.by_channel) return add_filters_gradient(c, x, dy, dweight, products);
  const Tensor by_tap = Tensor::empty({c.outputs(), c.depth()}, dweight.gradient.dtype());
  add_filters_gradient(c, x, dy, {by_tap}, products);
  with_float(by_tap.dtype(), [&]<class T>(T) { order_by_channel<T>(c, by_tap, dweight); });
}

namespace {

// dx of some images (+)= the sums of their windows' gradients, `windows` [rows of the images, groups * depth].
template <class T>
void add_windows(const Convolution& c, Index images, const T* windows, T* dx, bool accumulate) {
  const Index width = c.width(), size = c.h.size * c.w.size;
  const Index to_tap = c.by_channel ? 1 : c.channels, to_channel = c.by_channel ? c.taps() : 1;
  parallel_for_each(images * size, grain_for(width * c.taps()), [&](Index i) {
    const Index image = i / size, h = i / c.w.size % c.h.size, w = i % c.w.size;
    T* to = dx + i * width;
    if (!accumulate) std::fill_n(to, width, T(0));
    for (Index tap = 0; tap < c.taps(); ++tap) {
      const Index row = c.h.window(h, tap / c.w.kernel), column = c.w.window(w, tap % c.w.kernel);
      if (row < 0 || column < 0) continue;
      const T* from = windows + ((image * c.h.count + row) * c.w.count + column) * c.groups * c.depth() + tap * to_tap;
      for (Index group = 0; group < c.groups; ++group)
        for (Index j = 0; j < c.channels; ++j) to[group * c.channels + j] += from[group * c.depth() + j * to_channel];
    }
  });
}

// The gradients of the windows of some images, then their sums at each position.
void add_strided(const Convolution& c, const Tensor& dy, const Tensor& filters, const Target& dx, DType products) {
  const Index of_image = c.h.count * c.w.count, stride = c.groups * c.depth(), size = size_in_bytes(dy.dtype());
  const Index step = std::max<Index>(1, kGatheredRows / of_image);  // images at a time
  const Tensor windows = Tensor::empty({std::min(step, c.batch) * of_image, stride}, dx.gradient.dtype());
  for (Index image = 0; image < c.batch; image += step) {
    const Index images = std::min(step, c.batch - image), first = image * of_image * c.outputs();
    Gemm g{.m = images * of_image,
           .n = c.depth(),
           .k = c.filters,
           .a = {static_cast<const char*>(dy.raw()) + first * size, dy.dtype(), c.outputs(), 1},
           .b = {filters.raw(), filters.dtype(), c.depth(), 1},
           .products = products,
           .c = windows.raw(),
           .ldc = stride};
    g.batch[1] = {.count = c.groups, .a = c.filters, .b = c.filters * c.depth(), .c = c.depth()};
    gemm(g);
    with_float(windows.dtype(), [&]<class T>(T) {
      T* to = dx.gradient.ptr<T>() + image * c.h.size * c.w.size * c.width();
      add_windows(c, images, windows.ptr<T>(), to, dx.accumulate);
    });
  }
}

}  // namespace

void input_gradient(const Convolution& c, const Tensor& dy, const Tensor& weight, const Target& dx, DType products) {
  if (c.positions() == 0 || c.width() == 0) return;
  if (c.h.stride > 1 || c.w.stride > 1 || c.by_channel) return add_strided(c, dy, filters_of(c, weight), dx, products);
  convolve(transposed(c), {dy, transposed_filters(c, weight), Tensor(), dx.gradient}, dx.accumulate, products);
}

}  // namespace heed::detail
