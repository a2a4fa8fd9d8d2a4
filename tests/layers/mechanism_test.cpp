// The value that holds a mechanism: what it takes beside q, k and v.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::check_errors;

namespace {

struct TwoInputs {
  std::string name() const { return "two-inputs"; }
  AttentionCapabilities capabilities() const { return {.weights = true, .cross = true, .grouped = true}; }
  std::vector<MechanismInput> inputs() const {
    return {{.name = "gate", .size = 3}, {.name = "tone", .of = MechanismInput::Of::queries}};
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const {
    return attention(q, k, v, call) * inputs[1];
  }
  Tensor weights(In q, In k, const AttentionCall&, std::span<const Tensor> inputs) const {
    return Tensor::full({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, inputs[0].at({0, 0, 0, 2}));
  }
  void members(auto&&) {}
};

struct Declares : TwoInputs {
  std::vector<MechanismInput> declared;
  std::vector<MechanismInput> inputs() const { return declared; }
};

}  // namespace

TEST_CASE("a mechanism is given the inputs that it declares, in the shapes that it declares") {
  Rng rng(1);
  const AttentionMechanism m = TwoInputs();
  REQUIRE(m.inputs().size() == 2);
  CHECK(m.inputs()[0].size == 3);
  CHECK(AttentionMechanism(SoftmaxAttention()).inputs().empty());
  const Tensor q = rng.normal({2, 4, 3, 8}), k = rng.normal({2, 2, 5, 8}), gate = rng.normal({2, 2, 5, 3}),
               tone = rng.normal({2, 4, 3, 1});
  const std::vector<Tensor> both = {gate, tone};
  CHECK(test::same_bits(m.apply(q, k, k, {}, both).contiguous(), attention(q, k, k).contiguous() * tone));
  CHECK(m.weights(q, k, {}, both).at({1, 3, 2, 4}) == gate.at({0, 0, 0, 2}));
  const auto declared = [](std::vector<MechanismInput> inputs) {
    return [inputs] { AttentionMechanism(Declares{{}, inputs}); };
  };
  AttentionState state = ForgettingAttention().make_state(), copy = SoftmaxAttention().make_state();
  const auto given = [&](std::vector<Tensor> inputs) { return [&, inputs] { m.apply(q, k, k, {}, inputs); }; };
  check_errors({
      {"two-inputs attention: it declares 5 inputs; there may be 4, each of any size",
       declared(std::vector<MechanismInput>(5))},
      {"two-inputs attention: the size of its input gate is 0; it must be 1 or more",
       declared({{.name = "gate", .size = 0}})},
      {"two-inputs attention: 0 inputs were given beside q, k and v; they must be as many as it declares, 2",
       given({})},
      {"two-inputs attention: 1 inputs were given", [&] { m.weights(q, k, {}, std::vector{gate}); }},
      {"two-inputs attention: its input gate is [2, 2, 5, 1] float32; it must be [2, 2, 5, 3] float32",
       given({gate.slice(3, 0, 1), tone})},
      {"two-inputs attention: its input gate is [2, 4, 3, 3] float32; it must be [2, 2, 5, 3] float32",
       given({rng.normal({2, 4, 3, 3}), tone})},
      {"its input tone is [2, 4, 3, 1] float64; it must be [2, 4, 3, 1] float32",
       given({gate, tone.to(DType::float64)})},
      {"its input tone is undefined", given({gate, Tensor()})},
      {"softmax attention: 2 inputs were given beside q, k and v; they must be as many as it declares, 0",
       [&] { AttentionMechanism(SoftmaxAttention()).apply(q, k, k, {}, both); }},
      {"AttentionState: 0 inputs were given beside q, k and v; they must be as many as it declares, 1",
       [&] { state.apply(q, q, q); }},
      {"AttentionState: its input forget is [2, 4, 3, 2] float32; it must be [2, 4, 3, 1] float32",
       [&] { state.rows(Tensor::from<std::int32_t>({0})).apply(q, q, q, {}, std::vector{q.slice(3, 0, 2)}); }},
      {"AttentionState: 1 inputs were given beside q, k and v; they must be as many as it declares, 0",
       [&] { copy.apply(q, q, q, {}, std::vector{tone}); }},
      {"AttentionState: q, k or v wants a gradient",
       [&] {
         Tape tape;
         state.apply(q, q, q, {}, std::vector{tape.watch(tone)});
       }},
  });
}
