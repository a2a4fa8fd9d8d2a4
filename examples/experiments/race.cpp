// Runs the race: plans the time, trains each entry, shows progress, writes log, tables and pictures.
#include "examples/experiments/race.hpp"

#include <cmath>
#include <cstdio>
#include <heed/core/clock.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/run/interrupt.hpp>
#include <heed/optim/run/progress.hpp>
#include <heed/plot/plot.hpp>
#include <set>

#include "examples/experiments/race_report.hpp"
#include "examples/support/program.hpp"

namespace heed::examples {
namespace {

std::string minutes(double seconds) {
  return seconds < 90 ? detail::formatted("%.0f s", seconds) : detail::formatted("%.0f min", seconds / 60);
}

// The steps of all runs and an estimate of their time: from a few steps of each run, then scaled by the time used so
// far.
class Plan {
 public:
  Plan(const RaceSettings& settings, const std::vector<RaceEntry>& entries, const detail::InterruptScope& interrupt) {
    for (const RaceEntry& e : entries) {
      const Index steps = settings.steps > 0 ? settings.steps : e.task->steps;
      steps_.push_back(steps);
      seconds_.push_back(0);
      if (steps < 30 || interrupt.requested()) continue;  // too short to measure, or the race was stopped
      try {
        seconds_.back() = (measure_step(e, settings.seed) * 1.02 + 1e-4) * static_cast<double>(steps) + 1;
      } catch (const std::exception&) {  // the run itself reports the error
      }
    }
  }
  Index steps(std::size_t i) const { return steps_[i]; }
  double seconds(std::size_t i) const { return seconds_[i]; }
  // Estimated seconds for all runs from i on. `share` is the part of run i that is done. Scaled by the actual time of
  // finished work, compared with the plan.
  double left(std::size_t i, double share) const {
    double done = seconds_[i] * share, rest = seconds_[i] * (1 - share);
    for (std::size_t j = 0; j < seconds_.size(); ++j) {
      if (j < i) done += seconds_[j];
      if (j > i) rest += seconds_[j];
    }
    return done < 10 ? rest : rest * (detail::seconds_now() - begin_) / done;
  }
  void begin() { begin_ = detail::seconds_now(); }

