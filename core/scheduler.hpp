// Runs the chunks of parallel loops on the threads of oneTBB. Internal; parallel.hpp is the interface.
#pragma once
#include <algorithm>
#include <heed/core/dtype.hpp>

namespace heed::detail {

// The chunks of a parallel_for.
struct Chunks {
  Index n = 0, grain = 1;
  void (*f)(void* context, Index begin, Index end) = nullptr;
  void* context = nullptr;

  Index count() const { return (n + grain - 1) / grain; }
  void run(Index c) const { f(context, c * grain, std::min(n, (c + 1) * grain)); }
};

// Replaces the threads by n. Call it outside parallel loops.
void start_threads(int n);

// Runs all chunks on the `threads` threads of start_threads(). Throws the exception of a chunk.
void run_on_threads(const Chunks& chunks, int threads);

void note_thread();  // counts this thread as one that ran a chunk, for threads_seen()

}  // namespace heed::detail
