// Numbers that ranks exchange, which are then equal on all ranks; and the optimizers of a run.
#include <atomic>
#include <chrono>
#include <heed/optim/ranks/run_ranks.hpp>
#include <thread>

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
          .checkpoint = {.path = file, .start = RunStart::overwrite},
          .ranks = {.communicator = ranks, .dtype = DType::bfloat16}};
}

}  // namespace

TEST_CASE("run_ranks: sums, answers and losses are the same on all") {
  for (const int size : {1, 2, 3}) {
    CHECK(on_ranks(size, [&](Ranks& all) {
            detail::RunRanks ranks({.communicator = &all}, 5);
            double numbers[] = {1, static_cast<double>(all.rank())};
            ranks.sum(numbers);
            require(numbers[0] == size && numbers[1] == size * (size - 1) / 2, "another sum");
            require(ranks.any(all.rank() == size - 1) && !ranks.any(false), "another answer");
            ranks.start_sum({1.0 + all.rank(), 10});
            require(ranks.finish_sum() == std::vector<double>{size * (size + 1) / 2.0, 10.0 * size}, "another sum");
            // 1e16 + 1 + 1 + 1 - 1e16 gives 0 only if the five shards are summed in order.
            const std::vector<double> losses = {1e16, 1, 1, 1, -1e16};
            bool flags[] = {all.rank() == size - 1, false, all.rank() == 0};
            ranks.start_sum_of_shards({losses.begin() + ranks.begin(), losses.begin() + ranks.end()}, flags);
            ranks.start_sum({0.5});  // while the other sum is in flight
            require(ranks.finish_sum() == std::vector<double>{size / 2.0}, "another sum");
            const double sum = ranks.finish_sum_of_shards(flags);
            require(flags[0] && !flags[1] && flags[2], "another flag");
            require(sum == (((1e16 + 1) + 1) + 1) - 1e16, "another order");
          }).empty());
  }
}

TEST_CASE("run_ranks: texts are used in order on all ranks, and a single rank uses each before the next") {
  for (const int size : {1, 2, 3})
    CHECK(on_ranks(size, [&](Ranks& all) {
            std::string used, computed;
            detail::RunRanks({.communicator = &all}, size)
                .each_in_order(
                    5, [&](Index i) { return computed += std::to_string(i); },
                    [&](Index i, const std::string& text) {
                      used += std::to_string(i) + ":" + text.back() + " ";
                      require(size > 1 || computed.size() == static_cast<std::size_t>(i + 1), "computed too early");
                    });
            require(used == "0:0 1:1 2:2 3:3 4:4 ", used);
          }).empty());
}

TEST_CASE("run_ranks: after a run with bfloat16 communication, an optimizer steps as if it took part in no run") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "run.h5";
  PlaneRun one;
  one.go(rounding(file, nullptr));
  CHECK((after_a_step(one) == after_a_step_without_run(file)));
}

