// Errors of the run loop for files, states and losses, and a log that is ahead of the checkpoint.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::same_bits;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// y = x w, learned from rows with the weights 1, -2, 3. Batches count `rows` targets.
struct Rows {
  Index rows = 4;
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(seed, 100 + step);
    const Tensor x = rng.normal({rows, 3});
    return {x, matmul(x, Tensor::from({1, -2, 3}, {3, 1})), rows};
  }
};

struct HeldOutRows {
  Index size() const { return 1; }
  Batch batch(Index) const { return Rows().batch(99, 0); }
};

struct RowModel {
  Rng rng{1};
  Linear layer{3, 1, rng};
  Dropout drop{0.1};
  Tensor loss(In x, In y) const { return mse_loss(layer(drop(x)), y); }
  void members(auto&& visit) { visit("layer", layer); }
};

struct TrainedRows {
  RowModel model;
  AdamW optimizer{named_parameters(model), {.lr = 0.05}};
  Schedule schedule;
  RunResult result;

  explicit TrainedRows(const RunOptions& o, const char* name = "cosine", std::function<Tensor(const Batch&)> loss = {})
      : schedule(name, {.lr = 0.05, .steps = 8, .patience = 0}) {
    result = run(model, optimizer, schedule, Rows(), HeldOutRows(), o, std::move(loss));
  }
};

}  // namespace

TEST_CASE("run: one that was cut is resumed to the same bits, schedule and log included") {
  const TemporaryFolder folder;
  for (const char* name : {"cosine", "plateau"}) {
    const auto file = [&](const char* ending) { return folder.path / (std::string(name) + ending); };
    const TrainedRows once({.steps = 8,
                            .evaluation = {.every = 1},
                            .checkpoint = {.path = file("whole.h5")},
                            .output = {.log = file("whole.log")}},
                           name);
    const RunOptions part = {
        .steps = 3,
        .evaluation = {.every = 1},
        .checkpoint = {.path = file("part.h5"), .start = RunStart::resume_or_start, .texts = {{"note", "mine"}}},
        .output = {.log = file("part.log")}};
    CHECK(TrainedRows(part, name).result.resumed_from == 0);
    CHECK(load_checkpoint(part.checkpoint.path).text("note") == "mine");
    std::ofstream(part.output.log, std::ios::app)
        << "{\"step\":4,\"loss\":1}\n{\"step\":";  // killed within step 5 before a save
    RunOptions rest = part;
    rest.steps = 8;
    const TrainedRows twice(rest, name);
    CHECK(twice.result.resumed_from == 3);
    CHECK(twice.result.steps == 8);
    CHECK(same_bits(twice.model.layer.weight, once.model.layer.weight));
    CHECK(same_bits(twice.model.layer.bias, once.model.layer.bias));
    CHECK(twice.result.history.losses == once.result.history.losses);
    CHECK(twice.result.history.validation_losses == once.result.history.validation_losses);
    const auto a = test::json_lines(file("whole.log")), b = test::json_lines(part.output.log);
    REQUIRE(a.size() == 8);
    REQUIRE(b.size() == 8);
    for (std::size_t i = 0; i < 8; ++i)
      for (const char* key : {"step", "loss", "lr", "grad_norm", "val_loss"}) CHECK(a[i][key] == b[i][key]);
    CHECK(TrainedRows(rest, name).result.resumed_from == 8);  // nothing is left to do
  }
}

