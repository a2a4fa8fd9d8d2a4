// Mechanisms with gates and delta rules in plain loops.
#include "tests/layers/attention/naive_gated.hpp"

#include <cmath>
#include <heed/autograd/shape_ops.hpp>

#include "tests/layers/attention/naive_row.hpp"

namespace heed::test {

bool naive_has_delta(StateRule rule) {
  return rule == StateRule::delta || rule == StateRule::gated_delta || rule == StateRule::kda;
}

namespace {

double naive_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double naive_silu(double x) { return x * naive_sigmoid(x); }
double naive_softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0); }

// x, or with a delta rule its direction after SiLU, which `after_silu` has had.
std::vector<double> direction(const double* x, Index size, bool delta, bool after_silu) {
  std::vector<double> y(x, x + size);
  if (!delta) return y;
  double sum = 1e-6;
  for (double& c : y) c = after_silu ? c : naive_silu(c), sum += c * c;
  for (double& c : y) c /= std::sqrt(sum);
  return y;
}

double naive_lightning_decay(const StateAttentionOptions& o, Index head, Index heads) {
  const double slope = std::pow(2.0, -8.0 * static_cast<double>(head + 1) / static_cast<double>(heads));
  if (o.layers == 0) return std::exp(-slope);
  return std::exp(-slope * (1 - static_cast<double>(o.layer) / (static_cast<double>(o.layers) - 1 + 1e-5) + 1e-5));
}

// The query is carried back through the positions: at each, its product with the key is the weight of the value, and
// what remains of it is the product with the state before. Heads are value heads.
NaiveWeights naive_state_weights(StateRule rule, const StateAttentionOptions& o, Index heads, const NaiveRow& row) {
  const bool delta = naive_has_delta(rule), after_silu = o.convolution > 1;
  const auto input = [&](const char* name, Index j, Index c) {
    const Tensor& x = row.values.at(name);
    return x.dense().ptr<double>()[(row.key_head * row.keys + j) * x.dim(3) + c];
  };
  const auto gate_input = [&](Index j, Index c) {
    const Tensor bias = row.values.at("gate_bias").view({-1});
    const Index size = row.values.at("input gate").dim(3);
    return input("input gate", j, c) + bias.ptr<double>()[row.head * size + c];
  };
  const auto gate = [&](Index j, Index c) {
    if (rule == StateRule::retention) return 1 - std::exp2(-5.0 - static_cast<double>(row.head));
    if (rule == StateRule::lightning) return naive_lightning_decay(o, row.head, heads);
    if (rule == StateRule::delta) return 1.0;
    if (rule == StateRule::gla) return std::pow(naive_sigmoid(gate_input(j, c)), 1.0 / 16);
    const double step = naive_softplus(gate_input(j, rule == StateRule::kda ? c : 0));
    return std::exp(-std::exp(row.array("decay")[row.head]) * step);
  };
  std::vector<double> m = direction(row.q, row.size, delta, after_silu);
  if (rule != StateRule::ssd && rule != StateRule::lightning)
    for (double& c : m) c /= std::sqrt(static_cast<double>(row.size));
  NaiveWeights w(row.seen.size(), 0.0);
  for (std::size_t n = row.seen.size(); n-- > 0;) {
    const Index j = row.seen[n];
    const std::vector<double> k = direction(row.k + j * row.size, row.size, delta, after_silu);
    double dot = 0;
    for (std::size_t c = 0; c < m.size(); ++c) dot += m[c] * k[c];
    w[n] = dot;
    if (delta) w[n] *= o.max_rate * naive_sigmoid(input("input rate", j, 0));
    if (rule == StateRule::ssd) w[n] *= naive_softplus(gate_input(j, 0));
    for (std::size_t c = 0; c < m.size(); ++c) {
      if (delta) m[c] -= w[n] * k[c];
      m[c] *= gate(j, static_cast<Index>(c));
    }
    if (rule == StateRule::ssd && j == row.position) w[n] += row.array("skip")[row.head];
  }
  return w;
}

// x [B, H, T, n * size] with n value heads per head, as [B, H * n, T, size], by copying element by element.
Tensor naive_value_heads(const Tensor& x_any, Index n) {
  const Tensor x = x_any.dense();
  const Index H = x.dim(1), T = x.dim(2), size = x.dim(3) / n;
  Tensor y = Tensor::empty({x.dim(0), H * n, T, size}, DType::float64);
  for (Index i = 0; i < y.numel(); ++i) {
    const Index c = i % size, t = i / size % T, h = i / size / T % (H * n), b = i / size / T / (H * n);
    y.ptr<double>()[i] = x.ptr<double>()[((b * H + h / n) * T + t) * n * size + h % n * size + c];
  }
  return y;
}

