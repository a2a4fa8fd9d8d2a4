// Convolutions with one channel and one filter per group: the channels are independent, and a row of the result is a
// sum of rows of x, each multiplied element by element. The time is that of reading and writing the rows.
#include <algorithm>
#include <array>
#include <heed/autograd/detail/convolution.hpp>
#include <heed/core/parallel.hpp>
#include <utility>

namespace heed::detail {
namespace {

constexpr Index kDepthwiseColumns = 1024;  // of a row at a time, so that sums stay in the first-level cache
constexpr Index kPartialSums = 64;         // of the gradient of the taps, at most
constexpr Index kSumRows = 32;             // rows per partial sum

// A row and the factors by which its elements are multiplied.
template <class T>
struct Term {
  const T* row;
  const T* factors;
};

// to[j] += the sum of N terms, added in order, for n elements.
template <int N, class T>
void add_terms_at(T* to, const std::array<Term<T>, N>& t, Index first, Index n) {
  for (Index j = first; j < first + n; ++j) {
    T sum = to[j];
    for (const Term<T>& term : t) sum += term.row[j] * term.factors[j];
    to[j] = sum;
  }
}

// The same in blocks of a fixed size, which compilers turn into vector code.
template <int N, class T>
void add_terms(T* to, const Term<T>* terms, Index n) {
  constexpr Index kBlock = 16;
  std::array<Term<T>, N> t;
  std::copy_n(terms, N, t.begin());
  Index j = 0;
  for (; j + kBlock <= n; j += kBlock) {
    std::array<T, kBlock> sum;
    std::copy_n(to + j, kBlock, sum.begin());
    for (const Term<T>& term : t)
      for (Index i = 0; i < kBlock; ++i) sum[static_cast<std::size_t>(i)] += term.row[j + i] * term.factors[j + i];
    std::copy_n(sum.begin(), kBlock, to + j);
  }
  add_terms_at<N>(to, t, j, n - j);
}

// Sums terms of which at most four are collected, so that `to` is read and written once for four terms. The order of
// the sum is that of the calls.
template <class T>
class TermSum {
 public:
  TermSum(T* to, Index n) : to_(to), n_(n) {}
  ~TermSum() { flush(); }
  TermSum(const TermSum&) = delete;
  TermSum& operator=(const TermSum&) = delete;

  void add(const T* row, const T* factors) {
    terms_[static_cast<std::size_t>(count_++)] = {row, factors};
    if (count_ == 4) flush();
  }

 private:
  T* to_;
  Index n_;
  std::array<Term<T>, 4> terms_;
  int count_ = 0;

  void flush() {
    switch (std::exchange(count_, 0)) {
      case 1: return add_terms<1>(to_, terms_.data(), n_);
      case 2: return add_terms<2>(to_, terms_.data(), n_);
      case 3: return add_terms<3>(to_, terms_.data(), n_);
      case 4: return add_terms<4>(to_, terms_.data(), n_);
      default: return;
    }
  }
};

// Calls f(first, n) for parts of the channels.
template <class F>
void each_columns(Index width, const F& f) {
  for (Index first = 0; first < width; first += kDepthwiseColumns) f(first, std::min(kDepthwiseColumns, width - first));
}

// Which rows of x the rows of the result read.
class RowMap {
 public:
  RowMap(const Convolution& c, const Tensor& documents) : c_(c), documents_(documents.ptr<std::int32_t>()) {}

  // The row of x that a tap of the window reads, as an index; -1 if it is padding or of another document.
  Index source(Index row, Index tap) const {
    const Index image = row / (c_.h.count * c_.w.count);
    const Index h = c_.h.position(row / c_.w.count % c_.h.count, tap / c_.w.kernel),
                w = c_.w.position(row % c_.w.count, tap % c_.w.kernel);
    if (!c_.h.has(h) || !c_.w.has(w) || !reads(row, w)) return -1;
    return (image * c_.h.size + h) * c_.w.size + w;
  }
  // The row of the result whose tap reads this row of x; -1 if there is none.
  Index result(Index row, Index tap) const {
    const Index image = row / (c_.h.size * c_.w.size);
    const Index h = c_.h.window(row / c_.w.size % c_.h.size, tap / c_.w.kernel),
                w = c_.w.window(row % c_.w.size, tap % c_.w.kernel);
    if (h < 0 || w < 0) return -1;
    const Index y = (image * c_.h.count + h) * c_.w.count + w;
    return reads(y, row % c_.w.size) ? y : -1;
  }

