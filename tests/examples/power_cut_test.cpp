// Power cuts at any moment of a program. From a record of the program's calls, the tests make all states of its files
// that a file system may leave, and resume from each. SIGKILL shows none of these states, because the system keeps all
// that was written.
#include <algorithm>
#include <fstream>

#include "tests/examples/programs.hpp"
#include "tests/tools/crash_states.hpp"

using namespace heed;
using test::bytes_of;
using test::CrashDisk;
using test::DiskCall;
using test::Files;
using test::Ran;
using test::TemporaryFolder;
using test::Training;
namespace fs = std::filesystem;
using CallKind = DiskCall::Kind;

namespace {

// The states that a power cut may leave during the recorded calls, which replace `file`.
struct Cuts {
  std::set<Files> states;
  int third = 0;  // states whose `file` is neither the old one nor one that replaced it
  int lost = 0;   // states with an older `file` than the program had already replaced for certain
};

// `forgotten` is the path whose syncs are left out; "-": none.
Cuts cuts_of(CrashDisk& disk, const std::vector<DiskCall>& calls, const std::string& file,
             const std::string& forgotten) {
  const auto content = [&](const Files& files) { return files.count(file) == 1 ? files.at(file) : nullptr; };
  Cuts cuts;
  std::vector<const std::string*> placed = {content(disk.now())};  // the contents of `file`, in order
  const auto look = [&](std::size_t sure) {
    for (const Files& state : disk.states()) {
      const auto found = std::find(placed.begin(), placed.end(), content(state));
      cuts.third += found == placed.end();
      cuts.lost += found < placed.begin() + static_cast<std::ptrdiff_t>(sure);
      cuts.states.insert(state);
    }
  };
  std::size_t sure = 0;
  look(sure);
  for (const DiskCall& call : calls) {
    if (call.kind == CallKind::sync && call.path == forgotten) continue;
    if (call.kind != CallKind::sync)
      sure = placed.size() - 1;  // the program continues, so its earlier files must be kept
    disk.apply(call);
    if (call.kind == CallKind::rename && call.path == file) placed.push_back(content(disk.now()));
    look(sure);
  }
  look(placed.size() - 1);
  return cuts;
}

// Checks that the record is complete: replaying it gives the files that exist.
void check_whole(const fs::path& before, const std::vector<DiskCall>& calls, const fs::path& now) {
  CrashDisk disk(before);
  for (const DiskCall& call : calls) disk.apply(call);
  const Files files = disk.now();
  CHECK(files.size() == test::files_in(now));
  for (const auto& [path, content] : files) CHECK((bytes_of(now / path) == *content));
}

// The number of the n-th call in a log (Failing::log) whose line contains this text.
int call_with(const fs::path& log, const std::string& text, int n) {
  int call = 0;
  for (const std::string& line : test::lines_of(bytes_of(log))) {
    ++call;
    n -= test::contains(line + "\n", text);
    if (n == 0) return call;
  }
  FAIL("no such call");
  return 0;
}

// A run of train_lm whose log is in another folder than its checkpoint. It is killed when its second checkpoint is
// about to be renamed, then resumed.
const std::string kFlags = "--steps 6 --checkpoint-every 2 --eval-every 3 --sample 0 --resume-or-start ",
                  kLog = "--log logs/log";

struct TrainingCuts {
  Training run;
  TemporaryFolder elsewhere;
  const fs::path before = elsewhere.path / "before";
  std::vector<DiskCall> calls;

  // Without a log from the start, only the second half of the run is recorded, which starts the log.
  explicit TrainingCuts(bool log_from_start) {
    const Training whole;
    const fs::path record = elsewhere.path / "record", log = elsewhere.path / "calls";
    const std::string first_half = kFlags + (log_from_start ? kLog : "");
    for (const std::string& folder : {run.file("logs"), whole.file("logs")}) fs::create_directory(folder);
    const auto keep = [&] { fs::copy(run.folder(), before, fs::copy_options::recursive); };
    REQUIRE(test::run(whole.arguments(first_half), {.prefix = whole.folder(), .log = log}).exit_code == 0);
    const int at = call_with(log, " rename ", 2);
    if (log_from_start) keep();
    const Ran first =
        test::run(run.arguments(first_half),
                  {.prefix = run.folder(), .mode = "kill", .at = at, .record = log_from_start ? record : fs::path()});
    REQUIRE(first.signal == 9);
    if (!log_from_start) keep();
    const Ran rest = test::run(run.arguments(kFlags + kLog), {.prefix = run.folder(), .record = record});
    INFO(rest.output);
    REQUIRE(rest.exit_code == 0);
    calls = test::recorded_calls(record, run.folder());
    check_whole(before, calls, run.folder());
    CHECK((bytes_of(whole.file("lm.h5")) == bytes_of(run.file("lm.h5"))));
    if (log_from_start) CHECK(test::same_losses(whole.file("logs/log"), run.file("logs/log")));
  }

