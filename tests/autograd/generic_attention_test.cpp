// Attention by any similarity against plain loops over all pairs in float64.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/attention_reference.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// f and f' of a named similarity, on numbers.
double f_of(const std::string& name, double s) {
  if (name == "embedded-gaussian") return std::exp(s);
  if (name == "dot-product") return s;
  if (name == "relu") return s > 0 ? s : 0;
  if (name == "square") return s * s;
  if (name == "polynomial") return (1 + s) * (1 + s);
  if (name == "softplus") return std::log1p(std::exp(s));
  return 1 / (1 + std::exp(-s));
}
double slope_of(const std::string& name, double s) {
  if (name == "embedded-gaussian") return std::exp(s);
  if (name == "dot-product") return 1;
  if (name == "relu") return s > 0 ? 1 : 0;
  if (name == "square") return 2 * s;
  if (name == "polynomial") return 2 * (1 + s);
  const double logistic = 1 / (1 + std::exp(-s));
  return name == "softplus" ? logistic : logistic * (1 - logistic);
}

// From the formulas: dw_j = (g . v_j - g . o) / c, ds = f' dw. If c is the count of keys, the term - g . o is absent.
AttentionResult naive_generic(const AttentionData& x, const Similarity& f, const AttentionCall& o, double scale) {
  const Index B = x.q.dim(0), H = x.q.dim(1), T = x.q.dim(2), D = x.q.dim(3), Hk = x.k.dim(1), S = x.k.dim(2),
              V = x.v.dim(3);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::float64); };
  AttentionResult r{zeros(x.dout.shape()), zeros(x.q.shape()),  zeros(x.k.shape()),
                    zeros(x.v.shape()),    zeros({B, H, T, S}), zeros({B, H, T, S})};
  const Tensor bias = o.bias.defined() ? o.bias.expand({B, H, T, S}) : Tensor();
  const Tensor mask = o.mask.defined() ? o.mask.expand({B, H, T, S}) : Tensor();
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / T / H, h = row / T % H, i = row % T, g = b * Hk + h / (H / Hk);
    const double *q = x.q.ptr<double>() + row * D, *dout = x.dout.ptr<double>() + row * V;
    std::vector<Index> seen;
    std::vector<double> s;
    double c = 0, sum = 0;
    for (Index j = 0; j < S; ++j) {
      if (o.causal && j > i + S - T) continue;
      if (o.key_lengths.defined() && j >= static_cast<Index>(o.key_lengths.at({b}))) continue;
      if (o.key_mask.defined() && o.key_mask.at({b, j}) == 0) continue;
      if (mask.defined() && mask.at({b, h, i, j}) == 0) continue;
      double score = 0;
      for (Index d = 0; d < D; ++d) score += q[d] * x.k.ptr<double>()[(g * S + j) * D + d];
      s.push_back(score * scale + (bias.defined() ? bias.at({b, h, i, j}) : 0));
      seen.push_back(j);
      sum += f_of(f.name, s.back());
    }
    if (f.by == SimilarityNorm::count)
      c = static_cast<double>(seen.size());
    else if (sum > 0)
      c = f.log ? sum : sum + 1e-6;
    if (c == 0) continue;
    std::vector<double> gv(seen.size());
    double go = 0;
    for (std::size_t n = 0; n < seen.size(); ++n) {
      const double w = f_of(f.name, s[n]) / c;
      r.weights.ptr<double>()[row * S + seen[n]] = w;
      for (Index e = 0; e < V; ++e) {
        const Index at = (g * S + seen[n]) * V + e;
        r.out.ptr<double>()[row * V + e] += w * x.v.ptr<double>()[at];
        r.dv.ptr<double>()[at] += w * dout[e];
        gv[n] += dout[e] * x.v.ptr<double>()[at];
      }
      go += w * gv[n];
    }
    for (std::size_t n = 0; n < seen.size(); ++n) {
      const double ds = slope_of(f.name, s[n]) * (gv[n] - (f.by == SimilarityNorm::count ? 0 : go)) / c;
      r.dbias.ptr<double>()[row * S + seen[n]] = ds;
      for (Index d = 0; d < D; ++d) {
        const Index at = (g * S + seen[n]) * D + d;
        r.dq.ptr<double>()[row * D + d] += scale * ds * x.k.ptr<double>()[at];
        r.dk.ptr<double>()[at] += scale * ds * q[d];
      }
    }
  }
  return r;
}

