// Runs on several ranks have the bits of one process, for any model and options.
#include <heed/optim/ranks/run_ranks.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::bytes_of;
using test::HeldOutPlane;
using test::on_ranks;
using test::Plane;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// A model with one large matrix, which is divided, and small layers, one of which is rarely used.
struct Net {
  Linear up, down, side;
  Dropout drop{0.2};
  explicit Net(Rng& rng) : up(8, 5000, rng), down(5000, 1, rng), side(8, 1, rng) {}
  Tensor loss(const Batch& b) const {
    Tensor y = down(drop(relu(up(b.inputs))));
    if (b.has("side")) y = y + side(b.inputs);
    return mse_loss(y, b.targets);
  }
  void members(auto&& visit) {
    visit("up", up);
    visit("down", down);
    visit("side", side);
  }
};

struct Data {
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Batch b = Plane{.rows = 8 + static_cast<Index>(step % 3)}.batch(seed, step);
    if (step % 8 == 5) b["side"] = Tensor::zeros({1});
    return b;
  }
};

struct Trial {
  std::string optimizer = "adamw";
  int ranks = 0;         // 0: without ranks
  int of_a_machine = 1;  // number of ranks that share memory
  Index steps = 4, shards = 8, accumulate = 1;
  double clip = 0.1;
  bool average = false, resume = false;
  DType communication = DType::float32;
};

// Trains, and returns the bytes of the checkpoint and the last loss.
std::pair<std::string, double> trained(const Trial& t, const fs::path& folder) {
  const fs::path file = folder / "run.h5", log = folder / "run.jsonl";
  if (!t.resume) fs::remove(file);
  double last = 0;
  const auto train = [&](Ranks* ranks) {
    Rng rng(3);
    Net model(rng);
    const auto optimizer = make_optimizer(t.optimizer, muon_groups(model, {.weight_decay = 0.1}), {.lr = 1e-2});
    Schedule schedule("cosine", {.lr = 1e-2, .warmup = 2, .steps = 8});
    WeightAverage average(named_parameters(model), 0.9);
    RunOptions o{.steps = t.steps,
                 .accumulate = t.accumulate,
                 .shards = t.shards,
                 .grad_clip = t.clip,
                 .seed = 5,
                 .evaluation = {.every = 2},
                 .checkpoint = {.path = file, .start = t.resume ? RunStart::resume_or_start : RunStart::overwrite},
                 .output = {.log = log},
                 .ranks = {.communicator = ranks}};
    if (t.average) o.average = &average;
    o.ranks.dtype = t.communication;
    const RunResult r = run(model, *optimizer, schedule, Data{}, HeldOutPlane{}, o);
    if (ranks == nullptr || ranks->rank() == ranks->size() - 1) last = r.history.losses.back() + *r.validation_loss;
  };
  if (t.ranks == 0)
    train(nullptr);
  else
    for (const auto& [rank, reason] : on_ranks(
             t.ranks, [&](Ranks& ranks) { train(&ranks); }, t.of_a_machine))
      FAIL_CHECK("rank ", rank, ": ", reason);
  return {bytes_of(file), last};
}

// The names of tensors that differ between two checkpoints.
std::string difference(const fs::path& a, const fs::path& b) {
  const Checkpoint x = load_checkpoint(a), y = load_checkpoint(b);
  std::string names;
  for (const auto& [name, tensor] : x.tensors)
    if (!y.tensors.contains(name) || !test::same_bits(tensor, y.tensors.at(name))) names += " " + name;
  for (const auto& [name, tensor] : y.tensors)
    if (!x.tensors.contains(name)) names += " " + name;
  if (x.counters != y.counters) names += " counters";
  if (x.texts != y.texts) names += " texts";
  return names;
}

}  // namespace

TEST_CASE("ranks: each optimizer leaves the bits of one process") {
  const TemporaryFolder folder;
  int number = 0, of_optimizer = 0;
  for (const std::string& optimizer : optimizer_names()) {
    if (!test::is_taken(of_optimizer++, 3)) continue;
    const auto one = trained({.optimizer = optimizer}, folder.path);
    for (const auto& given : {std::pair{1, 1}, {2, 1}, {2, 2}, {3, 2}, {4, 1}, {4, 4}, {8, 2}}) {
      if (!test::is_taken(number++, 4)) continue;
      const int ranks = given.first, of_a_machine = given.second;
      CAPTURE(optimizer);
      CAPTURE(ranks);
      CAPTURE(of_a_machine);
      const auto several = trained({.optimizer = optimizer, .ranks = ranks, .of_a_machine = of_a_machine}, folder.path);
      CHECK((several.first == one.first));
      CHECK(several.second == one.second);
    }
  }
}

