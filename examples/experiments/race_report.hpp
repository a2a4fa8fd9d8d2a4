// What the race tells: tables, JSON lines, pictures.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "examples/experiments/race_run.hpp"

namespace heed::examples {

// The results of one task from the best to the worst, failed ones last; at most 100 columns.
std::string race_table(const RaceTask& task, const std::vector<RaceResult>& results);

// One JSON object, without line feed: {"kind": "evaluation", ...} and {"kind": "run", ...}. Of clocks and memory are
// only "step_seconds", "tokens_per_second", "seconds" and "peak_bytes".
std::string race_json(const RaceResult& result, const RacePoint& point);
std::string race_json(const RaceTask& task, const RaceResult& result);

// FILE.svg becomes FILE-TASK-loss.svg, FILE-TASK-cost.svg (tokens a second, memory), and, where there are questions,
// FILE-TASK-distance.svg; for linformer also FILE-linformer-rows.svg. In this order.
std::vector<std::filesystem::path> race_picture_files(const std::filesystem::path& file, const RaceTask& task);

// Draws them. Returns the names of those that it drew: there may be nothing to draw.
std::vector<std::filesystem::path> race_pictures(const std::filesystem::path& file, const RaceTask& task,
                                                 const std::vector<RaceResult>& results);

}  // namespace heed::examples
