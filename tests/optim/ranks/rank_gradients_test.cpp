// Overlap of communication and computation with several ranks. tests/optim/ranks/ranks_test.cpp tests the bits.
#include <heed/optim/profile/profile.hpp>
#include <heed/optim/ranks/ranks.hpp>
#include <sstream>

#include "tests/autograd/small_ops.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::contains;
using test::on_ranks;
using test::Plane;

namespace {

// y = x. Calls `backward` when its derivative is computed.
Tensor noted(In x, std::function<void()> backward) {
  Tensor y;
  {
    const NoTape guard;
    y = x * 1;
  }
  record("noted", x.where(), y, {x}, saved(), [backward](Grads& d, const Tensor& dy) { backward(), d.add(0, dy); });
  return y;
}

struct TwoLayers {
  Linear up, down;
  explicit TwoLayers(Rng& rng, Index width = 3000) : up(8, width, rng), down(width, 1, rng) {}
  void members(auto&& visit) {
    visit("up", up);
    visit("down", down);
  }
};

void train(TwoLayers& model, Ranks& ranks, Index steps, const std::function<Tensor(const Batch&)>& loss,
           const std::function<void(RunStep&)>& after_step = {}) {
  AdamW optimizer(named_parameters(model));
  Schedule schedule("constant", {.lr = 1e-3});
  run(model, optimizer, schedule, Plane{}, {},
      {.steps = steps, .shards = 4, .ranks = {.communicator = &ranks}, .after_step = after_step}, loss);
}

}  // namespace

TEST_CASE("rank gradients: gradients are sent while backward continues") {
  CHECK(on_ranks(2, [](Ranks& ranks) {
          Rng rng(3);
          TwoLayers model(rng, 140000);  // each rank has one or more buckets of down.weight
          std::vector<double> sent;      // bytes between the derivatives of the layers, per shard
          std::uint64_t before = 0;
          train(model, ranks, 3, [&](const Batch& b) {
            const Tensor hidden = noted(relu(model.up(b.inputs)),
                                        [&] { sent.push_back(static_cast<double>(ranks.bytes_sent() - before)); });
            return mse_loss(noted(model.down(hidden), [&] { before = ranks.bytes_sent(); }), b.targets);
          });
          // Gradients are sent during the second of two shards, before which all values of the previous step have
          // arrived. The first step records the order.
          require(sent.size() == 6 && sent[0] == 0 && sent[1] == 0, "sent without an order");
          for (const std::size_t shard : {3, 5}) require(sent[shard] > 4 * 60000, "nothing was sent meanwhile");
        }).empty());
}

TEST_CASE("rank gradients: reading a new value waits until the value has arrived") {
  CHECK(on_ranks(2, [](Ranks& ranks) {
          Rng rng(3);
          TwoLayers model(rng);
          const auto awaited = [&] { return model.up.weight.storage()->arrival != nullptr; };
          std::vector<float> values;
          train(
              model, ranks, 2, [&](const Batch& b) { return mse_loss(model.down(model.up(b.inputs)), b.targets); },
              [&](RunStep&) {
                require(awaited(), "the step waited for the values");
                values = model.up.weight.to_vector<float>();
                require(!awaited(), "nobody waited");
              });
          require(values == model.up.weight.to_vector<float>(), "others arrived later");
        }).empty());
}

TEST_CASE("rank gradients: a gradient after the last op that has its parameter is an Error") {
  const auto reasons = on_ranks(2, [](Ranks& ranks) {
    Rng rng(3);
    TwoLayers model(rng);
    train(model, ranks, 2, [&](const Batch& b) {
      const Tensor hidden = noted(model.up(b.inputs), [&] {
        Tape tape;
        tape.backward(sum(model.down.bias * 2));
      });
      return mse_loss(model.down(hidden), b.targets);
    });
  });
  CHECK(reasons.size() == 2);
  CHECK(reasons.at(0) ==
        "run: down.bias got a gradient from an op that does not have it as an input, after the last op that has; ranks "
        "may have summed the gradient before; make it an input of that op");
}

