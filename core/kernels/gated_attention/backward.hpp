// Backward of a head of gated attention. Names as in gated_attention.hpp. Included only by kernels of gated attention.
#pragma once
#include "block.hpp"

namespace heed::kernels::HEED_LEVEL::gated {

template <class T>
struct Backward : Block<T> {
  using Block<T>::p, Block<T>::delta, Block<T>::gates, Block<T>::channels, Block<T>::b, Block<T>::h, Block<T>::first,
      Block<T>::n, Block<T>::q, Block<T>::k, Block<T>::u, Block<T>::qg, Block<T>::kg, Block<T>::kd, Block<T>::a,
      Block<T>::nn, Block<T>::beta;
  const GatedGradients<T>& d;
  Panel<T> ds;                 // [width, value_width]
  T* states;                   // S before each block between two kept states
  Panel<T> w, dout, du, y;     // [c, value_width]; y is -dW
  Panel<T> dqg, dkg, dkd;      // [c, width]
  Panel<T> later;              // a gate per channel: [c, width], gradients of keys by later rows of the block
  Panel<T> da, dn;             // [c, c]
  Panel<T> across;             // [width, c]
  T *ut, *xt;                  // U^T, and dO^T or Y^T
  T *sums, *columns, *buffer;  // [c]
  T* df;                       // dF: [width]

  Backward(const GatedProblem<T>& problem, const GatedGradients<T>& gradients, Pieces<T>& from)
      : Block<T>(problem, true, from),
        d(gradients),
        ds{from.take(state_size(p)), state_row(p)},
        states(from.take((p.kept_blocks - 1) * state_size(p))),
        w(take_panel(from, delta ? p.block : 0, p.value_width)),
        dout(take_panel(from, p.block, p.value_width)),
        du(take_panel(from, delta ? p.block : 0, p.value_width)),
        y(take_panel(from, delta ? p.block : 0, p.value_width)),
        dqg(take_panel(from, p.block, p.width)),
        dkg(take_panel(from, p.block, p.width)),
        dkd(take_panel(from, p.block, p.width)),
        later(take_panel(from, channels ? p.block : 0, p.width)),
        da(take_panel(from, p.block, p.block)),
        dn(take_panel(from, delta ? p.block : 0, p.block)),
        across(take_panel(from, p.width, p.block)),
        ut(from.take(linear::whole_panels<T>(p.block) * p.value_width)),
        xt(from.take(linear::whole_panels<T>(p.block) * p.value_width)),
        sums(from.take(p.block)),
        columns(from.take(p.block)),
        buffer(from.take(p.block)),
        df(from.take(whole_vectors<T>(p.width))) {}

  // ---- Values ----

  // dV, db, and dU and Y with the delta rule.
  void value_gradients() {
    if (!delta) {
      if (d.dv.data == nullptr) return;
      return row_product<T>(n, p.value_width, {times(kd, ds.right(), p.width), {}, {upper_times(a, dout, n)}},
                            {row_of(d.dv, b, h, first), d.dv.row, p.value_width, d.add_dv});
    }
    solve_back(n, p.value_width, BackwardSystem<T>{a, dout, kd, ds, nn, du, y, beta, p.width});
    for (long i = 0; i < n; ++i) {
      if (d.dv.data != nullptr) put_row(row_of(d.dv, b, h, first + i), y.row(i), p.value_width, T(-1), d.add_dv);
      if (d.dbeta.data != nullptr) row_of(d.dbeta, b, h, first + i)[0] = lane_dot(du.row(i), w.row(i), p.value_width);
    }
  }

  // ---- States ----

  // to [n, width] = x^T^T s^T for xt = x^T [value_width, n]. The small factors are transposed, not the state.
  void times_state(const Panel<T>& s, const Right<T>& right, const Panel<T>& to) const {
    row_product<T>(p.width, n, {{s.data, s.ld, right, p.value_width}}, {across.data, across.ld, across.ld});
    transpose<T>(across.data, across.ld, p.width, n, to.ld,
                 [to](long i, long c, Batch<T> x, int) { store_aligned(to.row(i) + c, x); });
  }

