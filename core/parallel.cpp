// Threads by oneTBB: how many, the arena they work in, and chunks of loops.
#include <heed/core/parallel.hpp>
//
#include <sched.h>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/core/detail/dry_run.hpp>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

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

// A chunk runs on this thread.
struct InSlot {
  const int before = slot;
  explicit InSlot(int now) { slot = now; }
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

void note_thread() {
  thread_local std::uint64_t noted = 0;
  const std::uint64_t round = seen_round.load(std::memory_order_relaxed);
  if (noted == round) return;
  noted = round;
  seen_count.fetch_add(1, std::memory_order_relaxed);
}

// Chunks of a parallel_for.
struct Chunks {
  Index n = 0, grain = 1;
  detail::RangeFunction f = nullptr;
  void* context = nullptr;

  Index count() const { return (n + grain - 1) / grain; }
  void run(Index c) const { f(context, c * grain, std::min(n, (c + 1) * grain)); }
};

// Waiting without sleep: the core rests between looks, and after some microseconds other threads may have it.
class Spin {
 public:
  void wait() {
    if (++looks_ >= 512 && looks_ % 16 == 0) std::this_thread::yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  bool for_long() const {
    return looks_ % 64 == 0 && std::chrono::steady_clock::now() - begin_ > std::chrono::microseconds(300);
  }

 private:
  int looks_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The threads of an AwakeThreads: TBB's workers, each in a task that lasts from loop to loop. The owner shows them one
// loop after another, takes part in it, and goes on when none of them is inside any more.
class Crew {
 public:
  void enter() {
    std::thread::id nobody;
    if (owned_here() || owner_.compare_exchange_strong(nobody, std::this_thread::get_id())) ++depth_;
  }
  void leave() {
    if (!owned_here() || --depth_ > 0) return;
    dismissed_ = true;
    owner_ = std::thread::id();
  }
  // Loops inside of a chunk are TBB's.
  bool serves_here() const { return owned_here() && !in_chunk_; }
  // Shares count chunks in 32 bits; more of them go to TBB.
  static bool can_share(const Chunks& chunks) { return chunks.count() <= 0xffffffff; }

  void run(tbb::task_arena& arena, int threads, const Chunks& chunks, LoopOrder& order) {
    dismissed_ = false;
    if (threads_ != threads) begin(threads);
    for (; present_ < threads - 1; ++present_) arena.enqueue([this, place = free_place()] { attend(place); });
    chunks_ = chunks, order_ = &order;
    failed_ = false;
    share_out();
    ++shown_;  // odd: who sees it may come in
    work(0);
    ++shown_;
    // Who came in before is seen here; who comes later sees that the loop has ended, and touches nothing of it.
    for (Spin spin; inside_ > 0;) spin.wait();
    if (failed_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // Waits until no task is left, so that the arena may go.
  void dismiss() {
    dismissed_ = true;
    while (present_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<std::thread::id> owner_{};
  int depth_ = 0;                // scopes of the owner
  std::atomic<int> present_{0};  // tasks that attend, or are about to
  std::atomic<bool> dismissed_{false};
  // The loop that is shown: written while there is none and nobody is inside.
  Chunks chunks_;
  LoopOrder* order_ = nullptr;
  std::exception_ptr error_;  // of the first chunk that failed
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<std::uint64_t> shown_{0};  // odd while a loop is shown
  alignas(64) std::atomic<int> inside_{0};
  static thread_local bool in_chunk_;

  // The chunks [first, last) that are left of a thread's share: neighbours, which read the same, and those that the
  // same thread had in the loop before, whose results are in its caches.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> both{0};  // first, and last in the upper half
    static std::uint64_t pair(Index first, Index last) {
      return static_cast<std::uint64_t>(first) | static_cast<std::uint64_t>(last) << 32;
    }
    void set(Index first, Index last) { both = pair(first, last); }
    Index take_first() {
      return take([](Index first, Index) { return first; });
    }
    Index take_last() {
      return take([](Index, Index last) { return last - 1; });
    }
    // The chunk that `which` names, or -1 where none is left.
    template <class F>
    Index take(F which) {
      std::uint64_t now = both;
      for (;;) {
        const Index first = static_cast<Index>(now & 0xffffffffu), last = static_cast<Index>(now >> 32);
        if (first >= last) return -1;
        const Index c = which(first, last);
        if (both.compare_exchange_weak(now, c == first ? pair(first + 1, last) : pair(first, last - 1))) return c;
      }
    }
  };
  // By place: the slots of chunks. The owner's is 0, and each task that attends has one of the others to itself. TBB's
  // index of the thread would not do: where other threads run loops of their own, one of them may attend, and TBB gives
  // it 0, too.
  std::vector<Share> shares_;
  std::vector<std::atomic<bool>> taken_;
  int threads_ = 0;

  // No task attends: the number of threads changes only when they were dismissed.
  void begin(int threads) {
    threads_ = threads;
    shares_ = std::vector<Share>(static_cast<std::size_t>(threads));
    taken_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(threads));
  }
  int free_place() {
    int place = 1;
    while (taken_[static_cast<std::size_t>(place)]) ++place;
    taken_[static_cast<std::size_t>(place)] = true;
    return place;
  }

  void share_out() {
    const Index count = chunks_.count();
    for (int t = 0; t < threads_; ++t)
      shares_[static_cast<std::size_t>(t)].set(count * t / threads_, count * (t + 1) / threads_);
  }

  bool owned_here() const { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  // Takes chunks until there are none: this thread's share from its beginning, then those of others from their ends.
  void work(int mine) {
    const InSlot scope(mine);
    in_chunk_ = true;
    for (int i = 0; i < threads_; ++i) {
      Share& share = shares_[static_cast<std::size_t>((mine + i) % threads_)];
      for (Index c; (c = i == 0 ? share.take_first() : share.take_last()) >= 0;) run_chunk(c);
    }
    in_chunk_ = false;
  }

  void run_chunk(Index c) {
    note_thread();
    try {
      const LoopOrder::Chunk scope(*order_);
      chunks_.run(c);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      for (Share& share : shares_) share.set(0, 0);
    }
  }

  // What a worker does: loops as they are shown, until there is none for a while.
  void attend(int place) {
    std::uint64_t last = 0;
    for (Spin spin; !dismissed_ && !spin.for_long();) {
      const std::uint64_t loop = shown_;
      if (loop % 2 == 0 || loop == last) {
        spin.wait();
        continue;
      }
      ++inside_;
      if (shown_ == loop) work(place);
      --inside_;
      last = loop;
      spin = Spin();
    }
    taken_[static_cast<std::size_t>(place)] = false;
    --present_;
  }
};

thread_local bool Crew::in_chunk_ = false;

// Leaked on purpose, as the pool below.
Crew& crew() {
  static Crew* c = new Crew;
  return *c;
}

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
  crew().dismiss();
  p.arena.reset();
  p.control.reset();
  p.control =
      std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(n));
  p.arena = std::make_unique<tbb::task_arena>(n);
  p.arena->initialize();
  p.threads = n;
  current_threads = n;
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

AwakeThreads::AwakeThreads() { crew().enter(); }
AwakeThreads::~AwakeThreads() { crew().leave(); }

int threads_seen() {
  ++seen_round;
  return seen_count.exchange(0);
}

namespace detail {

void parallel_ranges(Index n, Index grain, RangeFunction f, void* context) {
  if (in_dry_run()) return;
  const Chunks chunks{n, grain, f, context};
  if (threads() == 1) {
    note_thread();
    for (Index c = 0; c < chunks.count(); ++c) chunks.run(c);
    return;
  }
  LoopOrder order;  // after all that chunks read
  if (crew().serves_here() && Crew::can_share(chunks))
    return crew().run(*thread_pool().arena, threads(), chunks, order);
  const auto run_chunks = [&](Index begin, Index end) {
    note_thread();
    const InSlot scope(tbb::this_task_arena::current_thread_index());
    for (Index c = begin; c < end; ++c) chunks.run(c);
  };
  // isolate: a thread that waits here must not take up an outer task, whose scratch it might share.
  // Another thread may do even that.
  thread_pool().arena->execute([&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<Index>(0, chunks.count(), 1),
                        TbbBody<decltype(run_chunks)>{&run_chunks, &order}, tbb::simple_partitioner());
    });
  });
}

}  // namespace detail
}  // namespace heed
