// The parts of a run: several losses and optimizers, batches with several tensors.
#include <cmath>
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::Killed;
using test::killed_after;
using test::same_bits;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// Points on a circle; a batch has one tensor, which is neither inputs nor targets.
struct Circle {
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(seed, 100 + step);
    const Tensor angle = rng.uniform({32, 1}, 0, 6.2831853);
    Batch b;
    b["points"] = concatenate({cos(angle), sin(angle)}, 1);
    b.counted = 32;
    return b;
  }
};

struct Gan {
  struct Net {
    Linear up, down;
    Net(Index in, Index out, Rng& rng) : up(in, 16, rng), down(16, out, rng) {}
    Tensor operator()(In x) const { return down(leaky_relu(up(x), 0.2)); }
    void members(auto&& visit) { visit("up", up), visit("down", down); }
  };
  Rng rng{3};
  Net generator{4, 2, rng}, discriminator{2, 1, rng};

  Tensor made(Index n) const { return generator(default_rng().normal({n, 4})); }
  Tensor judged(In points, double truth) const {
    return binary_cross_entropy_with_logits(discriminator(points), Tensor::full({points->dim(0), 1}, truth));
  }
  Tensor discriminator_loss(const Batch& b) const {
    const Tensor real = b["points"];
    return judged(real, 1) + judged(made(real.dim(0)).detach(), 0);
  }
  Tensor generator_loss(const Batch& b) const { return judged(made(b["points"].dim(0)), 1); }
  void members(auto&& visit) { visit("generator", generator), visit("discriminator", discriminator); }
};

struct GanRun {
  Gan gan;
  ParameterSplit parts = split_parameters(gan, {"generator"});
  AdamW d_optimizer{parts.others, {.lr = 2e-3}};
  RMSprop g_optimizer{parts.chosen, {.lr = 1e-3}};
  Schedule d_schedule{"constant", {.lr = 2e-3, .warmup = 5}};
  Schedule g_schedule{[](Index step) { return 1e-3 / (1 + 0.01 * static_cast<double>(step)); }};

  std::vector<Update> updates() {
    return {{d_optimizer, d_schedule, [this](const Batch& b) { return gan.discriminator_loss(b); }},
            {g_optimizer, g_schedule, [this](const Batch& b) { return gan.generator_loss(b); }, "generator"}};
  }
  RunResult go(const RunOptions& options) { return run(gan, updates(), Circle{}, {}, options); }
};

bool same_weights(Gan& a, Gan& b) {
  const auto x = named_parameters(a), y = named_parameters(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](const NamedParameter& p, const NamedParameter& q) {
    return same_bits(p.parameter->detach(), q.parameter->detach());
  });
}

}  // namespace

TEST_CASE("run: a GAN's two losses are trained in turn, as in a manual loop") {
  GanRun s, by_hand;
  const RunResult result = s.go({.steps = 6, .grad_clip = 0.5, .seed = 4});
  std::vector<double> d_losses, g_losses;
  for (Index step = 0; step < 6; ++step) {
    const Batch b = Circle{}.batch(4, static_cast<std::uint64_t>(step));
    default_rng() = Rng(4, 1);
    default_rng().set_position(static_cast<std::uint64_t>(step) << 40);
    for (const bool generator : {false, true}) {
      Optimizer& optimizer = generator ? static_cast<Optimizer&>(by_hand.g_optimizer) : by_hand.d_optimizer;
      zero_grad(by_hand.gan);
      Tape tape;
      const Tensor loss = generator ? by_hand.gan.generator_loss(b) : by_hand.gan.discriminator_loss(b);
      tape.backward(loss);
      (generator ? g_losses : d_losses).push_back(loss.item());
      optimizer.set_lr((generator ? by_hand.g_schedule : by_hand.d_schedule)(step));
      optimizer.clipped_step(0.5);
    }
  }
  CHECK(same_weights(s.gan, by_hand.gan));
  CHECK(s.d_optimizer.step_count() == 6);
  CHECK(result.history.losses == d_losses);
  CHECK(result.history.other_losses.at("generator") == g_losses);
}

