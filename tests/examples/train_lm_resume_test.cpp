// Resumed runs of train_lm: moved files, other settings, and runs started by ./run.
#include <filesystem>
#include <fstream>
#include <heed/data/checkpoint.hpp>
#include <heed/data/tasks.hpp>
#include <heed/data/token_file.hpp>

#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::check_refused;
using test::contains;
using test::lines_of;
using test::quoted;
using test::Ran;
using test::TemporaryFolder;
using test::Training;
namespace fs = std::filesystem;

namespace {

// The model of Training::arguments, for other data.
const std::string kTinyModel = "--layers 1 --heads 2 --width 16 --context 16 --batch 4 ";

// ./run in its own folder, with a train_lm that prints how it was called, and build tools that do nothing.
struct Script {
  TemporaryFolder folder;
  fs::path home = folder.path / "my heed";

  Script() {
    const auto stub = [&](const std::string& name, const std::string& text) {
      fs::permissions(folder.write(name, "#!/bin/sh\n" + text), fs::perms::owner_all);
    };
    stub("my heed/build/release/examples/train_lm", "printf '%s|%s' \"$HEED_COMMAND\" \"$*\"\n");
    fs::copy_file(test::in_source("run"), home / "run");
    fs::permissions(home / "run", fs::perms::owner_all);
    stub("bin/cmake", "exit 0\n");
    stub("bin/ninja", "exit 0\n");
    for (const fs::path tool : {"/bin/bash", "/usr/bin/dirname", "/bin/mkdir", "/bin/rm"})
      fs::create_symlink(tool, folder.path / "bin" / tool.filename());
  }
  // The output of the fake train_lm: the command that resumes, and its flags.
  std::string output_of(const std::string& from, const std::string& call) const {
    const Ran ran = test::run("cd " + quoted(from) + " && PATH=" + quoted((folder.path / "bin").string()) + " " + call);
    INFO(call << ": " << ran.output);
    CHECK(ran.exit_code == 0);
    return ran.output;
  }
};

}  // namespace

TEST_CASE("train_lm: a run continues with moved data to the bits of an undisturbed one") {
  const Training whole, parts;
  const std::string flags = "--steps 12 --checkpoint-every 4 --log log --reversible true --dropout 0.1 ";
  for (const Training* t : {&whole, &parts}) fs::create_directory(t->file("moved"));
  fs::rename(whole.file("text.txt"), whole.file("moved/other.txt"));
  REQUIRE(test::run("exec " + whole.on_stories(kTinyModel + "--data moved/other.txt " + flags)).exit_code == 0);
  const Ran killed = parts.killed_at_save(flags, 2);
  INFO(killed.output);
  CHECK(killed.signal == 9);
  fs::rename(parts.file("text.txt"), parts.file("moved/other.txt"));
  check_refused(test::run("exec " + parts.on_stories("--resume --log log")), 1, "text.txt does not exist");
  const Ran resumed = test::run("exec " + parts.on_stories("--resume --log log --data moved/other.txt"));
  INFO(resumed.output);
  REQUIRE(resumed.exit_code == 0);
  CHECK(contains(resumed.output, "resumed at step 4\n"));
  CHECK(test::same_losses(whole.file("log"), parts.file("log")));
  CHECK((bytes_of(whole.file("lm.h5")) == bytes_of(parts.file("lm.h5"))));
  // The same from another folder.
  const Ran far = test::run("cd / && exec " + test::program("train_lm") + " --sample 0 --resume --checkpoint " +
                            quoted(parts.file("lm.h5")) + " --data " + quoted(parts.file("moved/other.txt")));
  INFO(far.output);
  CHECK(far.exit_code == 0);
  CHECK(contains(far.output, "resuming"));
}

