// The frame of every program: files that flags name, standard streams, signals, sizes.
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::lines_of;
using test::program;
using test::quoted;
using test::Ran;
using test::Training;
namespace fs = std::filesystem;

namespace {

// Checks that a run was refused: its exit code, and one line that contains the sentence.
void refused(const Training& t, const Ran& ran, int code, const std::string& sentence) {
  test::check_refused(ran, code, sentence);
  CHECK(fs::exists(t.file("text.txt")));
}

// A limit for programs that a fault would let fill the memory.
#if defined(HEED_SANITIZED)
const std::string kLittleMemory = "";  // sanitizers need much memory
#else
const std::string kLittleMemory = "ulimit -v 2000000; ";
#endif

Ran in_folder(const Training& t, const std::string& command) {
  return test::run("cd " + quoted(t.folder()) + " || exit; " + command);
}

}  // namespace

TEST_CASE("programs: an output path that is a pipe, a socket or a device is refused before the run, and not replaced") {
  const Training t;
  REQUIRE(in_folder(t, "mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'")
              .exit_code == 0);
  for (const char* name : {"pipe", "socket"}) {
    refused(t, t.run(std::string("--steps 1 --checkpoint ") + name), 2,
            std::string(name) + " is a " + name + "; it must be a file");
    CHECK_FALSE(fs::is_regular_file(t.file(name)));
  }
  // The test makes its own device, because a faulty program run by root would replace that of the system. Other users
  // cannot make a device, and cannot replace one.
  std::string device = t.file("null");
  if (::mknod(device.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0)
    device = ::geteuid() == 0 ? t.file("pipe") : "/dev/null";
  const std::string is_device =
      device == t.file("pipe") ? " is a pipe; it must be a file" : " is a device; it must be a file";
  refused(t, t.run("--steps 1 --checkpoint " + device), 2, device + is_device);
  fs::create_symlink(t.file("pipe"), t.file("picture.svg"));
  refused(t, t.run("--steps 1 --plot picture.svg"), 2, "picture.svg is a pipe; it must be a file");
  const Ran log = t.run("--steps 1 --log socket");
  CHECK(log.exit_code == 2);
  CHECK(contains(log.output, "socket is a socket; it must be a file, a pipe or a terminal"));
  fs::create_symlink(device, t.file("x.tokens"));
  refused(t, in_folder(t, program("tokenize") + " --data text.txt --out x.tokens"), 2, "x.tokens" + is_device);
  CHECK_FALSE(fs::is_regular_file(device));
  CHECK(fs::is_fifo(t.file("pipe")));
  CHECK_FALSE(fs::exists(t.file("lm.h5")));
}

TEST_CASE("programs: a log may be a pipe, the null device or standard output, which keeps what it holds") {
  const Training t;
  Ran ran = in_folder(t, "mkfifo pipe; cat pipe > copy & " + t.arguments("--steps 3 --log pipe") + "; wait");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(test::json_lines(t.file("copy")).size() == 3);
  CHECK(t.run("--steps 1 --log /dev/null").exit_code == 0);
  CHECK(fs::is_character_file("/dev/null"));
  ran = in_folder(t, "echo before > out; " + t.arguments("--steps 2 --log /dev/stdout") + " >> out 2> /dev/null");
  CHECK(ran.exit_code == 0);
  const std::vector<std::string> out = lines_of(bytes_of(t.file("out")));
  REQUIRE(out.size() == 3);
  CHECK(out[0] == "before");
  CHECK(contains(out[2], "\"step\":2"));
  // The reader closes the pipe: the trained model is saved.
  ran = in_folder(
      t, "head -n 1 pipe > copy & " + t.arguments("--steps 20000 --eval-every 0 --checkpoint piped.h5 --log pipe"));
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "log: pipe cannot be written: Broken pipe"));
  CHECK(fs::exists(t.file("piped.h5")));
}

