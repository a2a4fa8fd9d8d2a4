// Backward of attention with the weights (q . k)^2. Names are as in autograd/poly2_attention.cpp, its only user.
#pragma once
#include <heed/autograd/detail/poly2_chunks.hpp>

namespace heed::detail::poly2 {

template <class T>
struct Gradients {
  HeadRows<const T> out, dout;
  HeadRows<T> dq, dk, dv;  // null data: not needed
  bool add_dq, add_dk, add_dv;
  const double* norms;

  bool of_keys() const { return dk.data != nullptr || dv.data != nullptr; }
};

// Rows of a head (+)= x [rows, width].
template <class T, class X>
void put_rows(const HeadRows<T>& to, bool add, Index b, Index h, Range rows, Index width, const X* x) {
  for (Index i = 0; i < rows.count; ++i, x += width) {
    T* row = row_of(to, b, h, rows.first + i);
    for (Index j = 0; j < width; ++j) row[j] = (add ? row[j] : T(0)) + static_cast<T>(x[j]);
  }
}

// H = G / d of some queries, in float64 and in T, and u = -rowsum(H * O). Both are 0 for a query without a key.
template <class T>
struct OutputRows {
  Index columns;
  Scratch<double> h;
  Scratch<T> narrow;
  double u[kRows] = {};

  explicit OutputRows(Index value_width)
      : columns(value_width),
        h(static_cast<std::size_t>(kRows * value_width)),
        narrow(static_cast<std::size_t>(kRows * value_width)) {}

  void load(const Problem<T>& p, const Gradients<T>& d, Index b, Index head, Index first, Index n) {
    for (Index r = 0; r < n; ++r) {
      const double norm = d.norms[(b * p.plan.heads + head) * p.plan.queries + first + r];
      const double inverse = norm == p.eps ? 0 : 1 / norm;
      const T *g = row_of(d.dout, b, head, first + r), *o = row_of(d.out, b, head, first + r);
      double* to = h.data() + r * columns;
      u[r] = 0;
      for (Index c = 0; c < columns; ++c) {
        to[c] = static_cast<double>(g[c]) * inverse;
        narrow.data()[r * columns + c] = static_cast<T>(to[c]);
        u[r] -= to[c] * static_cast<double>(o[c]);
      }
    }
  }
};

// For a chunk of queries of a group: computes dq, the share of dk and dv of their own keys, and, if there are earlier
// keys, P and r of these queries into `later`.
template <class T>
class QueriesBackward {
 public:
  QueriesBackward(const Problem<T>& p, const Gradients<T>& d, Index b, Index g, Index c, const double* state,
                  double* later)
      : p_(p),
        s_(p.plan),
        d_(d),
        b_(b),
        g_(g),
        rows_(s_.queries_of(c)),
        keys_(s_.causal ? s_.keys_of(s_.prefix_chunks + c) : Range{0, 0}),
        earlier_(s_.has_earlier(c)),
        z_(state + s_.features * s_.value_width),
        later_(earlier_ ? later : nullptr),
        x_(s_, true),
        out_(s_.value_width),
        own_(p, b, g, keys_, true),
        dq_(static_cast<std::size_t>(kRows * s_.width)),
        dk_(static_cast<std::size_t>(keys_.count * s_.width)),
        dv_(static_cast<std::size_t>(keys_.count * s_.value_width)) {
    if (earlier_) sums_ = PackedMatrix(by_column(state, s_.value_width), s_.value_width, s_.features, DType::float64);
  }

  void run() {
    if (later_ != nullptr) std::fill_n(later_, s_.state_size(), 0.0);
    std::fill_n(dk_.data(), keys_.count * s_.width, T(0));
    std::fill_n(dv_.data(), keys_.count * s_.value_width, T(0));
    for (Index h = g_ * s_.shared(); h < (g_ + 1) * s_.shared(); ++h)
      for (Index i = 0; i < rows_.count; i += kRows) {
        const Index n = std::min(kRows, rows_.count - i), first = rows_.first + i;
        out_.load(p_, d_, b_, h, first, n);
        std::fill_n(dq_.data(), n * s_.width, T(0));
        std::fill_n(x_.dx.data(), n * s_.width, 0.0);
        if (earlier_) of_earlier_keys(h, first, n);
        if (s_.causal) of_own_keys(h, first, n, i);
        if (d_.dq.data == nullptr) continue;
        for (Index j = 0; j < n * s_.width; ++j) x_.dx.data()[j] += static_cast<double>(dq_.data()[j]);
        put_rows(d_.dq, d_.add_dq, b_, h, {first, n}, s_.width, x_.dx.data());
      }
    if (d_.dk.data != nullptr) put_rows(d_.dk, d_.add_dk, b_, g_, keys_, s_.width, dk_.data());
    if (d_.dv.data != nullptr) put_rows(d_.dv, d_.add_dv, b_, g_, keys_, s_.value_width, dv_.data());
  }

 private:
  const Problem<T>& p_;
  const Plan& s_;
  const Gradients<T>& d_;
  Index b_, g_;
  Range rows_, keys_;
  bool earlier_;
  const double* z_;
  double* later_;
  Features x_;
  OutputRows<T> out_;
  Triangle<T> own_;
  Scratch<T> dq_, dk_, dv_;  // of the own keys: [kRows, width], [keys, width], [keys, value_width]
  PackedMatrix sums_;        // S^T

