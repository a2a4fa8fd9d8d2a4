// Convolutions with one channel and one filter per group: the channels are independent, and a row of the result is a
// sum of rows of x, each multiplied element by element. The time is that of reading and writing the rows.
#include <algorithm>
#include <array>
#include <heed/autograd/detail/convolution.hpp>
#include <heed/core/kernels/depthwise.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/parallel.hpp>

namespace heed::detail {
namespace {

constexpr Index kTapColumns = 1024;  // columns of the gradient of the taps at a time, whose rows stay in the cache
constexpr Index kPartialSums = 64;   // of the gradient of the taps, at most
constexpr Index kSumRows = 32;       // rows per partial sum

// to[j] = start[j] + the sum of a[j] * b[j] over the terms that are added, in their order, for n elements. start may be
// `to`, or null for zeros.
template <class T>
class TermSum {
 public:
  TermSum(T* to, const T* start, Index n) : sum_{to, start, terms_.data(), 0, n} {}
  TermSum(const TermSum&) = delete;
  TermSum& operator=(const TermSum&) = delete;

  void add(const T* a, const T* b) {
    if (sum_.count == kTerms) compute();
    terms_[static_cast<std::size_t>(sum_.count++)] = {a, b};
  }
  void compute() {  // after the last term
    kernels::of<T>(kernels::depthwise_table())(sum_);
    sum_.start = sum_.to, sum_.count = 0;
  }

 private:
  static constexpr Index kTerms = 64;  // per call of the kernel
  std::array<kernels::DepthwiseTerm<T>, kTerms> terms_;
  kernels::DepthwiseSum<T> sum_;
};

// Whether a row of the result reads a position of x: not one of an earlier document.
bool reads(const Tensor& documents, Index row, Index position) {
  return !documents.defined() || documents.ptr<std::int32_t>()[row] <= position;
}

enum class Side { result, source };  // of a tap, which reads a row of x for a row of the result

// Calls f(tap, r) for each tap of a row on this side, where r is the row on the other side, or -1 for none: of a row of
// the result, the rows of x that its window reads, without padding and other documents; of a row of x, the rows of the
// result that read it.
template <Side kSide, class F>
void each_row(const Convolution& c, const Tensor& documents, Index row, const F& f) {
  constexpr bool kOfResult = kSide == Side::result;
  const auto size = [](const auto& axis) { return kOfResult ? axis.count : axis.size; };
  const auto other_size = [](const auto& axis) { return kOfResult ? axis.size : axis.count; };
  const auto other = [](const auto& axis, Index at, Index tap) {
    if (!kOfResult) return axis.window(at, tap);
    const Index position = axis.position(at, tap);
    return axis.has(position) ? position : -1;
  };
  const Index w0 = row % size(c.w), h0 = row / size(c.w) % size(c.h), image = row / (size(c.w) * size(c.h));
  for (Index i = 0, tap = 0; i < c.h.kernel; ++i) {
    const Index h = other(c.h, h0, i);
    for (Index j = 0; j < c.w.kernel; ++j, ++tap) {
      const Index w = other(c.w, w0, j);
      const Index r = h >= 0 && w >= 0 ? (image * other_size(c.h) + h) * other_size(c.w) + w : -1;
      const bool is_read = r >= 0 && (kOfResult ? reads(documents, row, w) : reads(documents, r, w0));
      f(tap, is_read ? r : -1);
    }
  }
}

// to [rows, C] = start + the sums over taps of factors[tap] * from[r], in parallel, with the rows r that
// each_row(row, f) gives. start(row) is the row to add to, or null.
template <class T, class Start, class EachRow>
void sum_taps(const Convolution& c, Index rows, T* to, const T* from, const T* factors, const Start& start,
              const EachRow& each_row) {
  const Index width = c.groups;
  parallel_for_each(rows, grain_for(width * (c.taps() + 1)), [&](Index row) {
    TermSum<T> sum(to + row * width, start(row), width);
    each_row(row, [&](Index tap, Index r) {
      if (r >= 0) sum.add(from + r * width, factors + tap * width);
    });
    sum.compute();
  });
}

}  // namespace

void depthwise(const Convolution& c, const Tensor& x, const Tensor& taps, const Tensor& bias, const Tensor& documents,
               const Tensor& y) {
  with_float(y.dtype(), [&]<class T>(T) {
    const auto start = [b = bias.ptr<T>()](Index) { return b; };
    const auto rows = [&](Index row, const auto& f) { each_row<Side::result>(c, documents, row, f); };
    sum_taps(c, c.rows(), y.ptr<T>(), x.ptr<T>(), taps.ptr<T>(), start, rows);
  });
}

void depthwise_input_gradient(const Convolution& c, const Tensor& dy, const Tensor& taps, const Tensor& documents,
                              const Target& dx) {
  with_float(dy.dtype(), [&]<class T>(T) {
    T* to = dx.gradient.ptr<T>();
    const auto start = [&](Index row) -> const T* { return dx.accumulate ? to + row * c.groups : nullptr; };
    const auto rows = [&](Index row, const auto& f) { each_row<Side::source>(c, documents, row, f); };
    sum_taps(c, c.positions(), to, dy.ptr<T>(), taps.ptr<T>(), start, rows);
  });
}

// Blocks of rows, whose number depends on the shape alone, have partial sums that are added in order.
void depthwise_taps_gradient(const Convolution& c, const Tensor& x, const Tensor& dy, const Tensor& documents,
                             const Tensor& dtaps) {
  const Index width = c.groups, taps = c.taps(), n = taps * width;
  const Index block = std::max(kSumRows, (c.rows() + kPartialSums - 1) / kPartialSums);
  const Index blocks = std::max<Index>(1, (c.rows() + block - 1) / block);
  with_float(dy.dtype(), [&]<class T>(T) {
    Scratch<T> sums(static_cast<std::size_t>(blocks * n));
    parallel_for_each(blocks, 1, [&](Index b) {
      const Index begin = b * block, rows = std::min(c.rows(), begin + block) - begin;
      Scratch<Index> read(static_cast<std::size_t>(rows * taps));  // [taps, rows]: the row of x, or -1
      for (Index i = 0; i < rows; ++i)
        each_row<Side::result>(c, documents, begin + i, [&](Index tap, Index r) { read.data()[tap * rows + i] = r; });
      for (Index first = 0; first < width; first += kTapColumns)
        for (Index tap = 0; tap < taps; ++tap) {
          TermSum<T> sum(sums.data() + b * n + tap * width + first, nullptr, std::min(kTapColumns, width - first));
          for (Index i = 0; i < rows; ++i)
            if (const Index r = read.data()[tap * rows + i]; r >= 0)
              sum.add(x.ptr<T>() + r * width + first, dy.ptr<T>() + (begin + i) * width + first);
          sum.compute();
        }
    });
    T* total = dtaps.ptr<T>();
    std::copy_n(sums.data(), n, total);
    for (Index b = 1; b < blocks; ++b)
      for (Index j = 0; j < n; ++j) total[j] += sums.data()[b * n + j];
  });
}

}  // namespace heed::detail