TEST_CASE("programs: a link is written through, also where it leads to nothing yet") {
  const Training t;
  fs::create_directory(t.file("there"));
  fs::create_symlink("there/lm.h5", t.file("link.h5"));
  fs::create_symlink("there/log", t.file("log"));
  fs::create_symlink("loss.svg", t.file("link.svg"));
  for (int twice = 0; twice < 2; ++twice) {
    const Ran ran = t.run("--steps 2 --checkpoint link.h5 --log log --plot link.svg");
    INFO(ran.output);
    CHECK(ran.exit_code == 0);
    for (const char* link : {"link.h5", "log", "link.svg"}) CHECK(fs::is_symlink(t.file(link)));
    for (const char* target : {"there/lm.h5", "there/log", "loss.svg"}) CHECK(fs::is_regular_file(t.file(target)));
  }
  fs::create_symlink("round.h5", t.file("round.h5"));
  refused(t, t.run("--steps 1 --checkpoint round.h5"), 2, "round.h5 is a link that leads to itself");
}

RELEASE_TEST_CASE("programs: a file of two flags, under any name, is refused before a file is changed") {
  const Training t;
  REQUIRE(t.run("--steps 2 --log log").exit_code == 0);
  REQUIRE(in_folder(t,
                    "ln -s text.txt soft; ln text.txt hard; ln -s none nothing; mkdir f; cp text.txt f/a.svg; ln -s "
                    "a.tokens b.model; ln -s x.tokens x.model; " +
                        program("tokenize") + " --data text.txt --out x.tokens")
              .exit_code == 0);
  const std::string text = bytes_of(t.file("text.txt")), checkpoint = bytes_of(t.file("lm.h5")),
                    log = bytes_of(t.file("log"));
  const auto both = [&](const std::string& command) {
    const Ran ran = in_folder(t, command);
    INFO(command);
    refused(t, ran, 2, "must be different files");
    CHECK(bytes_of(t.file("text.txt")) == text);
    CHECK(bytes_of(t.file("lm.h5")) == checkpoint);
    CHECK(bytes_of(t.file("log")) == log);
  };
  for (const char* name : {"text.txt", "./f/../text.txt", "soft", "hard"}) {
    both(t.arguments(std::string("--log ") + name));
    both(t.arguments(std::string("--checkpoint ") + name));
  }
  both(t.arguments("--log lm.h5"));
  both(t.arguments("--log lm.h5.tmp"));
  both(t.arguments("--log lm.h5.lock"));
  both(t.arguments("--log new --checkpoint ./new"));
  both(t.arguments("--log nothing --checkpoint none"));
  both(t.arguments("--plot a.svg --log a.svg"));
  both(t.on_stories("--data f --plot f/a.svg"));
  both(t.on_stories("--data x.tokens --checkpoint x.tokens"));
  both(program("tokenize") + " --data text.txt --train bpe --vocabulary 300 --out a.tokens --model b.model");
  both(program("tokenize") + " --data f text.txt --out f/../x.tokens --tokenizer x.model");
  both(program("classify") + " --checkpoint log --log log");
  both(program("attention_maps") + " --checkpoint lm.h5 --prompt a --plot lm.h5");
  both(program("attention_cost") + " --plot a.svg --log a.svg");
  both(program("attention_race") + " --plot a.svg --log ./a-rank-cost.svg");
  REQUIRE(in_folder(t, "ln -s b-copy-cost.svg b-copy-loss.svg").exit_code == 0);
  both(program("attention_race") + " --plot b.svg");
}

TEST_CASE("programs: a file that cannot be written is refused before the work for it, a log as well") {
  const Training t;
  REQUIRE(in_folder(t, "mkdir race-copy-cost.svg").exit_code == 0);
  const std::string log = " --log none/log", sentence = "--log: there is no folder none for log";
  refused(t, t.run("--steps 1" + log), 2, sentence);
  for (const char* name : {"classify", "attention_cost", "attention_race"})
    if (test::has_program(name)) refused(t, in_folder(t, program(name) + log), 2, sentence);
  refused(t, t.run("--steps 1 --log race-copy-cost.svg"), 2,
          "race-copy-cost.svg is a folder; it must be a file, a pipe");
  if (test::has_program("attention_race"))
    refused(t, in_folder(t, program("attention_race") + " --tasks copy --steps 1 --plot race.svg"), 2,
            "--plot: race-copy-cost.svg is a folder; it must be a file");
}