  // dx = f'(q)(H S^T + u z^T); P += f(q)^T H, r += f(q)^T u.
  void of_earlier_keys(Index h, Index first, Index n) {
    const Index columns = s_.value_width, features = s_.features;
    x_.load(p_.q, b_, h, first, n);
    if (d_.dq.data != nullptr) {
      sums_.multiply_here({.m = n, .a = by_row(out_.h.data(), columns), .c = x_.df.data(), .ldc = features});
      x_.back(n, out_.u, z_);
    }
    if (later_ == nullptr) return;
    product({features, columns, n}, by_column(x_.f.data(), features), by_row(out_.h.data(), columns), later_, columns,
            true);
    product({1, features, n}, by_row(out_.u, n), by_row(x_.f.data(), features), later_ + features * columns, features,
            true);
  }

  // dq = W K, dk += W^T q, dv += A^T H.
  void of_own_keys(Index h, Index first, Index n, Index i) {
    const Index columns = s_.value_width, ld = own_.ld;
    const T *h_rows = out_.narrow.data(), *q = row_of(p_.q, b_, h, first);
    T *s = own_.s.data(), *w = own_.w.data();
    own_.score(h, first, n, i);
    const Index seen = own_.seen;
    product({n, seen, columns}, by_row(h_rows, columns), by_column(own_.values_row(), p_.v.row), w, ld);
    for (Index r = 0; r < n; ++r) {
      const T u = static_cast<T>(out_.u[r]);
      for (Index j = 0; j <= i + r; ++j) w[r * ld + j] = 2 * s[r * ld + j] * (w[r * ld + j] + u);
      std::fill(w + r * ld + i + r + 1, w + r * ld + seen, T(0));
    }
    if (d_.dq.data != nullptr) product({n, s_.width, seen}, by_row(w, ld), own_.keys(), dq_.data(), s_.width);
    if (d_.dk.data != nullptr)
      product({seen, s_.width, n}, by_column(w, ld), by_row(q, p_.q.row), dk_.data(), s_.width, true);
    own_.square(n, i, nullptr);
    if (d_.dv.data != nullptr)
      product({seen, columns, n}, by_column(s, ld), by_row(h_rows, columns), dv_.data(), columns, true);
  }
};

// dk and dv of a chunk of keys from later queries, added to existing values if `add`. later: P and r, or null.
template <class T>
void keys_backward(const Problem<T>& p, const Gradients<T>& d, Index b, Index g, Range keys, bool add,
                   const double* later) {
  const Plan& s = p.plan;
  const Index columns = s.value_width, features = s.features;
  if (later == nullptr && add) return;
  Features x(s, true);
  Scratch<double> values(static_cast<std::size_t>(kRows * columns));
  PackedMatrix across, back;
  if (later != nullptr && d.dk.data != nullptr)
    back = PackedMatrix(by_column(later, columns), columns, features, DType::float64);
  if (later != nullptr && d.dv.data != nullptr)
    across = PackedMatrix(by_row(later, columns), features, columns, DType::float64);
  for (Index i = 0; i < keys.count; i += kRows) {
    const Index n = std::min(kRows, keys.count - i), first = keys.first + i;
    std::fill_n(x.dx.data(), n * s.width, 0.0);
    std::fill_n(values.data(), n * columns, 0.0);
    if (later != nullptr) x.load(p.k, b, g, first, n);
    if (back) {
      widen(p.v, b, g, first, n, columns, values.data());
      back.multiply_here({.m = n, .a = by_row(values.data(), columns), .c = x.df.data(), .ldc = features});
      x.back(n, nullptr, later + features * columns);
    }
    if (across) across.multiply_here({.m = n, .a = by_row(x.f.data(), features), .c = values.data(), .ldc = columns});
    if (d.dk.data != nullptr) put_rows(d.dk, add || d.add_dk, b, g, {first, n}, s.width, x.dx.data());
    if (d.dv.data != nullptr) put_rows(d.dv, add || d.add_dv, b, g, {first, n}, columns, values.data());
  }
}

template <class T>
void backward(const Problem<T>& p, const Gradients<T>& d, const Tensor& states) {
  const Plan& s = p.plan;
  const Index groups = s.batch * s.groups, size = s.state_size(), chunks = s.query_chunks, kept = states.dim(1);
  if (d.dq.data != nullptr && !d.add_dq) clear_keyless(s, d.dq, s.width);
  const Tensor later = Tensor::empty({groups, d.of_keys() ? chunks : 0, size}, DType::float64);
  double* const sums = later.numel() > 0 ? later.ptr<double>() : nullptr;
  each_chunk(s, chunks, flops_of(s, s.chunk * s.shared(), 2), [&](Index b, Index g, Index c) {
    const Index group = b * s.groups + g;
    QueriesBackward<T>(p, d, b, g, c, states.ptr<double>() + (group * kept + s.state_of_queries(c)) * size,
                       sums == nullptr ? nullptr : sums + (group * chunks + c) * size)
        .run();
  });
  if (!d.of_keys()) return;
  if (sums != nullptr) scan(sums, groups, chunks, size, true);
  const Index own = s.causal ? chunks : 0;
  each_chunk(s, s.prefix_chunks + own, flops_of(s, s.prefix_chunk, 2), [&](Index b, Index g, Index i) {
    const Index from = std::max<Index>(i - s.prefix_chunks + 1, 0);  // the first chunk of later queries
    keys_backward(p, d, b, g, s.keys_of(i), i >= s.prefix_chunks,
                  from < chunks ? sums + ((b * s.groups + g) * chunks + from) * size : nullptr);
  });
}

}  // namespace heed::detail::poly2
