// Runs without their work, to learn what memory they take. Internal.
#pragma once

namespace heed::detail {

// While it lives, loops of this thread that are long enough for several threads are left out: tensors are made and let
// go as ever, but hold anything, and large ones stay untouched, so that the system gives no memory for them. For what
// takes the same memory whatever its values are, as the steps of most models; lists of keys by score are not of them.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

 private:
  bool before_;
};

// Inside of a DryRun: loops run again while it lives. For what is kept beyond the run, such as tables of angles.
class DryRunPause {
 public:
  DryRunPause();
  ~DryRunPause();
  DryRunPause(const DryRunPause&) = delete;
  DryRunPause& operator=(const DryRunPause&) = delete;

 private:
  bool before_;
};

}  // namespace heed::detail
