// The predicted memory of training.
#include "examples/support/memory_need.hpp"

#include <heed/layers/gpt.hpp>
#include <heed/optim/optimizers/optimizers.hpp>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("memory need: an evaluation with more rows than a step counts, and one with as many does not") {
  Rng rng(1);
  GPT model({.vocabulary = 50, .context = 64, .blocks = {.layers = 2, .attention = {.width = 32, .heads = 2}}}, rng);
  const AdamW optimizer(named_parameters(model), {});
  const auto predicted = [&](Index rows) {
    const Tensor x = Tensor::zeros({2, 64}, DType::int32), held_out = Tensor::zeros({rows, 64}, DType::int32);
    std::function<void()> evaluation;
    if (rows > 0) evaluation = [&] { model.loss(held_out, held_out); };
    return examples::predict_training_memory(
        named_parameters(model), optimizer, {}, [&] { return model.loss(x, x); }, evaluation);
  };
  const examples::TrainingMemory step = predicted(0), same = predicted(2), more = predicted(200);
  CHECK(step.tensors > 0);
  CHECK(same.tensors < 1.001 * step.tensors);
  CHECK(more.tensors > 2 * step.tensors);
  CHECK(more.process > step.process);
}