  // Resumes from each state until `enough` were wrong. Returns the number of states that do not lead to the files of
  // this run, and a description of the first.
  std::pair<int, std::string> wrong(const Cuts& cuts, int enough) const {
    const Training again;
    int wrong = 0, number = 0;
    std::string story;
    for (const Files& state : cuts.states) {
      if (!test::is_taken(number++, enough == 1 ? 1 : 10)) continue;
      test::write_files(state, again.folder());
      fs::create_directories(again.file("logs"));
      const Ran ran = again.run(kFlags + kLog);
      const bool right = ran.exit_code == 0 && bytes_of(again.file("lm.h5")) == bytes_of(run.file("lm.h5")) &&
                         test::same_losses(again.file("logs/log"), run.file("logs/log"));
      if (right) continue;
      if (wrong++ == 0) {
        for (const auto& [path, content] : state) story += path + ", " + std::to_string(content->size()) + " bytes\n";
        story += ran.output + bytes_of(again.file("logs/log"));
      }
      if (wrong == enough) break;
    }
    return {wrong, story};
  }
};

void check_training(bool log_from_start, std::size_t states) {
  const TrainingCuts t(log_from_start);
  CrashDisk disk(t.before);
  const Cuts cuts = cuts_of(disk, t.calls, "lm.h5", "-");
  CHECK(cuts.third == 0);
  CHECK(cuts.lost == 0);
  CHECK(cuts.states.size() >= states);
  const auto found = t.wrong(cuts, 1000);  // no structured binding: clang 14 has none in the lambda of INFO
  INFO(std::get<1>(found));
  CHECK(std::get<0>(found) == 0);
}

}  // namespace

RELEASE_TEST_CASE("power cut: train_lm resumes from any state to the bits and the log of an undisturbed run") {
  check_training(true, 90);
}

RELEASE_TEST_CASE("power cut: a log that a resumed run started is continued from any state") {
  check_training(false, 40);
}

RELEASE_TEST_CASE("power cut: each sync of train_lm is needed, and without one of them data are lost or wrong") {
  const TrainingCuts t(true);
  for (const std::string forgotten : {"lm.h5.tmp", "", "logs/log", "logs"}) {
    INFO("without the sync of «" << forgotten << "»");
    CrashDisk disk(t.before);
    const Cuts cuts = cuts_of(disk, t.calls, "lm.h5", forgotten);
    CHECK((cuts.third > 0) == (forgotten == "lm.h5.tmp"));
    CHECK((cuts.lost > 0) == (forgotten.empty()));
    if (!forgotten.empty()) CHECK(t.wrong(cuts, 1).first == 1);
  }
}

RELEASE_TEST_CASE(
    "power cut: a log whose folder cannot be synced is a warning, and is synced again before the run ends") {
  const Training t, other;
  const TemporaryFolder elsewhere;
  const fs::path log = elsewhere.path / "calls";
  for (const Training* run : {&t, &other}) fs::create_directory(run->file("logs"));
  REQUIRE(test::run(other.arguments(kFlags + kLog), {.prefix = other.folder(), .log = log}).exit_code == 0);
  const int at = call_with(log, "fsync " + other.file("logs\n"), 1);
  const Ran ran = test::run(t.arguments(kFlags + kLog),
                            {.prefix = t.folder(), .mode = "eio", .at = at, .log = elsewhere.path / "again"});
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(test::contains(ran.output,
                       "warning: log: logs/log is written, but may be lost in a power cut: its folder could not be "
                       "synced: Input/output error; the run continues\n"));
  int syncs = 0;
  for (const std::string& line : test::lines_of(bytes_of(elsewhere.path / "again")))
    syncs += line.ends_with("fsync " + t.file("logs")) ? 1 : 0;
  CHECK(syncs == 2);
}

RELEASE_TEST_CASE("power cut: tokenize leaves the previous file or the new one, and after its end the new one") {
  const TemporaryFolder folder, elsewhere;
  const fs::path record = elsewhere.path / "record", before = elsewhere.path / "before";
  folder.write("one.txt", "some text\n");
  folder.write("two.txt", "some other text, which is longer\n");
  const auto tokenize = [&](const std::string& text, const fs::path& recorded) {
    return test::run("env -C " + test::quoted(folder.path.string()) + " " + test::program("tokenize") +
                         " --out t.tokens --data " + text,
                     {.prefix = folder.path, .record = recorded});
  };
  REQUIRE(tokenize("one.txt", {}).exit_code == 0);
  fs::copy(folder.path, before, fs::copy_options::recursive);
  REQUIRE(tokenize("two.txt", record).exit_code == 0);
  const std::vector<DiskCall> calls = test::recorded_calls(record, folder.path);
  check_whole(before, calls, folder.path);
  for (const std::string forgotten : {"-", "t.tokens.tmp", ""}) {
    INFO("without the sync of «" << forgotten << "»");
    CrashDisk disk(before);
    const Cuts cuts = cuts_of(disk, calls, "t.tokens", forgotten);
    CHECK(cuts.states.size() >= 3);
    CHECK((cuts.third > 0) == (forgotten == "t.tokens.tmp"));
    CHECK((cuts.lost > 0) == (forgotten.empty()));
  }
}
