// Runs train_lm --init with models of other formats.
#include <fstream>
#include <heed/heed.hpp>
#include <heed/io/pretrained.hpp>

#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::check_refused;
using test::contains;
using test::Ran;
using test::Training;
namespace fs = std::filesystem;

namespace {

// A model that train_lm trained with a tokenizer of bytes, in each format: start.h5, start/ and start.gguf.
struct StartModel {
  test::TemporaryFolder folder;

  StartModel() {
    const Training t;
    const Ran ran = t.run("--steps 6 --norm rms --activation swiglu --positions rope --tokenizer byte");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    Pretrained p = load_pretrained(t.file("lm.h5"));
    p.card.texts["license"] = "mit";
    p.end_tokens = {10};
    fs::copy(t.file("lm.h5"), path("h5"));
    save_pretrained(path("folder"), p);
    save_pretrained(path("gguf"), p);
  }
  std::string path(const std::string& format) const {
    return (folder.path / ("start" + (format == "folder" ? "" : "." + format))).string();
  }
  std::string flags(const std::string& format) const { return "--init " + path(format) + " --lr 1e-3 --steps 4 "; }
};

std::map<std::string, Tensor> weights_of(const std::string& file) {
  std::map<std::string, Tensor> weights;
  for (const auto& [name, x] : load_checkpoint(file).tensors)
    if (name.starts_with("model/")) weights[name] = x;
  return weights;
}

bool same_weights(const std::string& a, const std::string& b) {
  const auto x = weights_of(a), y = weights_of(b);
  bool same = x.size() == y.size() && !x.empty();
  for (const auto& [name, tensor] : x) same = same && y.contains(name) && test::same_bits(tensor, y.at(name));
  return same;
}

}  // namespace

TEST_CASE("train_lm: --init starts from a folder or a GGUF file as from the checkpoint") {
  const StartModel m;
  const Training own;
  REQUIRE(own.run(m.flags("h5")).exit_code == 0);
  CHECK_FALSE(same_weights(own.file("lm.h5"), m.path("h5")));
  for (const std::string format : {"folder", "gguf"}) {
    INFO(format);
    const Training t;
    const Ran ran = t.run(m.flags(format) + "--sample 5 --prompt the");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    CHECK(contains(ran.output, "new training"));
    CHECK(same_weights(t.file("lm.h5"), own.file("lm.h5")));
    // The checkpoint has the tokenizer, the card and the tokens.
    const Pretrained p = load_pretrained(t.file("lm.h5"));
    CHECK(p.family == "llama");
    CHECK(p.lm.tokenizer.kind() == "tokenizer.json");
    CHECK(p.lm.tokenizer.encode("the") == Tokens{'t', 'h', 'e'});
    CHECK(p.card.texts.at("license") == "mit");
    CHECK(p.end_tokens == Tokens{10});
    const Ran made = test::run(test::program("generate") + " --prompt the --tokens 3 --model " + t.file("lm.h5"));
    CHECK(made.exit_code == 0);
    // Without the base, and with other steps.
    REQUIRE(t.run("--resume --steps 6").exit_code == 0);
    REQUIRE(own.run("--resume --steps 6").exit_code == 0);
    CHECK(same_weights(t.file("lm.h5"), own.file("lm.h5")));
    CHECK(load_pretrained(t.file("lm.h5")).card.texts.at("license") == "mit");
    REQUIRE(own.run("--overwrite " + m.flags("h5")).exit_code == 0);
  }
}

RELEASE_TEST_CASE("train_lm: a run that began with --init of a folder is killed and resumed to the same bits") {
  const StartModel m;
  const std::string flags = m.flags("folder") + "--dropout 0.1 --checkpoint-every 1 ";
  const Training whole, killed;
  REQUIRE(whole.run(flags).exit_code == 0);
  REQUIRE(killed.killed_at_save(flags, 3).signal == 9);
  REQUIRE(load_checkpoint(killed.file("lm.h5")).counter("step") == 2);
  REQUIRE(killed.run("--resume --checkpoint-every 1").exit_code == 0);
  CHECK((test::bytes_of(whole.file("lm.h5")) == test::bytes_of(killed.file("lm.h5"))));
}