RELEASE_TEST_CASE("run: a GAN that is killed after any step and resumed ends with the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name) {
    return RunOptions{
        .steps = 12,
        .checkpoint = {.path = folder.path / (name + ".h5"), .every = 3, .start = RunStart::resume_or_start},
        .output = {.log = folder.path / (name + ".jsonl")}};
  };
  GanRun whole;
  const RunResult all = whole.go(options("whole"));
  for (const Index last : {2, 3, 7, 11}) {
    const std::string name = "killed" + std::to_string(last);
    GanRun killed, resumed;
    CHECK_THROWS_AS(killed.go(killed_after(options(name), last)), Killed);
    const RunResult rest = resumed.go(options(name));
    CHECK(rest.resumed_from == (last - 1) / 3 * 3);  // a step's checkpoint is written after its callbacks
    CHECK(rest.history.other_losses == all.history.other_losses);
    CHECK(same_weights(resumed.gan, whole.gan));
    CHECK((bytes_of(options(name).checkpoint.path) == bytes_of(options("whole").checkpoint.path)));
    const auto log = test::json_lines(options(name).output.log),
               whole_log = test::json_lines(options("whole").output.log);
    REQUIRE(log.size() == 12);
    for (std::size_t i = 0; i < 12; ++i)
      for (const char* key :
           {"step", "loss", "lr", "grad_norm", "loss_generator", "lr_generator", "grad_norm_generator"})
        CHECK(log[i].at(key) == whole_log[i].at(key));
  }
  const Checkpoint c = load_checkpoint(options("whole").checkpoint.path);
  CHECK(c.text("optimizer_name") == "AdamW");
  CHECK(c.text("optimizer_name.generator") == "RMSprop");
  CHECK(c.tensors.count("optimizer.generator/square_avg.generator.up.weight") == 1);
  CHECK(c.tensor("history/loss.generator").numel() == 12);
}

namespace {

// Bags of tokens with a class: data of three tensors, and a loss of the whole batch.
struct Bags {
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(seed, 100 + step);
    Batch b;
    b.inputs = rng.integers({16, 5}, 0, 30);
    b["weights"] = rng.uniform({16, 5, 1});
    b.targets = (b.inputs.slice(1, 0, 1).reshape({16}).to(DType::float32) * (1.0 / 10)).to(DType::int32);
    b.counted = 16;
    return b;
  }
};

struct BagModel {
  Rng rng{5};
  Embedding tokens{30, 8, rng};
  Linear head{8, 3, rng};
  Tensor loss(const Batch& b) const {
    return cross_entropy(head(sum(tokens(b.inputs) * b["weights"], {1})), b.targets);
  }
  void members(auto&& visit) { visit("tokens", tokens), visit("head", head); }
};

struct BagRun {
  BagModel model;
  ParameterSplit parts = split_parameters(model, {"tokens"});
  AdamW weights{parts.others, {.lr = 0.01}};
  SGD embedding{parts.chosen, {.lr = 0.5}};
  Schedule cosine{"cosine", {.lr = 0.01, .steps = 10}}, constant{"constant", {.lr = 0.5}};

  RunResult go(const RunOptions& options) {
    return run(model, {{weights, cosine}, {embedding, constant, {}, "embedding"}}, Bags{}, {}, options);
  }
};

}  // namespace