TEST_CASE("train_lm: --resume refuses data with another content, whatever they are called") {
  const Training t, stories;
  REQUIRE(t.run("--steps 2").exit_code == 0);
  const std::string text = bytes_of(t.file("text.txt"));
  const auto write = [&](const char* name, const std::string& content) { std::ofstream(t.file(name)) << content; };
  const auto resume = [&](const std::string& flags) { return test::run("exec " + t.on_stories("--resume " + flags)); };
  std::string swapped = text, shifted = text;
  std::swap(swapped[4], swapped[5]);
  for (char& c : shifted) c = c == 'z' ? '{' : c;  // the last character; the tokens stay the same
  write("swapped.txt", swapped);
  write("shifted.txt", shifted);
  write_tokens(t.file("same.tokens"), {t.file("text.txt")}, CharTokenizer(text));
  write_tokens(t.file("shifted.tokens"), {t.file("shifted.txt")}, CharTokenizer(shifted));
  REQUIRE(TokenSource::open(t.file("same.tokens")).hash() == TokenSource::open(t.file("shifted.tokens")).hash());
  for (const char* data : {"--data swapped.txt", "--data text.txt swapped.txt"}) {
    const Ran ran = resume(data);
    INFO(ran.output);
    CHECK(ran.exit_code == 1);
    CHECK(contains(ran.output, "resume: the training data of lm.h5 are 973 tokens with the hash "));
    CHECK(contains(ran.output, "they must be the same unless CheckpointOptions::other_data (--other-data) is set"));
  }
  const Ran accepted = resume("--data swapped.txt --other-data --steps 3");
  CHECK(accepted.exit_code == 0);
  CHECK(contains(accepted.output, "changed: training data: 973 tokens with the hash "));
  REQUIRE(t.run("--steps 2").exit_code == 0);
  check_refused(
      resume("--data shifted.txt"), 1,
      "resume: the data differ from those of the checkpoint; they must be the same: char tokenizer: the character "
      "'{' (U+007B) at byte offset");
  check_refused(resume("--data shifted.tokens"), 1,
                "shifted.tokens was made with another tokenizer than the checkpoint; the tokenizers must be the same");
  CHECK(resume("--data same.tokens").exit_code == 0);

  REQUIRE(test::run("exec " + stories.on_stories(kTinyModel + "--steps 0")).exit_code == 0);
  check_refused(
      test::run("exec " + stories.on_stories("--resume --data text.txt")), 2,
      "--data is [\"text.txt\"] but the checkpoint was made with []; leave it out, or start a new training from its "
      "weights with --init, or allow other data with --other-data");
}

TEST_CASE("train_lm: a SentencePiece model may be moved, but not be another one") {
  const Training t;
  std::ofstream(t.file("text.txt")) << Stories().text(3, 20000);
  const auto learn = [&](const std::string& name, Index vocabulary) {
    SentencePieceTokenizer::train({fs::path(t.file("text.txt"))}, {.vocabulary = vocabulary}).save(t.file(name));
  };
  learn("first.model", 400);
  learn("other.model", 410);
  REQUIRE(t.run("--steps 2 --tokenizer first.model").exit_code == 0);
  fs::rename(t.file("first.model"), t.file("moved.model"));
  const Ran without = t.run("--steps 2 --resume"), moved = t.run("--steps 2 --resume --tokenizer moved.model");
  INFO(without.output << moved.output);
  CHECK(without.exit_code == 0);  // the checkpoint contains the tokenizer
  CHECK(moved.exit_code == 0);
  check_refused(t.run("--steps 2 --resume --tokenizer other.model"), 1,
                "other.model is not the tokenizer of lm.h5; it must be the same");
  check_refused(t.run("--steps 2 --resume --tokenizer byte"), 2,
             "--tokenizer is \"byte\" but the checkpoint was made with \"first.model\"");
}

TEST_CASE("./run train passes train_lm the command that calls it again, from any folder") {
  const Script script;
  CHECK(script.output_of(script.home.string(), "./run train --steps 7") == "./run train|--steps 7");
  CHECK(script.output_of(script.home.string(), "bash run train -- --steps 7") == "./run train|--steps 7");
  CHECK(script.output_of(script.home.string(), "./run train") == "./run train|--plot loss.svg");
  const std::string far = script.output_of("/", quoted((script.home / "run").string()) + " train --steps 7"),
                    command = far.substr(0, far.find('|'));
  // A shell reads the command back as two words.
  CHECK(test::run("set -- " + command + "; printf '%s|' \"$@\"").output == (script.home / "run").string() + "|train|");
}

TEST_CASE("train_lm: an existing checkpoint is replaced only with --overwrite, and --resume needs a checkpoint") {
  const Training t;
  const std::string plain = "exec env -C " + quoted(t.folder()) + " " + test::program("train_lm") +
                            " --data text.txt --layers 1 --heads 2 --width 16 --context 16 --batch 4 --sample 0 ";
  check_refused(test::run(plain + "--steps 2 --resume"), 1,
                "there is no checkpoint lm.h5 to resume; --resume-or-start starts a new training if there is none");
  CHECK_FALSE(fs::exists(t.file("lm.h5")));
  REQUIRE(test::run(plain + "--steps 2 --resume-or-start").exit_code == 0);
  const std::string first = bytes_of(t.file("lm.h5"));
  check_refused(test::run(plain + "--steps 2"), 2,
                "lm.h5 exists already; --resume continues its training, --overwrite replaces it, and --init lm.h5 with "
                "another --checkpoint starts a new training from its weights");
  check_refused(test::run(plain + "--resume --overwrite"), 2, "--resume and --overwrite contradict each other");
  check_refused(test::run(plain + "--resume --init a.h5"), 2, "--init those of a.h5; give one of them");
  check_refused(test::run(plain + "--other-data --overwrite"), 2, "--other-data requires --resume");
  CHECK((bytes_of(t.file("lm.h5")) == first));
  REQUIRE(test::run(plain + "--steps 3 --overwrite").exit_code == 0);
  CHECK(load_checkpoint(t.file("lm.h5")).counter("step") == 3);
}