TEST_CASE("run_ranks: the next run continues with divided optimizers, also with another one before them") {
  const auto weights = [](Ranks* ranks) {
    PlaneRun s;
    s.go({.steps = 2, .shards = 2, .ranks = {.communicator = ranks}});
    Rng rng(3);
    Linear large(8, 9000, rng);
    AdamW other(named_parameters(large));
    const auto loss = [&](const Batch& b) { return mean(large(b.inputs) * large(b.inputs)); };
    RunParts parts = {.store = [](Checkpoint&) {},
                      .load = [](const Checkpoint&) {},
                      .loss = [&](const Batch& b) { return s.model.loss(b.inputs, b.targets) + loss(b); },
                      .updates = {{other, s.schedule}, {s.optimizer, s.schedule, {}, "first"}},
                      .data = Plane{},
                      .validation = {}};
    run(parts, {.steps = 2, .shards = 2, .ranks = {.communicator = ranks}});
    std::vector<float> all = s.model.up.weight.to_vector<float>(), more = large.weight.to_vector<float>();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<float> one = weights(nullptr);
  CHECK(on_ranks(2, [&](Ranks& ranks) { require(weights(&ranks) == one, "other weights"); }).empty());
}

TEST_CASE("run_ranks: the dtype of messages is checked before a run changes anything") {
  PlaneRun s;
  Rng rng(3);
  Linear wide(2, 2, rng);
  to(wide, DType::float64);
  AdamW other(named_parameters(wide));
  const std::vector<Update> updates = {{s.optimizer, s.schedule}, {other, s.schedule, {}, "wide"}};
  const auto refusal = [&](DType dtype) {
    return test::error_of([&] { run(s.model, updates, Plane{}, {}, {.steps = 1, .ranks = {.dtype = dtype}}); });
  };
  CHECK(refusal(DType::bfloat16) ==
        "AdamW: ranks.dtype is bfloat16, but weight is float64; all parameters must be float32");
  CHECK(refusal(DType::float64) == "run: ranks.dtype is float64; it must be float32 or bfloat16");
  CHECK(s.optimizer.step_count() == 0);
}

TEST_CASE("run_ranks: an optimizer of two updates counts once, and a divided one needs a run with its ranks") {
  const auto train = [](PlaneRun& s, Ranks* ranks) {
    const std::vector<Update> updates = {{s.optimizer, s.schedule}, {s.optimizer, s.schedule}};
    run(s.model, updates, Plane{}, {}, {.steps = 2, .shards = 2, .ranks = {.communicator = ranks}});
    return s.model.up.weight.to_vector<float>();
  };
  PlaneRun one;
  const std::vector<float> weights = train(one, nullptr);
  CHECK(on_ranks(2, [&](Ranks& ranks) {
          PlaneRun divided;
          require(train(divided, &ranks) == weights, "other weights");
          require(divided.refusal({.steps = 1}) ==
                      "run: AdamW is sharded over other ranks than those of this run; create a new optimizer",
                  "another refusal");
          divided.go({.steps = 1, .shards = 2, .ranks = {.communicator = &ranks}});
        }).empty());
}

namespace {

// A model with running statistics, which keeps the inputs of its losses.
struct Normalized {
  Linear up, down;
  BatchNorm norm{16};
  mutable std::vector<Tensor> seen;  // results of `up`, in the order of the losses

  explicit Normalized(Rng& rng) : up(8, 16, rng), down(16, 1, rng) {}
  Tensor loss(In x, In y) const {
    const Tensor hidden = up(x);
    if (is_training()) seen.push_back(hidden.detach());
    return mse_loss(down(relu(norm(hidden))), y);
  }
  void members(auto&& visit) {
    visit("up", up);
    visit("norm", norm);
    visit("down", down);
  }
};

void train_normalized(Normalized& model, Ranks* ranks) {
  AdamW optimizer(named_parameters(model), {.lr = 1e-2});
  Schedule schedule("constant", {.lr = 1e-2});
  run(model, optimizer, schedule, Plane{}, test::HeldOutPlane{},
      {.steps = 3, .accumulate = 2, .shards = 4, .evaluation = {.every = 1}, .ranks = {.communicator = ranks}});
}

}  // namespace

TEST_CASE("run_ranks: running statistics follow the order of the shards, with the same bits in any number of ranks") {
  Rng rng(3);
  Normalized one(rng);
  train_normalized(one, nullptr);
  CHECK(one.seen.size() == 3 * 4 * 2);
  BatchNorm expected(16);
  for (const Tensor& hidden : one.seen) {
    Tape tape;
    expected(hidden);
  }
  CHECK(test::same_bits(one.norm.running_mean, expected.running_mean));
  CHECK(test::same_bits(one.norm.running_var, expected.running_var));
  for (const int size : {2, 3})
    for (const auto& [rank, reason] : on_ranks(size, [&](Ranks& ranks) {
           Rng same(3);
           Normalized model(same);
           train_normalized(model, &ranks);
           require(test::same_bits(model.norm.running_mean, one.norm.running_mean), "another mean");
           require(test::same_bits(model.norm.running_var, one.norm.running_var), "another variance");
           require(test::same_bits(model.up.weight, one.up.weight), "other weights");
         }))
      FAIL_CHECK("rank ", rank, ": ", reason);
}

TEST_CASE("run_ranks: running statistics that the model does not name are an error in a run with several ranks") {
  const auto reasons = on_ranks(2, [](Ranks& ranks) {
    Rng rng(3);
    Normalized model(rng);
    AdamW optimizer(named_parameters(model), {.lr = 1e-2});
    Schedule schedule("constant", {.lr = 1e-2});
    RunParts parts = {.store = [](Checkpoint&) {},
                      .load = [](const Checkpoint&) {},
                      .loss = [&](const Batch& b) { return model.loss(b.inputs, b.targets); },
                      .updates = {{optimizer, schedule}},
                      .data = Plane{},
                      .validation = {}};
    run(parts, {.steps = 1, .shards = 2, .ranks = {.communicator = &ranks}});
  });
  REQUIRE(!reasons.empty());
  CHECK(test::contains(reasons.begin()->second,
                       "run: the buffer of running statistics [16] float32 is not a member of "
                       "the model; members() must name it, and RunParts::buffers must list it"));
}

// The address sanitizer reports a write to freed memory.
TEST_CASE("run_ranks: a sum that is never finished is not written to after its memory is freed") {
  test::PostOffice office;
  std::atomic<bool> delivers = false;
  office.before_delivery = [&](int to) {
    if (to != 0) return;
    delivers = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  test::ThreadRanks first(0, 2, office), second(1, 2, office);
  detail::RunRanks other({.communicator = &second}, 2);
  other.start_sum({2.0});
  {
    detail::RunRanks ranks({.communicator = &first}, 2);
    ranks.start_sum({1.0});
    while (!delivers) std::this_thread::yield();
  }
  CHECK(office.undelivered() <= 1);  // the sum of rank 0 has arrived at rank 1, or is on its way
}
