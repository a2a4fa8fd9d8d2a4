// The state of run() between two steps: its arguments and its progress. Private to optim/run.
#pragma once
#include <heed/optim/ranks/run_ranks.hpp>
#include <heed/optim/run/data.hpp>
#include <heed/optim/run/options.hpp>
#include <heed/optim/run/parts.hpp>
#include <heed/optim/run/result.hpp>
#include <string>
#include <vector>

namespace heed::detail {

// The arguments of a run, and its progress.
struct RunState {
  RunParts parts;
  const RunOptions& options;
  RunRanks ranks;
  RunData data;
  std::vector<std::string> names;  // of the updates; the first one's is not used
  Index done = 0;                  // steps done
  RunHistory history;
  Index best_from = 0;  // evaluations up to this step are not compared with later ones

  // Throws Error if there are no updates, if two have the same name, or if there are fewer shards than ranks.
  RunState(RunParts given, const RunOptions& o);

  // The name of a section or text of an update in the checkpoint: "optimizer" for the first update, "optimizer.NAME"
  // for others.
  std::string named(const std::string& what, std::size_t update) const {
    return update == 0 ? what : what + "." + names[update];
  }
  // The path on rank 0, which alone writes the file; empty on other ranks.
  std::filesystem::path of_first(const std::filesystem::path& file) const {
    return ranks.is_first() ? file : std::filesystem::path();
  }
};

// Steps between the weights that RunOptions::last_weights keeps; 0: none.
inline Index keep_every(const RunOptions& o) { return o.keep_every > 0 ? o.keep_every : o.checkpoint.every; }

}  // namespace heed::detail