TEST_CASE("run: an embedding with an optimizer of its own follows the same loss, clipped with the other weights") {
  BagRun s, by_hand;
  const RunResult result = s.go({.steps = 10, .grad_clip = 0.3});
  for (Index step = 0; step < 10; ++step) {
    zero_grad(by_hand.model);
    Tape tape;
    tape.backward(by_hand.model.loss(Bags{}.batch(1, static_cast<std::uint64_t>(step))));
    by_hand.weights.set_lr(by_hand.cosine(step));
    by_hand.embedding.set_lr(0.5);
    const double norm = std::hypot(by_hand.weights.grad_norm(), by_hand.embedding.grad_norm());
    CHECK(norm > 0.3);
    by_hand.weights.step(clip_coefficient(norm, 0.3));
    by_hand.embedding.step(clip_coefficient(norm, 0.3));
  }
  CHECK(test::close(s.model.tokens.weight, by_hand.model.tokens.weight, 1e-6, 1e-7));
  CHECK(test::close(s.model.head.weight, by_hand.model.head.weight, 1e-6, 1e-7));
  CHECK(result.history.losses.size() == 10);
  CHECK(result.history.other_losses.empty());
  // A resume in the middle gives the same bits.
  const TemporaryFolder folder;
  const RunOptions options{.steps = 10,
                           .grad_clip = 0.3,
                           .checkpoint = {.path = folder.path / "m.h5", .every = 2, .start = RunStart::resume_or_start},
                           .output = {.log = folder.path / "log"}};
  BagRun killed, resumed;
  CHECK_THROWS_AS(killed.go(killed_after(options, 5)), Killed);
  CHECK(resumed.go(options).resumed_from == 4);
  CHECK(same_bits(resumed.model.tokens.weight, s.model.tokens.weight));
  CHECK(same_bits(resumed.model.head.weight, s.model.head.weight));
  const auto log = test::json_lines(options.output.log);
  CHECK(log[3].at("lr_embedding") == 0.5);
  CHECK_FALSE(log[3].contains("loss_embedding"));
}

namespace {

// Reads a word and writes it reversed: an encoder, and a decoder that attends to it.
struct Reverser {
  static constexpr Index kWidth = 32;
  Rng rng{2};
  Embedding source, target, places{12, kWidth, rng};
  Transformer encoder{{.layers = 1, .attention = {.width = kWidth, .heads = 4}, .dropout = 0, .norm_first = true}, rng};
  Transformer decoder{{.layers = 1,
                       .attention = {.width = kWidth, .heads = 4, .memory_width = kWidth},
                       .dropout = 0,
                       .norm_first = true,
                       .causal = true},
                      rng};
  Linear head;

  explicit Reverser(Index vocabulary)
      : source(256, kWidth, rng), target(vocabulary, kWidth, rng), head(kWidth, vocabulary, rng) {}
  Tensor embedded(const Embedding& table, In ids) const { return table(ids) + places(Tensor::arange(ids->dim(1))); }
  Tensor loss(const Batch& b) const {
    const AttentionCall padding{.key_lengths = b["source_lengths"]};
    const Tensor memory = encoder(embedded(source, b["source"]), padding);
    return cross_entropy(head(decoder(embedded(target, b.inputs), memory, {}, padding)), b.targets);
  }
  void members(auto&& visit) {
    visit("source", source), visit("target", target), visit("places", places);
    visit("encoder", encoder), visit("decoder", decoder), visit("head", head);
  }
};

std::vector<TextPair> words(Index count, std::uint64_t seed) {
  std::vector<TextPair> pairs;
  Rng rng(seed);
  for (Index i = 0; i < count; ++i) {
    std::string word;
    for (Index n = 1 + rng.integer(9); n > 0; --n) word += static_cast<char>('a' + rng.integer(4));
    pairs.push_back({word, std::string(word.rbegin(), word.rend())});
  }
  return pairs;
}

}  // namespace

