// Luong's scores, Bahdanau's and cosine attention: values and gradients against PyTorch (tests/reference/
// additive_torch.py), refusals.
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/bahdanau.hpp>
#include <heed/layers/attention/cosine.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/model.hpp>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const StoredCases& additive_reference() { return stored_cases("additive_torch.json"); }

// The attention of a name as a function of the inputs that PyTorch had.
Tensor attend_additive(const std::string& name, Named& x, const AttentionCall& call) {
  const In q = x["q"], k = x["k"], v = x["v"];
  if (name == "luong-dot") return luong_dot_attention(q, k, v, call);
  if (name == "luong-general") return luong_general_attention(q, k, v, x["general"], call);
  if (name == "luong-concat") return luong_concat_attention(q, k, v, x["W"], x["U"], x["bias"], x["score"], call);
  if (name == "luong-location") return luong_location_attention(q, k, v, x["location"], call);
  if (name == "cosine") return cosine_attention(q, k, v, x["beta"], call);
  const bool normalized = name == "bahdanau normalized";
  return bahdanau_attention(q, k, v, x["W"], x["U"], x["score"], normalized ? x["gain"] : Tensor(),
                            normalized ? x["bias"] : Tensor(), call);
}

const char* const kTorchNames[] = {"luong-dot", "luong-general",       "luong-concat", "luong-location",
                                   "bahdanau",  "bahdanau normalized", "cosine"};

}  // namespace

TEST_CASE("Luong, Bahdanau and cosine attention: values and gradients are PyTorch's") {
  for (const std::string name : kTorchNames) {
    for (const bool masked : {false, true}) {
      CAPTURE(name);
      CAPTURE(masked);
      AttentionCall call;
      if (masked) call = {.causal = true, .key_lengths = Tensor::from<std::int32_t>({6, 4})};
      Named wanted = additive_reference().cases.at(name + (masked ? ", causal, lengths" : ", plain"));
      const Named& inputs = additive_reference().inputs;
      Tape tape;
      Named watched;
      for (const auto& [key, x] : inputs) watched[key] = tape.watch(x);
      const Tensor y = attend_additive(name, watched, call);
      tape.backward(y, inputs.at("dy"));
      CHECK(close(y.detach(), wanted["y"], 1e-12, 1e-13));
      for (const auto& input : watched) {
        const std::string key = input.first;
        CAPTURE(key);
        const Tensor gradient = tape.grad(input.second);
        if (wanted.count(key) == 0)
          CHECK(!gradient.defined());
        else
          CHECK(close(gradient, wanted[key], 1e-11, 1e-13));
      }
      Named floats;
      for (const auto& [key, x] : inputs) floats[key] = x.to(DType::float32);
      CHECK(close(attend_additive(name, floats, call), wanted["y"], 2e-6, 2e-6));
    }
  }
}

TEST_CASE("Luong, Bahdanau and cosine attention: the weights are PyTorch's") {
  const Named& x = additive_reference().inputs;
  const AttentionCall call{.causal = true, .key_lengths = Tensor::from<std::int32_t>({6, 4})};
  const Tensor &q = x.at("q"), &k = x.at("k");
  Rng rng(1);
  const auto check_weights = [&](const std::string& name, const AttentionMechanism& m) {
    CAPTURE(name);
    const Tensor wanted = additive_reference().cases.at(name + ", causal, lengths").at("weights");
    CHECK(close(m.weights(q, k, call), wanted, 1e-12, 1e-13));
    CHECK(close(matmul(m.weights(q, k, call), x.at("v")), m.apply(q, k, x.at("v"), call), 1e-12, 1e-13));
  };
  const auto set = [](const std::vector<std::pair<Parameter*, Tensor>>& values) {
    for (const auto& [parameter, value] : values) *parameter = Parameter(value.clone());
  };
  check_weights("luong-dot", LuongDot{});
  LuongGeneral general(2, 3, rng);
  set({{&general.W, x.at("general")}});
  check_weights("luong-general", std::move(general));
  LuongConcat concat(2, 3, rng, {.units = 5});
  set({{&concat.W, x.at("W")}, {&concat.U, x.at("U")}, {&concat.bias, x.at("bias")}, {&concat.score, x.at("score")}});
  check_weights("luong-concat", std::move(concat));
  LuongLocation location(2, 3, rng, {.positions = 8});
  set({{&location.W, x.at("location")}});
  check_weights("luong-location", std::move(location));
  BahdanauAttention plain(2, 3, rng, {.units = 5});
  set({{&plain.W, x.at("W")}, {&plain.U, x.at("U")}, {&plain.score, x.at("score")}});
  check_weights("bahdanau", std::move(plain));
  BahdanauAttention normalized(2, 3, rng, {.units = 5, .normalized = true});
  set({{&normalized.W, x.at("W")},
       {&normalized.U, x.at("U")},
       {&normalized.score, x.at("score")},
       {&normalized.gain, x.at("gain")},
       {&normalized.bias, x.at("bias")}});
  check_weights("bahdanau normalized", std::move(normalized));
  CosineAttention cosine(2, 3, rng);
  set({{&cosine.log_beta, log(x.at("beta"))}});
  check_weights("cosine", std::move(cosine));
}