TEST_CASE("programs: an empty name of a file, and a number beyond its range, are usage errors that say so") {
  const Training t;
  for (const char* flag : {"--checkpoint", "--log", "--plot", "--data"}) {
    INFO(flag);
    refused(t, t.run(std::string("--steps 1 ") + flag + " ''"), 2, "it is ''; it must be ");
  }
  refused(t, t.run("--steps 1 --tokenizer ''"), 2, "\"\" is not a tokenizer; it must be ");
  CHECK_FALSE(fs::exists(t.file("lm.h5")));
  refused(t, in_folder(t, program("tokenize") + " --data text.txt --out ''"), 2, "it must be the name of a file");
  if (test::has_program("04_two_moons"))
    refused(t, in_folder(t, program("04_two_moons") + " --plot ''"), 2, "it must be the name of a file");
  refused(t, t.run("--seed 9223372036854775808"), 2, "a whole number, from 0 to 9223372036854775807");
  refused(t, t.run("--steps 99999999999999999999"), 2, "a whole number, from 0 to 1099511627776");
}

TEST_CASE("run: two runs do not write one log or one checkpoint") {
  const Training t;
  const std::string long_run =
      t.arguments("--steps 1000000 --eval-every 0 --checkpoint-every 50 --checkpoint a.h5 --log a");
  const auto run_with = [&](const std::string& flags) {
    return in_folder(t, test::in_background(long_run + " 2> /dev/null") + "while [ ! -e a.h5 ]; do sleep 0.02; done; " +
                            t.arguments("--steps 1 " + flags) +
                            "; code=$?; kill -INT $pid; wait $pid; exit $code");
  };
  Ran ran = run_with("--checkpoint a.h5");
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "another program is writing a.h5; only one program may write it"));
  fs::remove(t.file("a.h5"));
  ran = run_with("--log a");
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "log: another program is writing a; only one program may write it"));
  const std::vector<nlohmann::json> log = test::json_lines(t.file("a"));
  REQUIRE(log.size() >= 50);
  for (std::size_t i = 0; i < log.size(); ++i) CHECK(log[i].at("step") == i + 1);
  CHECK_FALSE(fs::exists(t.file("a.h5.lock")));
}

TEST_CASE("run: a run that is refused or fails before its first step keeps the old log") {
  const Training t;
  REQUIRE(t.run("--steps 4 --checkpoint-every 2 --log log").exit_code == 0);
  const std::string log = bytes_of(t.file("log"));
  const auto kept = [&](const std::string& flags, int code, const std::string& sentence) {
    const Ran ran = t.run(flags + " --log log");
    INFO(ran.output);
    CHECK(ran.exit_code == code);
    CHECK(contains(ran.output, sentence));
    CHECK(bytes_of(t.file("log")) == log);
  };
  kept("--resume --steps 3", 1, "lm.h5 is at step 4 but the run has 3 steps; steps must be at least 4");
  kept("--resume --seed 7", 2, "--seed is 7");
  kept("--steps 5 --checkpoint other.h5 --context 3000", 1, "needs at least 3001");
}

