// The log of a run: its lines, and its continuation after kills and resumes.
#include <fstream>
#include <heed/optim/run/log.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::HeldOutPlane;
using test::Plane;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;

namespace {

std::vector<Index> steps_of(const std::filesystem::path& log) {
  std::vector<Index> steps;
  for (const nlohmann::json& entry : test::json_lines(log)) steps.push_back(entry.at("step").get<Index>());
  return steps;
}

}  // namespace

TEST_CASE("run: a log that a resumed run started continues, however often the run is killed") {
  const TemporaryFolder folder;
  const std::filesystem::path log = folder.path / "log";
  RunOptions options{.steps = 3, .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  PlaneRun().go(options);
  options.output.log = log;
  const auto resumed = [&](Index steps) {
    options.steps = steps;
    return PlaneRun().go(options).resumed_from;
  };
  // Killed twice before a checkpoint: within the first line, and after three lines.
  std::ofstream(log) << "{\"step\":4,\"lo";
  CHECK(resumed(3) == 3);
  CHECK(bytes_of(log).empty());
  CHECK(resumed(3) == 3);  // and with an empty log
  std::ofstream(log) << "{\"step\":4}\n{\"step\":5}\n{\"step\":6}\n{\"st";
  CHECK(resumed(5) == 3);
  CHECK(steps_of(log) == std::vector<Index>{4, 5});
  CHECK(test::json_lines(log)[0].contains("loss"));
  // After a power failure, zeros replace blocks that were not written. Such a log has no other bytes that are not text.
  const std::string zeros(40, '\0');
  for (const std::string& left : {zeros, zeros + "\"}\n{\"step\":7}\n", "{\"st" + zeros + "{\"step\":7}\n"}) {
    TemporaryFolder other;
    options.output.log = other.write("log", left);
    CHECK(resumed(5) == 5);
    CHECK(bytes_of(options.output.log).empty());
  }
  options.output.log = folder.write("foreign", zeros + "\1\2");
  CHECK(contains(PlaneRun().refusal(options), " ends before step 1 but the checkpoint is at step 5"));
  CHECK(bytes_of(options.output.log).size() == 42);
  options.output.log = log;
  // Killed twice, with the log ahead of the checkpoint.
  for (const Index steps : {7, 8}) {
    const Index from = steps == 7 ? 5 : 7;
    std::ofstream(log, std::ios::app) << "{\"step\":" << from + 1 << "}\n{\"step\":";
    CHECK(resumed(steps) == from);
  }
  CHECK(steps_of(log) == std::vector<Index>{4, 5, 6, 7, 8});
  for (const nlohmann::json& entry : test::json_lines(log)) CHECK(entry.contains("loss"));
}

TEST_CASE("run log: a line per step, in the order of the step's parts, rounded speeds and no number for NaN") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "log";
  {
    detail::RunLog log(file, {});
    log.write({.step = 1, .loss = 2.5, .lr = 0.125, .grad_norm = 3, .tokens_per_second = 1234.56}, {});
    log.write({.step = 2,
               .loss = test::kNaN,
               .lr = 0.25,
               .grad_norm = test::kInf,
               .tokens_per_second = 0.4,
               .others = {{"lr_generator", 0.5}, {"loss_generator", 7}},
               .validation_loss = 1.5,
               .validation_metrics = {{"accuracy", 0.75}}},
              {});
    log.write({.step = 3, .loss = 2, .lr = 0.125, .grad_norm = 3, .samples_per_second = 77.7}, {});
    log.write({.step = 4, .loss = 2, .lr = 0.125, .grad_norm = 3, .tokens_per_second = 9, .samples_per_second = 3}, {});
  }
  CHECK(bytes_of(file) ==
        "{\"step\":1,\"loss\":2.5,\"lr\":0.125,\"grad_norm\":3.0,\"tokens_per_second\":1235.0}\n"
        "{\"step\":2,\"loss\":null,\"lr\":0.25,\"grad_norm\":null,\"tokens_per_second\":0.0,"
        "\"loss_generator\":7.0,\"lr_generator\":0.5,\"val_loss\":1.5,\"val_accuracy\":0.75}\n"
        "{\"step\":3,\"loss\":2.0,\"lr\":0.125,\"grad_norm\":3.0,\"samples_per_second\":78.0}\n"
        "{\"step\":4,\"loss\":2.0,\"lr\":0.125,\"grad_norm\":3.0,\"tokens_per_second\":9.0}\n");
}