bool is_masked(const AttentionCall& call, Index b, Index t) {
  return (call.key_lengths.defined() && static_cast<double>(t) >= call.key_lengths.at({b})) ||
         (call.key_mask.defined() && call.key_mask.at({b, t}) == 0);
}

// SiLU of the causal convolution of x [B, H, T, size] with weight [H * size, 1, W]; masked positions count as 0.
Tensor naive_convolution(const Tensor& x_any, const std::string& name, const AttentionCall& call,
                         const TensorsByName& values) {
  const Tensor weight = values.at(name + ".weight");
  const bool has_bias = values.count(name + ".bias") == 1;
  Tensor x = x_any.dense().clone(), y = Tensor::empty(x.shape(), DType::float64);
  const Index H = x.dim(1), T = x.dim(2), D = x.dim(3), W = weight.dim(2);
  for (Index row = 0; row < x.rows(); ++row) {
    const Index b = row / T / H, t = row % T;
    if (is_masked(call, b, t)) std::fill_n(x.ptr<double>() + row * D, D, 0.0);
  }
  for (Index row = 0; row < x.rows(); ++row)
    for (Index c = 0; c < D; ++c) {
      const Index t = row % T, channel = row / T % H * D + c;
      double sum = has_bias ? values.at(name + ".bias").ptr<double>()[channel] : 0;
      for (Index w = std::max<Index>(0, W - 1 - t); w < W; ++w)
        sum += weight.ptr<double>()[channel * W + w] * x.ptr<double>()[(row - (W - 1) + w) * D + c];
      y.ptr<double>()[row * D + c] = naive_silu(sum);
    }
  return y;
}

// Norm and output gate of y [B, H, T, Dv], in the order of the rule.
void naive_finish(StateRule rule, const StateAttentionOptions& o, Tensor& y, const TensorsByName& values) {
  // Lightning has one norm for all heads of a position, so its heads become one row and are split again.
  const bool of_all = rule == StateRule::lightning;
  if (of_all) y = y.transpose(1, 2).dense().clone();
  const Index parts = rule == StateRule::ssd ? 1 : o.value_heads,
              size = of_all ? y.dim(2) * y.dim(3) : y.dim(3) / parts;
  const auto gate = [&] {
    if (o.output_gate == OutputGate::none) return;
    const Tensor x = values.at("input output").dense();
    for (Index i = 0; i < y.numel(); ++i) {
      const double g = x.ptr<double>()[i];
      y.ptr<double>()[i] *= o.output_gate == OutputGate::silu ? naive_silu(g) : naive_sigmoid(g);
    }
  };
  if (rule == StateRule::ssd) gate();
  for (Index row = 0; o.norm && row < y.numel() / size; ++row) {
    double* p = y.ptr<double>() + row * size;
    double squares = 0;
    for (Index c = 0; c < size; ++c) squares += p[c] * p[c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + o.norm_eps);
    for (Index c = 0; c < size; ++c) p[c] *= scale * values.at("norm").at({c});
  }
  if (of_all) y = y.transpose(1, 2).dense().clone();
  if (rule != StateRule::ssd) gate();
}

