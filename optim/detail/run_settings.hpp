// The options of a run as its checkpoint keeps them. Internal.
#pragma once
#include <heed/optim/run_loop.hpp>
#include <string>
#include <vector>

namespace heed::detail {

// Adds the options that a resumed run may change to the texts of a checkpoint.
void store_settings(const RunOptions& options, Checkpoint& c);
// What differs from the options of the run that saved the checkpoint, for people: "steps 60, before: 40".
std::vector<std::string> changed_settings(const RunOptions& options, const Checkpoint& c);
// 0.002, by as few digits as tell the number.
std::string shortest(double number);

inline constexpr const char* kRunOptions = "run_options";  // the text's name

}  // namespace heed::detail