AttentionResult attend_generic(const AttentionData& x, const Similarity& f, AttentionCall o, double scale = 1,
                               DType dtype = DType::float64) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  if (o.bias.defined()) o.bias = tape.watch(o.bias.to(dtype));
  const Tensor y = generic_attention(q, k, v, f, o, {.scale = scale});
  tape.backward(y, x.dout.to(dtype));
  AttentionResult r;
  r.out = y.detach(), r.dq = tape.grad(q), r.dk = tape.grad(k), r.dv = tape.grad(v);
  if (o.bias.defined()) r.dbias = tape.grad(o.bias);
  return r;
}

void check_generic(const AttentionSize& s, const AttentionCall& o, double scale) {
  const AttentionData x = random_attention(s, 5);
  for (const std::string& name : similarity_names()) {
    Similarity f = similarity_by_name(name);
    CAPTURE(name);
    CAPTURE(s.queries);
    CAPTURE(s.keys);
    const AttentionResult expected = naive_generic(x, f, o, scale);
    CHECK(attention_error(attend_generic(x, f, o, scale), expected) < 1e-11);
    if (name != "relu")  // its sums are near 0, because f and f' are 0 for half of the scores
      CHECK(attention_error(attend_generic(x, f, o, scale, DType::float32), expected) <
            1e-4);  // the tolerance of the conformance kit
    const auto attend = [&](In v) { return generic_attention(x.q, x.k, v, f, o, {.scale = scale}); };
    CHECK(close(weights_by(attend, x.k), expected.weights, 1e-11, 1e-12));
    f.derivative = {};  // then a tape computes the derivative
    CHECK(attention_error(attend_generic(x, f, o, scale), expected) < 1e-11);
  }
}

}  // namespace

TEST_CASE("generic attention equals the naive loops for every named similarity, on each level") {
  on_each_float_level([] {
    for (const Index n : {1, 2, 5, 16, 33, 65}) {
      check_generic({1, 2, 1, n, n, 4, 3}, {.causal = true}, 0.5);
      check_generic({2, 1, 1, 7, n, 5, 4}, {.causal = true}, 0.5);
      check_generic({1, 1, 1, n, 9, 4, 3}, {}, -0.3);
    }
  });
}

TEST_CASE("generic attention takes lengths, masks, biases and grouped heads together") {
  for (const AttentionSize& s : {AttentionSize{2, 4, 2, 11, 17, 6, 3}, AttentionSize{2, 4, 1, 17, 11, 6, 3}}) {
    const Tensor lengths = Tensor::from<std::int32_t>({9, static_cast<double>(s.keys)});
    const Tensor keys = random_mask({2, s.keys}, 0.7, 3), pairs = random_mask({2, 1, s.queries, s.keys}, 0.7, 4);
    const Tensor bias = Rng(6).normal({4, s.queries, s.keys}, 0, 1, DType::float64);
    for (const bool causal : {false, true}) {
      const AttentionCall o{.causal = causal, .key_lengths = lengths, .key_mask = keys, .mask = pairs, .bias = bias};
      const double scale = 0.4;
      check_generic(s, o, scale);
      const AttentionData x = random_attention(s, 5);
      const Similarity f = similarity_by_name("softplus");
      const AttentionResult got = attend_generic(x, f, o, scale), expected = naive_generic(x, f, o, scale);
      CHECK(close(got.dbias, detail::sum_to(expected.dbias, bias.shape()), 1e-11, 1e-12));
    }
  }
}

TEST_CASE("generic attention with more scores than are stored at once equals attention") {
  const AttentionData x = random_attention({1, 4, 4, 1500, 1500, 4, 4}, 2);
  const Similarity f = similarity_by_name("embedded-gaussian");
  const AttentionResult expected = run_attention(x, {.causal = true}, DType::float64, 0.5);
  CHECK(attention_error(attend_generic(x, f, {.causal = true}, 0.5), expected) < 1e-11);
}

