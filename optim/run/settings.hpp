// The options of run() as its checkpoint stores them. Private to optim/run.
#pragma once
#include <heed/optim/run/options.hpp>
#include <string>
#include <vector>

namespace heed::detail {

// Stores the options that a resumed run may change, as a text of the checkpoint.
void store_settings(const RunOptions& options, Checkpoint& c);
// The differences from the options of the run that saved the checkpoint, as messages: "steps 60, before: 40".
std::vector<std::string> changed_settings(const RunOptions& options, const Checkpoint& c);
// The shortest text that determines the number: 0.002.
std::string shortest(double number);

inline constexpr const char* kRunOptions = "run_options";  // name of the text

}  // namespace heed::detail
