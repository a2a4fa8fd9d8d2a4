// Layers in sequence.
#include <heed/layers/model.hpp>
#include <numeric>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::names_of;
using test::normal;

TEST_CASE("Sequential: takes plain functions and layers, with their default options") {
  Rng rng(1);
  const Tensor x = test::normal({3, 2}, 1, DType::float32);
  Sequential model(
      Linear(2, 5, rng), gelu, relu, heed::tanh, [](In h) { return elu(h, 0.5); }, Linear(5, 3, rng));
  const Tensor expected = model.get<5>()(elu(heed::tanh(relu(gelu(model.get<0>()(x)))), 0.5));
  CHECK(test::same_bits(model(x), expected));
  CHECK(named_parameters(model).back().name == "5.bias");
  // A pointer to elu has no default for alpha.
  static_assert(detail::SequentialPart<decltype(&gelu)> && detail::SequentialPart<Linear>);
  static_assert(!detail::SequentialPart<decltype(&elu)> && !detail::SequentialPart<decltype(&softplus)>);
}