TEST_CASE("generic attention: logits of 300 do not overflow, and a row whose f are all 0 gives zeros") {
  AttentionData x = random_attention({1, 1, 1, 20, 20, 8, 4}, 3, 100);
  const Similarity exp = similarity_by_name("embedded-gaussian");
  const AttentionResult floats = attend_generic(x, exp, {.causal = true}, 1, DType::float32);
  CHECK(close(floats.out, run_attention(x, {.causal = true}, DType::float64, 1.0).out, 2e-3, 2e-3));
  for (const double g : floats.dk.to_vector<double>()) CHECK(std::isfinite(g));
  x.q.fill_(1), x.k.fill_(-1);
  const AttentionResult none = attend_generic(x, similarity_by_name("relu"), {});
  for (const Tensor& t : {none.out, none.dq, none.dk, none.dv})
    for (const double e : t.to_vector<double>()) CHECK_UNARY(e == 0);
}

TEST_CASE("generic attention over pooled keys equals attention to keys that were pooled by loops") {
  const Index S = 11, pool = 4, few = 3;
  const AttentionData x = random_attention({2, 2, 2, 6, S, 3, 2}, 9);
  Tensor keys = Tensor::ones({2, S}, DType::bool8);
  for (const Index j : {1, 4, 5, 6, 7}) keys.ptr<bool>()[j] = false;  // masks the whole second group of sequence 0
  const Tensor lengths = Tensor::from<std::int32_t>({11, 6});
  for (const Pooling kind : {Pooling::average, Pooling::max}) {
    const auto by_loops = [&](const Tensor& from) {
      Tensor to = Tensor::zeros({2, 2, few, from.dim(3)}, DType::float64);
      for (Index b = 0; b < 2; ++b)
        for (Index h = 0; h < 2; ++h)
          for (Index n = 0; n < few; ++n)
            for (Index d = 0; d < from.dim(3); ++d) {
              double total = 0, max_value = -1e300, count = 0;
              for (Index j = n * pool; j < std::min(S, (n + 1) * pool); ++j) {
                if (keys.at({b, j}) == 0 || j >= static_cast<Index>(lengths.at({b}))) continue;
                total += from.at({b, h, j, d}), ++count, max_value = std::max(max_value, from.at({b, h, j, d}));
              }
              if (count == 0) continue;
              to.ptr<double>()[((b * 2 + h) * few + n) * from.dim(3) + d] =
                  kind == Pooling::average ? total / count : max_value;
            }
      return to;
    };
    const Tensor alive = Tensor::from<bool>({1, 0, 1, 1, 1, 0}, {2, few});
    for (const std::string& name : similarity_names()) {
      const Similarity f = similarity_by_name(name);
      const AttentionCall call{.key_lengths = lengths, .key_mask = keys};
      const GenericAttentionOptions o{.pool = pool, .pooling = kind};
      CAPTURE(name);
      const Tensor expected = generic_attention(x.q, by_loops(x.k), by_loops(x.v), f, {.key_mask = alive});
      CHECK(close(generic_attention(x.q, x.k, x.v, f, call, o), expected, 1e-12, 1e-12));
      Tensor k = x.k.clone(), v = x.v.clone();
      for (Tensor* t : {&k, &v}) (*t)[0].slice(1, 4, 8).fill_(kNaN), (*t)[1].slice(1, 6, 11).fill_(kNaN);
      CHECK(same_bits(generic_attention(x.q, k, v, f, call, o), generic_attention(x.q, x.k, x.v, f, call, o)));
      if (name == "relu") continue;  // its sums are near 0
      gradcheck([&](const std::vector<Tensor>& in) { return generic_attention(in[0], in[1], in[2], f, call, o); },
                {x.q, x.k, x.v});
    }
  }
}

TEST_CASE("generic attention: a similarity of the user's, and dropout that backward draws again") {
  const Similarity cube{.name = "cube", .f = [](const Tensor& s) { return pow(relu(s), 3); }};
  const AttentionData x = random_attention({1, 2, 1, 5, 6, 4, 3}, 4);
  gradcheck([&](const std::vector<Tensor>& in) { return generic_attention(in[0], in[1], in[2], cube); },
            {x.q, x.k, x.v});
  const Similarity f = similarity_by_name("softplus");
  const auto dropped = [&](const std::vector<Tensor>& in) {
    manual_seed(3);
    return generic_attention(in[0], in[1], in[2], f, {.dropout = 0.4});
  };
  gradcheck(dropped, {x.q, x.k, x.v});
}