TEST_CASE("run: pairs of texts, with a source, its lengths, inputs and targets in a batch") {
  const TextPairs training(words(200, 1), ByteTokenizer(), CharTokenizer("abcd"));
  const TextPairs held_out(words(40, 2), ByteTokenizer(), CharTokenizer("abcd"));
  const SampleBatchOptions shape{.tokens = 200, .padding = TextPairs::padding()};
  const auto train = [&](Reverser& model, const RunOptions& options) {
    AdamW optimizer(named_parameters(model), {.lr = 3e-3});
    Schedule schedule("constant", {.lr = 3e-3});
    return run(model, optimizer, schedule, SampleBatches(training, shape), SampleEvaluation(held_out, shape), options);
  };
  Reverser whole(training.target_vocabulary());
  const RunResult all = train(whole, {.steps = 60});
  CHECK(all.history.losses.front() > 1.5);
  CHECK(*all.validation_loss < 1.1);
  // An epoch has about 11 batches, so the resumed run starts within its third epoch.
  const TemporaryFolder folder;
  const RunOptions options{
      .steps = 60, .checkpoint = {.path = folder.path / "m.h5", .every = 25, .start = RunStart::resume_or_start}};
  Reverser killed(training.target_vocabulary()), resumed(training.target_vocabulary());
  CHECK_THROWS_AS(train(killed, killed_after(options, 27)), Killed);
  const RunResult rest = train(resumed, options);
  CHECK(rest.resumed_from == 25);
  CHECK(rest.history.losses == all.history.losses);
  CHECK(rest.validation_loss == all.validation_loss);
  CHECK(same_bits(resumed.head.weight, whole.head.weight));
}

TEST_CASE("run: updates and checkpoints that do not fit are errors that name them") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.h5";
  GanRun s;
  const RunOptions options{.steps = 2, .checkpoint = {.path = file, .start = RunStart::resume_or_start}};
  s.go(options);
  const std::string name = file.string();
  const auto with = [&](std::vector<Update> updates, RunOptions o) {
    return [&s, updates, o] { run(s.gan, updates, Circle{}, {}, o); };
  };
  RunOptions more = options, texts = options;
  more.steps = 3;
  texts.checkpoint.texts = {{"optimizer_name.generator", "x"}};
  std::vector<Update> both = s.updates(), renamed = both, without = both, swapped = {both[1], both[0]};
  renamed.pop_back(), without.pop_back();
  renamed.push_back({both[1].optimizer, both[1].schedule, both[1].loss, "painter"});
  std::vector<Update> sharing = without;
  sharing.push_back({both[1].optimizer, both[1].schedule, {}, "generator"});
  test::check_errors({
      {"run: there are no updates; there must be one or more",
       [] {
         test::PlaneRun plane;
         run(plane.model, {}, test::Plane{}, {}, {.steps = 1});
       }},
      {"run: two updates are named 2; names must differ",
       with({both[0], {both[1].optimizer, both[1].schedule, {}, ""}, {both[1].optimizer, both[1].schedule, {}, "2"}},
            {.steps = 1})},
      {"resume: " + name + " has the optimizer generator but this run does not; both must have the same optimizers",
       with(without, more)},
      {"optimizer_name.painter", with(renamed, more)},
      {"resume: the optimizer of " + name + " is AdamW but this run's is RMSprop; they must be the same",
       with({both[1]}, more)},
      {"resume: update generator of " + name + " has a loss of its own, unlike in this run; they must be the same",
       with(sharing, more)},
      {"run: a text is named optimizer_name.generator, which the run itself stores in the checkpoint",
       with(both, texts)},
      {"split_parameters: part gen has no parameters; each part must have at least one",
       [&] { split_parameters(s.gan, {"gen"}); }},
  });
  BagRun twice;
  AdamW all(named_parameters(twice.model), {.lr = 0.01});
  CHECK(error_of([&] {
          run(twice.model, {{all, twice.cosine}, {twice.embedding, twice.constant}}, Bags{}, {}, {.steps = 1});
        }) == "run: two optimizers train tokens.weight; separate the parameters, for example with split_parameters()");
  CHECK(all.step_count() == 0);
  // A gradient that is not finite names its parameter, and no parameter is updated.
  BagRun bags;
  const Tensor before = bags.model.head.weight.clone();
  CHECK(
      contains(error_of([&] {
                 run(bags.model,
                     {{bags.weights, bags.cosine,
                       [&](const Batch& b) { return bags.model.loss(b) + sum(sqrt(bags.model.tokens.weight * 0.0)); }},
                      {bags.embedding, bags.constant}},
                     Bags{}, {}, {.steps = 1});
               }),
               "tokens.weight"));
  CHECK(same_bits(bags.model.head.weight, before));
}
