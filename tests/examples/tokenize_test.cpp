// Runs tokenize, and train_lm on the token files.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <heed/data/tasks.hpp>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Failing;
using test::quoted;
using test::Ran;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  std::string path() const { return folder_.path.string(); }
  std::string file(const std::string& name) const { return (folder_.path / name).string(); }
  std::string write(const std::string& name, const std::string& text) const { return folder_.write(name, text); }
  std::string in_folder(const std::string& name) const {
    return "env -C " + quoted(path()) + " " + test::program(name);
  }
  std::string tokenize(const std::string& flags) const { return in_folder("tokenize") + " " + flags; }
  Ran run(const std::string& flags) const { return test::run("exec " + tokenize(flags)); }
  std::string train(const std::string& flags) const {
    return in_folder("train_lm") +
           " --layers 1 --heads 2 --width 16 --context 16 --batch 4 --sample 0 --checkpoint lm.h5 " +
           test::starting(flags);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path), fs::directory_iterator()));
  }

 private:
  TemporaryFolder folder_;
};

std::string mixed_text() { return Stories().text(3, 40000) + "zwölf Boxkämpfer € 😀\n" + Stories().text(4, 5000); }

// Peak resident memory of a command, in bytes. At least that of this process, which is forked.
[[maybe_unused]] double peak_of(const std::string& command) {  // unused with sanitizers
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", ("exec >/dev/null 2>&1; exec " + command).c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  REQUIRE(::wait4(child, &status, 0, &usage) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace

TEST_CASE("tokenize: train_lm on the token file computes what it computes on the text") {
  const Folder f;
  const std::string text = mixed_text();
  f.write("texts/a.txt", text.substr(0, 20000));
  f.write("texts/b.txt", text.substr(20000));
  for (const auto& flags_of_both : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"--tokenizer byte", "--tokenizer byte"},
           {"--train bpe --vocabulary 400 --model pieces.model", "--tokenizer pieces.model"},
           {"--train unigram --vocabulary 400 --model pieces.model", "--tokenizer pieces.model"}}) {
    const std::string &tokenizing = flags_of_both.first, &training = flags_of_both.second;
    CAPTURE(tokenizing);
    const Ran ran = f.run("--data texts --out x.tokens " + tokenizing);
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    CHECK(contains(ran.output, "x.tokens: "));
    const std::string flags = " --steps 12 --eval-every 6 --log ";
    const Ran on_text = test::run(f.train("--data texts " + training + flags + "text.log"));
    REQUIRE(on_text.exit_code == 0);
    const std::string checkpoint = bytes_of(f.file("lm.h5"));
    const Ran on_tokens = test::run(f.train("--data x.tokens" + flags + "tokens.log"));
    INFO(on_tokens.output);
    REQUIRE(on_tokens.exit_code == 0);
    CHECK(test::json_lines(f.file("text.log")).size() == 12);
    CHECK(test::same_losses(f.file("text.log"), f.file("tokens.log")));
    CHECK(test::run(test::program("generate") + " --tokens 5 --checkpoint " + f.file("lm.h5")).exit_code == 0);
    // A resumed run reads the token file again.
    CHECK(test::run(f.in_folder("train_lm") + " --resume --sample 0 --checkpoint lm.h5").exit_code == 0);
  }
  CHECK(SentencePieceTokenizer::load(f.file("pieces.model")).vocabulary_size() == 400);
}

TEST_CASE("tokenize: unknown tokens are reported as in training") {
  const Folder f;
  f.write("text", Stories().text(3, 20000));
  f.write("other", Stories().text(3, 2000) + "zwölf €\n");
  REQUIRE(f.run("--data text --out x.tokens --train bpe --vocabulary 400 --model p.model").exit_code == 0);
  const Ran ran = f.run("--data other --out y.tokens --tokenizer p.model");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  const TokenSource tokens = TokenSource::open(f.file("y.tokens"));
  Tokens all(static_cast<std::size_t>(tokens.size()));
  tokens.read(0, all);
  TokenCounts counts;
  counts.add(tokens.tokenizer(), all);
  CHECK(counts.bytes >= 5);  // ö and €, and bytes of the text that are pieces
  CHECK(contains(ran.output, "\n" + counts.text() + "\n"));
  CHECK(!contains(f.run("--data text --out z.tokens --tokenizer char").output, "tokens were"));
}

