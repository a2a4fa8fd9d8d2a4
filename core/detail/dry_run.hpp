// Runs without their work, to learn what memory they take. Internal.
#pragma once
#include <functional>

namespace heed::detail {

// Calls f with the loops of this thread left out that are long enough for several threads: tensors are made and let go
// as ever, but hold anything, and large ones stay untouched, so that the system gives no memory for them. For what
// takes the same memory whatever its values are, as the steps of most models; lists of keys by score are not of them.
// Throws Error where a tensor that f made is still there: somebody would read what nobody computed. Threads run one
// after the other.
void dry_run(const std::function<void()>& f);

// Inside of a dry_run: loops run again while it lives, and tensors that it sees made may stay. For what is kept beyond
// the run, such as tables of angles.
class DryRunPause {
 public:
  DryRunPause();
  ~DryRunPause();
  DryRunPause(const DryRunPause&) = delete;
  DryRunPause& operator=(const DryRunPause&) = delete;

 private:
  bool before_;
};

bool in_dry_run();  // this thread is, and in no pause

// A tensor's storage was made in a dry run, or goes.
struct Storage;
void count_dry(const Storage& s, int change) noexcept;

}  // namespace heed::detail