TEST_CASE("ranks: each optimizer gives the bits of one process with bfloat16 communication") {
  const TemporaryFolder folder;
  int number = 0, of_optimizer = 0;
  for (const std::string& optimizer : optimizer_names()) {
    if (!test::is_taken(of_optimizer++, 4)) continue;
    CAPTURE(optimizer);
    Trial t = {.optimizer = optimizer, .shards = 7};
    const auto plain = trained(t, folder.path);
    t.communication = DType::bfloat16;
    const auto one = trained(t, folder.path);
    CHECK((one.first != plain.first));
    CHECK(one.second == doctest::Approx(plain.second).epsilon(0.05));
    for (const int ranks : {1, 2, 3, 4, 7}) {
      if (!test::is_taken(number++, 4)) continue;
      CAPTURE(ranks);
      t.ranks = ranks;
      const auto several = trained(t, folder.path);
      CHECK((several.first == one.first));
      CHECK(several.second == one.second);
    }
  }
}

TEST_CASE("ranks: a language model with tied embeddings gives the weights of one process") {
  const auto train = [](Ranks* ranks) {
    Rng rng(3);
    const CopyTask task({.batch = 3, .length = 8});
    GPT model({.vocabulary = task.vocabulary(),
               .context = 16,
               .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2}}},
              rng);
    AdamW optimizer(named_parameters(model));
    Schedule schedule("constant", {.lr = 1e-2});
    run(model, optimizer, schedule, task, {}, {.steps = 4, .shards = 6, .ranks = {.communicator = ranks}});
    std::vector<std::vector<float>> weights;
    for (const NamedParameter& p : named_parameters(model)) weights.push_back(p.parameter->to_vector<float>());
    return weights;
  };
  const auto one = train(nullptr);
  for (const int ranks : {2, 3})
    for (const int of_a_machine : {1, 2})
      CHECK(on_ranks(
                ranks, [&](Ranks& r) { require(train(&r) == one, "other weights"); }, of_a_machine)
                .empty());
}

TEST_CASE("ranks: shards of any number, accumulated batches, clipping or none, averages") {
  const TemporaryFolder folder;
  int number = 0;
  for (const Trial& t :
       {Trial{.shards = 5}, Trial{.shards = 4, .accumulate = 2}, Trial{.clip = 0}, Trial{.average = true}}) {
    const auto one = trained(t, folder.path);
    for (const int ranks : {2, 3, 4}) {
      if (!test::is_taken(number++, 4)) continue;
      CAPTURE(ranks);
      Trial several = t;
      several.ranks = ranks, several.of_a_machine = ranks / 2;
      CHECK((trained(several, folder.path).first == one.first));
    }
  }
}

TEST_CASE("ranks: several optimizers, clipped together or with losses of their own") {
  const TemporaryFolder folder;
  for (const bool own_loss : {false, true}) {
    const auto bits = [&](int size) {
      const auto train = [&](Ranks* ranks) {
        Rng rng(3);
        Net model(rng);
        ParameterSplit parts = split_parameters(model, {"up"});
        SGD sgd(std::move(parts.chosen), {.lr = 1e-2, .momentum = 0.9});
        AdamW adamw(std::move(parts.others), {.lr = 1e-2});
        Schedule slow("constant", {.lr = 1e-3}), fast("constant", {.lr = 1e-2});
        std::vector<Update> updates = {{sgd, slow}, {adamw, fast}};
        if (own_loss) updates[1].loss = [&](const Batch& b) { return 0.5 * model.loss(b); };
        RunOptions o{.steps = 3,
                     .shards = 5,
                     .grad_clip = 0.1,
                     .checkpoint = {.path = folder.path / "run.h5"},
                     .ranks = {.communicator = ranks}};
        run(model, updates, Data{}, HeldOutPlane{}, o);
      };
      fs::remove(folder.path / "run.h5");
      if (size == 0)
        train(nullptr);
      else
        CHECK(on_ranks(
                  size, [&](Ranks& ranks) { train(&ranks); }, 2)
                  .empty());
      return bytes_of(folder.path / "run.h5");
    };
    const std::string one = bits(0);
    for (const int size : {2, 3}) CHECK((bits(size) == one));
  }
}

TEST_CASE("ranks: a run can be resumed with any other number of ranks") {
  const TemporaryFolder folder;
  int number = 0;
  for (const std::string optimizer : {"adamw", "muon", "adafactor"}) {
    const auto whole = trained({.optimizer = optimizer, .steps = 8, .average = true}, folder.path);
    fs::copy_file(folder.path / "run.h5", folder.path / "whole.h5", fs::copy_options::overwrite_existing);
    for (const std::pair<int, int>& ranks : {std::pair{3, 2}, {0, 4}, {2, 0}}) {
      if (!test::is_taken(number++, 4)) continue;
      CAPTURE(optimizer);
      CAPTURE(ranks.first);
      CAPTURE(ranks.second);
      Trial t = {.optimizer = optimizer, .ranks = ranks.first, .average = true};
      trained(t, folder.path);
      t.ranks = ranks.second, t.steps = 8, t.resume = true;
      const auto rest = trained(t, folder.path);
      CHECK(difference(folder.path / "run.h5", folder.path / "whole.h5") == "");
      CHECK((rest.first == whole.first));
      CHECK(rest.second == whole.second);
    }
  }
}