TEST_CASE("tokenize: wrong flags say what is right and exit 2") {
  const Folder f;
  f.write("text.txt", "some text");
  const auto refused = [&](const std::string& flags, const std::string& sentence) {
    test::check_refused(f.run(flags), 2, sentence);
    CHECK(f.files() == 1);
  };
  refused("--out x.tokens", "--data");
  refused("--data text.txt", "--out");
  refused("--data text.txt --out x.bin", "the name must end with .tokens");
  refused("--data text.txt --out x.tokens --tokenizer word", "it must be byte, char or a SentencePiece FILE.model");
  refused("--data text.txt --out x.tokens --train bpe --tokenizer byte",
          "--tokenizer and --train cannot be combined; give one of them");
  refused("--data text.txt --out x.tokens --train word", "--train: it is 'word'; it must be bpe or unigram");
  refused("--data text.txt --out x.tokens --vocabulary 9", "--train");
  refused("--data text.txt --out x.tokens --model x.model", "--train");
  refused("--data text.txt --out x.tokens --train bpe --tokenizer byte", "--tokenizer");
  refused("--data text.txt --out x.tokens --train bpe --vocabulary 0", "--vocabulary");
  refused("--data text.txt --out x.tokens --train bpe --model x", "the name must end with .model");
  fs::rename(f.file("text.txt"), f.file("text.tokens"));
  refused("--data text.tokens --out ./text.tokens", "the same file; they must be different files");
  const Ran help = f.run("--help");
  CHECK(help.exit_code == 0);
  for (const char* flag : {"--data", "--out", "--tokenizer", "--train", "--vocabulary", "--model"})
    CHECK(contains(help.output, flag));
}

TEST_CASE(
    "tokenize: a text that cannot be read or an output that cannot be written is one sentence, and leaves no file") {
  const Folder f;
  f.write("text.txt", mixed_text());
  const auto refused = [&](const std::string& flags, const std::string& sentence, std::size_t files) {
    test::check_refused(f.run(flags), contains(sentence, "there is no folder") ? 2 : 1, sentence);
    CHECK(f.files() == files);
  };
  refused("--data none.txt --out x.tokens", "none.txt does not exist", 1);
  refused("--data text.txt --out none/x.tokens", "there is no folder none for x.tokens", 1);
  refused("--data text.txt --out x.tokens --tokenizer none.model", "none.model cannot be opened", 1);
  refused("--data text.txt --out x.tokens --train bpe --model no/x.model", "there is no folder no for x.model", 1);
  f.write("bad.txt", std::string(3000000, 'x') + "\xFF");
  refused("--data text.txt bad.txt --out x.tokens",
          "text: bad.txt is not UTF-8: the byte 0xFF at offset 3000000 is invalid", 2);
  refused("--data text.txt bad.txt --out x.tokens --tokenizer byte", "at offset 3000000", 2);
  f.write("empty.txt", "");
  refused("--data empty.txt --out x.tokens", "there is no text in empty.txt", 3);
  refused("--data empty.txt --out x.tokens --tokenizer byte", "there is no text in empty.txt", 3);
  REQUIRE(f.run("--data text.txt --out x.tokens").exit_code == 0);
  refused("--data x.tokens --out y.tokens", "x.tokens is a token file; --data must be text files", 4);
  refused("--data text.txt /dev/null --out y.tokens", "/dev/null is not a regular file", 4);
}