TEST_CASE("programs: standard output that cannot be written is one sentence and exit 1") {
  const Training t;
  REQUIRE(t.run("--steps 2 --log log").exit_code == 0);
  const std::string generate = program("generate") + " --checkpoint lm.h5 --tokens 20", full = " > /dev/full";
  const auto fails = [&](const std::string& command) {
    const Ran ran = in_folder(t, command);
    INFO(command << ": " << ran.output);
    CHECK(ran.exit_code == 1);
    CHECK(contains(ran.output, "standard output cannot be written"));
    CHECK(std::count(ran.output.begin(), ran.output.end(), '\n') == 1);
  };
  fails(generate + full);
  fails(generate + " >&-");
  fails(program("train_lm") + " --help" + full);
  if (test::has_program("attention_maps")) {
    fails(program("01_tensors") + full);
    fails(program("05_attention") + " >&-");
    fails(program("attention_maps") + " --checkpoint lm.h5 --prompt Pack" + full);
  }
  CHECK(contains(in_folder(t, generate + full).output, "cannot be written: No space left on device"));
  // A run that prints nothing needs no standard output, and no other file is opened in its place.
  const Ran ran = in_folder(t, t.arguments("--steps 2 --log log") + " >&- 2>&-");
  CHECK(ran.exit_code == 0);
  CHECK(test::json_lines(t.file("log")).size() == 2);
  // A reader that closes after the beginning causes no error message.
  const Ran head = in_folder(t, "{ " + generate + " --tokens 20000; } | head -c 5");
  CHECK(head.output.size() == 5);
}

TEST_CASE("train_lm: SIGHUP and a closed pipe of stderr save as Ctrl-C does, an ignored signal stays ignored") {
  const Training t;
  const std::string endless = t.arguments("--steps 1000000 --eval-every 50 --eval-batches 1 --log log");
  const std::string wait = "while [ ! -s log ]; do sleep 0.02; done; ";
  Ran ran = in_folder(t, test::in_background(endless) + wait + "kill -HUP $pid; wait $pid");
  INFO(ran.output);
  CHECK(ran.exit_code == 130);
  CHECK(contains(ran.output, "to continue: "));
  CHECK(fs::exists(t.file("lm.h5")));
  fs::remove(t.file("lm.h5"));
  ran = in_folder(t, "{ " + endless + " 2>&1; echo $? > code; } | head -n 5 > /dev/null");
  CHECK(fs::exists(t.file("lm.h5")));
  fs::remove(t.file("lm.h5"));
  fs::remove(t.file("log"));
  // A shell without job control starts background jobs with SIGINT ignored.
  ran = in_folder(
      t, "trap '' INT HUP; " + endless + " & pid=$!; " + wait +
             "kill -INT $pid; kill -HUP $pid; sleep 0.3; kill -0 $pid && echo alive; kill -TERM $pid; wait $pid");
  CHECK(contains(ran.output, "alive"));
  CHECK(ran.exit_code == 130);
  CHECK(fs::exists(t.file("lm.h5")));
}

TEST_CASE("programs: names of files that are not UTF-8, or would move a terminal's cursor") {
  const Training t;
  const std::string name = "te\xFFxt\x1B[2Jn.txt";
  fs::copy_file(t.file("text.txt"), t.file(name));
  const std::string data =
      "--data " + quoted(name) + " --layers 1 --heads 2 --width 16 --context 16 --batch 4 --steps 2";
  Ran ran = test::run(t.on_stories(data));
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(test::run(t.on_stories("--resume")).exit_code == 0);
  CHECK(test::run(t.on_stories("--resume --data " + quoted(name))).exit_code == 0);
  const Ran missing = test::run(t.on_stories("--data " + quoted("none\x1B[2J\n\xFF")));
  refused(t, missing, 1, "text: none\\x1B[2J\\n\\xFF does not exist");
  CHECK(missing.output.find('\x1B') == std::string::npos);
  const Ran flag = test::run(t.on_stories(quoted("--no\x1B[2J")));
  CHECK(flag.exit_code == 2);
  CHECK(flag.output.find('\x1B') == std::string::npos);
}

