// The check "dropout". With the unit matrix as values, the output equals the weights after dropout.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <sstream>

namespace heed::detail::conformance {
namespace {

std::string rounded(double x) {  // 0.2 and 0.68, not 0.200000
  std::ostringstream text;
  text << std::round(x * 1e4) / 1e4;
  return text.str();
}

double root_mean_square(const Tensor& x) { return std::sqrt(mean(x * x).item()); }

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
  const Tensor expected = plain.to(DType::float64);
  // One draw differs by about half of its value, the mean of 300 draws by a seventeenth of that.
  const double error = root_mean_square(sum / kDraws - expected) / root_mean_square(expected);
  f.expect(error < 0.1, "the mean of " + std::to_string(kDraws) +
                            " draws differs from the output without dropout by a relative " + std::to_string(error) +
                            "; it must be less than 0.1");
  f.expect(first.to_vector<double>() != plain.to_vector<double>(), "dropout changes nothing in training");
}

// The share of equal outcomes (kept or dropped) among pairs of weights of one key whose rows are `apart` rows apart.
// Returns -1 for fewer than 400 pairs.
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

// Checks that masks of different queries, heads and sequences are independent. `kept` has the weights [B, H, T, S]: 1
// if kept, 0 if dropped, and -1 for weights of 0.
void check_independent(Subject& s, Finding& f, const std::vector<double>& kept, const Sizes& sizes, double rate) {
  const Index H = s.options.heads, T = sizes.queries;
  const double chance = rate * rate + (1 - rate) * (1 - rate);  // probability that two masks agree for a pair
  const auto independent = [&](const char* what, Index apart) {
    const double share = alike(kept, sizes.batch * H * T, sizes.keys, apart);
    if (share >= 0)
      f.expect(std::fabs(share - chance) < 0.12, std::string(what) + " have masks that agree in " +
                                                     std::to_string(share) + " of the weights; it must be " +
                                                     rounded(chance) + " within 0.12");
  };
  independent("neighbouring queries", 1);
  for (const Index apart : {16, 32, 64})
    if (apart < T) independent("queries of different blocks", apart);
  independent("neighbouring heads", T);
  independent("sequences", H * T);
}

void check_weights_left(Subject& s, Finding& f, const Sizes& sizes, const Variant& variant, double rate = 0.2) {
  const Index H = s.options.heads, T = sizes.queries, S = sizes.keys, groups = H / sizes.shared;
  Trial t = s.with_call(s.trial(sizes), variant);
  t.v = one_hot(Tensor::arange(S), S, DType::float64).expand({sizes.batch, groups, S, S}).dense();
  const Tensor plain = s.out(t);  // the weights without dropout
  t.call.dropout = rate, t.name += ", dropout " + rounded(rate) + ", v is the identity matrix";
  t.dy = Rng(s.options.seed, 98).normal({sizes.batch, H, T, S}).to(DType::float64);
  f.about(t);
  const Outcome o = s.run(t);
  const std::vector<double> w = plain.to_vector<double>(), left = o.out.to_vector<double>();
  std::vector<double> kept(w.size(), -1);
  double pairs = 0, dropped = 0;
  Tensor expected = o.out.clone();
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (std::fabs(w[i]) < 1e-9) continue;
    kept[i] = left[i] != 0, ++pairs, dropped += left[i] == 0;
    if (left[i] != 0) expected.ptr<double>()[i] = w[i] / (1 - rate);
  }
  f.close("the remaining weights against the weights without dropout divided by " + rounded(1 - rate), o.out, expected,
          1e-9);
  if (pairs < 200) return f.leave_out("the rate of dropout, as there are few weights");
  // Six standard deviations of a binomial distribution.
  const double off = std::fabs(dropped / pairs - rate), tolerance = 6 * std::sqrt(rate * (1 - rate) / pairs);
  f.expect(off <= tolerance, std::to_string(dropped / pairs) + " of the " + std::to_string(pairs) +
                                 " weights are 0; it must be " + rounded(rate) + " within " +
                                 std::to_string(tolerance));
  check_independent(s, f, kept, sizes, rate);
  // If y = W v, backward uses the same W. Mechanisms without weights per key, e.g. with pooled values, may differ.
  if (!s.can().weights) return;
  Tensor dv = matmul(o.out.transpose(2, 3), t.dy);
  if (sizes.shared > 1) dv = sum(dv.view({sizes.batch, groups, sizes.shared, S, S}), {2});
  f.close("the gradient of v with the mask of forward", o.gradients.at("v"), dv, 1e-9);
}

// Compares the derivative of sum(dy * y) in a random direction of each input, with the same mask, with its gradient.
void check_slopes(Subject& s, Finding& f, Trial t, double rate) {
  t.call.dropout = rate, t.name += ", dropout " + rounded(rate);
  f.about(t);
  const std::uint64_t position = default_rng().position();
  const Outcome o = s.run(t);
  Rng rng(s.options.seed, 108);
  const auto of = [&](const std::string& only) {
    return slopes(s, t, o, rng, only, [&](const Trial& x) {
      default_rng().set_position(position);
      const Tape tape;  // turns training on
      return applied(s.mechanism(DType::float64), x).detach();
    });
  };
  constexpr double kTolerance = 1e-5;
  for (const NamedBuffer& p : parts_and_bias(t)) {
    if (s.can().discrete && p.name != "v" && p.name != "bias") continue;
    Slopes one = of(p.name);
    if (!one.agree(kTolerance)) one = of(p.name);  // the first direction may have crossed the kink of a relu
    f.expect(one.agree(kTolerance), "the derivative in a random direction of " + p.name + " is " +
                                        std::to_string(one.analytic) + " by its gradient, but " +
                                        std::to_string(one.numeric) +
                                        " by a difference quotient with the same dropout");
  }
}

}  // namespace

void check_dropout(Subject& s, Finding& f) {
  if (!f.declared(s.can().dropout, "dropout")) return;
  check_mean(s, f);
  const Index n = s.at_most(32), few = std::max<Index>(1, n * 2 / 3);
  const auto at_rates = [&](const Sizes& sizes, const std::vector<Variant>& variants, std::vector<double> rates) {
    for (const Variant& v : variants)
      for (const double rate : rates) check_weights_left(s, f, sizes, v, rate);
  };
  at_rates({n, n}, s.variants({n, n}), {0.2});
  at_rates({n, n}, s.ends({n, n}), {0.05, 0.5, 0.7, 0.9});
  for (const Index shared : s.sharings())
    if (shared > 1) at_rates({n, n, 2, shared}, s.ends({n, n, 2, shared}), {0.2, 0.6});
  if (s.can().cross)
    for (const Sizes& sizes : {Sizes{few, n}, Sizes{n, few}})
      at_rates(sizes, s.half_of_variants(sizes, sizes.queries == few), {0.3});
  const Index long_n = s.at_most(120);
  at_rates({long_n, long_n, 1}, s.ends({long_n, long_n, 1}), {0.4});
  const auto derivatives = [&](const Sizes& sizes, const std::vector<Variant>& variants, double rate) {
    const Trial t = s.separated_trial(sizes);
    for (const Variant& v : variants) check_slopes(s, f, s.with_call(t, v), rate);
  };
  derivatives({n, n}, s.variants({n, n}), 0.6);
  if (long_n > n) derivatives({long_n, long_n, 1}, s.ends({long_n, long_n, 1}), 0.3);
}

}  // namespace heed::detail::conformance