TEST_CASE("train_lm: --resume goes on with more steps, other batches and rates, and says what differs") {
  const Training t;
  REQUIRE(t.run("--steps 6 --lr 1e-2 --schedule linear --log log").exit_code == 0);
  Ran ran = test::run("exec " + t.on_stories("--resume --steps 9 --batch 2 --accumulate 2 --dropout 0.1 --lr 2e-2 "
                                             "--eval-every 2 --dtype bf16 --log log"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  for (const char* line :
       {"changed: dropout 0.1, before: 0.0\n", "resumed at step 6\n", "changed: steps 9, before: 6\n",
        "changed: accumulate 2, before: 1\n", "changed: precision bfloat16, before: float32\n",
        "changed: eval_every 2, before: 250\n", "changed: batches of 2 rows, before: 4 rows\n",
        "changed: next learning rate 0.02, before: "})
    CHECK(contains(ran.output, line));
  CHECK(test::json_lines(t.file("log")).size() == 9);
  ran = test::run("exec " + t.on_stories("--resume"));
  CHECK(ran.exit_code == 0);
  CHECK_FALSE(contains(ran.output, "changed"));
}

TEST_CASE("train_lm: --init starts from the weights, options and tokenizer of a checkpoint, for other data") {
  const Training t;
  REQUIRE(t.run("--steps 6 --attention window --window 5 --norm rms --bias true").exit_code == 0);
  std::ofstream(t.file("more.txt")) << bytes_of(t.file("text.txt")).substr(200);
  const std::string init = "--init lm.h5 --checkpoint tuned.h5 --data more.txt ";
  check_refused(test::run("exec " + t.on_stories(init + "--heads 4")), 2,
                "--heads is 4 but the model of lm.h5 has 2; leave it out");
  check_refused(test::run("exec " + t.on_stories(init + "--window 6")), 2,
                "--window is 6 but the model of lm.h5 has 5");
  check_refused(test::run("exec " + t.on_stories(init + "--zero-init-residual true")), 2,
                "--zero-init-residual sets initial weights, but --init takes the weights of lm.h5");
  const Ran tuned = test::run("exec " + t.on_stories(init + "--steps 0 --overwrite"));
  INFO(tuned.output);
  REQUIRE(tuned.exit_code == 0);
  const Checkpoint from = load_checkpoint(t.file("lm.h5")), to = load_checkpoint(t.file("tuned.h5"));
  for (const auto& [name, x] : from.tensors)
    if (name.starts_with("model/")) CHECK(test::same_bits(x, to.tensor(name)));
  CHECK(to.text("tokenizer") == from.text("tokenizer"));
  CHECK(to.counter("step") == 0);
  REQUIRE(test::run("exec " + t.on_stories(init + "--steps 3 --overwrite")).exit_code == 0);
  CHECK(test::run("exec " + t.on_stories("--checkpoint tuned.h5 --resume --steps 5")).exit_code == 0);
  // A checkpoint without settings, as other programs write: the model is described by its config.
  Checkpoint own = from;
  own.texts.erase("settings");
  save_checkpoint(t.file("own.h5"), own);
  const Ran from_own = test::run("exec " + t.on_stories("--init own.h5 --checkpoint b.h5 --data more.txt --steps 2"));
  INFO(from_own.output);
  CHECK(from_own.exit_code == 0);
  CHECK(contains(from_own.output, "1 layers, 2 heads, width 16, context 16"));
}

TEST_CASE("train_lm: settings and config of a checkpoint that disagree are refused") {
  const Training t;
  REQUIRE(t.run("--steps 2").exit_code == 0);
  const Checkpoint good = load_checkpoint(t.file("lm.h5"));
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& sentence) {
    Checkpoint bad = good;
    std::string& settings = bad.texts.at("settings");
    REQUIRE(contains(settings, from));
    settings.replace(settings.find(from), from.size(), to);
    save_checkpoint(t.file("lm.h5"), bad);
    check_refused(test::run("exec " + t.on_stories("--resume --steps 3")), 1, sentence);
  };
  refused("\"heads\":2", "\"heads\":4", "lm.h5: its settings have 4 for heads and its config 2; they must agree");
  refused("\"activation\":\"gelu\"", "\"activation\":\"relu\"", "its settings have \"relu\" for activation");
  refused("\"attention\":\"softmax\"", "\"attention\":\"cosine\"", "its settings have \"cosine\" for attention");
}
