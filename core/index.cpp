// Copies and sums along one axis by indices.
#include <algorithm>
#include <cstring>
#include <heed/core/index.hpp>
#include <heed/core/parallel.hpp>

namespace heed::detail {
namespace {

constexpr Index kPart = 256;  // columns per chunk, as rows with equal indices must be in one chunk

// Calls f(place, i) for every element i of the contiguous index, where `place` is the offset, by `strides`, of i with
// i[axis] replaced by index[i]. Elements that differ only along the axis are visited by one chunk, in order, so that no
// other chunk writes to their places.
template <class F>
void each_place(const Tensor& index, int axis, const Strides& strides, F f) {
  const Shape& shape = index.shape();
  if (index.numel() == 0) return;
  const std::int32_t* at = index.ptr<std::int32_t>();
  const Index n = shape[axis], along = strides[axis];
  const Index outer = shape.first(axis).numel(), inner = index.numel() / outer / n;
  const int last = shape.rank() - 1;
  const Index run = axis == last ? 1 : shape.back(), step = axis == last ? 0 : strides.back();
  const Index runs = inner / run, parts = (run + kPart - 1) / kPart;
  const auto offset_of = [&](Index o, Index r) {  // along the axes except `axis` and the last
    Index offset = 0;
    for (int a = last - 1; a > axis; --a) offset += r % shape[a] * strides[a], r /= shape[a];
    for (int a = axis - 1; a >= 0; --a) offset += o % shape[a] * strides[a], o /= shape[a];
    return offset;
  };
  parallel_for_each(outer * runs * parts, grain_for(2 * n * std::min(run, kPart)), [&](Index task) {
    const Index part = task % parts, r = task / parts % runs, o = task / parts / runs;
    const Index base = offset_of(o, r), from = part * kPart, to = std::min(run, from + kPart);
    for (Index k = 0; k < n; ++k) {
      const Index row = (o * n + k) * inner + r * run;
      for (Index j = from; j < to; ++j) f(base + at[row + j] * along + j * step, row + j);
    }
  });
}

// Calls f(a, b, count) for runs of `count` elements: a is the offset in contiguous x at index[j] along the axis. b is
// the offset at j in a tensor whose axis has one element per index.
template <class F>
void each_run(const Tensor& x, int axis, const Tensor& index, F f) {
  const Index outer = x.shape().first(axis).numel(), n = x.shape()[axis],
              inner = x.shape().last(x.rank() - axis - 1).numel();
  const Index k = index.numel(), part = std::max<Index>(kPart, inner / 8), parts = (inner + part - 1) / part;
  if (k == 0 || inner == 0) return;
  const std::int32_t* at = index.ptr<std::int32_t>();
  parallel_for_each(outer * parts, grain_for(2 * k * std::min(inner, part)), [&](Index task) {
    const Index o = task / parts, from = task % parts * part, count = std::min(part, inner - from);
    for (Index j = 0; j < k; ++j) f((o * n + at[j]) * inner + from, (o * k + j) * inner + from, count);
  });
}

}  // namespace

bool can_be_counted(const Shape& shape) {
  Index elements = 1;
  for (Index s : shape)
    if (s != 0 && __builtin_mul_overflow(elements, s, &elements)) return false;
  return elements <= Index{1} << 60;
}

void check_indices(const char* op, const char* name, const Where& where, const Tensor& given, Index limit,
                   Index ignored, Index min) {
  check(given.dtype() == DType::int32, where, op, ": ", name, " is ", given, "; it must be int32");
  const Tensor index = given.dense();
  const std::int32_t* at = index.ptr<std::int32_t>();
  const Index n = index.numel();
  const auto good = [=](std::int32_t i) { return (i >= min && i < limit) || i == ignored; };
  bool all_good = true;
  for (Index i = 0; i < n; ++i) all_good &= good(at[i]);
  if (all_good) return;
  Index bad = std::find_if_not(at, at + n, good) - at, rest = bad;
  Shape place = index.shape();
  for (int a = place.rank() - 1; a >= 0; --a) {
    place[a] = rest % index.shape()[a];
    rest /= index.shape()[a];
  }
  check(false, where, op, ": ", name, place, " is ", at[bad], "; it must be in [", min, ", ", limit, ")",
        ignored == kNoneIgnored ? "" : " or ignore_index, " + std::to_string(ignored));
}

Tensor indices_from_0(const char* op, const Where& where, const Tensor& indices, Index limit) {
  check_indices(op, "index", where, indices, limit, kNoneIgnored, -limit);
  const Tensor index = indices.dense();
  const std::int32_t* at = index.ptr<std::int32_t>();
  if (std::all_of(at, at + index.numel(), [](std::int32_t i) { return i >= 0; })) return index;
  Tensor y = Tensor::empty(index.shape(), DType::int32);
  std::transform(at, at + index.numel(), y.ptr<std::int32_t>(),
                 [limit](std::int32_t i) { return i < 0 ? i + static_cast<std::int32_t>(limit) : i; });
  return y;
}

void gather(const Tensor& x, int axis, const Tensor& index, Tensor& y) {
  visit_dtype(x.dtype(), [&]<class T>(T) {
    const T* from = x.ptr<T>();
    T* to = y.ptr<T>();
    each_place(index, axis, x.strides(), [=](Index place, Index i) { to[i] = from[place]; });
  });
}

void scatter_add(Tensor& y, int axis, const Tensor& index, const Tensor& source) {
  with_float(y.dtype(), [&]<class T>(T) {
    const T* from = source.ptr<T>();
    T* to = y.ptr<T>();
    each_place(index, axis, y.strides(), [=](Index place, Index i) { to[place] += from[i]; });
  });
}

void index_select(const Tensor& x, int axis, const Tensor& index, Tensor& y) {
  const std::size_t size = size_of(x.dtype());
  const char* from = static_cast<const char*>(x.raw());
  char* to = static_cast<char*>(y.raw());
  each_run(x, axis, index, [=](Index a, Index b, Index count) {
    std::memcpy(to + static_cast<std::size_t>(b) * size, from + static_cast<std::size_t>(a) * size,
                static_cast<std::size_t>(count) * size);
  });
}

void index_add(Tensor& y, int axis, const Tensor& index, const Tensor& source) {
  with_float(y.dtype(), [&]<class T>(T) {
    const T* from = source.ptr<T>();
    T* to = y.ptr<T>();
    each_run(y, axis, index, [=](Index a, Index b, Index count) {
      for (Index i = 0; i < count; ++i) to[a + i] += from[b + i];
    });
  });
}

}  // namespace heed::detail
