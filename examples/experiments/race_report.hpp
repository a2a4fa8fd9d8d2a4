// Reports of the race: tables, JSON lines, pictures.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "examples/experiments/race_run.hpp"

namespace heed::examples {

// A table of the results of one task, best first, failed ones last; at most 100 columns.
std::string race_table(const RaceTask& task, const std::vector<RaceResult>& results);

// One JSON object without a line feed: {"kind": "evaluation", ...} or {"kind": "run", ...}. Only "step_seconds",
// "tokens_per_second", "seconds" and "peak_bytes" depend on clocks and memory.
std::string race_json(const RaceResult& result, const RacePoint& point);
std::string race_json(const RaceTask& task, const RaceResult& result);

// The names of a task's pictures, in this order: FILE.svg becomes FILE-TASK-loss.svg, FILE-TASK-cost.svg (tokens per
// second, memory), FILE-TASK-distance.svg (answers by distance), FILE-TASK-rows.svg (Linformer by its rows).
std::vector<std::filesystem::path> race_picture_files(const std::filesystem::path& file, const RaceTask& task);

// Draws those pictures for which there is data. Returns their names.
std::vector<std::filesystem::path> race_pictures(const std::filesystem::path& file, const RaceTask& task,
                                                 const std::vector<RaceResult>& results);

}  // namespace heed::examples
