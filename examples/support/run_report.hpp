// Reports at the end of a run.
#pragma once
#include <filesystem>
#include <heed/data/tasks.hpp>
#include <heed/optim/run/result.hpp>
#include <string>

namespace heed::examples {

// A validation loss compared with its floor: "4.4% above the floor of 0.2688 (standard error 0.0017)".
std::string above_floor(double loss, const StoryFloor& floor);

// Draws held-out accuracy by step, with a baseline.
void plot_accuracy(const std::filesystem::path& file, const RunResult& result, double baseline);

// Prints that a run was stopped, and the command that continues it.
void print_stopped(const RunResult& result, Index steps, const std::string& command);

}  // namespace heed::examples
