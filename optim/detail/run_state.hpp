// A run as it stands between two steps. Internal.
#pragma once
#include <heed/optim/detail/run_data.hpp>
#include <heed/optim/detail/run_ranks.hpp>
#include <heed/optim/run_loop.hpp>
#include <string>
#include <vector>

namespace heed::detail {

// What was given to a run, and what it did so far.
struct RunState {
  RunParts parts;
  const RunOptions& options;
  RunRanks ranks;
  RunData data;
  std::vector<std::string> names;  // of the updates; that of the first is not used
  Index done = 0;                  // steps
  RunHistory history;
  Index best_from = 0;  // evaluations up to this step are not compared with later ones

  RunState(RunParts given, const RunOptions& o);  // Error: no updates, or two of a name; fewer shards than ranks

  // "optimizer" or what else belongs to an update, as the checkpoint calls it: of the first as it is, of others with
  // their name.
  std::string named(const std::string& what, std::size_t update) const {
    return update == 0 ? what : what + "." + names[update];
  }
  // A file that rank 0 alone writes: empty on the others.
  std::filesystem::path of_first(const std::filesystem::path& file) const {
    return ranks.is_first() ? file : std::filesystem::path();
  }
};

// Steps between the weights that RunOptions::last_weights keeps; 0: none.
inline Index keep_every(const RunOptions& o) { return o.keep_every > 0 ? o.keep_every : o.checkpoint_every; }

}  // namespace heed::detail
