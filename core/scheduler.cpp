// Threads of oneTBB: the arena in which they work, and the chunks of parallel loops.
#include <heed/core/scheduler.hpp>
//
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <heed/core/parallel.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

// The interface of the thread sanitizer. In other builds it does nothing. This source is compiled without the sanitizer
// and reports the order of loops itself.
#if defined(HEED_THREAD_SANITIZER)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
extern "C" const char* __tsan_default_suppressions();
// Ignores calls from TBB's library, such as its memset when threads start and end.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libtbb.so\n"; }
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
#endif

namespace heed::detail {
namespace {

// Reports the order of a loop to the thread sanitizer: the code before the loop, then all chunks in no order, then the
// code after the loop. TBB's library is not built with the sanitizer, which would otherwise report every chunk as a
// race with the code around the loop.
class LoopOrder {
 public:
  LoopOrder() { __tsan_release(&begun_); }
  ~LoopOrder() { __tsan_acquire(&ended_); }
  struct Chunk {
    LoopOrder& order;
    explicit Chunk(LoopOrder& o) : order(o) { __tsan_acquire(&order.begun_); }
    ~Chunk() { __tsan_release(&order.ended_); }  // also if the chunk throws
  };

 private:
  char begun_ = 0, ended_ = 0;
};

std::atomic<std::uint64_t> seen_round{1};  // raised by each call of threads_seen()
std::atomic<int> seen_count{0};            // threads that ran a chunk in this round
thread_local int slot = 0;

// Sets this thread's slot in its scope.
struct InSlot {
  const int before = slot;
  explicit InSlot(int now) { slot = now; }
  ~InSlot() { slot = before; }
};

// Waits without sleep: pauses the core between checks, and after some microseconds yields it to other threads.
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

// The workers of an AwakeThreads: threads of TBB, each in a task that lasts from loop to loop. The owner publishes one
// loop after another, runs chunks too, and returns when no worker is inside the loop.
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
  // A loop inside a chunk is run by TBB.
  bool serves_here() const { return owned_here() && !in_chunk_; }
  // A Share counts chunks in 32 bits. A loop with more chunks is run by TBB.
  static bool can_share(const Chunks& chunks) { return chunks.count() <= 0xffffffff; }

