// Runs of train_lm that go on where their files lie elsewhere, or as ./run began them.
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

// What Training::arguments says, for data of another name.
const std::string kTinyModel = "--layers 1 --heads 2 --width 16 --context 16 --batch 4 ";

// ./run in a folder of its own, with a train_lm that tells how it was called and nothing that builds.
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
  // What it tells: the command that goes on, and its flags.
  std::string told(const std::string& from, const std::string& call) const {
    const Ran ran = test::run("cd " + quoted(from) + " && PATH=" + quoted((folder.path / "bin").string()) + " " + call);
    INFO(call << ": " << ran.output);
    CHECK(ran.exit_code == 0);
    return ran.output;
  }
};

}  // namespace

TEST_CASE("train_lm: a run goes on with data that were moved, to the bits of one that found them there") {
  const Training whole, parts;
  const std::string flags = "--steps 12 --checkpoint-every 4 --log log ";
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
  // From another folder.
  const Ran far = test::run("cd / && exec " + test::program("train_lm") + " --sample 0 --resume --checkpoint " +
                            quoted(parts.file("lm.h5")) + " --data " + quoted(parts.file("moved/other.txt")));
  INFO(far.output);
  CHECK(far.exit_code == 0);
  CHECK(contains(far.output, "going on"));
}

TEST_CASE("train_lm: --resume refuses data with another content, whatever they are called") {
  const Training t, stories;
  REQUIRE(t.run("--steps 2").exit_code == 0);
  const std::string text = bytes_of(t.file("text.txt"));
  const auto write = [&](const char* name, const std::string& content) { std::ofstream(t.file(name)) << content; };
  const auto resume = [&](const std::string& flags) { return test::run("exec " + t.on_stories("--resume " + flags)); };
  std::string swapped = text, shifted = text;
  std::swap(swapped[4], swapped[5]);
  for (char& c : shifted)
    c = c == 'z' ? '{' : c;  // the last of its characters, then as before: the tokens are the same
  write("swapped.txt", swapped);
  write("shifted.txt", shifted);
  write_tokens(t.file("same.tokens"), {t.file("text.txt")}, CharTokenizer(text));
  write_tokens(t.file("shifted.tokens"), {t.file("shifted.txt")}, CharTokenizer(shifted));
  REQUIRE(TokenSource::open(t.file("same.tokens")).hash() == TokenSource::open(t.file("shifted.tokens")).hash());
  check_refused(resume("--data swapped.txt"), 1, "but those of the checkpoint were " + std::to_string(text.size()));
  check_refused(resume("--data text.txt swapped.txt"), 1, "; they must be the same");
  check_refused(resume("--data shifted.txt"), 1,
             "resume: the data are not those of the checkpoint; they must be the same: char tokenizer: the character "
             "'{' (U+007B) at byte offset");
  check_refused(resume("--data shifted.tokens"), 1,
             "shifted.tokens was made by another tokenizer than that of the checkpoint; it must be the same");
  CHECK(resume("--data same.tokens").exit_code == 0);

  REQUIRE(test::run("exec " + stories.on_stories(kTinyModel + "--steps 0")).exit_code == 0);
  check_refused(test::run("exec " + stories.on_stories("--resume --data text.txt")), 2,
             "--data is [\"text.txt\"] but the checkpoint was made with []; it must be the same");
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
  CHECK(without.exit_code == 0);  // the checkpoint holds it
  CHECK(moved.exit_code == 0);
  check_refused(t.run("--steps 2 --resume --tokenizer other.model"), 1,
             "resume: other.model is not the tokenizer of the checkpoint; it must be the same");
  check_refused(t.run("--steps 2 --resume --tokenizer byte"), 2,
             "--tokenizer is \"byte\" but the checkpoint was made with \"first.model\"");
}

TEST_CASE("./run train tells train_lm the command that calls it again, from wherever it was called") {
  const Script script;
  CHECK(script.told(script.home.string(), "./run train --steps 7") == "./run train|--steps 7");
  CHECK(script.told(script.home.string(), "bash run train -- --steps 7") == "./run train|--steps 7");
  CHECK(script.told(script.home.string(), "./run train") == "./run train|--plot loss.svg");
  const std::string far = script.told("/", quoted((script.home / "run").string()) + " train --steps 7"),
                    command = far.substr(0, far.find('|'));
  // A shell reads it back as two words.
  CHECK(test::run("set -- " + command + "; printf '%s|' \"$@\"").output == (script.home / "run").string() + "|train|");
}
