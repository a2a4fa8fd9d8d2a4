// Settings that a run makes in its optimizers, and their steps after the run.
#include <heed/optim/run/run_optimizers.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"

using namespace heed;
using test::on_ranks;
using test::Plane;
using test::PlaneRun;
using test::TemporaryFolder;

namespace {

// The weights after one more step, with a gradient that depends on the weights only.
std::vector<float> after_a_step(PlaneRun& s) {
  s.optimizer.zero_grad();
  Tape tape;
  tape.backward(mean(s.model.up.weight * s.model.up.weight));
  s.optimizer.step();
  return s.model.up.weight.to_vector<float>();
}

// The same from a checkpoint, with a model and an optimizer that took part in no run.
std::vector<float> after_a_step_without_run(const std::filesystem::path& file) {
  const Checkpoint c = load_checkpoint(file);
  PlaneRun s;
  load_model(c, s.model);
  std::vector<NamedTensor> state;
  for (const auto& [path, tensor] : c.tensors)
    if (path.starts_with("optimizer/")) state.push_back({path.substr(10), tensor});
  s.optimizer.load_state(state);
  return after_a_step(s);
}

RunOptions rounding(const std::filesystem::path& file, Ranks* ranks) {
  return {.steps = 3,
          .shards = 2,
          .ranks = ranks,
          .communication_dtype = DType::bfloat16,
          .checkpoint = file,
          .start = RunStart::overwrite};
}

}  // namespace

TEST_CASE("run optimizers: after a run with bfloat16 communication, an optimizer steps as if it took part in no run") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "run.h5";
  PlaneRun one;
  one.go(rounding(file, nullptr));
  CHECK((after_a_step(one) == after_a_step_without_run(file)));
  CHECK(on_ranks(2, [&](Ranks& ranks) {
          PlaneRun s;
          s.go(rounding(file, &ranks));
          const std::vector<float> expected = after_a_step_without_run(file);
          require(after_a_step(s) == expected, "other weights");
        }).empty());
}

TEST_CASE("run optimizers: a run that throws or is refused restores the settings of all its optimizers") {
  PlaneRun s;
  RunOptions o = rounding({}, nullptr);
  o.after_step = [](RunStep&) { fail("no more"); };
  CHECK(s.refusal(o) == "no more");
  CHECK(s.optimizer.communication_dtype() == DType::float32);
  // The second optimizer's parameters are float64, so it refuses. The first, already changed, is restored.
  Rng rng(3);
  Linear wide(2, 2, rng);
  to(wide, DType::float64);
  AdamW other(named_parameters(wide));
  CHECK(test::error_of([&] {
          const std::vector<Update> updates = {{s.optimizer, s.schedule}, {other, s.schedule, {}, "wide"}};
          run(s.model, updates, Plane{}, {}, rounding({}, nullptr));
        }) == "AdamW: communication_dtype is bfloat16, but weight is float64; all parameters must be float32");
  CHECK(s.optimizer.communication_dtype() == DType::float32);
  CHECK(other.communication_dtype() == DType::float32);
  s.optimizer.set_communication_dtype(DType::bfloat16);
  s.go({.steps = 1});
  CHECK(s.optimizer.communication_dtype() == DType::bfloat16);
}

TEST_CASE("run optimizers: each optimizer counts once, and a sharded one needs a run with its ranks") {
  PlaneRun s;
  const std::vector<Update> updates = {{s.optimizer, s.schedule}, {s.optimizer, s.schedule}};
  const RunOptions o;
  CHECK(detail::RunOptimizers(updates, o).all() == std::vector<Optimizer*>{&s.optimizer});
  CHECK(on_ranks(2, [&](Ranks& ranks) {
          PlaneRun divided;
          divided.go({.steps = 1, .shards = 2, .ranks = &ranks});
          require(divided.optimizer.division() != nullptr, "it is whole");
          require(divided.refusal({.steps = 1}) ==
                      "run: AdamW is sharded over ranks, but this run has none; create a new optimizer",
                  "another refusal");
          divided.go({.steps = 1, .shards = 2, .ranks = &ranks});
        }).empty());
}