 private:
  const Convolution& c_;
  const std::int32_t* documents_;

  bool reads(Index row, Index position) const { return documents_ == nullptr || documents_[row] <= position; }
};

// to [rows, C] += the sums over taps of factors[tap] * from[source(row, tap)], in parallel. begin(row) prepares a row.
template <class T, class Begin, class Source>
void sum_taps(const Convolution& c, Index rows, T* to, const T* from, const T* factors, const Begin& begin,
              const Source& source) {
  const Index width = c.groups;
  parallel_for_each(rows, grain_for(width * (c.taps() + 1)), [&](Index row) {
    begin(row);
    each_columns(width, [&](Index first, Index n) {
      TermSum<T> sum(to + row * width + first, n);
      for (Index tap = 0; tap < c.taps(); ++tap)
        if (const Index r = source(row, tap); r >= 0) sum.add(from + r * width + first, factors + tap * width + first);
    });
  });
}

}  // namespace

void depthwise(const Convolution& c, const Tensor& x, const Tensor& taps, const Tensor& bias, const Tensor& documents,
               const Tensor& y) {
  const RowMap map(c, documents);
  with_float(y.dtype(), [&]<class T>(T) {
    const T* b = bias.ptr<T>();
    const auto begin = [&](Index row) {
      T* to = y.ptr<T>() + row * c.groups;
      b != nullptr ? void(std::copy_n(b, c.groups, to)) : void(std::fill_n(to, c.groups, T(0)));
    };
    sum_taps(c, c.rows(), y.ptr<T>(), x.ptr<T>(), taps.ptr<T>(), begin,
             [&](Index row, Index tap) { return map.source(row, tap); });
  });
}

void depthwise_input_gradient(const Convolution& c, const Tensor& dy, const Tensor& taps, const Tensor& documents,
                              const Target& dx) {
  const RowMap map(c, documents);
  with_float(dy.dtype(), [&]<class T>(T) {
    T* to = dx.gradient.ptr<T>();
    const auto begin = [&](Index row) {
      if (!dx.accumulate) std::fill_n(to + row * c.groups, c.groups, T(0));
    };
    sum_taps(c, c.positions(), to, dy.ptr<T>(), taps.ptr<T>(), begin,
             [&](Index row, Index tap) { return map.result(row, tap); });
  });
}

// Blocks of rows, whose number depends on the shape alone, have partial sums that are added in order.
void depthwise_taps_gradient(const Convolution& c, const Tensor& x, const Tensor& dy, const Tensor& documents,
                             const Tensor& dtaps) {
  const RowMap map(c, documents);
  const Index width = c.groups, n = c.taps() * width;
  const Index block = std::max(kSumRows, (c.rows() + kPartialSums - 1) / kPartialSums);
  const Index blocks = std::max<Index>(1, (c.rows() + block - 1) / block);
  with_float(dy.dtype(), [&]<class T>(T) {
    Scratch<T> sums(static_cast<std::size_t>(blocks * n));
    parallel_for_each(blocks, 1, [&](Index b) {
      T* to = sums.data() + b * n;
      std::fill_n(to, n, T(0));
      const Index end = std::min(c.rows(), (b + 1) * block);
      each_columns(width, [&](Index first, Index count) {
        for (Index row = b * block; row < end; ++row)
          for (Index tap = 0; tap < c.taps(); ++tap) {
            const Index r = map.source(row, tap);
            if (r < 0) continue;
            const Term<T> term{x.ptr<T>() + r * width + first, dy.ptr<T>() + row * width + first};
            add_terms<1>(to + tap * width + first, &term, count);
          }
      });
    });
    T* total = dtaps.ptr<T>();
    std::copy_n(sums.data(), n, total);
    for (Index b = 1; b < blocks; ++b)
      for (Index j = 0; j < n; ++j) total[j] += sums.data()[b * n + j];
  });
}

}  // namespace heed::detail
