// Forward of a head of gated attention. Names as in gated_attention.hpp. Included only by kernels of gated attention.
#pragma once
#include "block.hpp"

namespace heed::kernels::HEED_LEVEL::gated {

template <class T>
struct Forward : Block<T> {
  using Block<T>::p, Block<T>::delta, Block<T>::b, Block<T>::h, Block<T>::first, Block<T>::n, Block<T>::q, Block<T>::k,
      Block<T>::u, Block<T>::a;
  Panel<T> s, w;  // [width, value_width], [c, value_width]

  Forward(const GatedProblem<T>& problem, Pieces<T>& from)
      : Block<T>(problem, false, from),
        s{from.take(state_size(p)), state_row(p)},
        w(take_panel(from, delta ? p.block : 0, p.value_width)) {}

  // U, and W if it is kept.
  void values(T* residual) {
    if (!delta) return this->load(p.v, h, p.value_width, T(1), u);
    this->load(p.v, h, p.value_width, T(1), w);
    solve(n, p.value_width, ForwardSystem<T>{this->kg, s, this->nn, w, u, this->beta, p.width});
    if (residual == nullptr) return;
    T* to = residual + ((b * p.heads + h) * p.length + first) * p.value_width;
    for (long i = 0; i < n; ++i) put_row(to + i * p.value_width, w.row(i), p.value_width, T(1), false);
  }

  // Whether all values that enter the state are finite.
  bool finite() const {
    Batch<T> sum(T(0));
    for (long i = 0; i < n; ++i)
      for (long c = 0; c < u.ld; c += kWidth<T>) {
        const Batch<T> x = load_aligned(u.row(i) + c);
        sum = sum | (x - x);
      }
    return !any(isnan(sum));
  }

  // O = Qg S + A U
  void outputs(const HeadRows<T>& out) {
    const auto before = times(this->qg, s.right(), p.width);
    const auto own = lower_times(a, u, n);
    const RowsTo<T> put{row_of(out, b, h, first), out.row, p.value_width};
    if (finite())
      row_product<T>(n, p.value_width, {before, own}, put);
    else
      linear::values_below_diagonal(n, p.value_width, before, own, put);
  }

  void head(const GatedOutputs<T>& to, long batch, long head) {
    const long end = rows_of_head(p, batch), rows = p.block;
    take_state(p, p.first, batch, head, s);
    for (long at = 0; at < end; at += rows) {
      const long index = at / rows;
      if (to.kept != nullptr && index % p.kept_blocks == 0) {
        T* kept = to.kept + ((batch * p.heads + head) * kept_states(p) + index / p.kept_blocks) * state_size(p);
        memcpy(kept, s.data, static_cast<size_t>(p.width * s.ld) * sizeof(T));
      }
      this->begin(batch, head, at, end - at < rows ? end - at : rows);
      this->load_queries();
      this->pairs();
      values(to.residual);
      outputs(to.out);
      this->add_values(s);
    }
    clear_rows(to.out, batch, head, end, p.length, p.value_width);
    put_state(p, s, to.last, batch, head);
  }
};

}  // namespace heed::kernels::HEED_LEVEL::gated
