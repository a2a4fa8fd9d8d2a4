// What programs tell of a run when it is over.
#pragma once
#include <filesystem>
#include <heed/data/tasks.hpp>
#include <heed/optim/run_loop.hpp>
#include <string>

namespace heed::examples {

// "4.4% above the floor of 0.2688 (standard error 0.0017)"
std::string above_floor(double loss, const StoryFloor& floor);

// Held-out accuracy by step over a baseline.
void plot_accuracy(const std::filesystem::path& file, const RunResult& result, double baseline);

// Where a run was interrupted, says how it goes on, as `command`.
void say_stopped(const RunResult& result, Index steps, const std::string& command);

}  // namespace heed::examples