  // dF, from dS after the block and S before it.
  void factor_gradients(const Panel<T>& s) {
    if (d.dgate.data == nullptr) return;
    T all = 0;
    for (long r = 0; r < p.width; ++r) {
      df[r] = lane_dot(ds.row(r), s.row(r), p.value_width);
      all += df[r];
    }
    if (!channels) df[0] = all;
  }

  // dS of the state before the block: F * dS + Qg^T dO + Kg^T Y
  void state_gradients() {
    const Term<T, Order::by_column> queries{qg.data, qg.ld, dout.right(), n};
    Term<T, Order::by_column> keys{};
    if (delta) keys = {kg.data, kg.ld, y.right(), n};
    state_product<T>(p.width, p.value_width, queries, keys, this->decayed(ds));
  }

  // ---- Queries, keys and gates ----

  auto put_queries() const {
    return linear::rows_to(d.dq, d.add_dq || is_shared(), b, gradient_head(), first, p.width, nullptr);
  }
  auto put_keys() const {
    return linear::rows_to(d.dk, d.add_dk || is_shared(), b, gradient_head(), first, p.width, nullptr);
  }
  long gradient_head() const { return h / (p.heads / d.key_heads); }
  // Whether an earlier head has written to the same gradients of queries and keys.
  bool is_shared() const { return h % (p.heads / d.key_heads) != 0; }
  // Whether row i has a gate of 0, which passes no gradient on.
  bool is_reset(long i, long c) const {
    return this->resets[i] || !(row_of(p.gate, b, h, first + i)[c] > kResetLog<T>);
  }

  // Rows and columns of P, without the diagonal.
  void pair_sums() {
    clear(columns, p.block);
    for (long i = 0; i < n; ++i) {
      for (long j = 0; j < i; j += kWidth<T>) {
        Batch<T> x = load_aligned(da.row(i) + j) * load_aligned(a.row(i) + j);
        if (delta) x = fma(load_aligned(dn.row(i) + j), load_aligned(nn.row(i) + j), x);
        x = select(first_lanes<T>(lanes_of<T>(i - j)), x, Batch<T>(T(0)));
        store_aligned(buffer + j, x);
        store_aligned(columns + j, load_aligned(columns + j) + x);
      }
      sums[i] = lane_sum<T>(
          i, [this](int64_t j, auto at) __attribute__((always_inline)) { return at.load(buffer + j); });
    }
  }

  // The gradients of the logarithms of gates, one per row.
  void put_gates() {
    pair_sums();
    double after = 0, before = static_cast<double>(this->f[0]) * static_cast<double>(df[0]);
    for (long i = n - 1; i >= 0; --i) {
      after += static_cast<double>(sums[i]) - static_cast<double>(columns[i]) +
               static_cast<double>(lane_dot(qg.row(i), dqg.row(i), p.width));
      if (delta) after += static_cast<double>(lane_dot(kg.row(i), dkg.row(i), p.width));
      sums[i] = static_cast<T>(after);
    }
    for (long i = 0; i < n; ++i) {
      row_of(d.dgate, b, h, first + i)[0] = is_reset(i, 0) ? T(0) : sums[i] + static_cast<T>(before);
      before += static_cast<double>(lane_dot(kd.row(i), dkd.row(i), p.width));
    }
  }

  void multiply_decays(const Panel<T>& x) const {
    for (long i = 0; i < n; ++i)
      for (long j = 0; j <= i; j += kWidth<T>)
        store_aligned(x.row(i) + j, load_aligned(x.row(i) + j) * load_aligned(this->decays.row(i) + j));
  }