  void run(tbb::task_arena& arena, int threads, const Chunks& chunks, LoopOrder& order) {
    dismissed_ = false;
    if (threads_ != threads) begin(threads);
    for (; present_ < threads - 1; ++present_) arena.enqueue([this, place = free_place()] { attend(place); });
    chunks_ = chunks, order_ = &order;
    failed_ = false;
    share_out();
    ++shown_;  // odd: workers that see it may enter
    work(0);
    ++shown_;
    // Workers that entered before are counted in inside_. A worker that enters later sees that the loop has ended, and
    // does not touch it.
    for (Spin spin; inside_ > 0;) spin.wait();
    if (failed_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // Waits until no task is left, so that the arena can be destroyed.
  void dismiss() {
    dismissed_ = true;
    while (present_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<std::thread::id> owner_{};
  int depth_ = 0;                // scopes of the owner
  std::atomic<int> present_{0};  // tasks that run attend(), or are enqueued for it
  std::atomic<bool> dismissed_{false};
  // The published loop. Written only while no loop is published and no worker is inside.
  Chunks chunks_;
  LoopOrder* order_ = nullptr;
  std::exception_ptr error_;  // of the first chunk that failed
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<std::uint64_t> shown_{0};  // odd while a loop is published
  alignas(64) std::atomic<int> inside_{0};
  static inline thread_local bool in_chunk_ = false;

  // The chunks [first, last) that remain of a thread's share. Chunks of a share are neighbours, which read the same
  // data. In each loop a thread has the same share, so that results of the loop before are in its caches.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> both{0};  // first in the lower half, last in the upper half
    std::atomic<bool> taken{false};      // a task in attend() has this place
    static std::uint64_t pair(Index first, Index last) {
      return static_cast<std::uint64_t>(first) | static_cast<std::uint64_t>(last) << 32;
    }
    void set(Index first, Index last) { both = pair(first, last); }
    // Takes the first chunk, or the last. Returns -1 if none is left.
    Index take(bool from_end) {
      std::uint64_t now = both;
      for (;;) {
        const Index first = static_cast<Index>(now & 0xffffffffu), last = static_cast<Index>(now >> 32);
        if (first >= last) return -1;
        const std::uint64_t rest = from_end ? pair(first, last - 1) : pair(first + 1, last);
        if (both.compare_exchange_weak(now, rest)) return from_end ? last - 1 : first;
      }
    }
  };
  // By place, which is the slot of a thread's chunks. The owner has place 0, and each task in attend() has a different
  // place. TBB's index of the thread cannot be used: a thread that runs its own loops may run attend() too, and its
  // index is 0 as well.
  std::vector<Share> shares_;
  int threads_ = 0;

  // No task is in attend() here: the number of threads changes only after dismiss().
  void begin(int threads) {
    threads_ = threads;
    shares_ = std::vector<Share>(static_cast<std::size_t>(threads));
  }
  int free_place() {
    int place = 1;
    while (shares_[static_cast<std::size_t>(place)].taken) ++place;
    shares_[static_cast<std::size_t>(place)].taken = true;
    return place;
  }

  void share_out() {
    const Index count = chunks_.count();
    for (int t = 0; t < threads_; ++t)
      shares_[static_cast<std::size_t>(t)].set(count * t / threads_, count * (t + 1) / threads_);
  }

  bool owned_here() const { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  // Runs chunks until none is left: this thread's share from its beginning, then the shares of others from their ends.
  void work(int mine) {
    const InSlot scope(mine);
    in_chunk_ = true;
    for (int i = 0; i < threads_; ++i) {
      Share& share = shares_[static_cast<std::size_t>((mine + i) % threads_)];
      for (Index c; (c = share.take(i > 0)) >= 0;) run_chunk(c);
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

  // The task of a worker: runs loops as they are published, until there has been none for a while.
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
    shares_[static_cast<std::size_t>(place)].taken = false;
    --present_;
  }
};

struct Pool {
  std::unique_ptr<tbb::global_control> control;
  std::unique_ptr<tbb::task_arena> arena;
  Crew crew;
};

// Leaked on purpose: at exit, TBB's static objects may be destroyed before this one.
Pool& thread_pool() {
  static Pool* pool = new Pool;
  return *pool;
}

}  // namespace

void note_thread() {
  thread_local std::uint64_t noted = 0;
  const std::uint64_t round = seen_round.load(std::memory_order_relaxed);
  if (noted == round) return;
  noted = round;
  seen_count.fetch_add(1, std::memory_order_relaxed);
}

void start_threads(int n) {
  Pool& p = thread_pool();
  p.crew.dismiss();
  p.arena.reset();
  p.control.reset();
  p.control =
      std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(n));
  p.arena = std::make_unique<tbb::task_arena>(n);
  p.arena->initialize();
}

void run_on_threads(const Chunks& chunks, int threads) {
  Pool& p = thread_pool();
  LoopOrder order;  // after all writes that chunks read
  if (p.crew.serves_here() && Crew::can_share(chunks)) return p.crew.run(*p.arena, threads, chunks, order);
  const auto run_chunks = [&](const tbb::blocked_range<Index>& range) {
    const LoopOrder::Chunk chunk(order);
    note_thread();
    const InSlot scope(tbb::this_task_arena::current_thread_index());
    for (Index c = range.begin(); c < range.end(); ++c) chunks.run(c);
  };
  // isolate: a thread that waits here must not start a chunk of an outer loop, whose scratch it might share. Other
  // threads may.
  p.arena->execute([&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<Index>(0, chunks.count(), 1), run_chunks, tbb::simple_partitioner());
    });
  });
}

}  // namespace heed::detail

namespace heed {

int thread_slot() { return detail::slot; }

AwakeThreads::AwakeThreads() { detail::thread_pool().crew.enter(); }
AwakeThreads::~AwakeThreads() { detail::thread_pool().crew.leave(); }

int threads_seen() {
  ++detail::seen_round;
  return detail::seen_count.exchange(0);
}

}  // namespace heed