TEST_CASE("run log: lines after the checkpoint's step are removed when the first new line is written") {
  const TemporaryFolder folder;
  const std::string two = "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n", tail = "{\"step\":3,\"loss\":9}\n{\"st";
  const std::filesystem::path file = folder.write("log", two + tail);
  { const detail::RunLog unwritten(file, {4, 3}); }
  CHECK(bytes_of(file) == two + tail);
  {
    detail::RunLog log(file, {4, 3});
    log.write({.step = 3, .loss = 2}, {});
  }
  CHECK(bytes_of(file).starts_with(two + "{\"step\":3,\"loss\":2.0,"));
  CHECK(steps_of(file) == std::vector<Index>{1, 2, 3});
  // A different loss for the last step means another run. A missing step is named.
  CHECK(test::error_of([&] {
          detail::RunLog(file, {4, 3.5});
        }) == "log: " + file.string() +
                  " belongs to another run: the loss of step 2 is 3 there but 3.5 in the checkpoint; give the "
                  "log that belongs to the checkpoint, or another file");
  CHECK(test::error_of([&] {
          detail::RunLog(file, {4, 3, 2, 1});
        }) == "log: " + file.string() +
                  " ends before step 4 but the checkpoint is at step 4; give the log that belongs to the "
                  "checkpoint, or another file");
  // Without losses the log starts empty, and an empty path means no log.
  {
    detail::RunLog log(file, {});
    log.write({.step = 1, .loss = 8}, {});
  }
  CHECK(steps_of(file) == std::vector<Index>{1});
  detail::RunLog("", {1, 2}).write({.step = 3}, {});
}

namespace {

// A run of 8 steps, saved after step 6. After step 4 the log is damaged, and after step `last` the run is killed unless
// `last` is 8.
struct Damaged {
  TemporaryFolder folder;
  std::filesystem::path log = folder.path / "log";
  RunOptions options{.steps = 8,
                     .evaluation = {.every = 2},
                     .checkpoint = {.path = folder.path / "m.h5", .every = 3, .start = RunStart::resume_or_start},
                     .output = {.log = log}};

  RunResult run(const std::function<void()>& damage, Index last = 8) const {
    RunOptions o = options;
    RunResult result;
    o.after_step = [&, last](RunStep& s) {
      if (s.step == 4) damage();
      if (s.step == last && last < 8) throw test::Killed();
    };
    try {
      result = PlaneRun().go(o);
    } catch (const test::Killed&) {
    }
    return result;
  }
};

}  // namespace