  // With one gate per row: dQ = p * dQg + (dA * D) K, and
  // dK = p * dKg + r * dKd + (dA * D)^T Q + (dN * D) K + (dN * D)^T K.
  void put_rows() {
    if (d.dgate.data != nullptr) put_gates();
    if (gates) multiply_decays(da);
    if (gates && delta) multiply_decays(dn);
    const T *before = gates ? this->rise : nullptr, *after = gates ? this->fall : nullptr;
    const Panel<T> none{};
    const bool add_dq = d.add_dq || is_shared(), add_dk = d.add_dk || is_shared();
    if (d.dq.data != nullptr)
      row_product<T>(n, p.width, {{}, lower_times(da, k, n)},
                     {row_of(d.dq, b, gradient_head(), first), d.dq.row, p.width, add_dq, p.scale, dqg, none, before});
    if (d.dk.data == nullptr) return;
    RowTerms<T> terms{{}, {}, {upper_times(da, q, n)}};
    if (delta) terms.lower = lower_times(dn, k, n), terms.upper[1] = upper_times(dn, k, n);
    row_product<T>(n, p.width, terms,
                   {row_of(d.dk, b, gradient_head(), first), d.dk.row, p.width, add_dk, T(1), dkd, delta ? dkg : none,
                    after, before});
  }

  // ---- A gate per channel ----

  // One vector of channels of all pairs below the diagonal: adds to dqg and dkg (the gradients of rows i by j) and sets
  // `later` (those of rows j by i).
  template <bool kDelta>
  void channel_gradients(long c) const {
    for (long j = 0; j < n; ++j) {
      const Batch<T> key = load_aligned(k.row(j) + c);
      Batch<T> product(T(1)), sum(T(0));
      for (long i = j + 1; i < n; ++i) {
        product = product * load_aligned(this->gate.row(i) + c);
        const Batch<T> decayed = key * product, by(da.row(i)[j]);
        Batch<T> x = by * load_aligned(q.row(i) + c);
        store_aligned(dqg.row(i) + c, fma(by, decayed, load_aligned(dqg.row(i) + c)));
        if constexpr (kDelta) {
          const Batch<T> of_key(dn.row(i)[j]);
          x = fma(of_key, load_aligned(k.row(i) + c), x);
          store_aligned(dkg.row(i) + c, fma(of_key, decayed, load_aligned(dkg.row(i) + c)));
        }
        sum = fma(x, product, sum);
      }
      store_aligned(later.row(j) + c, sum);
    }
  }

  // The gradients of the logarithms of gates, for one vector of channels. qg is scratch here.
  void put_channel_gates(long c) const {
    Batch<T> after(T(0)), before = load_aligned(this->f + c) * load_aligned(df + c);
    for (long i = n - 1; i >= 0; --i) {
      const Batch<T> key = load_aligned(k.row(i) + c);
      Batch<T> x = key * load_aligned(later.row(i) + c);
      if (delta) x = x - key * load_aligned(dkg.row(i) + c);
      after = after + (load_aligned(q.row(i) + c) * load_aligned(dqg.row(i) + c) - x);
      store_aligned(qg.row(i) + c, after);
    }
    const auto put = linear::rows_to(d.dgate, false, b, h, first, p.width, nullptr);
    for (long i = 0; i < n; ++i) {
      const Batch<T> x = load_aligned(qg.row(i) + c) + before;
      const Batch<T> log = get_lanes(row_of(p.gate, b, h, first + i) + c, p.width - c);
      const Batch<T> zero(T(0));
      put(i, c, this->resets[i] ? zero : select(log > Batch<T>(kResetLog<T>), x, zero));
      before = fma(load_aligned(k.row(i) + c), load_aligned(dkd.row(i) + c), before);
    }
  }