 private:
  std::vector<Index> steps_;
  std::vector<double> seconds_;
  double begin_ = detail::seconds_now();
};

void print_plan(const Plan& plan, const std::vector<RaceEntry>& entries) {
  double all = 0;
  for (std::size_t i = 0; i < entries.size();) {
    const RaceTask& task = *entries[i].task;
    double seconds = 0;
    std::size_t end = i;
    for (; end < entries.size() && entries[end].task == entries[i].task; ++end) seconds += plan.seconds(end);
    std::fprintf(stderr, "%-10s %2zu runs of %lld steps of %lld tokens", task.name.c_str(), end - i,
                 static_cast<long long>(plan.steps(i)), static_cast<long long>(task.tokens));
    std::fprintf(
        stderr, "; %lld layers, %lld heads, width %lld, hidden %lld%s%s\n",
        static_cast<long long>(task.model.blocks.layers), static_cast<long long>(task.model.blocks.attention.heads),
        static_cast<long long>(task.model.blocks.attention.width), static_cast<long long>(task.model.blocks.hidden),
        seconds > 0 ? ": about " : "", seconds > 0 ? minutes(seconds).c_str() : "");
    all += seconds;
    i = end;
  }
  std::fprintf(stderr, "%d threads", threads());
  if (all > 0) std::fprintf(stderr, "; about %s in total", minutes(all).c_str());
  std::fprintf(stderr, "\n");
}

ProgressState progress_state(const RaceResult& r, const RaceTask& task, double seconds_left) {
  ProgressState p;
  p.step = static_cast<Index>(r.losses.size());
  p.steps = r.planned_steps;
  p.loss = r.losses.back();
  if (!r.points.empty()) p.validation_loss = r.points.back().score.loss;
  // The floor is that of all held-out data, which only the last evaluation reads.
  if (!r.points.empty() && r.points.back().step == r.planned_steps) p.floor = task.floor;
  p.tokens_per_second = r.tokens_per_second;
  p.seconds_left = seconds_left;
  return p;
}

RaceResult run_one(const RaceSettings& settings, const std::vector<RaceEntry>& entries, std::size_t i, const Plan& plan,
                   const detail::InterruptScope& interrupt, detail::LogFile& log) {
  const RaceEntry& entry = entries[i];
  const RaceTask& task = *entry.task;
  Progress progress(stderr);
  RaceRunOptions o;
  o.steps = plan.steps(i);
  o.seed = settings.seed;
  o.stop = [&] { return interrupt.requested(); };
  o.stepped = [&](const RaceResult& r) {
    const double share = static_cast<double>(r.losses.size()) / static_cast<double>(r.planned_steps);
    progress.update(progress_state(r, task, plan.left(i, share)), false);
  };
  o.scored = [&](const RaceResult& r, const RacePoint& point) {
    log.write(race_json(r, point));
    if (point.step == r.planned_steps) progress.update(progress_state(r, task, 0), true);
  };
  RaceResult result = run_entry(entry, o);
  progress.close();
  if (!result.error.empty()) std::fprintf(stderr, "failed: %s\n", result.error.c_str());
  log.write(race_json(task, result));
  return result;
}

// The results of a task, in the order of the entries.
struct TaskResults {
  std::shared_ptr<const RaceTask> task;
  std::vector<RaceResult> results;
};

void draw(const std::string& plot, const std::vector<TaskResults>& tasks) {
  for (const TaskResults& t : tasks)
    for (const std::filesystem::path& file : race_pictures(plot, *t.task, t.results))
      std::fprintf(stderr, "picture: %s\n", printable(file.native()).c_str());
}

// Checks the log and all pictures before the race begins.
void check_outputs(const RaceSettings& settings, const std::vector<RaceEntry>& entries) {
  std::set<std::filesystem::path> pictures;
  if (!settings.plot.empty())
    for (const RaceEntry& e : entries)
      for (const std::filesystem::path& file : race_picture_files(settings.plot, *e.task)) pictures.insert(file);
  std::vector<FileUse> files = {{"--log", settings.log, FileRole::log}};
  for (const std::filesystem::path& picture : pictures) files.push_back({"--plot", picture, FileRole::output});
  check_files("", files);
  for (const std::filesystem::path& picture : pictures) check_plot(picture);
}

}  // namespace

int race(const RaceSettings& settings, const std::vector<RaceEntry>& entries) {
  set_threads(settings.threads);
  check_outputs(settings, entries);
  detail::LogFile log(settings.log);
  const detail::InterruptScope interrupt;
  Plan plan(settings, entries, interrupt);
  if (!interrupt.requested()) print_plan(plan, entries);
  plan.begin();
  std::vector<TaskResults> tasks;
  bool failed = false;
  for (std::size_t i = 0; i < entries.size() && !interrupt.requested(); ++i) {
    const RaceEntry& entry = entries[i];
    std::fprintf(stderr, "%zu/%zu %s: %s\n", i + 1, entries.size(), entry.task->name.c_str(), entry.label.c_str());
    if (tasks.empty() || tasks.back().task != entry.task) tasks.push_back({entry.task, {}});
    tasks.back().results.push_back(run_one(settings, entries, i, plan, interrupt, log));
    failed = failed || !tasks.back().results.back().error.empty();
  }
  const bool stopped = interrupt.requested();
  // Pictures are drawn first: a table that cannot be printed must not prevent them.
  if (!stopped && !settings.plot.empty()) draw(settings.plot, tasks);
  for (const TaskResults& t : tasks) std::printf("\n%s", race_table(*t.task, t.results).c_str());
  flush_output();
  return stopped ? 130 : failed ? 1 : 0;
}

}  // namespace heed::examples