TEST_CASE("rank gradients: a large parameter without a gradient on some ranks has the values of one process") {
  // A rank's stretch of down.weight has several pieces. Of two shards, both use it in steps 0 and 3, the first one
  // alone in step 1, and none in step 2.
  const auto train_large = [](Ranks* ranks) {
    Rng rng(3);
    TwoLayers model(rng, test::thinned<Index>(400000, 100000));
    int calls = 0;
    const auto loss = [&](const Batch& b) {
      const int step = ranks != nullptr ? calls : calls / 2, shard = ranks != nullptr ? ranks->rank() : calls % 2;
      ++calls;
      const bool without = step == 2 || (step == 1 && shard == 1);
      const Tensor hidden = model.up(b.inputs);
      return without ? mean(hidden * hidden) : mse_loss(model.down(hidden), b.targets);
    };
    AdamW optimizer(named_parameters(model));
    Schedule schedule("constant", {.lr = 1e-3});
    run(model, optimizer, schedule, Plane{}, {}, {.steps = 4, .shards = 2, .ranks = {.communicator = ranks}}, loss);
    return model.down.weight.to_vector<float>();
  };
  const std::vector<float> one = train_large(nullptr);
  CHECK(on_ranks(2, [&](Ranks& ranks) {
          require(train_large(&ranks) == one, "rank ", ranks.rank(), " has other values");
        }).empty());
}

TEST_CASE("rank gradients: a profile shows communication between ranks in addition to ops") {
  test::TemporaryFolder folder;
  std::map<std::string, double> sent[2];
  const auto reasons = on_ranks(2, [&](Ranks& ranks) {
    Rng rng(3);
    TwoLayers model(rng);
    AdamW optimizer(named_parameters(model));
    Schedule schedule("constant", {.lr = 1e-3});
    Profile profile({.warmup = 1});
    run(model, optimizer, schedule, Plane{}, {},
        {.steps = 4, .shards = 4, .output = {.profile = &profile}, .ranks = {.communicator = &ranks}},
        [&](const Batch& b) { return mse_loss(model.down(model.up(b.inputs)), b.targets); });
    double whole = 0;
    for (const ProfileRow& row : profile.key_averages()) {
      if (row.kind == ProfileRow::concurrent)
        sent[ranks.rank()][row.name] = row.forward.bytes;
      else if (row.kind != ProfileRow::span)
        whole += row.seconds();
    }
    require(std::abs(whole - profile.seconds()) < 1e-3 * whole, "they are no part of a step");
    std::ostringstream table;
    profile.print(table);
    require(contains(table.str(), "transfers between ranks, concurrent with all this"), table.str());
    if (ranks.rank() > 0) return;
    profile.export_chrome_trace(folder.path / "trace.json");
    const nlohmann::json trace = test::json_file(folder.path / "trace.json");
    std::map<std::string, int> lines;  // by name
    for (const auto& e : trace.at("traceEvents"))
      if (e.at("ph") == "M" && e.at("name") == "thread_name") lines[e.at("args").at("name")] = e.at("tid");
    require(lines.size() == 2 && lines["gradients"] != lines["values"], "a line for each");
    for (const auto& e : trace.at("traceEvents")) {
      if (e.at("ph") != "X") continue;
      const auto line = lines.find(e.at("name"));
      require(e.at("tid") == (line == lines.end() ? 1 : line->second), "on another line");
    }
  });
  for (const auto& [rank, reason] : reasons) FAIL_CHECK(rank, ": ", reason);
  CHECK(sent[0].size() == 2);
  CHECK(sent[1].size() == 2);
  for (const char* what : {"gradients", "values"}) {  // parameters once, and flags of gradients
    const double bytes = sent[0][what] + sent[1][what];
    CHECK(bytes >= 4 * 30001);
    CHECK(bytes < 4 * 30001 * 1.001);
  }
}
