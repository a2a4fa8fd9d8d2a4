// Formats results of the race as tables and JSON, and draws them.
#include "examples/experiments/race_report.hpp"

#include <algorithm>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/plot/plot.hpp>
#include <nlohmann/json.hpp>

#include "examples/experiments/race_questions.hpp"

namespace heed::examples {
namespace {

using detail::formatted;
using Json = nlohmann::ordered_json;

const RaceScore* last_score(const RaceResult& r) { return r.points.empty() ? nullptr : &r.points.back().score; }

// Orders results by the share of right answers or symbols, then by loss. Results without a score are next, failed ones
// last.
std::vector<const RaceResult*> ranked(const std::vector<RaceResult>& results) {
  std::vector<const RaceResult*> order;
  for (const RaceResult& r : results) order.push_back(&r);
  const auto key = [](const RaceResult* r) {
    const RaceScore* s = last_score(*r);
    return std::make_tuple(!r->error.empty(), s == nullptr, s ? -s->right : 0, s ? s->loss : 0);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const RaceResult* a, const RaceResult* b) { return key(a) < key(b); });
  return order;
}

double mebibytes(const RaceResult& r) { return static_cast<double>(r.peak_bytes) / (1 << 20); }

std::string percent(double share) {
  return std::isfinite(share) ? formatted("%7.1f", 100 * share) : formatted("%7s", "-");
}

std::string header(const RaceTask& task, bool distances) {
  std::string line = formatted("%-16s%8s", task.name.c_str(), "loss");
  if (task.floor) line += formatted("%9s", "above");
  line += formatted("%7s", "right");
  if (distances)
    for (std::size_t i = 0; i < kDistanceBins; ++i) line += formatted("%7s", distance_name(i).c_str());
  return line + formatted("%10s%9s\n", "tokens/s", "MiB");
}

std::string row(const RaceTask& task, const RaceResult& r, bool distances) {
  std::string line = formatted("%-16s", r.label.c_str());
  if (!r.error.empty()) return line + "  failed: " + r.error + "\n";
  if (r.losses.empty()) return line + "  stopped before the first step\n";
  const RaceScore* s = last_score(r);
  line += s ? formatted("%8.4f", s->loss) : formatted("%8s", "-");
  if (task.floor) line += s ? formatted("%+8.1f%%", 100 * (s->loss / *task.floor - 1)) : formatted("%9s", "-");
  line += s ? percent(s->right) : formatted("%7s", "-");
  if (distances)
    for (std::size_t i = 0; i < kDistanceBins; ++i)
      line += s && i < s->by_distance.size() ? percent(s->by_distance[i]) : formatted("%7s", "-");
  line += formatted("%10.0f%9.1f", r.tokens_per_second, mebibytes(r));
  return line + "\n";
}

void add(Json& json, const RaceScore& score) {
  json["loss"] = score.loss;
  json["right"] = score.right;
  if (score.by_distance.empty()) return;
  Json bins = Json::object();
  for (std::size_t i = 0; i < kDistanceBins; ++i) bins[distance_name(i)] = score.by_distance[i];
  json["right_by_distance"] = bins;
}

// Training losses, averaged over `window` steps, with one point per window / 5 steps.
Series smooth(const RaceResult& r, Series::Style style) {
  Series line{r.label, {}, style};
  const std::size_t n = r.losses.size(), window = std::max<std::size_t>(1, n / 30),
                    stride = std::max<std::size_t>(1, window / 5);
  for (std::size_t end = window; end <= n; end += stride) {
    double sum = 0;
    for (std::size_t i = end - window; i < end; ++i) sum += r.losses[i];
    line.points.emplace_back(static_cast<double>(end), sum / static_cast<double>(window));
  }
  return line;
}

// The colours of lines repeat after seven, so the next seven lines are dashed and those after them are thin.
Series::Style style(std::size_t i) { return i < 7 ? Series::line : i < 14 ? Series::dashed : Series::thin_line; }

void plot_losses(const std::filesystem::path& file, const RaceTask& task, const std::vector<const RaceResult*>& order) {
  std::vector<Series> lines;
  for (const RaceResult* r : order) lines.push_back(smooth(*r, style(lines.size())));
  if (task.floor)
    lines.push_back(
        {"floor", {{1, *task.floor}, {static_cast<double>(order[0]->planned_steps), *task.floor}}, Series::dashed});
  plot(file, {task.name + ": " + task.about, "step", "training loss, nats"}, lines,
       {.log_y = true, .names_outside = true});
}

void plot_costs(const std::filesystem::path& file, const RaceTask& task, const std::vector<const RaceResult*>& order) {
  std::vector<std::string> names;
  Bars speed{"thousand tokens per second", {}}, memory{"peak memory of a step, MiB", {}}, right{"right, %", {}, 100};
  for (const RaceResult* r : order) {
    names.push_back(r->label);
    speed.values.push_back(r->tokens_per_second / 1000);
    memory.values.push_back(mebibytes(*r));
    const RaceScore* s = last_score(*r);
    right.values.push_back(s && std::isfinite(s->right) ? 100 * s->right : 0);
  }
  plot_bars(file, task.name + ": " + task.about, names, {right, speed, memory});
}

// Right answers by distance, one line per result; results without a score have none.
std::vector<Series> distance_lines(const std::vector<const RaceResult*>& order) {
  std::vector<Series> lines;
  for (const RaceResult* r : order) {
    const RaceScore* s = last_score(*r);
    if (s == nullptr) continue;
    Series line{r->label, {}, style(lines.size())};
    for (std::size_t i = 0; i < s->by_distance.size(); ++i)
      if (std::isfinite(s->by_distance[i])) line.points.emplace_back(distance_centre(i), 100 * s->by_distance[i]);
    if (!line.points.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

// Linformer's right answers by its number of rows, with the other mechanisms as horizontal lines.
std::vector<Series> row_lines(const std::vector<const RaceResult*>& order) {
  std::vector<Series> lines = {{"linformer", {}}};
  double min_rows = 1e300, max_rows = 0;
  for (const RaceResult* r : order) {
    if (r->mechanism != "linformer" || last_score(*r) == nullptr) continue;
    const double rows = std::stod(r->label.substr(r->label.find(' ')));
    lines[0].points.emplace_back(rows, 100 * last_score(*r)->right);
    min_rows = std::min(min_rows, rows);
    max_rows = std::max(max_rows, rows);
  }
  if (lines[0].points.empty()) return {};
  std::sort(lines[0].points.begin(), lines[0].points.end());
  for (const RaceResult* r : order)
    if (r->mechanism != "linformer" && last_score(*r) != nullptr) {
      const double level = 100 * last_score(*r)->right;
      lines.push_back({r->label, {{min_rows, level}, {max_rows, level}}, Series::dashed});
    }
  return lines;
}

}  // namespace

std::string race_table(const RaceTask& task, const std::vector<RaceResult>& results) {
  const bool distances = task.distances;
  std::string table = task.name + ": " + task.about + "\n" + header(task, distances);
  for (const RaceResult* r : ranked(results)) table += row(task, *r, distances);
  for (const RaceResult& r : results)
    if (r.stopped)
      table +=
          formatted("%s: stopped after %zu of %lld steps; the training loss was %.4f\n", r.label.c_str(),
                    r.losses.size(), static_cast<long long>(r.planned_steps), r.losses.empty() ? NAN : r.losses.back());
  if (task.floor)
    table +=
        formatted("above: the loss relative to the floor of %.4f, which is the lowest possible loss\n", *task.floor);
  return table;
}

std::string race_json(const RaceResult& r, const RacePoint& point) {
  Json json = {{"kind", "evaluation"},     {"task", r.task},     {"run", r.label},
               {"mechanism", r.mechanism}, {"step", point.step}, {"training_loss", point.training_loss}};
  add(json, point.score);
  return json.dump();
}

std::string race_json(const RaceTask& task, const RaceResult& r) {
  Json json = {{"kind", "run"},
               {"task", r.task},
               {"run", r.label},
               {"mechanism", r.mechanism},
               {"steps", r.losses.size()},
               {"asked_steps", r.planned_steps},
               {"parameters", r.parameters}};
  if (!r.points.empty()) {
    json["training_loss"] = r.points.back().training_loss;
    add(json, r.points.back().score);
  }
  if (task.floor) json["floor"] = *task.floor;
  json["step_seconds"] = r.step_seconds;
  json["tokens_per_second"] = r.tokens_per_second;
  json["peak_bytes"] = r.peak_bytes;
  json["seconds"] = r.seconds;
  if (!r.error.empty()) json["error"] = r.error;
  if (r.stopped) json["stopped"] = true;
  return json.dump();
}

std::vector<std::filesystem::path> race_picture_files(const std::filesystem::path& file, const RaceTask& task) {
  std::vector<std::filesystem::path> files;
  for (const std::string kind : {"loss", "cost", "distance", "rows"})
    files.push_back(file.parent_path() /
                    (file.stem().string() + "-" + task.name + "-" + kind + file.extension().string()));
  return files;
}

std::vector<std::filesystem::path> race_pictures(const std::filesystem::path& file, const RaceTask& task,
                                                 const std::vector<RaceResult>& results) {
  std::vector<const RaceResult*> order;
  for (const RaceResult* r : ranked(results))
    if (r->error.empty() && !r->losses.empty()) order.push_back(r);
  if (order.empty()) return {};
  const std::vector<std::filesystem::path> all = race_picture_files(file, task);
  std::vector<std::filesystem::path> drawn(all.begin(), all.begin() + 2);
  plot_losses(drawn[0], task, order);
  plot_costs(drawn[1], task, order);
  if (const std::vector<Series> lines = distance_lines(order); !lines.empty()) {
    drawn.push_back(all.at(2));
    plot(drawn.back(), {task.name + ": right answers", "words from the fact to the answer", "right, %"}, lines,
         {.percent = true, .names_outside = true});
  }
  if (const std::vector<Series> lines = row_lines(order); !lines.empty()) {
    drawn.push_back(all.at(3));
    plot(drawn.back(), {"Linformer: right answers", "rows of projected keys, m", "right, %"}, lines,
         {.log_x = true, .percent = true, .names_outside = true});
  }
  return drawn;
}

}  // namespace heed::examples
