// The effect of train_lm's flags, compared with the same run by the library; checkpoints that do not fit.
#include <cmath>
#include <heed/heed.hpp>
#include <numbers>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::lines_of;
using test::Ran;
using test::Training;

TEST_CASE("train_lm: a run has the bits of the library's loop with the rates of the flags") {
  const Training t;
  const std::string flags =
      "--steps 12 --lr 2e-2 --min-lr 5e-3 --warmup 3 --weight-decay 0.4 --beta1 0.6 --beta2 0.8 --grad-clip 0.5 "
      "--accumulate 2 --shards 3 --seed 5 --log log";
  REQUIRE(t.run(flags).exit_code == 0);

  const std::string text = bytes_of(t.file("text.txt"));
  const Tokenizer tokenizer = CharTokenizer(text);
  const TokenSource tokens(tokenizer.encode(text), tokenizer.vocabulary_size());
  Rng rng(5);
  GPT model({.vocabulary = tokens.vocabulary_size(),
             .context = 16,
             .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2, .bias = false}}},
            rng);
  AdamW optimizer(decay_groups(model, 0.4), {.lr = 2e-2, .betas = {0.6, 0.8}});
  Schedule schedule("cosine", {.lr = 2e-2, .min_lr = 5e-3, .warmup = 3, .steps = 12});
  heed::run(model, optimizer, schedule, LanguageModelBatches(tokens.split(0.1).first, {.batch = 4, .context = 16}), {},
            {.steps = 12, .accumulate = 2, .shards = 3, .grad_clip = 0.5, .seed = 5});

  const Checkpoint theirs = load_checkpoint(t.file("lm.h5"));
  Checkpoint ours;
  store_model(ours, model);
  CHECK(ours.tensors.size() > 5);
  for (const auto& item : ours.tensors) {
    INFO(item.first);
    CHECK(test::same_bits(item.second, theirs.tensor(item.first)));
  }
  const nlohmann::json settings = test::parse_json(theirs.text("settings"));
  const std::vector<std::pair<const char*, double>> given = {{"lr", 2e-2},   {"min-lr", 5e-3}, {"weight-decay", 0.4},
                                                             {"beta1", 0.6}, {"beta2", 0.8},   {"grad-clip", 0.5}};
  for (const auto& item : given) CHECK(settings.at(item.first) == item.second);
  // A cosine from lr to min-lr after the warm-up.
  const std::vector<nlohmann::json> log = json_lines(t.file("log"));
  REQUIRE(log.size() == 12);
  for (int i = 0; i < 12; ++i) {
    const double half = 0.5 * (1 + std::cos(std::numbers::pi * (i - 3) / 9));
    CHECK(log[static_cast<std::size_t>(i)].at("lr").get<double>() ==
          doctest::Approx(i < 3 ? 2e-2 * i / 3 : 5e-3 + 1.5e-2 * half).epsilon(1e-12));
  }
}

TEST_CASE("train_lm: --eval-batches 0 is the whole validation split, as the last evaluation always is") {
  const Training t;
  const auto losses = [&](const std::string& flags) {
    const Ran ran = t.run("--schedule constant --warmup 0 --val-fraction 0.5 --log " + t.file("log") + " " + flags);
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    std::vector<double> found;
    for (const nlohmann::json& entry : json_lines(t.file("log")))
      if (entry.contains("val_loss")) found.push_back(entry.at("val_loss"));
    return found;
  };
  const std::vector<double> all = losses("--steps 6 --eval-every 3 --eval-batches 0"),
                            one = losses("--steps 6 --eval-every 3 --eval-batches 1"),
                            last = losses("--steps 3 --eval-every 0");
  REQUIRE(all.size() == 2);
  REQUIRE(one.size() == 2);
  REQUIRE(last.size() == 1);
  CHECK(all[0] == last[0]);
  CHECK(one[0] != all[0]);
  CHECK(one[1] == all[1]);
}

TEST_CASE("generate and train_lm --resume: tensors that do not fit the configuration are one sentence and exit 1") {
  const Training t;
  REQUIRE(t.run("--steps 2").exit_code == 0);
  const Checkpoint good = load_checkpoint(t.file("lm.h5"));
  const auto refused = [&](const Ran& ran, const std::string& program, const std::string& sentence) {
    INFO(ran.output);
    CHECK(ran.exit_code == 1);
    CHECK(lines_of(ran.output).back().rfind(program + ": ", 0) == 0);
    CHECK(contains(lines_of(ran.output).back(), sentence));
    CHECK(lines_of(ran.output).size() == 1);
  };
  const auto both_refuse = [&](const Checkpoint& c, const std::string& sentence) {
    save_checkpoint(t.file("lm.h5"), c);
    refused(test::run("exec " + test::program("generate") + " --checkpoint " + t.file("lm.h5")), "generate", sentence);
    refused(t.run("--steps 2 --resume"), "train_lm", sentence);
    CHECK(bytes_of(t.file("lm.h5")).size() > 0);
  };
  Checkpoint c = good;
  c.tensors["model/norm.weight"] = Tensor::ones({8});
  both_refuse(c, "norm.weight");
  c = good;
  c.tensors["model/blocks.0.mlp.up.weight"] = good.tensor("model/blocks.0.mlp.down.weight");
  both_refuse(c, "blocks.0.mlp.up.weight");
  c = good;
  c.tensors.erase("model/tokens.weight");
  both_refuse(c, "tokens.weight");
  c = good;
  c.tensors["model/head.weight"] = Tensor::ones({8});
  both_refuse(c, "head.weight");
}