// A delta rule with several steps per position, one position after the other: q [B, H, T, D], and keys and values of
// all steps, k [B, H, T, steps D] and v [B, H, T, steps Dv] -> [B, H * n, T, Dv / n].
Tensor naive_delta_steps(StateRule rule, const StateAttentionOptions& o, const Tensor& q, const Tensor& k,
                         const Tensor& v, const AttentionCall& call, const TensorsByName& values) {
  const Index n = o.value_heads, steps = o.householders, H = q.dim(1), T = q.dim(2), D = q.dim(3);
  const Index all = v.dim(3) / steps, V = all / n;
  const bool after_silu = o.convolution > 1;
  const Tensor rates = values.at("input rate").dense();
  // The gate of channel c in value head m of head h, where `at` is (b * H + h) * T + t.
  const auto gate = [&](Index at, Index h, Index m, Index c) {
    if (rule == StateRule::delta) return 1.0;
    const Tensor x = values.at("input gate").dense();
    const Index i = rule == StateRule::kda ? m * D + c : m;
    const double bias = values.at("gate_bias").view({-1}).ptr<double>()[h * x.dim(3) + i];
    const double decay = values.at("decay").ptr<double>()[h * n + m];
    return std::exp(-std::exp(decay) * naive_softplus(x.ptr<double>()[at * x.dim(3) + i] + bias));
  };
  Tensor y = Tensor::zeros({q.dim(0), H * n, T, V}, DType::float64);
  for (Index row = 0; row < y.dim(0) * H * n; ++row) {
    const Index m = row % n, h = row / n % H, b = row / n / H;
    std::vector<double> state(static_cast<std::size_t>(D * V), 0.0);
    for (Index t = 0; t < T; ++t) {
      const Index at = (b * H + h) * T + t;
      if (!is_masked(call, b, t)) {
        for (Index c = 0; c < D; ++c) {
          const double a = gate(at, h, m, c);
          for (Index e = 0; e < V; ++e) state[static_cast<std::size_t>(c * V + e)] *= a;
        }
        for (Index s = at * steps; s < (at + 1) * steps; ++s) {
          const std::vector<double> key = direction(k.ptr<double>() + s * D, D, true, after_silu);
          const double rate = o.max_rate * naive_sigmoid(rates.ptr<double>()[s * n + m]);
          for (Index e = 0; e < V; ++e) {
            double difference = v.ptr<double>()[s * all + m * V + e];
            for (Index c = 0; c < D; ++c)
              difference -= key[static_cast<std::size_t>(c)] * state[static_cast<std::size_t>(c * V + e)];
            for (Index c = 0; c < D; ++c)
              state[static_cast<std::size_t>(c * V + e)] += rate * key[static_cast<std::size_t>(c)] * difference;
          }
        }
      }
      const std::vector<double> query = direction(q.ptr<double>() + at * D, D, true, after_silu);
      for (Index c = 0; c < D; ++c)
        for (Index e = 0; e < V; ++e)
          y.ptr<double>()[(row * T + t) * V + e] += query[static_cast<std::size_t>(c)] /
                                                    std::sqrt(static_cast<double>(D)) *
                                                    state[static_cast<std::size_t>(c * V + e)];
    }
  }
  return y;
}

// x, then the same part of the input `steps` along the last axis: `size` numbers per further step, from `begin` on.
Tensor with_steps(const Tensor& x, const Tensor& steps, Index begin, Index size) {
  return concatenate({x, steps.slice(3, begin, begin + size)}, 3).dense();
}

Tensor naive_silu_of(const Tensor& x) {
  Tensor y = x.dense().clone();
  for (Index i = 0; i < y.numel(); ++i) y.ptr<double>()[i] = naive_silu(y.ptr<double>()[i]);
  return y;
}

}  // namespace

Tensor naive_state_attention(StateRule rule, const StateAttentionOptions& o, Tensor q, Tensor k, Tensor v,
                             const AttentionCall& call, TensorsByName values) {
  const Index n = o.value_heads, batch = q.dim(0), heads = q.dim(1), T = q.dim(2), value_size = v.dim(3);
  if (o.householders > 1) {
    const Tensor& steps = values.at("input steps");
    const Index keys = (o.householders - 1) * k.dim(3);
    k = with_steps(k, steps, 0, keys), v = with_steps(v, steps, keys, steps.dim(3) - keys);
  }
  if (o.convolution > 1) {
    q = naive_convolution(q, "q_conv", call, values);
    k = naive_convolution(k, "k_conv", call, values);
    v = naive_convolution(v, "v_conv", call, values);
  } else if (rule == StateRule::lightning) {
    q = naive_silu_of(q), k = naive_silu_of(k), v = naive_silu_of(v);
  }
  const auto finished = [&](const Tensor& per_head) {
    Tensor y = per_head.view({batch, heads, n, T, value_size / n}).transpose(2, 3).dense().clone();
    y = y.view({batch, heads, T, value_size});
    naive_finish(rule, o, y, values);
    return y;
  };
  if (o.householders > 1) return finished(naive_delta_steps(rule, o, q.dense(), k.dense(), v.dense(), call, values));
  for (const char* name : {"input gate", "input rate"})
    if (values.count(name) == 1) values[name] = naive_value_heads(values[name], n);
  const auto repeated = [&](const Tensor& x) {
    return x.unsqueeze(2).expand({batch, heads, n, T, x.dim(3)}).dense().view({batch, heads * n, T, x.dim(3)});
  };
  const auto by_rows = naive_by([&](const NaiveRow& row) { return naive_state_weights(rule, o, heads * n, row); });
  return finished(by_rows(repeated(q), repeated(k), naive_value_heads(v, n), call, values));
}

}  // namespace heed::test
