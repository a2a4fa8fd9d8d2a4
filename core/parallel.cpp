// Threads by oneTBB: how many, the arena they work in, and chunks of loops.
#include <heed/core/parallel.hpp>
//
#include <sched.h>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <algorithm>
#include <atomic>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/core/detail/dry_run.hpp>
#include <memory>
#include <mutex>
#include <utility>

// Set by the build under the thread sanitizer, which does not see into this source.
#if defined(HEED_THREAD_SANITIZER)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
extern "C" const char* __tsan_default_suppressions();
// Nor what TBB's library has done for it, such as its memset when threads come and go.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libtbb.so\n"; }
#endif

namespace heed {
namespace {

// What a loop orders, for the thread sanitizer: TBB's library is not built for it, and all chunks would be races with
// the code around their loop. A chunk comes after what was before the loop, and what follows the loop after all chunks;
// among themselves chunks have no order.
class LoopOrder {
 public:
#if defined(HEED_THREAD_SANITIZER)
  LoopOrder() { __tsan_release(&begun_); }
  ~LoopOrder() { __tsan_acquire(&ended_); }
  struct Chunk {
    LoopOrder& order;
    explicit Chunk(LoopOrder& o) : order(o) { __tsan_acquire(&order.begun_); }
    ~Chunk() { __tsan_release(&order.ended_); }  // also where it throws
  };

 private:
  char begun_ = 0, ended_ = 0;
#else
  struct Chunk {
    explicit Chunk(LoopOrder&) {}
    ~Chunk() {}
  };
#endif
};

struct Pool {
  std::unique_ptr<tbb::global_control> control;
  std::unique_ptr<tbb::task_arena> arena;
  int threads = 0;
};

std::mutex pool_mutex;
std::atomic<int> current_threads{0};
std::atomic<std::uint64_t> seen_round{1};  // begun by each call of threads_seen()
std::atomic<int> seen_count{0};            // threads that ran a chunk in it
thread_local int slot = 0;
thread_local bool is_dry = false;

// A chunk runs on this thread.
struct InSlot {
  const int before = slot;
  InSlot() { slot = tbb::this_task_arena::current_thread_index(); }
  ~InSlot() { slot = before; }
};

// What TBB copies from task to task.
template <class F>
struct TbbBody {
  const F* chunks;
  LoopOrder* order;
  void operator()(const tbb::blocked_range<Index>& r) const {
    const LoopOrder::Chunk chunk(*order);
    (*chunks)(r.begin(), r.end());
  }
};

// Leaked on purpose: TBB's own statics may be gone when ours would be destroyed.
Pool& thread_pool() {
  static Pool* pool = new Pool;
  return *pool;
}

// The quota of a container, in whole threads, rounded up; 0 where there is none. TBB honours affinity but not this.
int cgroup_threads() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  try {
    return std::max(1, static_cast<int>(std::stod(quota) / period + 0.999));
  } catch (const std::exception&) {
    return 0;
  }
}

void start(int n) {
  Pool& p = thread_pool();
  p.arena.reset();
  p.control.reset();
  p.control =
      std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(n));
  p.arena = std::make_unique<tbb::task_arena>(n);
  p.arena->initialize();
  p.threads = n;
  current_threads = n;
}

void note_thread() {
  thread_local std::uint64_t noted = 0;
  const std::uint64_t round = seen_round.load(std::memory_order_relaxed);
  if (noted == round) return;
  noted = round;
  seen_count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

int available_threads() {
  cpu_set_t set;
  int n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
  const int quota = cgroup_threads();
  return quota > 0 ? std::min(n, quota) : n;
}

void set_threads(int n) {
  require(n >= 0, "set_threads: ", n, " threads were asked for; the number must be 0 (all) or more");
  const std::lock_guard lock(pool_mutex);
  const int wanted = n == 0 ? available_threads() : n;
  if (wanted != thread_pool().threads) start(wanted);
}

int threads() {
  if (current_threads == 0) set_threads(0);
  return current_threads;
}

int thread_slot() { return slot; }

int threads_seen() {
  ++seen_round;
  return seen_count.exchange(0);
}

namespace detail {

DryRun::DryRun() : before_(std::exchange(is_dry, true)) {}
DryRun::~DryRun() { is_dry = before_; }

void parallel_ranges(Index n, Index grain, RangeFunction f, void* context) {
  if (is_dry) return;
  const Index chunks = (n + grain - 1) / grain;
  const auto chunk = [&](Index c) { f(context, c * grain, std::min(n, (c + 1) * grain)); };
  if (threads() == 1) {
    note_thread();
    for (Index c = 0; c < chunks; ++c) chunk(c);
    return;
  }
  const auto run_chunks = [&](Index begin, Index end) {
    note_thread();
    const InSlot scope;
    for (Index c = begin; c < end; ++c) chunk(c);
  };
  LoopOrder order;  // after all that chunks read
  // isolate: a thread that waits here must not take up an outer task, whose scratch it might share.
  // Another thread may do even that.
  thread_pool().arena->execute([&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<Index>(0, chunks, 1), TbbBody<decltype(run_chunks)>{&run_chunks, &order},
                        tbb::simple_partitioner());
    });
  });
}

}  // namespace detail
}  // namespace heed
