// Threads, the instruction set, and what the machine can do at best with them. One wrapper over oneTBB: work is split
// by what it writes, in chunks of a fixed grain, so that results have the same bits at any number of threads.
//
// Example:
//
//   set_threads(2);
//   std::vector<double> squares(1000);
//   parallel_for(1000, grain_for(1), [&](Index begin, Index end) {
//     for (Index i = begin; i < end; ++i) squares[static_cast<std::size_t>(i)] = static_cast<double>(i * i);
//   });
//   std::cout << threads() << " threads, " << arch() << '\n';
#pragma once
#include <algorithm>
#include <heed/core/dtype.hpp>
#include <heed/core/memory.hpp>
#include <string>

namespace heed {

// "baseline", "avx2", "avx512" or "avx512_bf16": the best that the machine has, or what HEED_ARCH names. Throws Error
// at first use where HEED_ARCH names none that is there.
const char* arch();

// Threads used by everything that follows; 0 means all that the process may use (affinity and cgroup quota).
// Call it outside parallel work. Throws Error for a negative count.
void set_threads(int n);
int threads();            // what set_threads chose
int available_threads();  // by affinity and cgroup quota

namespace detail {
using RangeFunction = void (*)(void* context, Index begin, Index end);
void parallel_ranges(Index n, Index grain, RangeFunction f, void* context);
}  // namespace detail

// A grain for parallel_for: so many items, at least one, that they cost some microseconds. Each costs as much as
// copying `numbers` numbers (an exponential counts as four), or so many floating-point operations of a blocked product.
inline Index grain_for(Index numbers) { return std::max<Index>(1, 32768 / std::max<Index>(1, numbers)); }
inline Index grain_for_flops(double flops) {
  return std::max<Index>(1, static_cast<Index>(2e6 / std::max(flops, 1.0)));
}

// Calls f(begin, end) for chunks that cover [0, n), each of `grain` items but the last. Chunks may run at once: f
// writes only what its own range owns. With one chunk, one thread or inside a serial scope, f runs here. Choose a grain
// worth 5 microseconds or more; below about 10 microseconds in all, pass grain = n.
template <class F> void parallel_for(Index n, Index grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain) return void(f(Index{0}, n));
  detail::parallel_ranges(
      n, grain, [](void* c, Index b, Index e) { (*static_cast<std::remove_reference_t<F>*>(c))(b, e); }, &f);
}

// While one lives, the threads that share this thread's loops stay awake from one to the next, as long as not more than
// a fraction of a millisecond lies between: for many short loops in a row, such as the products of a token, where
// waking a thread takes as long as its share of the work. Chunks and their bits are the same. They yield to others that
// want the processor. Of several threads that have one, the first gets it, and for the others it does nothing.
class AwakeThreads {
 public:
  AwakeThreads();
  ~AwakeThreads();
  AwakeThreads(const AwakeThreads&) = delete;
  AwakeThreads& operator=(const AwakeThreads&) = delete;
};

// Which of the threads() that share a parallel_for runs this chunk: chunks that run at once have different slots. 0
// outside.
int thread_slot();

// Scratch for each thread that may run a chunk: n items, uninitialised, 64-byte aligned. Made before a parallel_for and
// taken inside by mine(). So the memory of a step does not depend on which chunks happen to run at once.
template <class T> class ThreadScratch {
 public:
  explicit ThreadScratch(Index n)
      : stride_((static_cast<std::size_t>(n) * sizeof(T) + 63) / 64 * 64),
        all_(stride_ * static_cast<std::size_t>(threads())) {}
  T* mine() { return reinterpret_cast<T*>(all_.data() + stride_ * static_cast<std::size_t>(thread_slot())); }

 private:
  std::size_t stride_;  // bytes
  Scratch<char> all_;
};

// ---- What the machine can do ----

// Multiply-adds that stay in registers, operations a second (2 a multiply-add), on so many threads at once; 0: on
// threads(). Of bfloat16: its dot products; where the level that runs has none, products of it are float32's, and so is
// this. Measured anew for some 30 ms, each thread by its own clock of processor time: a busy machine changes it little.
double peak_flops(DType operands = DType::float32, int on_threads = 0);

// Copying what is in no cache, bytes a second, read and written, on threads(): measured in the same way.
double peak_bandwidth();

// The number of distinct worker threads that ran a chunk since the last call: tests show with it that threads were
// used.
int threads_seen();

}  // namespace heed