TEST_CASE("train_lm: rows may be shorter than the context of the model of --init") {
  const StartModel m;
  const Training t;
  const std::string data = "--data text.txt --batch 4 ";
  REQUIRE(test::run("exec " + t.on_stories(data + m.flags("gguf") + "--context 8")).exit_code == 0);
  CHECK(load_pretrained(t.file("lm.h5")).config.options.context == 16);
  const Ran resumed = test::run("exec " + t.on_stories("--resume --steps 5"));
  INFO(resumed.output);
  CHECK(resumed.exit_code == 0);
  CHECK(contains(resumed.output, "context 8"));
  // A training that starts from it has the same rows, and a published model its context.
  const Ran next = test::run("exec " + t.on_stories(data + "--init lm.h5 --checkpoint b.h5 --steps 1"));
  CHECK(contains(next.output, "context 8"));
  const Ran published = test::run("exec " + t.on_stories(data + m.flags("folder") + "--checkpoint c.h5"));
  CHECK(contains(published.output, "context 16"));
  check_refused(test::run("exec " + t.on_stories(data + m.flags("gguf") + "--context 17")), 2,
                "--context is 17 but the model of " + m.path("gguf") + " has 16; rows may be shorter, and not longer");
  check_refused(test::run("exec " + t.on_stories("--resume --context 16")), 2,
                "--context is 16 but the checkpoint was made with 8");
}

TEST_CASE("train_lm: what --init does not take, and flags that contradict its model") {
  const StartModel m;
  const Training t;
  const std::string init = m.flags("folder") + "--data text.txt --batch 4 ";
  const auto refused = [&](const std::string& flags, int code, const std::string& sentence) {
    check_refused(test::run("exec " + t.on_stories(flags)), code, sentence);
  };
  refused(init + "--layers 2", 2, "--layers is 2 but the model of " + m.path("folder") + " has 1; leave it out");
  refused(init + "--activation gelu", 2, "--activation is \"gelu\" but the model of");
  refused(init + "--tokenizer char", 1,
          "--tokenizer is char, which is not the tokenizer of " + m.path("folder") + "; it must be the same");
  SentencePieceTokenizer::train_on_text(test::bytes_of(t.file("text.txt")), {.vocabulary = 310})
      .save(t.file("p.model"));
  refused(init + "--tokenizer p.model", 1, "p.model is not the tokenizer of " + m.path("folder"));
  refused(m.flags("folder"), 2, "the built-in stories require one of these; give --data");
  const std::string pretrained = test::in_source("tests/reference/pretrained/");
  refused("--data text.txt --init " + pretrained + "bert", 1,
          "bert is an encoder, which does not continue texts; --init must be a model that does");
  refused("--data text.txt --init none", 1, "there is no file none");
  std::ofstream(t.file("x.bin")) << "x";
  refused("--data text.txt --init x.bin", 1, "x.bin is a pickled file, which may contain code");
  // An adapter without its base.
  Pretrained p = load_pretrained(m.path("h5"));
  Rng rng(1);
  add_lora(p.lm.model, {.rank = 2, .alpha = 2}, rng);
  Checkpoint adapter;
  store_trainable(adapter, p.lm.model);
  adapter.texts["base"] = "base.gguf";
  save_checkpoint(t.file("adapter.h5"), adapter);
  const std::string sentence =
      "adapter.h5 has only the trained part of a model, such as an adapter, and not its base, base.gguf; load the "
      "base, "
      "and add the adapter that finetune wrote: convert --model base.gguf --adapter FOLDER --merge --out FILE";
  refused("--data text.txt --init adapter.h5", 1, sentence);
  check_refused(test::run(test::program("generate") + " --checkpoint " + t.file("adapter.h5")), 1, sentence);
}
