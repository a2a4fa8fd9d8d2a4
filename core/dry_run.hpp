// Dry runs, which measure the memory of a computation without computing. Internal.
#pragma once
#include <functional>

namespace heed::detail {

// Calls f, and skips those loops of this thread that are long enough for several threads. Tensors are allocated and
// freed as usual, but their values are undefined. Large tensors are not written to, so the system takes no memory for
// them. f must use the same memory for any values, as the steps of most models do; lists of keys chosen by score do
// not. Throws Error if a tensor that f made still exists, because its values were not computed. Only one thread may be
// in a dry run at a time.
void dry_run(const std::function<void()>& f);

// Suspends a dry_run() in its scope: loops run, and tensors made there may stay. For values that are kept after the
// run, such as tables of angles.
class DryRunPause {
 public:
  DryRunPause();
  ~DryRunPause();
  DryRunPause(const DryRunPause&) = delete;
  DryRunPause& operator=(const DryRunPause&) = delete;

 private:
  bool before_;
};

bool in_dry_run();  // whether this thread is in a dry run, and not in a pause

// Counts storages that were made in a dry run: `change` is 1 for a new storage, -1 for a freed one.
struct Storage;
void count_dry(const Storage& s, int change) noexcept;

}  // namespace heed::detail