TEST_CASE("run: logs that cannot be read or cut") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "model.h5", socket_file = folder.path / "socket";
  TrainedRows({.steps = 3, .checkpoint = {.path = file}});
  const auto resumed = [&](const fs::path& log) {
    return [&, log] {
      TrainedRows(
          {.steps = 4, .checkpoint = {.path = file, .start = RunStart::resume_or_start}, .output = {.log = log}});
    };
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_file.string().copy(address.sun_path, sizeof address.sun_path - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  // A file in memory that can neither grow nor shrink.
  const int sealed = ::memfd_create("log", MFD_ALLOW_SEALING);
  const std::string lines = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n";
  REQUIRE(::write(sealed, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()));
  REQUIRE(::fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  const std::string sealed_file = "/proc/self/fd/" + std::to_string(sealed);
  test::check_errors({
      {"log: " + socket_file.string() + " is a socket; it must be a file, a pipe or a terminal", resumed(socket_file)},
      {"log: " + sealed_file + " cannot be truncated: Operation not permitted", resumed(sealed_file)},
  });
  ::close(socket);
  ::close(sealed);
}

TEST_CASE("run: texts that a checkpoint cannot store, or that would replace the run's own, are refused first") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "model.h5", log = folder.write("log", "of another run");
  const auto with_text = [&](const std::string& name, const std::string& text = "x") {
    return [&, name, text] {
      TrainedRows({.steps = 2, .checkpoint = {.path = file, .texts = {{name, text}}}, .output = {.log = log}});
    };
  };
  test::check_errors({
      {"run: a text is named optimizer_name, which the run itself stores in the checkpoint; use another name",
       with_text("optimizer_name")},
      {"run: a text is named instruction_set, which", with_text("instruction_set")},
      {"run: step is the name of a counter and of a text; names must differ", with_text("step")},
      {"run: seed is the name of a counter and of a text; names must differ", with_text("seed")},
      {"run: model is the name of a text and of the section of the tensor model/layer.", with_text("model")},
      {"run: optimizer is the name of a text and of the section of the tensor optimizer/", with_text("optimizer")},
      {"run: history is the name of a text and of the section of the tensor history/", with_text("history")},
      {"run: a/b is in a section; only tensors may be in sections", with_text("a/b")},
      {"run: «» is not a valid name; its parts must not be empty, . or ..", with_text("")},
      {"run: the text note has a zero byte; it must be a blob", with_text("note", std::string("a\0b", 3))},
  });
  CHECK_FALSE(fs::exists(file));
  CHECK(bytes_of(log) == "of another run");
  TrainedRows({.steps = 1,
               .checkpoint = {.texts = {{"a/b", "x"}, {"step", "x"}}}});  // without a checkpoint they are not stored
}

TEST_CASE("run: options, checkpoints and logs that do not fit, and losses that are not finite") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "model.h5", log = folder.path / "log";
  TrainedRows({.steps = 3, .checkpoint = {.path = file}, .output = {.log = log}});
  const auto trained = [](const RunOptions& o) { return [o] { TrainedRows t(o); }; };
  const auto with_log = [&](const std::string& text) {
    return [&, text] {
      TrainedRows({.steps = 4,
                   .checkpoint = {.path = file, .start = RunStart::resume_or_start},
                   .output = {.log = folder.write("other.log", text)}});
    };
  };
  const auto with_loss = [](const RunOptions& o, double value) {
    return [o, value] {
      TrainedRows(o, "cosine", [value](const Batch& b) { return mean(heed::log(b.inputs * 0 + value)); });
    };
  };
  test::check_errors({
      {"MatmulPrecision: operands are float64; they must be float32 or bfloat16",
       trained({.steps = 1, .precision = DType::float64})},
      {"resume: the seed of " + file.string() + " is 1 but this run's is 2; they must be the same",
       trained({.steps = 4, .seed = 2, .checkpoint = {.path = file, .start = RunStart::resume_or_start}})},
      {"resume: " + file.string() + " is at step 3 but the run has 2 steps; steps must be at least 3",
       trained({.steps = 2, .checkpoint = {.path = file, .start = RunStart::resume_or_start}})},
      {"resume: the optimizer of " + file.string() + " is AdamW but this run's is SGD; they must be the same",
       [&] {
         RowModel model;
         SGD optimizer(named_parameters(model), {.lr = 0.05});
         Schedule schedule("constant", {});
         run(model, optimizer, schedule, Rows(), HeldOutRows(),
             {.steps = 4, .checkpoint = {.path = file, .start = RunStart::resume_or_start}});
       }},
      {"other.log ends before step 2 but the checkpoint is at step 3; give the log that belongs to the checkpoint, or "
       "another file",
       with_log("{\"step\":1}\n")},
      {"log: line 2 of ", with_log("{\"step\":1}\n{\"step\":5}\n{\"step\":3}\n")},
      {"is not the entry of step 2; give the log that belongs to the checkpoint, or another file",
       with_log("{\"step\":1}\n{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n")},
      {"other.log is not the entry of step 1 or of a later step up to 4; give the log that belongs to the checkpoint, "
       "or another file",
       with_log("text\n\n\n")},
      {"log: line 1 of ", with_log("{\"step\":5}\n")},
      {"log: line 1 of ", with_log("{\"step\":0}\n{\"step\":1}\n")},
      {"log: line 1 of ", with_log("{\"step\":\"1\"}\n")},
      {"log: line 2 of ", with_log("{\"step\":2}\n{\"step\":4}\n")},
      {"other.log ends before step 3 but the checkpoint is at step 3", with_log("{\"step\":2}\n{\"step\":3}")},
      {"other.log ends before step 1 but the checkpoint is at step 3", with_log("a text of mine")},
      {"other.log ends before step 1 but the checkpoint is at step 3", with_log("{\"step\":40,")},
      {"other.log belongs to another run: the loss of step 3 is 0.5 there but ",
       with_log("{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"loss\":0.5}\n")},
      {" is a folder; it must be a file, a pipe or a terminal", trained({.steps = 1, .output = {.log = folder.path}})},
      {"cannot be written: No space left on device", trained({.steps = 1, .output = {.log = "/dev/full"}})},
      {"run: the loss of step 1 is nan; it must be finite: the learning rate is 0.05; lower it, or find the op that "
       "made the first NaN with RunOptions::find_nan (--find-nan)",
       with_loss({.steps = 2}, -1)},
      {"run: the loss of step 1 is -inf; it must be finite", with_loss({.steps = 2}, 0)},
      {"log: the result of shape [4, 3] holds nan at element 0; it is the first that is not finite "
       "(run_errors_test.cpp:",
       with_loss({.steps = 2, .find_nan = true}, -1)},
  });
}