TEST_CASE("train_lm: token files that are damaged, truncated, foreign or not alone are one sentence") {
  const Folder f;
  f.write("text.txt", mixed_text());
  REQUIRE(f.run("--data text.txt --out good.tokens").exit_code == 0);
  const std::string good = bytes_of(f.file("good.tokens"));
  const auto refused = [&](const std::string& flags, int exit_code, const std::string& sentence) {
    test::check_refused(test::run(f.train("--steps 1 " + flags)), exit_code, sentence);
    CHECK_FALSE(fs::exists(f.file("lm.h5")));
  };
  f.write("foreign.tokens", "some other file of this name");
  f.write("short.tokens", good.substr(0, good.size() - 2));
  std::string damaged = good;
  damaged[damaged.size() - 2000] ^= 1;
  f.write("damaged.tokens", damaged);
  f.write("other_name.bin", damaged);
  TokenWriter(f.file("none.tokens"), Index{7}).finish();
  refused("--data missing.tokens", 1, "there is no file missing.tokens");
  refused("--data foreign.tokens", 1, "foreign.tokens is not a token file");
  refused("--data short.tokens", 1, "it is truncated");
  refused("--data damaged.tokens", 1, "damaged.tokens is damaged");
  refused("--data other_name.bin", 1, "other_name.bin is damaged");
  refused("--data none.tokens", 1, "none.tokens does not contain the tokenizer that made it");
  refused("--data text.txt good.tokens", 2, "a token file must be the only file");
  refused("--data good.tokens --tokenizer char", 2, "good.tokens is a token file, which contains a tokenizer");
}

TEST_CASE("tokenize: a disk that fails at any call leaves the old file and no other") {
  const Folder f;
  f.write("text.txt", mixed_text());
  const std::string bytes = f.tokenize("--data text.txt --tokenizer byte --out x.tokens"), log = f.path() + ".log";
  REQUIRE(test::run(bytes, Failing{f.path(), "", 0, 30000, log}).exit_code == 0);
  const std::string calls = bytes_of(log), fresh = bytes_of(f.file("x.tokens"));
  fs::remove(log);
  REQUIRE(f.run("--data text.txt --out x.tokens").exit_code == 0);
  const std::string old = bytes_of(f.file("x.tokens"));
  const auto count = static_cast<int>(std::count(calls.begin(), calls.end(), '\n'));
  CHECK(count > 8);
  for (const char* mode : {"enospc", "eio"})
    for (int at = 1; at <= count; ++at) {
      if (!test::is_taken(at, 5)) continue;
      INFO(mode << " at call " << at);
      const Ran ran = test::run(bytes, Failing{f.path(), mode, at, 30000});
      INFO(ran.output);
      CHECK(f.files() == 2);
      if (ran.exit_code == 0) {  // only the removal of a probe file failed
        CHECK(std::string(mode) == "eio");
        CHECK(contains(calls, std::to_string(at) + " unlink"));
        CHECK((bytes_of(f.file("x.tokens")) == fresh));
      } else {
        CHECK(ran.exit_code == 1);
        CHECK(std::count(ran.output.begin(), ran.output.end(), '\n') == 1);
        const bool placed = contains(ran.output, "may be lost in a power cut");
        CHECK((bytes_of(f.file("x.tokens")) == (placed ? fresh : old)));
      }
      REQUIRE(f.run("--data text.txt --out x.tokens").exit_code == 0);
    }
}

RELEASE_TEST_CASE("tokenize: a full disk leaves no learned model without its token file") {
  const Folder f;
  f.write("text.txt", Stories().text(3, 20000));
  const std::string learn = f.tokenize("--data text.txt --train bpe --vocabulary 400 --model x.model --out x.tokens"),
                    log = f.path() + ".log";
  REQUIRE(test::run(learn, Failing{f.path(), "", 0, 0, log}).exit_code == 0);
  CHECK(f.files() == 3);
  const std::string calls = bytes_of(log);
  fs::remove(log);
  const auto count = static_cast<int>(std::count(calls.begin(), calls.end(), '\n'));
  int without = 0, with = 0;
  for (int at = 1; at <= count; ++at) {
    fs::remove(f.file("x.model")), fs::remove(f.file("x.tokens"));
    const Ran ran = test::run(learn, Failing{f.path(), "enospc", at});
    INFO("at call " << at << ": " << ran.output);
    const bool tokens = fs::exists(f.file("x.tokens"));
    CHECK((tokens || f.files() == 1));
    ++(tokens ? with : without);
  }
  CHECK(without > 4);
  CHECK(with > 2);  // the model is written last
}

