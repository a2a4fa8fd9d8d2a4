// The files of every program. Each flag that names a file, as listed by --help, gets each target that cannot be
// written, and the file of each other flag under several names. All are refused before anything is read or written.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::program;
using test::Ran;
using test::TemporaryFolder;
using test::Training;
namespace fs = std::filesystem;

namespace {

enum class Role { input, output, checkpoint, log };

struct Flag {
  std::string name, shown;  // --log, FILE.jsonl
  std::string with;         // other flags that are needed, for a shell
  std::string excludes;     // the flags that it or `with` excludes, as " --train "
  Role role;
  std::string read_with;  // flags with which the file is only read
};

// A flag in --help.
struct Listed {
  std::string shown, needs, excludes, text;
  bool required;
};

std::map<std::string, Listed> flags_of_help(const std::string& name) {
  const Ran ran = test::run("exec " + program(name) + " --help");
  REQUIRE(ran.exit_code == 0);
  std::map<std::string, Listed> flags;
  const std::regex begin("  (--[a-z0-9-]+) (.*)"), needs(" Needs: (--[a-z0-9-]+)"),
      excludes(" Excludes: (--[a-z0-9-]+)");
  std::string last;
  for (const std::string& line : test::lines_of(ran.output)) {
    std::smatch m;
    if (!std::regex_match(line, m, begin)) {
      if (!last.empty()) flags[last].text += " " + line.substr(std::min(line.size(), line.find_first_not_of(' ')));
      continue;
    }
    last = m[1];
    const std::string rest = m[2], shown = rest[0] == ' ' ? "" : rest.substr(0, rest.find(' '));
    const bool needed = std::regex_search(rest, m, needs);
    const std::string other = needed ? m[1].str() : "";
    const bool alone = std::regex_search(rest, m, excludes);
    flags[last] = {shown, other, alone ? " " + m[1].str() + " " : "", rest, contains(rest, " REQUIRED")};
  }
  return flags;
}

// The flag with a value that the parser accepts.
std::string given(const std::string& name, const std::string& shown) {
  const bool file = contains(shown, "FILE") || contains(shown, "PATH");
  const bool choice = !file && contains(shown, "|");
  return " " + name + " " +
         (file                           ? "free" + name
          : choice                       ? shown.substr(0, shown.find('|'))
          : shown == "N" || shown == "X" ? "1"
                                         : "a");
}

// The flags that name files.
std::vector<Flag> file_flags(const std::string& name) {
  const std::map<std::string, Listed> all = flags_of_help(name);
  std::vector<Flag> flags;
  for (const auto& [flag, listed] : all) {
    if (!contains(listed.shown, "FILE") && !contains(listed.shown, "PATH")) continue;
    const Role role = contains(listed.text, "FILE.lock is created")    ? Role::checkpoint
                      : contains(listed.text, "file is replaced")      ? Role::output
                      : contains(listed.text, "(written line by line") ? Role::log
                                                                       : Role::input;
    std::string with, excludes = listed.excludes;
    for (const auto& [other, o] : all)
      if (other != flag && (o.required || other == listed.needs)) with += given(other, o.shown), excludes += o.excludes;
    const std::size_t read = listed.text.find("not written with");
    flags.push_back(
        {flag, listed.shown, with, excludes, role, read == std::string::npos ? "" : listed.text.substr(read)});
  }
  return flags;
}

// All programs, found by their sources.
std::vector<std::string> all_programs() {
  std::vector<std::string> names;
  for (const char* folder : {"examples", "examples/experiments"})
    for (const auto& entry : fs::directory_iterator(test::in_source(folder)))
      if (entry.path().extension() == ".cpp" && fs::exists(test::in_build("examples/" + entry.path().stem().string())))
        names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

// The ending of a flag's value: byte|char|FILE.model accepts only names with its ending.
std::string ending_of(const Flag& flag) { return contains(flag.shown, "|FILE.model") ? ".model" : ""; }

// Runs programs in a folder with files of several kinds. Each must be refused at once and change nothing.
struct Refusals {
  TemporaryFolder folder;
  std::string here = "cd " + test::quoted(folder.path.string()) + " || exit; ", last = {};
  std::map<std::string, std::string> state = {};
  int tries = 0, runs = 0;

  void prepare(const std::string& script) {
    REQUIRE(test::run(here + script).exit_code == 0);
    state = test::state_of(folder.path);
  }
  // Returns whether the command was run: builds with sanitizers run one of eight.
  bool operator()(const std::string& command, const std::string& sentence, const std::string& before = "") {
    if (!test::is_taken(tries++, 8)) return false;
    const Ran ran = test::run(here + before + "exec timeout 20 " + command);
    ++runs;
    last = ran.output;
    INFO(before << command << ": " << ran.output);
    CHECK(ran.exit_code == 2);
    CHECK(contains(ran.output, sentence));
    CHECK(test::count_of("\n", ran.output) == 1);
    CHECK(test::state_of(folder.path) == state);
    return true;
  }
};

const char* const kDifferent = "; they must be different files";

}  // namespace

TEST_CASE("files of programs: an output that cannot be written is refused before the work, for each flag") {
  Refusals refused;
  refused.prepare(
      "mkdir folder; ln -s loop loop; ln -s none/x dangling; echo mine > text; mkfifo pipe a.tmp b.lock; echo mine > "
      "c.lock; ln -s /dev/null device; mkdir d.tmp; echo mine > readonly; "
      "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'");
  int flags = 0;
  for (const std::string& name : all_programs()) {
    for (const Flag& flag : file_flags(name)) {
      if (flag.role == Role::input) continue;
      ++flags;
      std::vector<std::pair<std::string, std::string>> targets = {
          {"folder", " is a folder; it must be a file"},
          {"socket", " is a socket; it must be a file"},
          {"loop", " is a link that leads to itself"},
          {"dangling", "there is no folder none for x"},
          {"none/x", "there is no folder none for x"},
          {"text/x", "there is no folder text for x"},
          {"free/", " has no file name"},
          {std::string(256, 'x'), ": File name too long"},
      };
      if (flag.role != Role::log)
        targets.insert(targets.end(), {{"pipe", " is a pipe; it must be a file"},
                                       {"device", " is a device; it must be a file"},
                                       {"/dev/full", " is a device; it must be a file"},
                                       {"a", "a.tmp is a pipe, but writing a needs a file of that name"},
                                       {"d", "d.tmp is a folder, but writing d needs a file of that name"},
                                       {std::string(252, 'x'), ".tmp cannot be written: File name too long"}});
      if (flag.role == Role::checkpoint)
        targets.insert(targets.end(), {{"b", "b.lock is a pipe, but writing b needs a file of that name"},
                                       {"c", "c.lock is not a lock of heed"}});
      for (const auto& [target, sentence] : targets) {
        if (refused(program(name) + flag.with + " " + flag.name + " " + target, sentence))
          CHECK(contains(refused.last, flag.name + ": "));
      }
    }
  }
  CHECK(flags >= (test::has_program("attention_race") ? 22 : 20));  // builds with sanitizers have no experiments
  MESSAGE(refused.runs << " runs");
}

RELEASE_TEST_CASE("files of programs: a folder that is really read-only is refused before the work") {
  const TemporaryFolder folder;
  std::string script = "mount --bind . . && mount -o remount,ro,bind . || exit 99; cd \"$PWD\"; ";
  int count = 0;
  for (const std::string& name : all_programs())
    for (const Flag& flag : file_flags(name))
      if (flag.role != Role::input) {
        script += program(name) + flag.with + " " + flag.name + " $PWD/x; echo " + name + flag.name + " $?; ";
        ++count;
      }
  const Ran ran =
      test::run("cd " + test::quoted(folder.path.string()) + "; exec unshare -m sh -c " + test::quoted(script));
  if (contains(ran.output, "unshare") || ran.exit_code == 99) {
    MESSAGE("skipped: file systems cannot be mounted here: " << ran.output);
    return;
  }
  INFO(ran.output);
  CHECK(test::count_of(": Read-only file system", ran.output) == static_cast<std::size_t>(count));
  int refused = 0;
  for (const std::string& line : test::lines_of(ran.output)) refused += line.ends_with(" 2") ? 1 : 0;
  CHECK(refused == count);
}

RELEASE_TEST_CASE("files of programs: a written file that another flag names too, under any name, is refused") {
  Refusals refused;
  refused.prepare(
      "echo mine > text; echo mine > text.model; for e in '' .model; do ln -s text$e soft$e; ln text$e hard$e; ln -s "
      "free$e to_free$e; done; ln -s text link; echo mine > x.model.tmp.model; mkdir f");
  const std::string absolute = refused.folder.path.string();
  for (const std::string& name : all_programs()) {
    const std::vector<Flag> flags = file_flags(name);
    for (const Flag& written : flags) {
      if (written.role == Role::input) continue;
      for (const Flag& other : flags) {
        // Each pair of written files is tried once.
        if (other.name == written.name || (other.role != Role::input && other.name < written.name)) continue;
        if (contains(written.excludes + other.excludes, " " + other.name + " ")) continue;
        if (contains(written.read_with, other.name)) continue;
        const Role role = contains(other.read_with, written.name) ? Role::input : other.role;
        const std::string end = ending_of(other);
        const auto both = [&](const std::string& a, const std::string& b, const std::string& before = "") {
          std::string with = written.with;
          for (const std::string& flag : {written.name, other.name}) {
            // `with` must not give these two flags again.
            const std::size_t at = with.find(" " + flag + " ");
            if (at != std::string::npos) with.erase(at, with.find(' ', at + flag.size() + 2) - at);
          }
          for (const std::string& word : {other.with})
            if (!word.empty() && with.find(word) == std::string::npos && !contains(word, written.name)) with += word;
          refused(program(name) + with + " " + written.name + " " + a + " " + other.name + " " + b, kDifferent, before);
        };
        for (const char* alias : {"text", "./f/../text", "soft", "hard"}) both(std::string(alias) + end, "text" + end);
        both(absolute + "/text" + end, "soft" + end);
        both("/proc/self/fd/9", "text" + end, "exec 9< text" + end + "; ");
        if (role != Role::input) both("to_free", "./free");
        if (written.role != Role::log && end.empty()) both("link", "text.tmp");
        if (role == Role::output || role == Role::checkpoint) both("free.tmp", "free");
      }
    }
  }
  MESSAGE(refused.runs << " runs");
}

RELEASE_TEST_CASE("files of programs: a file that is also standard output or error is refused") {
  Refusals refused;
  refused.prepare("echo mine > text; cp text text.model");
  for (const std::string& name : all_programs()) {
    for (const Flag& flag : file_flags(name)) {
      if (flag.role == Role::log) continue;
      const std::string file = "text" + ending_of(flag);
      const Ran ran =
          test::run(refused.here + program(name) + flag.with + " " + flag.name + " " + file + " 2>&1 >> " + file);
      INFO(name << flag.name << ": " << ran.output);
      CHECK(ran.exit_code == 2);
      CHECK(contains(ran.output, "standard output goes to " + file));
      CHECK(bytes_of(refused.folder.path / file) == "mine\n");
    }
  }
}

TEST_CASE("files of programs: a resumed run does not write files that its checkpoint names") {
  Refusals refused;
  std::ofstream lines(refused.folder.path / "text");
  for (int i = 0; i < 40; ++i) lines << "some words of a sentence number " << i << "\n";
  lines.close();
  const std::string tiny = " --layers 1 --width 16 --threads 1 ", lm = program("train_lm") + " --checkpoint lm.h5",
                    translate = program("translate") + " --checkpoint t.h5";
  const auto quiet = [](const std::string& command) { return command + " > /dev/null 2>&1"; };
  refused.prepare("for f in a.s a.t v.s v.t; do cp text $f; done; ln a.t hard; " +
                  quiet(lm + tiny + "--data text --heads 2 --context 8 --batch 2 --steps 2 --sample 0") + " && " +
                  quiet(translate + tiny +
                        "--hidden 16 --source a.s --target a.t --val-source v.s --val-target v.t "
                        "--steps 2 --beam 1 --min-freq 1"));
  for (const char* flag : {"--log", "--plot", "--profile 1 --trace"}) {
    refused(lm + " --resume " + flag + " text", std::string("--data text, the same file") + kDifferent);
    for (const char* text : {"a.s", "a.t", "v.s", "v.t", "hard"})
      refused(translate + " --resume " + flag + " " + text, std::string(", the same file") + kDifferent);
  }
  for (const char* text : {"a.s", "a.t", "v.s", "v.t"})
    refused(translate + " --resume --best " + text, std::string(", the same file") + kDifferent);
  // The same text may be used for training and for validation.
  const Ran same = test::run(refused.here + translate + "2" + tiny +
                             "--hidden 16 --source text --target text --val-source text --val-target text --steps 1 "
                             "--beam 1 --min-freq 1");
  INFO(same.output);
  CHECK(same.exit_code == 0);
}

TEST_CASE("files of programs: a save beyond the limit on file sizes fails and leaves the checkpoint before it") {
  const Training t;
  REQUIRE(t.run("--steps 2").exit_code == 0);
  const std::string before = bytes_of(t.file("lm.h5"));
  const std::string resumed = "--resume --steps 6 --checkpoint-every 2";
  const Ran ran =
      test::run("ulimit -f 4; " + t.arguments("--steps 6 --checkpoint-every 2 --checkpoint new.h5 --log log"));
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output,
                 "warning: step 2 could not be saved: save_checkpoint: new.h5 could not be written: File too large"));
  CHECK(contains(ran.output, "run: the last step could not be saved: save_checkpoint: new.h5 could not be written: "));
  CHECK_FALSE(fs::exists(t.file("new.h5")));
  CHECK(test::json_lines(t.file("log")).size() == 6);
  CHECK(bytes_of(t.file("lm.h5")) == before);
}
