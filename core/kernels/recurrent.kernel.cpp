// Recurrent cells at one level: RNN, GRU, original GRU and LSTM, forward and backward.
#include "recurrent.hpp"

#include "simd/simd.hpp"
//
#include "simd/sweep.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
inline Batch<T> load_or_zero(auto at, const T* p, int64_t j) {
  return p != nullptr ? at.load(p + j) : Batch<T>(T(0));
}

template <class T>
inline Batch<T> one() {
  return Batch<T>(T(1));
}

// ---- RNN ----

// Backward computes the derivative from the result: 1 - h'^2, or whether h' > 0.
template <class T, bool kTanh>
void rnn_forward(const CellForward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> sum = at.load(a.x + j) + at.load(a.g + j);
    at.store(a.h_next + j, kTanh ? tanh(sum) : select(sum < Batch<T>(T(0)), Batch<T>(T(0)), sum));
  });
}

template <class T, bool kTanh>
void rnn_backward(const CellBackward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> d = at.load(a.dh + j), y = at.load(a.h_next + j), zero(T(0));
    at.store(a.dx + j, kTanh ? d * fnma(y, y, one<T>()) : select(y > zero, d, zero));
    at.store(a.dh + j, zero);
  });
}

// ---- GRU ----

// Kept: r, z, c, and g_c, which r multiplies.
template <class T>
void gru_forward(const CellForward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> g_c = at.load(a.g + 2 * n + j), h = load_or_zero(at, a.h, j);
    const Batch<T> r = sigmoid(at.load(a.x + j) + at.load(a.g + j));
    const Batch<T> z = sigmoid(at.load(a.x + n + j) + at.load(a.g + n + j));
    const Batch<T> c = tanh(fma(r, g_c, at.load(a.x + 2 * n + j)));
    at.store(a.h_next + j, fma(z, h - c, c));
    if (a.kept == nullptr) return;
    at.store(a.kept + j, r), at.store(a.kept + n + j, z), at.store(a.kept + 2 * n + j, c);
    at.store(a.kept + 3 * n + j, g_c);
  });
}

//   dz = dh' (h - c) z (1 - z)   dc = dh' (1 - z) (1 - c^2)   dr = dc g_c r (1 - r)   dg_c = dc r   dh = dh' z + ...
template <class T>
void gru_backward(const CellBackward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> r = at.load(a.kept + j), z = at.load(a.kept + n + j), c = at.load(a.kept + 2 * n + j);
    const Batch<T> g_c = at.load(a.kept + 3 * n + j), h = load_or_zero(at, a.h, j), d = at.load(a.dh + j);
    const Batch<T> rest = one<T>() - z, dc = d * rest * fnma(c, c, one<T>());
    const Batch<T> dz = d * (h - c) * z * rest, dr = dc * g_c * r * (one<T>() - r);
    at.store(a.dx + j, dr), at.store(a.dx + n + j, dz), at.store(a.dx + 2 * n + j, dc);
    at.store(a.dg + j, dr), at.store(a.dg + n + j, dz), at.store(a.dg + 2 * n + j, dc * r);
    at.store(a.dh + j, d * z);
  });
}

// ---- The original GRU ----

template <class T>
void gru_original_gates(const CellForward<T>& a, long n, T* reset_h) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> r = sigmoid(at.load(a.x + j) + at.load(a.g + j));
    const Batch<T> z = sigmoid(at.load(a.x + n + j) + at.load(a.g + n + j));
    at.store(a.kept + j, r), at.store(a.kept + n + j, z);
    at.store(reset_h + j, r * load_or_zero(at, a.h, j));
  });
}

template <class T>
void gru_original_forward(const CellForward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> z = at.load(a.kept + n + j), c = tanh(at.load(a.x + 2 * n + j) + at.load(a.g + 2 * n + j));
    at.store(a.h_next + j, fma(z, load_or_zero(at, a.h, j) - c, c));
    at.store(a.kept + 2 * n + j, c);
  });
}

template <class T>
void gru_original_backward(const CellBackward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> z = at.load(a.kept + n + j), c = at.load(a.kept + 2 * n + j), d = at.load(a.dh + j);
    const Batch<T> rest = one<T>() - z;
    at.store(a.dx + n + j, d * (load_or_zero(at, a.h, j) - c) * z * rest);
    at.store(a.dx + 2 * n + j, d * rest * fnma(c, c, one<T>()));
    at.store(a.dh + j, d * z);
  });
}

template <class T>
void gru_original_backward_gates(const CellBackward<T>& a, long n, const T* dreset_h) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> r = at.load(a.kept + j), d = at.load(dreset_h + j);
    at.store(a.dx + j, d * load_or_zero(at, a.h, j) * r * (one<T>() - r));
    at.store(a.dh + j, fma(d, r, at.load(a.dh + j)));
  });
}

// ---- LSTM ----

// Kept: i, f, c~, o.
template <class T>
void lstm_forward(const CellForward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const auto sum = [&](int gate) { return at.load(a.x + gate * n + j) + at.load(a.g + gate * n + j); };
    const Batch<T> i = sigmoid(sum(0)), f = sigmoid(sum(1)), c = tanh(sum(2)), o = sigmoid(sum(3));
    const Batch<T> cell = fma(f, load_or_zero(at, a.cell, j), i * c);
    at.store(a.cell_next + j, cell);
    at.store(a.h_next + j, o * tanh(cell));
    if (a.kept == nullptr) return;
    at.store(a.kept + j, i), at.store(a.kept + n + j, f), at.store(a.kept + 2 * n + j, c);
    at.store(a.kept + 3 * n + j, o);
  });
}

//   d = dc' + dh' o (1 - tanh(c')^2)   di = d c~ i (1 - i)   df = d c f (1 - f)   dc~ = d i (1 - c~^2)
//   do = dh' tanh(c') o (1 - o)        dc = d f
template <class T>
void lstm_backward(const CellBackward<T>& a, long n) {
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> i = at.load(a.kept + j), f = at.load(a.kept + n + j), c = at.load(a.kept + 2 * n + j);
    const Batch<T> o = at.load(a.kept + 3 * n + j), dh = at.load(a.dh + j), t = tanh(at.load(a.cell_next + j));
    const Batch<T> d = fma(dh * o, fnma(t, t, one<T>()), at.load(a.dcell + j));
    at.store(a.dx + j, d * c * i * (one<T>() - i));
    at.store(a.dx + n + j, d * load_or_zero(at, a.cell, j) * f * (one<T>() - f));
    at.store(a.dx + 2 * n + j, d * i * fnma(c, c, one<T>()));
    at.store(a.dx + 3 * n + j, dh * t * o * (one<T>() - o));
    at.store(a.dcell + j, d * f);
    at.store(a.dh + j, Batch<T>(T(0)));
  });
}

template <class T>
constexpr RecurrentKernels<T> kernels_of = {
    .rnn_tanh = {1, 0, rnn_forward<T, true>, rnn_backward<T, true>, nullptr, nullptr},
    .rnn_relu = {1, 0, rnn_forward<T, false>, rnn_backward<T, false>, nullptr, nullptr},
    .gru = {3, 4, gru_forward<T>, gru_backward<T>, nullptr, nullptr},
    .gru_original = {3, 3, gru_original_forward<T>, gru_original_backward<T>, gru_original_gates<T>,
                     gru_original_backward_gates<T>},
    .lstm = {4, 4, lstm_forward<T>, lstm_backward<T>, nullptr, nullptr}};

}  // namespace

extern const RecurrentTable recurrent_table;
const RecurrentTable recurrent_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
