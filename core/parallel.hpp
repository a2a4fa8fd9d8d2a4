// Threads and parallel loops over oneTBB, the instruction set in use, and measured peak rates of the machine. A loop is
// split by the data that it writes, in chunks of a fixed grain. So results have the same bits at any number of threads.
//
// Example:
//
//   set_threads(2);
//   std::vector<double> squares(1000);
//   parallel_for_each(1000, grain_for(1), [&](Index i) {
//     squares[static_cast<std::size_t>(i)] = static_cast<double>(i * i);
//   });
//   std::cout << threads() << " threads, " << arch() << '\n';
#pragma once
#include <algorithm>
#include <heed/core/dtype.hpp>
#include <heed/core/memory.hpp>
#include <string>

namespace heed {

// The level (instruction set) in use: "baseline", "avx2", "avx512" or "avx512_bf16", and on ARM "neon". It is the best
// one that the machine supports, or the one named by the environment variable HEED_ARCH. The first use throws Error if
// HEED_ARCH names a level that is not available.
const char* arch();

// Sets the number of threads for all later work. 0 means all that the process may use (affinity and cgroup quota).
// Call it outside parallel work. Throws Error if n is negative.
void set_threads(int n);
int threads();            // the number in use; by default available_threads()
int available_threads();  // limited by affinity and cgroup quota

namespace detail {
using RangeFunction = void (*)(void* context, Index begin, Index end);
void parallel_ranges(Index n, Index grain, RangeFunction f, void* context);
}  // namespace detail

// Items per chunk for parallel_for, at least one, chosen so that a chunk takes a few microseconds. An item costs as
// much as copying `numbers` numbers (an exponential counts as four), or `flops` operations of a blocked matrix product.
inline Index grain_for(Index numbers) { return std::max<Index>(1, 32768 / std::max<Index>(1, numbers)); }
inline Index grain_for_flops(double flops) {
  return std::max<Index>(1, static_cast<Index>(2e6 / std::max(flops, 1.0)));
}

// Calls f(begin, end) for chunks that cover [0, n), each of `grain` > 0 items except the last. Chunks may run
// concurrently, so f must write only data that belongs to its range. With one chunk or one thread, f runs on the
// calling thread. An exception in f is thrown to the caller. Choose a grain that takes 5 microseconds or more. If the
// whole loop takes less than about 10 microseconds, pass grain = n.
template <class F> void parallel_for(Index n, Index grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain) return void(f(Index{0}, n));
  detail::parallel_ranges(
      n, grain, [](void* c, Index b, Index e) { (*static_cast<std::remove_reference_t<F>*>(c))(b, e); }, &f);
}

// Calls f(i) for each i in [0, n), in the chunks of parallel_for.
template <class F>
void parallel_for_each(Index n, Index grain, const F& f) {
  parallel_for(n, grain, [&f](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) f(i);
  });
}

// In its scope, the threads that share this thread's loops stay awake between loops, for gaps of up to 300
// microseconds. It is meant for many short loops in a row, such as the products of one token, where waking a thread
// takes as long as its share of the work. Chunks and bits are the same. Waiting threads yield the processor to other
// work. If several threads hold one, only the first has an effect.
class AwakeThreads {
 public:
  AwakeThreads();  // begins the scope
  ~AwakeThreads();
  AwakeThreads(const AwakeThreads&) = delete;
  AwakeThreads& operator=(const AwakeThreads&) = delete;
};

// The slot of the thread that runs this chunk, in [0, threads()). Chunks that run concurrently have different slots. 0
// outside of parallel_for.
int thread_slot();

// Scratch per slot: n elements each, uninitialized, 64-byte aligned. Create it before a parallel_for; inside, mine() is
// the scratch of the calling thread. Memory is taken for all slots, so the memory of a step does not depend on which
// chunks run concurrently.
template <class T> class ThreadScratch {
 public:
  // Takes memory for all threads() slots. Throws Error if the system has no memory left.
  explicit ThreadScratch(Index n)
      : stride_((static_cast<std::size_t>(n) * sizeof(T) + 63) / 64 * 64),
        all_(stride_ * static_cast<std::size_t>(threads())) {}
  // The scratch of the calling thread, n elements.
  T* mine() { return reinterpret_cast<T*>(all_.data() + stride_ * static_cast<std::size_t>(thread_slot())); }

 private:
  std::size_t stride_;  // bytes per slot
  Scratch<char> all_;
};

// ---- Peak rates of the machine ----

// Measures the peak rate of multiply-adds on registers, in floating-point operations per second (2 per multiply-add),
// summed over `on_threads` threads that run at once (0: threads()). For bfloat16, the rate is that of dot products; if
// the level has none, products of bfloat16 run in float32, and the rate is that of float32. Each call takes about 0.03
// seconds. Rates are per processor time of each thread, so that other load on the machine changes them little.
double peak_flops(DType operands = DType::float32, int on_threads = 0);

// Measures the rate of copying memory that is in no cache, in bytes read and written per second, on threads(). Time is
// counted as in peak_flops().
double peak_bandwidth();

// The number of distinct threads that ran a chunk since the last call. Tests use it to check that loops run on several
// threads.
int threads_seen();

}  // namespace heed
