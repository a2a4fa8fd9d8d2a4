// Gated attention and its gradients position by position in float64, in plain loops from the recurrence.
#pragma once
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/gated_attention.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>
#include <limits>
#include <vector>

#include "tests/support.hpp"

namespace heed::test {

struct GatedSize {
  Index batch = 1, key_heads = 1, heads = 1, steps = 1, width = 1, value_width = 1;
};
enum class GateKind { none, decay, scalar, channel };

// The inputs in float64, contiguous, with gates [B, H, T] or [B, H, T, K]; and the gradients of both results.
struct GatedData {
  Tensor q, k, v;
  GatedAttentionOptions options;
  Tensor dout, dlast;
};

struct GatedGradientsOf {
  Tensor out, last, dq, dk, dv, dgate, dbeta, dstate;
};

// The numbers rounded to float32, so that float32 and float64 compute from the same inputs.
inline Tensor single(const Tensor& x) { return x.to(DType::float32).to(DType::float64); }

// Rows of norm 1.
inline Tensor unit_rows_of(Tensor x) {
  const Index width = x.dim(-1);
  for (Index r = 0; r < x.rows(); ++r) {
    double sum = 0, *row = x.ptr<double>() + r * width;
    for (Index c = 0; c < width; ++c) sum += row[c] * row[c];
    for (Index c = 0; c < width; ++c) row[c] /= std::sqrt(sum);
  }
  return single(x);
}

// gate_scale: of the logarithms, which are negative. Half of the gates of kind `scalar` and `channel` are 1.
inline GatedData gated_data(const GatedSize& s, GateKind kind, bool delta, double gate_scale = 1,
                            std::uint64_t seed = 7) {
  Rng rng(seed);
  const auto normal = [&](const Shape& shape) { return rng.normal(shape).to(DType::float64); };
  const Shape rows{s.batch, s.heads, s.steps};
  GatedData x{normal({s.batch, s.key_heads, s.steps, s.width}),
              unit_rows_of(normal({s.batch, s.key_heads, s.steps, s.width})),
              normal(rows + Shape{s.value_width}),
              {},
              normal(rows + Shape{s.value_width}),
              normal({s.batch, s.heads, s.width, s.value_width})};
  x.options.state = normal({s.batch, s.heads, s.width, s.value_width});
  if (delta) x.options.beta = rng.uniform(rows, 0, 2).to(DType::float64);
  if (kind == GateKind::none) return x;
  Tensor gate = normal(kind == GateKind::channel ? rows + Shape{s.width} : rows);
  for (Index i = 0; i < gate.numel(); ++i) {
    double& g = gate.ptr<double>()[i];
    g = kind == GateKind::decay ? -gate_scale / static_cast<double>(2 + i / s.steps) : std::min(0.0, gate_scale * g);
  }
  x.options.log_gate = single(gate);
  return x;
}

// One head, position by position.
struct GatedHead {
  const GatedData& x;
  Index b, h, g, width, value_width, end, steps, first, key_first;
  double scale;
  bool channels;
  std::vector<double> states;  // S_-1, S_0, ...: [end + 1, width, value_width]

  GatedHead(const GatedData& data, Index batch, Index head)
      : x(data),
        b(batch),
        h(head),
        g(head / (x.v.dim(1) / x.q.dim(1))),
        width(x.q.dim(3)),
        value_width(x.v.dim(3)),
        end(x.options.lengths.defined() ? static_cast<Index>(x.options.lengths.at({b})) : x.v.dim(2)),
        steps(x.v.dim(2)),
        first((b * x.v.dim(1) + h) * steps),
        key_first((b * x.q.dim(1) + g) * steps),
        scale(x.options.scale.value_or(1 / std::sqrt(static_cast<double>(width)))),
        channels(x.options.log_gate.defined() && x.options.log_gate.rank() == 4) {}

