// A target of libFuzzer for one parser, HEED_FUZZ_FORMAT: npz, safetensors, tokenizer or gguf. tests/jobs/fuzz builds
// and runs it. An input fails, besides by what the sanitizers find, if it takes more than 1 s of the processor or 64
// MiB of memory, or if the parser throws anything but Error.
//
// With HEED_FUZZ_OUTCOMES=1, the outcome of each input is printed.
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

#include "tests/tools/fuzz/mutate.hpp"
#include "tests/tools/fuzz/parsers.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr double kMaxSeconds = 1;
constexpr std::int64_t kMaxBytes = 64 << 20;

// The bytes that malloc() gave, and the most of them since the input began.
std::atomic<std::int64_t> in_use = 0, most = 0;

void count_allocated(const volatile void* p, std::size_t) {
  const auto bytes = static_cast<std::int64_t>(__sanitizer_get_allocated_size(p));
  const std::int64_t now = in_use += bytes;
  if (now > most) most = now;
}
void count_freed(const volatile void* p) {
  if (p != nullptr) in_use -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(p));
}

double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  set_threads(1);
  __sanitizer_install_malloc_and_free_hooks(count_allocated, count_freed);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool prints = std::getenv("HEED_FUZZ_OUTCOMES") != nullptr;
  release_cached_memory();
  const std::int64_t before = in_use;
  most = before;
  const double start = processor_seconds();
  const auto outcome = fuzz::outcome_of(fuzz::HEED_FUZZ_FORMAT, {reinterpret_cast<const char*>(data), size});
  const double seconds = processor_seconds() - start;
  const std::int64_t bytes = most - before;
  if (prints) std::printf("%s %s\n", outcome.accepted ? "accepted" : "refused", outcome.error.c_str());
  if (seconds > kMaxSeconds || bytes > kMaxBytes) {
    std::fprintf(stderr, "fuzz: the input took %.2f s and %.1f MiB\n", seconds, static_cast<double>(bytes) / (1 << 20));
    std::abort();
  }
  return 0;
}

// Half of the inputs are changed by bytes alone, and the others so that checks before the interesting ones hold.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max, unsigned seed) {
  return fuzz::mutated(fuzz::Kind::HEED_FUZZ_FORMAT, data, size, max, seed);
}
