// The ops whose float32 errors are measured, and the measurement of the errors.
#include "benchmarks/accuracy_rows.hpp"

#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/embedding.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <limits>

namespace heed::bench {
namespace {

using Tensors = std::vector<Tensor>;

Tensor uniform(const Shape& shape, double low, double high, std::uint64_t seed = 1) {
  return Rng(seed).uniform(shape, low, high).to(DType::float64);  // values that float32 can represent
}

std::string range(double low, double high) { return detail::formatted("%g to %g", low, high); }

constexpr Index kMany = 200003;

AccuracyRow unary(const char* name, double low, double high, Tensor (*f)(In), Against against = Against::value) {
  return {name, range(low, high), [f](const Tensors& x) { return f(x[0]); }, {uniform({kMany}, low, high)}, against};
}
AccuracyRow unary_with(const char* name, double low, double high, std::function<Tensor(const Tensor&)> f,
                       Against against = Against::value) {
  return {name, range(low, high), [f](const Tensors& x) { return f(x[0]); }, {uniform({kMany}, low, high)}, against};
}
AccuracyRow binary(const char* name, double low, double high, Tensor (*f)(In, In)) {
  return {name,
          range(low, high),
          [f](const Tensors& x) { return f(x[0], x[1]); },
          {uniform({kMany}, low, high), uniform({kMany}, low, high, 2)}};
}

void add_elementwise(std::vector<AccuracyRow>& rows) {
  rows.push_back(binary("add", -4, 4, add));
  rows.push_back(binary("sub", -4, 4, sub));
  rows.push_back(binary("mul", -4, 4, mul));
  rows.push_back(binary("div", 0.1, 4, div));
  rows.push_back(binary("pow", 0.1, 4, pow));
  rows.push_back(binary("maximum", -4, 4, maximum));
  rows.push_back(binary("minimum", -4, 4, minimum));
  rows.push_back(unary("neg", -9, 9, neg));
  rows.push_back(unary("abs", -9, 9, abs));
  rows.push_back(unary("square", -9, 9, square));
  rows.push_back(unary("sqrt", 0.01, 99, sqrt));
  rows.push_back(unary("rsqrt", 0.01, 99, rsqrt));
  rows.push_back(unary("exp", -87, 88, exp));
  rows.push_back(unary("expm1", -20, 20, expm1));
  rows.push_back(unary("log", 1e-6, 99, log));
  rows.push_back(unary("log1p", -0.9, 99, log1p));
  rows.push_back(unary("sin", -9000, 9000, sin));
  rows.push_back(unary("cos", -9000, 9000, cos));
  rows.push_back(unary("erf", -6, 6, erf));
  rows.push_back(unary_with("pow(x, -3.25)", 0.1, 9, [](const Tensor& x) { return pow(x, -3.25); }));
  rows.push_back(unary_with("clamp(x, -2, 3)", -9, 9, [](const Tensor& x) { return clamp(x, -2, 3); }));
  rows.push_back(unary_with("where(x > 1, x, -x)", -9, 9, [](const Tensor& x) { return where(x > 1, x, -x); }));
}

void add_activations(std::vector<AccuracyRow>& rows) {
  rows.push_back(unary("sigmoid", -80, 80, sigmoid));
  rows.push_back(unary("tanh", -20, 20, tanh));
  rows.push_back(unary("relu", -9, 9, relu));
  rows.push_back(unary("relu_squared", -9, 9, relu_squared));
  rows.push_back(unary_with("leaky_relu", -9, 9, [](const Tensor& x) { return leaky_relu(x, 0.1); }));
  rows.push_back(unary_with("elu", -80, 9, [](const Tensor& x) { return elu(x); }));
  rows.push_back(unary_with(
      "gelu", -12, 12, [](const Tensor& x) { return gelu(x); }, Against::input));
  rows.push_back(unary_with(
      "gelu, tanh form", -12, 12, [](const Tensor& x) { return gelu(x, Gelu::tanh); }, Against::input));
  rows.push_back(unary("silu", -40, 40, silu, Against::input));
  rows.push_back(unary("softsign", -40, 40, softsign));
  rows.push_back(unary_with("softplus", -80, 80, [](const Tensor& x) { return softplus(x); }));
}

void add_layers(std::vector<AccuracyRow>& rows) {
  const Tensor x = uniform({64, 333}, -1, 1), w = uniform({77, 333}, -1, 1, 2), gain = uniform({333}, 0, 2, 3),
               bias = uniform({333}, -1, 1, 4);
  rows.push_back({"linear",
                  "64 x 333 to 77",
                  [](const Tensors& t) { return linear(t[0], t[1], t[2]); },
                  {x, w, uniform({77}, -1, 1, 5)},
                  Against::largest});
  rows.push_back({"matmul",
                  "3 of 65 x 333 x 31",
                  [](const Tensors& t) { return matmul(t[0], t[1]); },
                  {uniform({3, 65, 333}, -1, 1), uniform({3, 333, 31}, -1, 1, 2)},
                  Against::largest});
  rows.push_back({"layer_norm",
                  "64 x 333",
                  [](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); },
                  {x, gain, bias},
                  Against::largest});
  rows.push_back(
      {"rms_norm", "64 x 333", [](const Tensors& t) { return rms_norm(t[0], t[1]); }, {x, gain}, Against::largest});
  rows.push_back({"normalize", "64 x 333", [](const Tensors& t) { return normalize(t[0]); }, {x}, Against::largest});
}

void add_positions_and_dropout(std::vector<AccuracyRow>& rows) {
  const Tensor q = uniform({2, 3, 97, 40}, -2, 2), k = uniform({2, 3, 97, 40}, -2, 2, 2),
               v = uniform({2, 3, 97, 40}, -2, 2, 3), few = uniform({2, 6, 33, 40}, -2, 2),
               keys = uniform({2, 2, 250, 40}, -2, 2, 2), values = uniform({2, 2, 250, 24}, -2, 2, 3);
  const auto attend = [](const AttentionCall& o) {
    return [o](const Tensors& t) {
      manual_seed(8);
      return attention(t[0], t[1], t[2], o);
    };
  };
  rows.push_back(
      {"attention, causal", "2 x 3 heads of 97 x 40", attend({.causal = true}), {q, k, v}, Against::largest});
  rows.push_back({"attention, dropout 0.2",
                  "2 x 3 heads of 97 x 40",
                  attend({.causal = true, .dropout = 0.2}),
                  {q, k, v},
                  Against::largest});
  rows.push_back({"attention, grouped, padded",
                  "2 x 6 heads of 33 x 40, 2 of 250",
                  attend({.key_lengths = Tensor::from<std::int32_t>({250, 77}, {2})}),
                  {few, keys, values},
                  Against::largest});
  for (const bool causal : {false, true})
    rows.push_back({causal ? "linear attention, causal" : "linear attention",
                    "2 x 3 heads of 97 x 40",
                    [causal](const Tensors& t) { return linear_attention(t[0], t[1], t[2], {.causal = causal}); },
                    {q, k, v},
                    Against::largest});
  const auto row = [&](const char* name, std::function<Tensor(const Tensors&)> f, std::vector<Tensor> inputs) {
    rows.push_back({name, "2 x 3 heads of 97 x 40", std::move(f), std::move(inputs), Against::largest});
  };
  row("linear attention, exp, causal",
      [](const Tensors& t) {
        return linear_attention(t[0], t[1], t[2], {.causal = true}, {.feature_map = FeatureMap::exp});
      },
      {q, k, v});
  const auto poly2 = [](const Tensors& t) {
    return linear_attention(t[0], t[1], t[2], {.causal = true}, {.feature_map = FeatureMap::poly2});
  };
  const Shape many = {1, 2, 700, 16};
  row("linear attention, poly2, causal", poly2, {q, k, v});
  rows.push_back({"linear attention, poly2 by features, causal",
                  "2 heads of 700 x 16",
                  poly2,
                  {uniform(many, -2, 2), uniform(many, -2, 2, 2), uniform(many, -2, 2, 3)},
                  Against::largest});
  row("efficient attention, causal",
      [](const Tensors& t) { return efficient_attention(t[0], t[1], t[2], {.causal = true}); }, {q, k, v});
  row("additive attention, causal",
      [](const Tensors& t) { return additive_attention(t[0], t[1], t[2], t[3], {.causal = true}); },
      {q, k, v, uniform({3, 40}, -2, 2, 4)});
  row("window attention of 20, causal",
      [](const Tensors& t) { return WindowAttention({.window = 20}).apply(t[0], t[1], t[2], {.causal = true}); },
      {q, k, v});
  rows.push_back({"rope",
                  "2 x 3 heads of 97 x 40",
                  [](const Tensors& t) { return rope(t[0], {.offset = 900}); },
                  {q},
                  Against::largest});
  const Tensor index = Rng(7).integers({300}, 0, 64);
  rows.push_back({"embedding",
                  "300 of 64 rows of 333",
                  [index](const Tensors& t) { return embedding(index, t[0]); },
                  {uniform({64, 333}, -1, 1)},
                  Against::largest});
  rows.push_back(unary_with("dropout(x, 0.3)", -9, 9, [](const Tensor& x) {
    manual_seed(8);
    return dropout(x, 0.3);
  }));
}

void add_losses(std::vector<AccuracyRow>& rows) {
  const Tensor targets = Rng(6).integers({64}, 0, 333);
  rows.push_back({"cross_entropy",
                  "64 of 333 classes",
                  [targets](const Tensors& t) { return cross_entropy(t[0], targets); },
                  {uniform({64, 333}, -9, 9)},
                  Against::largest});
  const Tensor many = Rng(6).integers({700}, 0, 5000);
  rows.push_back({"linear_cross_entropy",
                  "700 x 96 to 5000 classes",
                  [many](const Tensors& t) { return linear_cross_entropy(t[0], t[1], t[2], many); },
                  {uniform({700, 96}, -2, 2), uniform({5000, 96}, -1, 1, 2), uniform({5000}, -1, 1, 3)},
                  Against::largest});
  const auto row = [&rows](const char* name, double low, double high, Tensor target,
                           std::function<Tensor(const Tensor&, const Tensor&)> f) {
    rows.push_back({name,
                    range(low, high),
                    [f](const Tensors& t) { return f(t[0], t[1]); },
                    {uniform({kMany}, low, high), target},
                    Against::largest});
  };
  const Tensor signed_target = uniform({kMany}, -4, 4, 2), share = uniform({kMany}, 0, 1, 2);
  row("mse_loss", -4, 4, signed_target, [](const Tensor& x, const Tensor& t) { return mse_loss(x, t); });
  row("l1_loss", -4, 4, signed_target, [](const Tensor& x, const Tensor& t) { return l1_loss(x, t); });
  row("huber_loss", -4, 4, signed_target, [](const Tensor& x, const Tensor& t) { return huber_loss(x, t); });
  row("binary_cross_entropy_with_logits", -20, 20, share,
      [](const Tensor& x, const Tensor& t) { return binary_cross_entropy_with_logits(x, t); });
  row("kl_div", -9, -0.1, share, [](const Tensor& x, const Tensor& t) { return kl_div(x, t); });
}

void add_reductions(std::vector<AccuracyRow>& rows) {
  const Tensor x = uniform({64, 33, 77}, -1, 1), positive = uniform({64, 33, 77}, 0.1, 1),
               wide = uniform({64, 2541}, -9, 9);
  const auto row = [&rows](const char* name, const char* domain, const Tensor& in,
                           std::function<Tensor(const Tensor&)> f) {
    rows.push_back({name, domain, [f](const Tensors& t) { return f(t[0]); }, {in}, Against::largest});
  };
  const char* cube = "64 x 33 x 77 over 0 and 2";
  row("sum", cube, x, [](const Tensor& t) { return sum(t, {0, 2}); });
  row("mean", cube, x, [](const Tensor& t) { return mean(t, {0, 2}); });
  row("variance", cube, x, [](const Tensor& t) { return variance(t, {0, 2}); });
  row("stddev", cube, x, [](const Tensor& t) { return stddev(t, {0, 2}); });
  row("norm", cube, x, [](const Tensor& t) { return norm(t, {0, 2}); });
  row("norm, p = 3", cube, x, [](const Tensor& t) { return norm(t, {0, 2}, {.p = 3}); });
  row("max", cube, x, [](const Tensor& t) { return max(t, {0, 2}); });
  row("logsumexp", cube, x, [](const Tensor& t) { return logsumexp(t, {0, 2}); });
  row("min", cube, x, [](const Tensor& t) { return min(t, {0, 2}); });
  row("prod", "64 x 33 x 77 over 1", positive, [](const Tensor& t) { return prod(t, 1); });
  row("cumsum", "64 x 2541", wide, [](const Tensor& t) { return cumsum(t, 1); });
  row("softmax", "64 x 2541", wide, [](const Tensor& t) { return softmax(t); });
  row("log_softmax", "64 x 2541", wide, [](const Tensor& t) { return log_softmax(t); });
  row("softmax, axis 0", "2541 x 64", wide.t().clone(), [](const Tensor& t) { return softmax(t, 0); });
  const Tensor index = Rng(7).integers({300}, 0, 64);
  row("index_select", "300 of 64 rows of 2541", wide, [index](const Tensor& t) { return index_select(t, 0, index); });
  const Tensor places = Rng(7).integers({64, 700}, 0, 100);
  rows.push_back({"scatter_add",
                  "64 x 700 to 100 places of 2541",
                  [places](const Tensors& t) { return scatter_add(t[0], 1, places, t[1]); },
                  {wide, uniform({64, 700}, -9, 9, 2)},
                  Against::largest});
}

// The result of f and the gradients of its inputs, for a fixed random dy.
Tensors run(const AccuracyRow& row, DType dtype) {
  Tape tape;
  Tensors inputs, results;
  for (const Tensor& x : row.inputs) inputs.push_back(x.dtype() == DType::float64 ? tape.watch(x.to(dtype)) : x);
  const Tensor y = row.f(inputs);
  results.push_back(y.detach());
  tape.backward(y, y.numel() == 1 ? Tensor::ones(y.shape(), dtype) : uniform(y.shape(), -2, 2, 9).to(dtype));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (row.inputs[i].dtype() == DType::float64) results.push_back(tape.grad(inputs[i]).detach());
  return results;
}

// The largest error in units of float32's epsilon (2^-23), relative to the magnitude chosen by `against`.
double worst(const Tensor& got, const Tensor& expected, Against against, const Tensor& input) {
  const std::vector<double> y = got.to_vector<double>(), z = expected.to_vector<double>(),
                            x = input.to_vector<double>();
  double largest = 0, max_error = 0;
  for (const double v : z) largest = std::max(largest, std::fabs(v));
  for (std::size_t i = 0; i < y.size(); ++i) {
    double scale = std::fabs(z[i]);
    if (against == Against::input) scale = std::max(scale, std::fabs(x[i]));
    if (against == Against::one) scale = std::max(scale, 1.0);
    if (against == Against::largest) scale = largest;
    if (y[i] != z[i]) max_error = std::max(max_error, std::fabs(y[i] - z[i]) / std::max(scale, 1e-38));
  }
  return max_error / std::numeric_limits<float>::epsilon();
}

}  // namespace