  double* row(const Tensor& of, Index t) const { return of.ptr<double>() + (first + t) * of.dim(-1); }
  double* key_row(const Tensor& of, Index t) const { return of.ptr<double>() + (key_first + t) * width; }
  double* state(Index t) { return states.data() + t * width * value_width; }
  bool resets(Index t) const { return x.options.documents.defined() && x.options.documents.at({b, t}) == t; }
  double gate(Index t, Index r) const {
    if (resets(t)) return 0;
    if (!x.options.log_gate.defined()) return 1;
    return std::exp(x.options.log_gate.ptr<double>()[channels ? (first + t) * width + r : first + t]);
  }
  double beta(Index t) const { return x.options.beta.ptr<double>()[first + t]; }

  // S' and, with the delta rule, the values v - k S'; otherwise v.
  void before(Index t, std::vector<double>& decayed, std::vector<double>& rest) {
    decayed.assign(static_cast<std::size_t>(width * value_width), 0);
    rest.assign(row(x.v, t), row(x.v, t) + value_width);
    for (Index r = 0; r < width; ++r)
      for (Index c = 0; c < value_width; ++c) {
        double& s = decayed[static_cast<std::size_t>(r * value_width + c)];
        const double a = gate(t, r);
        s = a == 0 ? 0 : a * state(t)[r * value_width + c];
        if (x.options.beta.defined()) rest[static_cast<std::size_t>(c)] -= key_row(x.k, t)[r] * s;
      }
  }

  void forward(GatedGradientsOf& to) {
    states.assign(static_cast<std::size_t>((end + 1) * width * value_width), 0);
    const Index size = width * value_width, at = (b * x.v.dim(1) + h) * size;
    if (x.options.state.defined()) std::copy_n(x.options.state.ptr<double>() + at, size, state(0));
    std::vector<double> decayed, rest;
    for (Index t = 0; t < end; ++t) {
      before(t, decayed, rest);
      for (Index r = 0; r < width; ++r)
        for (Index c = 0; c < value_width; ++c) {
          const double u = rest[static_cast<std::size_t>(c)] * (x.options.beta.defined() ? beta(t) : 1);
          double& s = state(t + 1)[r * value_width + c];
          s = decayed[static_cast<std::size_t>(r * value_width + c)] + key_row(x.k, t)[r] * u;
          row(to.out, t)[c] += scale * key_row(x.q, t)[r] * s;
        }
    }
    std::copy_n(state(end), size, to.last.ptr<double>() + at);
  }