TEST_CASE("Luong, Bahdanau and cosine attention begin as they promise") {
  Rng rng(1);
  BahdanauAttention b(2, 16, rng, {.units = 9, .normalized = true});
  CHECK(b.W.shape() == Shape{2, 9, 16});
  CHECK(b.gain.to_vector<double>()[1] == doctest::Approx(1 / 3.0));
  for (const double x : b.bias.to_vector<double>()) CHECK_UNARY(x == 0);
  double most = 0;
  for (const double x : b.U.to_vector<double>()) most = std::max(most, std::fabs(x));
  CHECK((most > 0.23 && most <= 0.25));
  CHECK(named_parameters(b).size() == 5);
  BahdanauAttention plain(2, 16, rng);
  CHECK(named_parameters(plain).size() == 3);
  CHECK(plain.score.shape() == Shape{2, 16});
  // beta = 1: the weights are those of plain cosines.
  const Tensor q = normal({1, 2, 3, 4}, 1).to(DType::float32), k = normal({1, 2, 5, 4}, 2).to(DType::float32);
  const auto unit_beta = [&](const Tensor& keys) {
    return weights_by([&](In v) { return cosine_attention(q, keys, v, Tensor::ones({2})); }, keys);
  };
  CHECK(close(AttentionMechanism(CosineAttention(2, 4, rng)).weights(q, k, {}), unit_beta(k), 0, 1e-7));
  // Keys of zeros have a cosine of 0, whatever the query.
  for (const double w : unit_beta(k * 0).to_vector<double>())
    CHECK(w == doctest::Approx(0.2));
}

TEST_CASE("Luong, Bahdanau and cosine attention refuse what they lack, and shapes that do not fit") {
  Rng rng(1);
  const Tensor q = Tensor::ones({2, 4, 3, 5}), k = Tensor::ones({2, 4, 6, 5}), few = Tensor::ones({2, 2, 6, 5});
  const Tensor W = Tensor::ones({4, 7, 5}), score = Tensor::ones({4, 7});
  const Tensor three = Tensor::ones({2, 3, 6, 5});
  const auto apply = [&](AttentionMechanism m, const Tensor& keys) { m.apply(q, keys, keys, {}); };
  check_errors({
      {"luong-location attention: k is [2, 4, 6, 5] float32 but W is [4, 5, 5] float32; it has rows for 5 keys at most",
       [&] { apply(LuongLocation(4, 5, rng, {.positions = 5}), k); }},
      {"luong-location attention: q is [2, 4, 3, 5] float32 and W is [1, 9, 5] float32",
       [&] {
         luong_location_attention(q, k, k, Tensor::ones({1, 9, 5}));
       }},
      {"luong-general attention: W is [4, 7, 5] float32; it must be [heads, size, size]",
       [&] { luong_general_attention(q, k, k, W); }},
      {"luong-general attention: x is [2, 4, 3, 5] float32 and its projection is [1, 5, 5] float32",
       [&] {
         luong_general_attention(q, k, k, Tensor::ones({1, 5, 5}));
       }},
      {"additive attention: x is [2, 4, 3, 5] float32 and its projection is [4, 7, 6] float32",
       [&] {
         bahdanau_attention(q, k, k, Tensor::ones({4, 7, 6}), W, score);
       }},
      {"additive attention: x is [2, 3, 6, 5] float32 and its projection is [4, 7, 5] float32",
       [&] { bahdanau_attention(q, three, three, W, W, score); }},
      {"additive attention: k is [2, 2, 6, 5] float32 and its projection is [4, 7, 6] float32; they must have one size "
       "and one dtype",
       [&] {
         bahdanau_attention(q, few, few, W, Tensor::ones({4, 7, 6}), score);
       }},
      {"attention: there are 4 heads and x is [2, 3, 6, 5] float32; its heads must divide them",
       [&] { bahdanau_attention(q, k, three, W, W, score); }},
      {"additive attention: W is [4, 7, 5] float32 but bias is [7] float32; it must be [heads, units] [4, 7] float32",
       [&] { bahdanau_attention(q, k, k, W, W, score, Tensor(), score[0]); }},
      {"additive attention: score is [4, 7] float32 and gain is [7] float32",
       [&] { bahdanau_attention(q, k, k, W, W, score, score[0]); }},
      {"additive attention: x is [4, 6, 5] float32; it must be [batch, heads, positions, size]",
       [&] { bahdanau_attention(q, k[0], k, W, W, score); }},
      {"additive_attention: q is [2, 4, 3, 7] float32 but u is [4, 8] float32",
       [&] {
         bahdanau_attention(q, k, k, W, W, Tensor::ones({4, 8}));
       }},
      {"cosine attention: q is [2, 4, 3, 5] float32 and beta is [1] float32",
       [&] { cosine_attention(q, k, k, Tensor::ones({1})); }},
      {"BahdanauAttention: heads is 0, size is 5 and units is 0", [&] { BahdanauAttention(0, 5, rng); }},
      {"LuongGeneral: heads is 2 and size is 0", [&] { LuongGeneral(2, 0, rng); }},
      {"LuongConcat: heads is 2, size is 3 and units is -1", [&] { LuongConcat(2, 3, rng, {.units = -1}); }},
      {"LuongLocation: heads is 2, size is 3 and positions is 0; all must be 1 or more",
       [&] { LuongLocation(2, 3, rng, {}); }},
      {"CosineAttention: heads is 0", [&] { CosineAttention(0, 1, rng); }},
  });
  // A state of location attention is full when W's rows are used up, and keeps its length then.
  AttentionState state = LuongLocation(4, 5, rng, {.positions = 7}).make_state();
  state.apply(k, k, k);
  check_errors({{"it has rows for 7 keys at most", [&] { state.apply(k, k, k); }}});
  CHECK(state.length() == 6);
}