std::vector<AccuracyRow> accuracy_rows() {
  std::vector<AccuracyRow> rows;
  add_elementwise(rows);
  add_activations(rows);
  add_layers(rows);
  add_positions_and_dropout(rows);
  add_losses(rows);
  add_reductions(rows);
  return rows;
}

std::vector<AccuracyRow> bfloat16_accuracy_rows() {
  const auto rounded = [](Index queries, std::uint64_t seed) {
    return uniform({2, 3, queries, 40}, -2, 2, seed).to(DType::bfloat16).to(DType::float64);
  };
  const auto attend = [](const Tensors& t) {
    const DType dtype = t[0].dtype();
    const auto half = [&](const Tensor& x) { return dtype == DType::float32 ? x.to(DType::bfloat16) : x; };
    return attention(half(t[0]), half(t[1]), half(t[2]), {.causal = true}).to(dtype);
  };
  return {{"attention of bfloat16, causal",
           "2 x 3 heads of 97 x 40",
           attend,
           {rounded(97, 1), rounded(97, 2), rounded(97, 3)},
           Against::largest}};
}

Tensors accuracy_reference(const AccuracyRow& row) { return run(row, DType::float64); }

AccuracyErrors accuracy_errors(const AccuracyRow& row, const Tensors& expected) {
  const Tensors got = run(row, DType::float32);
  const Against slope = row.against == Against::largest ? Against::largest : Against::one;
  AccuracyErrors errors{worst(got[0], expected[0], row.against, row.inputs[0]), 0};
  for (std::size_t i = 1; i < got.size(); ++i)
    errors.derivative = std::max(errors.derivative, worst(got[i], expected[i], slope, got[i]));
  return errors;
}

}  // namespace heed::bench
