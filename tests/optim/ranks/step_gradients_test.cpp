// The gradients of one rank: sums over shards, norms and steps. ranks_test.cpp compares several ranks with one.
#include <cmath>
#include <heed/optim/ranks/run_ranks.hpp>

#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// A model, its optimizer, and gradients of one rank.
struct OneRank {
  Model model;
  AdamW optimizer{named_parameters(model), {.lr = 0.1}};
  detail::RunRanks ranks;
  std::unique_ptr<detail::StepGradients> gradients;

  explicit OneRank(DType dtype = DType::float32) : ranks({.dtype = dtype}) {
    ranks.divide({&optimizer});
    gradients = ranks.gradients();
  }
};

}  // namespace

TEST_CASE("step gradients: the sum over shards, its norm and its step are those of the optimizer alone") {
  OneRank one;
  Model model;
  AdamW alone(named_parameters(model), {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    one.gradients->begin();
    for (const double g : {0.5, 0.25, 0.125}) {
      set_gradients(one.model, g);
      if (g != 0.125) one.gradients->add_shard();
    }
    one.gradients->finish();
    set_gradients(model, 0.875);
    std::vector<double> of_shards = {1, 2, 3};
    CHECK(one.gradients->norm(one.optimizer, of_shards) == alone.grad_norm());
    CHECK(of_shards == std::vector<double>{1, 2, 3});
    one.gradients->apply(one.optimizer, 0.5);
    alone.step(0.5);
    CHECK(same_bits(one.model.weight.detach(), model.weight.detach()));
    CHECK(same_bits(one.model.bias.detach(), model.bias.detach()));
  }
}

TEST_CASE("step gradients: an optimizer of one rank keeps its whole state, and the error names the parameter") {
  OneRank one;
  set_gradients(one.model, 1);
  set_gradient(one.model.bias, Tensor::full({2}, INFINITY));
  CHECK(one.gradients->norm(one.optimizer) == INFINITY);
  CHECK(error_of([&] { one.gradients->fail_non_finite(one.optimizer, INFINITY); }) ==
        "AdamW: the gradient of bias has NaN, infinite or far too large values; gradients must be finite");
  CHECK(!one.optimizer.state().empty());
}