  void backward(GatedGradientsOf& to) {
    const Index size = width * value_width, at = (b * x.v.dim(1) + h) * size;
    std::vector<double> ds(x.dlast.ptr<double>() + at, x.dlast.ptr<double>() + at + size), decayed, rest;
    const bool delta = x.options.beta.defined();
    for (Index t = end - 1; t >= 0; --t) {
      before(t, decayed, rest);
      std::vector<double> du(static_cast<std::size_t>(value_width), 0);
      const double *q = key_row(x.q, t), *k = key_row(x.k, t), *dout = row(x.dout, t);
      const double b_t = delta ? beta(t) : 1;
      for (Index r = 0; r < width; ++r)
        for (Index c = 0; c < value_width; ++c) {
          double& d = ds[static_cast<std::size_t>(r * value_width + c)];
          key_row(to.dq, t)[r] += scale * state(t + 1)[r * value_width + c] * dout[c];
          d += scale * q[r] * dout[c];
          key_row(to.dk, t)[r] += d * b_t * rest[static_cast<std::size_t>(c)];
          du[static_cast<std::size_t>(c)] += k[r] * d;
        }
      for (Index c = 0; c < value_width; ++c) {
        const double d = du[static_cast<std::size_t>(c)];
        row(to.dv, t)[c] = b_t * d;
        if (delta) to.dbeta.ptr<double>()[first + t] += d * rest[static_cast<std::size_t>(c)];
      }
      for (Index r = 0; r < width; ++r)
        for (Index c = 0; c < value_width; ++c) {
          const auto i = static_cast<std::size_t>(r * value_width + c);
          const double dw = b_t * du[static_cast<std::size_t>(c)];
          if (delta) key_row(to.dk, t)[r] -= decayed[i] * dw, ds[i] -= k[r] * dw;
          if (to.dgate.defined())
            to.dgate.ptr<double>()[channels ? (first + t) * width + r : first + t] += ds[i] * decayed[i];
          ds[i] *= gate(t, r);
        }
    }
    std::copy_n(ds.data(), size, to.dstate.ptr<double>() + at);
  }
};

inline GatedGradientsOf naive_gated(const GatedData& x) {
  const auto zeros = [](const Tensor& like) { return like.defined() ? Tensor::zeros_like(like) : Tensor(); };
  GatedGradientsOf r{
      zeros(x.dout),         zeros(x.dlast), zeros(x.q), zeros(x.k), zeros(x.v), zeros(x.options.log_gate),
      zeros(x.options.beta), zeros(x.dlast)};
  for (Index b = 0; b < x.v.dim(0); ++b)
    for (Index h = 0; h < x.v.dim(1); ++h) {
      GatedHead head(x, b, h);
      head.forward(r);
      head.backward(r);
    }
  return r;
}

inline GatedGradientsOf run_gated(const GatedData& x, DType dtype) {
  Tape tape;
  const auto watched = [&](const Tensor& t) { return t.defined() ? tape.watch(t.to(dtype)) : t; };
  const Tensor q = watched(x.q), k = watched(x.k), v = watched(x.v);
  GatedAttentionOptions o = x.options;
  o.log_gate = watched(o.log_gate), o.beta = watched(o.beta), o.state = watched(o.state);
  const GatedAttentionResult y = gated_attention_states(q, k, v, o);
  const Tensor loss = sum(y.out * x.dout.to(dtype)) + sum(y.state * x.dlast.to(dtype));
  tape.backward(loss);
  const auto grad = [&](const Tensor& t) { return t.defined() ? tape.grad(t) : t; };
  return {y.out.detach(), y.state.detach(), grad(q), grad(k), grad(v), grad(o.log_gate), grad(o.beta), grad(o.state)};
}

// The largest difference of two tensors, relative to the largest number of `expected`. Numbers below 1e-30 count as
// that: products of gates may be below the range of float32.
inline double relative_error(const Tensor& got, const Tensor& expected) {
  const Tensor x = got.to(DType::float64).dense(), y = expected.to(DType::float64).dense();
  double largest = 1e-30, error = 0;
  for (Index i = 0; i < y.numel(); ++i) {
    largest = std::max(largest, std::fabs(y.ptr<double>()[i]));
    const double e = std::fabs(x.ptr<double>()[i] - y.ptr<double>()[i]);
    error = std::isfinite(e) ? std::max(error, e) : std::numeric_limits<double>::infinity();
  }
  return error / largest;
}

// The largest of these errors over all results, and the name of the result.
struct GatedError {
  double error = 0;
  const char* of = "";
};
inline GatedError gated_error(const GatedGradientsOf& got, const GatedGradientsOf& expected) {
  GatedError worst;
  const auto compare = [&](const char* name, const Tensor& x, const Tensor& y) {
    const double error = y.defined() ? relative_error(x, y) : 0;
    if (error > worst.error || worst.of[0] == 0) worst = {error, name};
  };
  compare("out", got.out, expected.out);
  compare("state", got.last, expected.last);
  compare("dq", got.dq, expected.dq);
  compare("dk", got.dk, expected.dk);
  compare("dv", got.dv, expected.dv);
  compare("dgate", got.dgate, expected.dgate);
  compare("dbeta", got.dbeta, expected.dbeta);
  compare("dstate", got.dstate, expected.dstate);
  return worst;
}

}  // namespace heed::test