TEST_CASE("run log: a deleted, replaced or truncated log is written again, and a resumed run continues it") {
  const auto rename_log = [](const Damaged& d) { std::filesystem::rename(d.log, d.folder.path / "old"); };
  const std::pair<const char*, std::function<void(const Damaged&)>> damages[] = {
      {"was deleted", [](const Damaged& d) { std::filesystem::remove(d.log); }},
      {"was deleted", rename_log},
      {"was replaced by another file", [&](const Damaged& d) { rename_log(d), d.folder.write("log", ""); }},
      {"was replaced by another file",
       [&](const Damaged& d) {
         const std::string text = bytes_of(d.log);
         rename_log(d), d.folder.write("log", text);
       }},
      {"was truncated", [](const Damaged& d) { std::filesystem::resize_file(d.log, 0); }},
      {"was truncated", [](const Damaged& d) { std::filesystem::resize_file(d.log, 100); }},
      {"was truncated",
       [](const Damaged& d) { std::filesystem::resize_file(d.log, std::filesystem::file_size(d.log) - 5); }},
  };
  int number = 0;
  for (const auto& damage : damages) {
    const std::string what = damage.first;
    // The run is killed before the next checkpoint, after it, or never.
    for (const Index last : {5, 7, 8}) {
      if (!test::is_taken(number++, 4)) continue;
      const Damaged d;
      INFO(what << ", " << last);
      const RunResult r = d.run([&] { damage.second(d); }, last);
      const std::vector<std::string> warnings = {"log: " + d.log.string() + " " + what +
                                                 "; the run writes it again, with only the losses of earlier steps"};
      if (last == 8) CHECK(r.warnings == warnings);
      const std::vector<nlohmann::json> entries = test::json_lines(d.log);
      REQUIRE(steps_of(d.log).size() == static_cast<std::size_t>(last));
      for (std::size_t i = 0; i < entries.size(); ++i) {
        CHECK(entries[i].at("step") == i + 1);
        CHECK(entries[i].at("loss").is_number());
        CHECK(entries[i].contains("val_loss") == (i % 2 == 1));
        if (i >= 4) CHECK(entries[i].contains("lr"));
      }
      CHECK(PlaneRun().go(d.options).resumed_from == (last < 6 ? 3 : last < 8 ? 6 : 8));
      CHECK(steps_of(d.log) == std::vector<Index>{1, 2, 3, 4, 5, 6, 7, 8});
    }
  }
}

TEST_CASE("run log: a file in its place that is not a log of the run is kept, and the log ends") {
  for (const std::string content : {"of mine\n", "mine", "{\"step\":1,\"loss\":0.5}\n", "{\"step\":9}\n"}) {
    const Damaged d;
    const RunResult r = d.run([&] {
      std::filesystem::remove(d.log);
      d.folder.write("log", content);
    });
    const std::string ends = " and is no longer the log of this run; the log ends with step 4";
    CHECK(r.warnings == std::vector<std::string>{"log: " + d.log.string() + " was replaced by another file" + ends});
    CHECK(bytes_of(d.log) == content);
  }
  const Damaged cut, d;
  CHECK(cut.run([&] { std::ofstream(cut.log) << "mine\n"; })
            .warnings.at(0)
            .starts_with("log: " + cut.log.string() + " was truncated and is no longer"));
  CHECK(bytes_of(cut.log) == "mine\n");
  CHECK(d.run([&] {
           std::filesystem::remove(d.log);
           std::filesystem::create_directory(d.log);
         }).warnings.size() == 1);
}

TEST_CASE("run log: lines that cannot be written are written later, else the run fails at its end") {
  const Damaged d;
  const std::filesystem::path elsewhere = d.folder.path.string() + ".elsewhere", place = d.folder.path / "logs";
  const auto run = [&](Index back) {
    std::filesystem::create_directory(place);
    std::ostringstream warnings;
    RunOptions o{.steps = 8, .output = {.log = place / "log"}};
    o.after_step = [&](RunStep& s) {
      if (s.step == 3) std::filesystem::rename(place, elsewhere);
      if (s.step == back) std::filesystem::create_directory(place);
    };
    const std::string error = test::error_of([&] {
      for (const std::string& warning : PlaneRun().go(o).warnings) warnings << warning << "\n";
    });
    std::filesystem::remove_all(elsewhere);
    return error.empty() ? warnings.str() : error;
  };
  const std::string missing = "log: there is no folder " + place.string() + " for log";
  CHECK(run(6) == missing + "; the run continues\nlog: " + (place / "log").string() +
                      " was deleted; the run writes it again, with only the losses of earlier steps\n");
  CHECK(steps_of(place / "log") == std::vector<Index>{1, 2, 3, 4, 5, 6, 7, 8});
  std::filesystem::remove_all(place);
  CHECK(run(0) == "run: " + missing);
}