  // With a gate per channel. dqg and dkg become all of dQ and dK by earlier rows, and dkd the part by later blocks.
  void put_channel_rows() {
    this->multiply(dqg, this->rises, dqg);
    this->multiply(dkd, this->falls, dkd);
    if (delta) this->multiply(dkg, this->rises, dkg);
    for (long c = 0; c < k.ld; c += kWidth<T>) {
      if (delta)
        channel_gradients<true>(c);
      else
        channel_gradients<false>(c);
      if (d.dgate.data != nullptr) put_channel_gates(c);
    }
    const auto queries = put_queries(), keys = put_keys();
    for (long i = 0; i < n; ++i) {
      const Batch<T> own(da.row(i)[i]);
      for (long c = 0; c < k.ld; c += kWidth<T>) {
        const Batch<T> x = fma(own, load_aligned(k.row(i) + c), load_aligned(dqg.row(i) + c));
        Batch<T> z = load_aligned(later.row(i) + c) + load_aligned(dkd.row(i) + c);
        if (delta) z = z + load_aligned(dkg.row(i) + c);
        if (d.dq.data != nullptr) queries(i, c, Batch<T>(p.scale) * x);
        if (d.dk.data != nullptr) keys(i, c, fma(own, load_aligned(q.row(i) + c), z));
      }
    }
  }

  // ---- Blocks ----

  // The block that begin() selected, whose values are loaded. s: the state before it.
  void block(const Panel<T>& s) {
    this->load_queries();
    this->pairs();
    this->load(d.dout, h, p.value_width, T(1), dout);
    value_gradients();
    const Right<T> right = transposed(u.data, u.ld, n, p.value_width, ut);
    times_state(ds, right, dkd);
    times_state(s, transposed(dout.data, dout.ld, n, p.value_width, xt), dqg);
    if (delta) times_state(s, transposed(y.data, y.ld, n, p.value_width, xt), dkg);
    this->lower(dout, right, p.value_width, false, false, da);
    if (delta) this->lower(y, right, p.value_width, true, false, dn);
    factor_gradients(s);
    state_gradients();
    if (channels)
      put_channel_rows();
    else
      put_rows();
  }

  void head(long batch, long head) {
    const long end = rows_of_head(p, batch), rows = p.block, each = rows * p.kept_blocks, size = state_size(p);
    const auto begin = [&](long at) {
      this->begin(batch, head, at, end - at < rows ? end - at : rows);
      this->load_values(d.residual, w);
    };
    take_state(p, d.dlast, batch, head, ds);
    for (long from = (end - 1) / each * each; from >= 0 && end > 0; from -= each) {
      const long last = (end < from + each ? end - from - 1 : each - 1) / rows;  // index of the last block
      const T* kept = d.kept + ((batch * p.heads + head) * kept_states(p) + from / each) * size;
      // The memory of kept states is only read.
      const auto state = [&](long i) {
        return Panel<T>{i == 0 ? const_cast<T*>(kept) : states + (i - 1) * size, ds.ld};
      };
      for (long i = 0; i < last; ++i) {
        begin(from + i * rows);
        memcpy(state(i + 1).data, state(i).data, static_cast<size_t>(p.width * ds.ld) * sizeof(T));
        this->add_values(state(i + 1));
      }
      for (long i = last; i >= 0; --i) {
        begin(from + i * rows);
        block(state(i));
      }
    }
    put_state(p, ds, d.dfirst, batch, head);
    clear_padding(batch, head, end);
  }

  void clear_padding(long batch, long head, long end) const {
    const long of_key = head / (p.heads / d.key_heads);
    const bool shared = head % (p.heads / d.key_heads) != 0;
    if (!d.add_dq && !shared) clear_rows(d.dq, batch, of_key, end, p.length, p.width);
    if (!d.add_dk && !shared) clear_rows(d.dk, batch, of_key, end, p.length, p.width);
    if (!d.add_dv) clear_rows(d.dv, batch, head, end, p.length, p.value_width);
    clear_rows(d.dgate, batch, head, end, p.length, channels ? p.width : 1);
    clear_rows(d.dbeta, batch, head, end, p.length, 1);
  }
};

}  // namespace heed::kernels::HEED_LEVEL::gated
