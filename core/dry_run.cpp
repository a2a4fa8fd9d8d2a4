// The state of dry runs: whether this thread skips its loops, and how many tensors made in the run still exist.
#include <heed/core/dry_run.hpp>
//
#include <atomic>
#include <heed/core/check.hpp>
#include <heed/core/tensor.hpp>
#include <utility>

namespace heed::detail {
namespace {

thread_local bool is_dry = false;
std::atomic<std::uint64_t> first_serial{0};  // of the first storage in the last run
std::atomic<std::int64_t> still_there{0};    // storages of the last run that still exist

}  // namespace

void dry_run(const std::function<void()>& f) {
  first_serial = storages_made();
  still_there = 0;
  {
    const DryRunPause scope;  // restores is_dry, also if f throws
    is_dry = true;
    f();
  }
  const std::int64_t remaining = still_there;
  require(remaining == 0, "dry_run: ", remaining,
          remaining == 1 ? " tensor created in the run still exists" : " tensors created in the run still exist",
          ", with undefined values; a tensor that outlives a dry run must be created and computed under a DryRunPause");
}

DryRunPause::DryRunPause() : before_(std::exchange(is_dry, false)) {}
DryRunPause::~DryRunPause() { is_dry = before_; }

bool in_dry_run() { return is_dry; }

void count_dry(const Storage& s, int change) noexcept {
  if (s.serial >= first_serial) still_there += change;
}

}  // namespace heed::detail
