// Luong's, Bahdanau's and cosine attention as mechanisms: states, padding, gradients.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/model.hpp>
#include <map>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

const char* const kNames[] = {"luong-dot", "luong-general",       "luong-concat", "luong-location",
                              "bahdanau",  "bahdanau normalized", "cosine"};

// A mechanism of the name, in float64, whose parameters are neither 0 nor equal.
AttentionMechanism mechanism(const std::string& name, Index heads, Index size) {
  Rng rng(3);
  AttentionMechanism m = [&]() -> AttentionMechanism {
    if (name == "luong-dot") return LuongDot{};
    if (name == "luong-general") return LuongGeneral(heads, size, rng);
    if (name == "luong-concat") return LuongConcat(heads, size, rng, {.units = 6});
    if (name == "luong-location") return LuongLocation(heads, size, rng, {.positions = 30});
    if (name == "cosine") return CosineAttention(heads, size, rng);
    return BahdanauAttention(heads, size, rng, {.units = 7, .normalized = name == "bahdanau normalized"});
  }();
  for (const NamedParameter& p : named_parameters(m))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3));
  to(m, DType::float64);
  return m;
}

}  // namespace

TEST_CASE("Luong, Bahdanau and cosine attention: at once, in chunks and token by token are the same") {
  const Tensor q = normal({2, 4, 21, 5}, 1);
  for (const std::string name : kNames) {
    CAPTURE(name);
    const AttentionMechanism m = mechanism(name, 4, 5);
    const Index groups = m.capabilities().grouped ? 2 : 4;
    const Tensor k = normal({2, groups, 21, 5}, 2), v = normal({2, groups, 21, 3}, 4);
    const Tensor whole = m.apply(q, k, v, {.causal = true});
    for (const Index step : {1, 4, 20, 21}) {
      CAPTURE(step);
      AttentionState state = m.make_state();
      List parts;
      for (Index i = 0; i < 21; i += step) {
        const Index end = std::min<Index>(21, i + step);
        parts.push_back(state.apply(q.slice(2, i, end), k.slice(2, i, end), v.slice(2, i, end)));
        CHECK(state.length() == end);
      }
      CHECK(close(concatenate(parts, 2), whole, 1e-12, 1e-13));
    }
    // Saved and resumed.
    AttentionState first = m.make_state(), second = m.make_state();
    first.apply(q.slice(2, 0, 8), k.slice(2, 0, 8), v.slice(2, 0, 8));
    std::map<std::string, Tensor> saved;
    for (const NamedBuffer& b : named_buffers(first)) saved[b.name] = b.buffer->clone();
    for (const NamedBuffer& b : named_buffers(second)) *b.buffer = saved.at(b.name);
    CHECK(close(second.apply(q.slice(2, 8, 21), k.slice(2, 8, 21), v.slice(2, 8, 21)), whole.slice(2, 8, 21), 1e-12,
                1e-13));
  }
}

TEST_CASE("Luong, Bahdanau and cosine attention: NaN in padding reaches neither values nor any gradient") {
  const Index heads = 2, T = 5, S = 9;
  const Tensor q = normal({2, heads, T, 4}, 1), k = normal({2, heads, S, 4}, 2), v = normal({2, heads, S, 3}, 3),
               dy = normal({2, heads, T, 3}, 4);
  Tensor mask = Tensor::ones({2, S}, DType::bool8);
  mask[0].slice(0, 2, 4).fill_(0);
  mask[1].fill_(0);  // the second sequence has no keys
  const AttentionCall calls[] = {{.key_lengths = Tensor::from<std::int32_t>({6, 0})},
                                 {.key_mask = mask},
                                 {.causal = true, .key_lengths = Tensor::from<std::int32_t>({6, 0}), .key_mask = mask}};
  for (const std::string name : kNames) {
    CAPTURE(name);
    AttentionMechanism m = mechanism(name, heads, 4);
    for (const AttentionCall& call : calls) {
      const auto run = [&](const Tensor& keys, const Tensor& values) {
        for (const NamedParameter& p : named_parameters(m)) p.parameter->zero_grad();
        Tape tape;
        const Tensor wq = tape.watch(q), wk = tape.watch(keys), wv = tape.watch(values);
        const Tensor y = m.apply(wq, wk, wv, call);
        tape.backward(y, dy);
        List all = {y.detach(), tape.grad(wq), tape.grad(wk), tape.grad(wv)};
        for (const NamedParameter& p : named_parameters(m)) all.push_back(p.parameter->grad().clone());
        return all;
      };
      Tensor bad_k = k.clone(), bad_v = v.clone();
      for (Index b = 0; b < 2; ++b)
        for (Index j = 0; j < S; ++j) {
          if ((!call.key_mask.defined() || call.key_mask.at({b, j}) != 0) &&
              (!call.key_lengths.defined() || j < static_cast<Index>(call.key_lengths.at({b}))))
            continue;
          bad_k[b].slice(1, j, j + 1).fill_(kNaN);
          bad_v[b].slice(1, j, j + 1).fill_(kNaN);
        }
      const List clean = run(k, v), dirty = run(bad_k, bad_v);
      for (std::size_t i = 0; i < clean.size(); ++i) {
        CAPTURE(i);
        REQUIRE(clean[i].defined() == dirty[i].defined());
        if (clean[i].defined()) CHECK(same_bits(clean[i], dirty[i]));
        if (i < 4 && clean[i].defined())
          for (const double x : dirty[i][1].to_vector<double>()) CHECK_UNARY(x == 0);
      }
    }
  }
}

TEST_CASE("Luong, Bahdanau and cosine attention: gradients of inputs and parameters, with a mask, a bias and dropout") {
  const Tensor q = normal({2, 2, 3, 4}, 1), k = normal({2, 2, 5, 4}, 2), v = normal({2, 2, 5, 3}, 3);
  Tensor mask = Tensor::ones({3, 5}, DType::bool8);
  mask[1].slice(0, 0, 4).fill_(0);
  for (const std::string name : kNames) {
    CAPTURE(name);
    AttentionMechanism m = mechanism(name, 2, 4);
    const auto f = [&](const List& x) {
      manual_seed(3);
      return m.apply(x[0], x[1], x[2], {.causal = true, .mask = mask, .bias = x[3], .dropout = 0.2});
    };
    const List inputs = {q, k, v, normal({2, 3, 5}, 5)};
    gradcheck(f, inputs);
    if (name != "luong-dot") gradcheck([&] { return f(inputs); }, named_parameters(m));
  }
}