TEST_CASE("programs: sizes beyond the memory are refused with both sizes, and endless data are refused") {
  const Training t;
  const std::string two = "2147483648";
  const std::vector<std::string> sizes = {
      "--layers " + two, "--width " + two, "--batch " + two, "--accumulate " + two,
      "--layers 1099511627776 --width 1099511627776 --heads 1 --batch 1099511627776"};
  for (const std::string& flags : sizes)
    refused(t, in_folder(t, kLittleMemory + t.command(flags)), 1, "B of memory, but this process can use at most ");
  refused(t, in_folder(t, kLittleMemory + t.command("--model mlm --batch " + two)), 1,
          "tokens, 1 per step, takes at least ");
  refused(t, in_folder(t, kLittleMemory + program("classify") + " --width " + two), 1, "takes at least ");
  refused(t, in_folder(t, kLittleMemory + program("classify") + " --length " + two), 1, "takes at least ");
  if (test::has_program("attention_cost")) {
    const std::string cost = kLittleMemory + program("attention_cost");
    refused(t, in_folder(t, cost + " --heads 16777216 --measure layer"), 1, "takes at least ");
    refused(t, in_folder(t, cost + " --batch 16777216 --positions 16777216"), 1, "takes at least ");
    refused(t, in_folder(t, cost + " --at 16777216 --measure generation"), 1,
            "up to 16777216 positions in total, takes at least ");
  }
  refused(t, in_folder(t, kLittleMemory + t.on_stories("--data /dev/zero")), 1,
          "text: /dev/zero is a device, not a regular file; it must be a file or a pipe");
  refused(t,
          in_folder(t, "ulimit -f 1000; " + program("tokenize") + " --data /dev/zero --tokenizer byte --out z.tokens"),
          1, "is a device");
  // The memory limit of the shell that starts the program, and a pipe that never ends.
#if !defined(HEED_SANITIZED)
  const Ran ran = in_folder(t, kLittleMemory + "yes | " + t.on_stories("--data /dev/stdin"));
  refused(t, ran, 1,
          "the text read so far, with its tokens, takes at least 1.91 GiB of memory, but this process can use at most "
          "1.91 GiB");
#endif
  CHECK_FALSE(fs::exists(t.file("lm.h5")));
  CHECK_FALSE(fs::exists(t.file("z.tokens")));
}

#if !defined(HEED_SANITIZED)
TEST_CASE("programs: without memory, also in SentencePiece and HDF5, they end with 1 and a sentence") {
  const Training t;
  REQUIRE(
      in_folder(t, program("tokenize") + " --data text.txt --out x.tokens --train bpe --vocabulary 300 --model m.model")
          .exit_code == 0);
  const std::string commands[] = {
      program("tokenize") + " --data text.txt --out y.tokens --tokenizer m.model",
      program("tokenize") + " --data text.txt --out y.tokens --train unigram --vocabulary 300",
      t.arguments("--steps 1 --width 256 --checkpoint y.h5")};
  int all_refusals = 0;
  for (const std::string& command : commands) {
    int done = 0, refusals = 0;
    for (int mebibytes = 60; done == 0 && mebibytes < 400; mebibytes += 2) {
      const Ran ran = in_folder(t, "ulimit -v " + std::to_string(1024 * mebibytes) + "; exec " + command);
      INFO(mebibytes, " MiB for ", command, "\n", ran.output);
      // Skips sizes with which the program cannot start, or SentencePiece's trainer ends it (docs/token_files.md).
      if (contains(ran.output, "error while loading shared libraries") || contains(ran.output, "GnuTLS") ||
          contains(ran.output, "Program terminated with an unrecoverable error"))
        continue;
      CHECK((ran.exit_code == 0 || ran.exit_code == 1));
      done += ran.exit_code == 0 ? 1 : 0;
      refusals += ran.exit_code == 1 && contains(ran.output, "memory") ? 1 : 0;
      if (ran.exit_code == 1) CHECK(contains(ran.output, "memory"));
    }
    INFO(command);
    CHECK(done == 1);
    all_refusals += refusals;
  }
  CHECK(all_refusals > 5);
}
#endif
