// Checks of dropout: with values that are the unit matrix, the output is the weights that dropout left.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

double root_mean_square(const Tensor& x) {
  double total = 0;
  for (double e : x.to_vector<double>()) total += e * e;
  return std::sqrt(total / static_cast<double>(x.numel()));
}

void check_mean(Subject& s, Finding& f) {
  constexpr int kDraws = 300;
  const Index n = s.at_most(16);
  Trial t = in_dtype(s.trial({n, n}), DType::float32);
  add_values(t.v, Tensor::ones(t.v.shape()));
  const Tensor plain = s.out(t, DType::float32);
  t.call.dropout = 0.5, t.name += ", dropout 0.5";
  f.about(t);
  f.same_bits("outside of training", s.out(t, DType::float32), plain);
  const std::uint64_t position = default_rng().position();
  const auto draw = [&] {
    const Tape tape;  // turns training on
    return applied(s.mechanism(DType::float32), t).detach();
  };
  const Tensor first = draw();
  default_rng().set_position(position);
  f.same_bits("the same random numbers", draw(), first);
  Tensor sum = Tensor::zeros(plain.shape(), DType::float64);
  for (int i = 0; i < kDraws; ++i) add_values(sum, draw());
  const Tensor wanted = plain.to(DType::float64);
  // One draw is off by about half of its value; the mean of 300 by a seventeenth of that.
  const double error = root_mean_square(sum / kDraws - wanted) / root_mean_square(wanted);
  f.expect(error < 0.1, "the mean of " + std::to_string(kDraws) + " draws is off by " + std::to_string(error) +
                            " of the output without dropout");
  f.expect(first.to_vector<double>() != plain.to_vector<double>(), "in training it changes nothing");
}

// The share of pairs that both have a weight and fared alike; -1 of too few.
double alike(const std::vector<double>& kept, Index rows, Index width, Index apart) {
  double both = 0, same = 0;
  for (Index r = 0; r + apart < rows; ++r)
    for (Index j = 0; j < width; ++j) {
      const double a = kept[static_cast<std::size_t>(r * width + j)],
                   b = kept[static_cast<std::size_t>((r + apart) * width + j)];
      if (a >= 0 && b >= 0) ++both, same += a == b;
    }
  return both < 400 ? -1 : same / both;
}

void check_weights_left(Subject& s, Finding& f, const Sizes& sizes, const Variant& variant) {
  constexpr double kP = 0.2;
  const Index H = s.options.heads, T = sizes.queries, S = sizes.keys, groups = H / sizes.shared;
  Trial t = s.asked(s.trial(sizes), variant);
  t.v = one_hot(Tensor::arange(S), S, DType::float64).expand({sizes.batch, groups, S, S}).dense();
  const Tensor plain = s.out(t);  // the weights
  t.call.dropout = kP, t.name += ", dropout 0.2, v the unit matrix";
  t.dy = Rng(s.options.seed, 98).normal({sizes.batch, H, T, S}).to(DType::float64);
  f.about(t);
  const Outcome o = s.run(t);
  const std::vector<double> w = plain.to_vector<double>(), left = o.out.to_vector<double>();
  std::vector<double> kept(w.size(), -1);
  double pairs = 0, dropped = 0;
  Tensor wanted = o.out.clone();
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (std::fabs(w[i]) < 1e-9) continue;
    kept[i] = left[i] != 0, ++pairs, dropped += left[i] == 0;
    if (left[i] != 0) wanted.ptr<double>()[i] = w[i] / (1 - kP);
  }
  f.close("the weights that are left against those without dropout divided by 0.8", o.out, wanted, 1e-9);
  if (pairs < 200) return f.leave_out("the rate of dropout, as there are few weights");
  // Six deviations of a binomial.
  const double off = std::fabs(dropped / pairs - kP), least = 6 * std::sqrt(kP * (1 - kP) / pairs);
  f.expect(off <= least, std::to_string(dropped / pairs) + " of the weights are 0; of " + std::to_string(pairs) +
                             " it must be 0.2 to " + std::to_string(least));
  // Chance has two masks agree in 0.2^2 + 0.8^2 = 0.68 of the pairs.
  const auto independent = [&](const char* what, Index apart) {
    const double share = alike(kept, sizes.batch * H * T, S, apart);
    if (share >= 0)
      f.expect(std::fabs(share - 0.68) < 0.12, std::string(what) + " have masks that agree in " +
                                                   std::to_string(share) + " of the weights; by chance it is 0.68");
  };
  independent("neighbouring queries", 1);
  independent("neighbouring heads", T);
  independent("sequences", H * T);
  // Where y = W v, backward has the same W; without weights of single keys, as of pooled values, it need not be so.
  if (!s.can().weights) return;
  Tensor dv = matmul(o.out.transpose(2, 3), t.dy);
  if (sizes.shared > 1) dv = sum(dv.view({sizes.batch, groups, sizes.shared, S, S}), {2});
  f.close("the gradient of v by the mask of forward", o.gradients.at("v"), dv, 1e-9);
}

}  // namespace

void check_dropout(Subject& s, Finding& f) {
  if (!f.declared(s.can().dropout, "dropout")) return;
  check_mean(s, f);
  const Index n = s.at_most(32), few = std::max<Index>(1, n * 2 / 3);
  for (const Variant& v : s.variants({n, n}))
    if (v.name == "plain" || v.name == "causal" || v.name == "mask" || v.name == "bias")
      check_weights_left(s, f, {n, n}, v);
  for (const Index shared : s.sharings())
    if (shared > 1) check_weights_left(s, f, {n, n, 2, shared}, {"plain", {}});
  if (s.can().cross) check_weights_left(s, f, {few, n}, {"plain", {}});
}

}  // namespace heed::detail::conformance