namespace {

struct NaNRows {
  Batch batch(std::uint64_t, std::uint64_t) const {
    return {Tensor::full({2, 3}, test::kNaN), Tensor::zeros({2, 1}), 2};
  }
};

struct Product {
  Parameter w{Tensor::full({3, 1}, 1)};
  Tensor loss(In x, In y) const { return mse_loss(matmul(x, w), y); }
  void members(auto&& visit) { visit("w", w); }
};

}  // namespace

TEST_CASE("run: errors in the data name the line that called run()") {
  Product model;
  SGD optimizer(named_parameters(model), {.lr = 0.1});
  Schedule schedule("constant", {.lr = 0.1});
  const std::string message =
      test::error_of([&] { run(model, optimizer, schedule, NaNRows(), {}, RunOptions{.steps = 1, .find_nan = true}); });
  CHECK(test::contains(message, "matmul: the result"));
  CHECK(test::contains(message, "run_errors_test.cpp:"));
}

TEST_CASE("run: a gradient that is not finite names the step, the parameter and the learning rate, on all ranks") {
  const auto go = [](const RunOptions& o) {
    Product model;
    SGD optimizer(named_parameters(model), {.lr = 0.25});
    Schedule schedule("constant", {.lr = 0.25});
    struct Ones {
      Batch batch(std::uint64_t, std::uint64_t) const { return {Tensor::ones({2, 3}), Tensor::zeros({2, 1}), 2}; }
    };
    int step = 0;
    // sqrt has an infinite derivative at 0.
    run(model, optimizer, schedule, Ones(), {}, o, [&](const Batch& b) {
      return model.loss(b.inputs, b.targets) + (step++ == 1 ? sum(sqrt(model.w * 0.0)) : sum(model.w));
    });
  };
  const std::string message =
      "run: step 2: SGD: the gradient of w has NaN, infinite or far too large values; gradients must be finite: the "
      "learning rate is 0.25; lower it";
  const std::string advice = ", or find the op that made the first NaN with RunOptions::find_nan (--find-nan)";
  CHECK(test::error_of([&] { go({.steps = 3}); }) == message + advice);
  const auto reasons =
      test::on_ranks(2, [&](Ranks& ranks) { go({.steps = 3, .shards = 2, .ranks = {.communicator = &ranks}}); });
  CHECK(reasons == std::map<int, std::string>{{0, message + advice}, {1, message + advice}});
  CHECK(test::contains(test::error_of([&] { go({.steps = 3, .find_nan = true}); }), "sqrt"));
}