TEST_CASE("generic attention: a similarity whose f uses a value that needs a gradient is an Error") {
  Parameter w(Tensor::full({1}, 2, DType::float64));
  const AttentionData x = random_attention({1, 1, 1, 4, 4, 3, 2}, 4);
  const auto scaled = [](const Tensor& by, Similarity::Function derivative = {}) {
    return Similarity{
        .name = "scaled", .f = [by](const Tensor& s) { return square(s * by); }, .derivative = derivative};
  };
  const auto error = [&](const Tensor& q, const Tensor& v, const Similarity& f) {
    return error_of([&] { generic_attention(q, x.k, v, f); });
  };
  const std::string expected =
      "generic_attention: f of 'scaled' uses a parameter, or another value that requires a gradient";
  CHECK(contains(error(x.q, x.v, scaled(w)), expected));  // no tape records
  Tape tape;
  const Tensor q = tape.watch(x.q), v = tape.watch(x.v), factor = tape.watch(Tensor::ones({1}, DType::float64)) * 2;
  for (const Similarity& f : {scaled(w), scaled(w, [](const Tensor& s) { return s * 8; }), scaled(factor)}) {
    CHECK(contains(error(x.q, x.v, f), expected));
    CHECK(contains(error(x.q, v, f), expected));
    CHECK(contains(error(q, x.v, f), expected));
  }
  CHECK(tape.steps() == 1);
  CHECK(error(q, v, scaled(w.detach())).empty());
  const NoTape off;
  CHECK(error(q, v, scaled(w)).empty());
}

TEST_CASE("generic attention has the same bits at any number of threads") {
  const AttentionData x = random_attention({2, 4, 2, 150, 170, 8, 8}, 4);
  const int before = threads();
  for (const std::string& name : similarity_names()) {
    std::vector<AttentionResult> all;
    for (const int n : {1, 2, 3, 8}) {
      set_threads(n);
      all.push_back(attend_generic(x, similarity_by_name(name), {.causal = true}, 0.1, DType::float32));
      CHECK(same_bits(all.back().out, all[0].out));
      CHECK(same_bits(all.back().dq, all[0].dq));
      CHECK(same_bits(all.back().dk, all[0].dk));
      CHECK(same_bits(all.back().dv, all[0].dv));
    }
  }
  set_threads(before);
}

TEST_CASE("generic attention: errors") {
  const Tensor q = Tensor::ones({1, 1, 2, 3}), bad = Tensor::ones({2, 2}), mask = Tensor::ones({2, 2}, DType::bool8);
  Similarity f = similarity_by_name("dot-product"), nothing{.name = "nothing", .f = {}},
             counted = similarity_by_name("embedded-gaussian"),
             wide{.name = "wide", .f = [](const Tensor&s) { return s.unsqueeze(0); }};
  f.by = SimilarityNorm::sum, counted.by = SimilarityNorm::count;
  const auto call = [&](const Similarity& with, const AttentionCall& c, const GenericAttentionOptions& o = {}) {
    return [&, c, o] { generic_attention(q, q, q, with, c, o); };
  };
  const Similarity relu = similarity_by_name("relu");
  check_errors({
      {"generic_attention: the similarity 'dot-product' is -3 for a score, and is normalised by its sum; it must be 0 "
       "or "
       "more, or normalised by count",
       call(f, {}, {.scale = -1})},
      {"generic_attention: the similarity 'nothing' has no f; it must be a function", call(nothing, {})},
      {"is given by its logarithm and normalised by count; it must be normalised by sum", call(counted, {})},
      {"generic_attention: f of 'wide' returned", call(wide, {})},
      {"generic_attention: mask is [2, 2] float32; it must be bool8", call(relu, {.mask = bad})},
      {"generic_attention: bias is [2, 2] bool8 and q is ", call(relu, {.bias = mask})},
      {"generic_attention: dropout is 1.5; it must be in [0, 1]", call(relu, {.dropout = 1.5})},
      {"generic_attention: pool is 0; it must be 1 or more", call(relu, {}, {.pool = 0})},
      {"generic_attention: pool is 2, with causal masking, a mask or a bias; pooled",
       call(relu, {.causal = true}, {.pool = 2})},
      {"pooled keys mix positions, so pooling supports none of them", call(relu, {.mask = mask}, {.pool = 2})},
      {"pooled keys mix positions", call(relu, {.bias = bad}, {.pool = 2})},
      {"similarity: the name is 'cosine'; it must be one of embedded-gaussian, dot-product, relu",
       [] { similarity_by_name("cosine"); }},
  });
}