RELEASE_TEST_CASE(
    "ranks: each keeps its part of the optimizer's state, and sends its part of two passes over the parameters") {
  struct Row {
    int size;
    DType dtype = DType::float32;
    int of_a_machine = 1;
    double passes = 2;  // gradients in shared memory are not sent
  };
  for (const Row& row : {Row{2}, {3}, {4}, {2, DType::bfloat16}, {3, DType::bfloat16}, {2, DType::float32, 2, 1}}) {
    const int size = row.size, of_a_machine = row.of_a_machine;
    const DType dtype = row.dtype;
    const double passes = row.passes;
    CAPTURE(name_of(dtype));
    std::vector<double> kept(static_cast<std::size_t>(size)), sent(kept.size());
    Index parameters = 0;
    CHECK(on_ranks(
              size,
              [&](Ranks& ranks) {
                Rng rng(3);
                Linear model(512, 4096, rng);
                AdamW optimizer(named_parameters(model));
                Schedule schedule("constant", {.lr = 1e-2});
                struct Rows {
                  Batch batch(std::uint64_t seed, std::uint64_t step) const {
                    Rng numbers(seed, step);
                    return {numbers.normal({2, 512}), numbers.normal({2, 4096}), 2};
                  }
                };
                const auto go = [&](Index steps) {
                  const std::uint64_t before = ranks.bytes_sent();
                  run(model, optimizer, schedule, Rows{}, {},
                      {.steps = steps, .shards = size, .ranks = {.communicator = &ranks, .dtype = dtype}},
                      [&](const Batch& b) { return mse_loss(model(b.inputs), b.targets); });
                  return static_cast<double>(ranks.bytes_sent() - before);
                };
                const auto me = static_cast<std::size_t>(ranks.rank());
                const double once = go(1);
                sent[me] = (go(3) - once) / 2;  // per step
                for (const Optimizer::StatePart& part : optimizer.state_parts())
                  if (part.parameter >= 0) kept[me] += static_cast<double>(part.tensor.numel());
                if (me == 0) parameters = parameter_count(model);
              },
              of_a_machine)
              .empty());
    for (int r = 0; r < size; ++r) {
      const double p = static_cast<double>(parameters), n = size, bytes = static_cast<double>(size_of(dtype));
      // Two numbers per item of a share. Shares end at ends of chunks.
      CHECK(std::abs(kept[static_cast<std::size_t>(r)] - 2 * p / n) <= 2 * detail::Chunks::kLongest);
      CHECK(sent[static_cast<std::size_t>(r)] == doctest::Approx(bytes * passes * p * (n - 1) / n).epsilon(0.03));
    }
  }
}

TEST_CASE("ranks: an error on one of them ends all") {
  const auto reasons = on_ranks(3, [&](Ranks& ranks) {
    Rng rng(3);
    test::Regression model(rng);
    AdamW optimizer(named_parameters(model));
    Schedule schedule("constant", {.lr = 1e-2});
    RunOptions o{.steps = 5, .shards = 3, .ranks = {.communicator = &ranks}};
    o.after_step = [&](RunStep& s) { require(s.step < 2 || ranks.rank() != 1, "no more"); };
    run(model, optimizer, schedule, Plane{}, HeldOutPlane{}, o);
  });
  CHECK(reasons == std::map<int, std::string>{{0, "another rank failed"}, {1, "no more"}, {2, "another rank failed"}});
}

TEST_CASE("ranks: a divided optimizer makes steps and gives its state in runs alone, and stays with its ranks") {
  CHECK(on_ranks(2, [&](Ranks& ranks) {
          Rng rng(3);
          Linear model(4, 2, rng);
          AdamW optimizer(named_parameters(model));
          detail::divide(ranks, {&optimizer});
          const auto refused = [](auto f) {
            require(test::error_of(f) ==
                        "AdamW: its state is sharded over ranks; only a run with these ranks can step "
                        "and save it",
                    "another refusal");
          };
          refused([&] { optimizer.state(); });
          refused([&] { optimizer.step(); });
          refused([&] { optimizer.grad_norm(); });
          refused([&] { optimizer.clipped_step(1); });
          require(detail::divide(ranks, {&optimizer})[0].division.of(0, 1).count() == 0, "another division");
          require(test::error_of([&] { detail::divide(detail::ranks_of({}), {&optimizer}); }) ==
                      "run: AdamW is sharded over other ranks than those of this run; create a new optimizer",
                  "another refusal");
        }).empty());
}