TEST_CASE("run: a checkpoint that lacks a weight of the model names it") {
  const TemporaryFolder folder;
  const RunOptions o{.steps = 1, .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  TrainedRows first(o);
  Checkpoint c = load_checkpoint(o.checkpoint.path);
  c.tensors.erase("model/layer.bias");
  save_checkpoint(o.checkpoint.path, c);
  CHECK(test::error_of([&] { TrainedRows again(o); }) ==
        "load_model: " + o.checkpoint.path.string() + " lacks layer.bias, which the model needs");
}

TEST_CASE("run: a refused run, and one that fails in its first step, keep an existing log") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "model.h5", log = folder.write("log", "of another run");
  Product model;
  SGD optimizer(named_parameters(model), {.lr = 0.1});
  Schedule schedule("constant", {.lr = 0.1});
  const RunOptions options{.steps = 1, .output = {.log = log}};
  CHECK(test::contains(test::error_of([&] { run(model, optimizer, schedule, NaNRows(), {}, options); }),
                       "the loss of step 1 is nan"));
  CHECK(bytes_of(log.string()) == "of another run");
  TrainedRows({.steps = 3, .checkpoint = {.path = file}});
  const std::string lines = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n";
  std::ofstream(log) << lines;
  CHECK(test::contains(test::error_of([&] {
                         TrainedRows({.steps = 2,
                                      .checkpoint = {.path = file, .start = RunStart::resume_or_start},
                                      .output = {.log = log}});
                       }),
                       " is at step 3 but the run has 2 steps"));
  CHECK(bytes_of(log.string()) == lines);
}

TEST_CASE("run: checkpoint and log are two files") {
  const TemporaryFolder folder;
  const RunOptions options{
      .steps = 1, .checkpoint = {.path = folder.path / "m"}, .output = {.log = folder.path / "." / "m"}};
  CHECK(test::contains(test::error_of([&] { TrainedRows{options}; }), "; they must be different files"));
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("run: a model without a loss of its own trains by the loss that is given, and needs one") {
  Rng rng(1);
  Linear layer(3, 1, rng);
  AdamW optimizer(named_parameters(layer), {.lr = 0.05});
  Schedule schedule("constant", {.lr = 0.05});
  const RunOptions options = {.steps = 3};
  CHECK(test::error_of([&] { run(layer, optimizer, schedule, Rows(), HeldOutRows(), options); }) ==
        "run: the model has no loss(const Batch&) and no loss(inputs, targets); give run() a loss");
  CHECK(optimizer.step_count() == 0);
  const RunResult result = run(layer, optimizer, schedule, Rows(), HeldOutRows(), options,
                               [&](const Batch& b) { return mse_loss(layer(b.inputs), b.targets); });
  CHECK(result.steps == 3);
  CHECK(result.validation_loss.has_value());
}