TEST_CASE("tokenize: Ctrl-C leaves nothing") {
  const Folder f;
  // The text is read from a pipe, so that the program is still running when it is stopped.
  const Ran ran =
      test::run("cd " + quoted(f.path()) + "; mkfifo text; " +
                test::in_background(test::program("tokenize") + " --data text --tokenizer byte --out x.tokens") +
                "{ head -c 4000000 /dev/zero; while [ ! -e x.tokens.tmp ]; do sleep 0.02; done; "
                "kill -INT $pid; head -c 4000000 /dev/zero; } > text; wait $pid");
  CHECK(ran.exit_code == 130);
  CHECK(contains(ran.output, "tokenize: stopped; nothing was written\n"));
  CHECK(f.files() == 1);
}

#if !defined(HEED_SANITIZED)  // allocators of sanitizers keep freed memory
TEST_CASE("tokenize: memory does not grow with the text") {
  const Folder f;
  const std::string part = mixed_text();
  {
    std::ofstream out(f.file("text.txt"), std::ios::binary);
    for (std::size_t bytes = 0; bytes < 200'000'000; bytes += part.size()) out << part;
  }
  const double small = peak_of(f.tokenize("--data " + quoted(f.write("small.txt", part)) + " --out small.tokens")),
               large = peak_of(f.tokenize("--data text.txt --out large.tokens"));
  MESSAGE("peak " << small / 1e6 << " MB for 45 kB of text, " << large / 1e6 << " MB for 200 MB");
  CHECK(large < small + 24e6);
  CHECK(TokenSource::open(f.file("large.tokens")).size() > 199'000'000);
}

TEST_CASE("train_lm: a mapped token file is not copied to memory") {
  const Folder f;
  const Tokenizer t = ByteTokenizer();
  for (const Index pieces : {1, 1000}) {  // 0.2 and 200 MB
    TokenWriter writer(f.file(std::to_string(pieces) + ".tokens"), t);
    std::vector<std::int32_t> ids(100000);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 251);
    for (Index i = 0; i < pieces; ++i) writer.append(ids);
    writer.finish();
  }
  const std::string flags = "--steps 30 --threads 1 --val-fraction 0 ";
  const double small = peak_of(f.train(flags + "--data 1.tokens")),
               large = peak_of(f.train(flags + "--data 1000.tokens"));
  MESSAGE("peak " << small / 1e6 << " MB with 0.2 MB of tokens, " << large / 1e6 << " MB with 200 MB");
  CHECK(large < small + 24e6);
}

TEST_CASE("train_lm: the predicted memory is within a tenth of the peak") {
  const Folder f;
  f.write("text.txt", mixed_text());
  for (const char* size : {"--layers 3 --heads 6 --width 384 --context 64 --batch 32 --dtype bf16",
                           "--layers 6 --heads 8 --width 512 --context 32 --batch 4",
                           "--layers 6 --heads 8 --width 512 --context 32 --batch 4 --shards 4"}) {
    CAPTURE(size);
    const std::string command =
        f.in_folder("train_lm") +
        " --data text.txt --steps 2 --eval-batches 1 --sample 0 --overwrite --checkpoint a.h5 " + std::string(size);
    const double peak = peak_of(command + " > " + quoted(f.file("said")) + " 2>&1") / (1 << 20);
    const std::string output = bytes_of(f.file("said"));
    const auto at = output.find(", about ");
    REQUIRE(at != std::string::npos);
    const double reported = std::stod(output.substr(at + 8));
    MESSAGE(std::string(size) << ": said " << reported << " MiB, took " << peak);
    CHECK(std::abs(reported - peak) <= peak / 10);
  }
}
#endif
