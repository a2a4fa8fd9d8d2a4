// The memory pool of tensors: blocks in size classes. Freed blocks are kept for the next request of their class.
#include <heed/core/memory.hpp>
//
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/core/dry_run.hpp>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

namespace heed {
namespace {

#if defined(__SANITIZE_ADDRESS__)  // g++
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)  // clang
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kAddressSanitizer = false;
#endif

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Blocks from this size up to a huge page are cut from regions of huge pages. A step reads more pages of 4 KiB than the
// TLB of a processor holds, and each lookup outside the TLB costs time. The address sanitizer can check only blocks
// that the system allocates one by one, so it gets no regions.
constexpr std::size_t kMinRegionBytes = std::size_t{16} << 10, kRegion = std::size_t{32} << 20;
constexpr bool kRegions = !kAddressSanitizer;
bool of_region(std::size_t bytes) { return kRegions && bytes >= kMinRegionBytes && bytes < kHugePage; }

// Sizes up to 256 bytes are rounded up to a multiple of 64, larger sizes to a power of two or to a step between two
// powers. Below 1 MiB there are 3 steps, and at most a fifth of a block is unused. From 1 MiB on there are 15 steps,
// and at most a seventeenth is unused, to save memory.
struct Bucket {
  std::size_t index, bytes;
};

constexpr std::size_t kMaxSteps = 16;

Bucket bucket_of(std::size_t bytes) {
  if (bytes <= kAlignment * 4) {
    const std::size_t blocks = bytes == 0 ? 1 : (bytes + kAlignment - 1) / kAlignment;
    return {blocks, blocks * kAlignment};
  }
  const int top = std::bit_width(bytes - 1) - 1;  // 2^top < bytes <= 2^(top + 1)
  const std::size_t step = std::size_t{1} << (top - (top < 20 ? 2 : 4));
  const std::size_t steps = (bytes - (std::size_t{1} << top) + step - 1) / step;  // at least 1
  return {static_cast<std::size_t>(top - 7) * kMaxSteps + steps, (std::size_t{1} << top) + steps * step};
}

constexpr std::size_t kBuckets = kMaxSteps * 64;

void* system_allocate(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const std::size_t alignment = huge ? kHugePage : kAlignment;
  void* p = nullptr;
  if (posix_memalign(&p, alignment, bytes) != 0) return nullptr;
  if (huge) madvise(p, bytes, MADV_HUGEPAGE);  // makes the first touch faster; a failure does no harm
  return p;
}

// A freed block stores in its first bytes the link to the next freed block of its bucket, and their size.
struct FreeBlock {
  FreeBlock* next;
  std::size_t bytes;
};

// A block of a region whose pages were returned to the system. Its addresses are kept for the next block of its bucket.
struct EmptyBlock {
  std::size_t bucket;
  void* data;
};

struct State {
  std::mutex mutex;
  std::array<FreeBlock*, kBuckets> free{};
  std::vector<EmptyBlock> empty;
  char* region = nullptr;  // unused rest of the newest region
  std::size_t region_bytes = 0;
  MemoryUse use;

  // A new block of a region; null if the system has no memory left.
  void* cut(const Bucket& b) {
    for (EmptyBlock& e : empty) {
      if (e.bucket != b.index) continue;
      void* p = e.data;
      e = empty.back();
      empty.pop_back();
      return p;
    }
    if (region_bytes < b.bytes) {
      void* p = system_allocate(kRegion);
      if (p == nullptr) return nullptr;
      region = static_cast<char*>(p), region_bytes = kRegion;
    }
    void* p = region;
    region += b.bytes, region_bytes -= b.bytes;
    return p;
  }

  void hand_out(std::size_t bytes) {
    use.current += bytes;
    if (use.current > use.peak) use.peak = use.current;
  }
};

State& state() {
  static State* s = new State;  // outlives static tensors
  return *s;
}

// Returns the whole pages of a block to the system. They read as zeros afterwards.
void empty_pages(void* block, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)), from = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t begin = (from + page - 1) / page * page, end = (from + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void* new_block(State& s, const Bucket& b) {
  if (!of_region(b.bytes)) return system_allocate(b.bytes);
  const std::lock_guard lock(s.mutex);
  return s.cut(b);
}

// Whether memory is handed out with all bits set: NaN as float32, float64 and bfloat16, -1 as int32, and no valid bool.
// A read of uninitialized memory then gives a result that tests notice, instead of old values or zeros.
bool fills() {
  static const bool yes = [] {
    const char* setting = std::getenv("HEED_FILL_MEMORY");
    return setting == nullptr || *setting == '\0' ? kAddressSanitizer : std::string_view(setting) != "0";
  }();
  return yes;
}

void* block_of(const Bucket& b, std::size_t bytes) {
  State& s = state();
  {
    const std::lock_guard lock(s.mutex);
    if (FreeBlock* block = s.free[b.index]) {
      s.free[b.index] = block->next;
      s.use.cached -= b.bytes;
      s.hand_out(b.bytes);
      return block;
    }
  }
  void* p = new_block(s, b);
  if (p == nullptr) {
    release_cached_memory();
    p = new_block(s, b);
  }
  const std::lock_guard lock(s.mutex);
  require(p != nullptr, "memory: cannot allocate ", bytes, " bytes; ", s.use.current, " bytes are in use by tensors");
  ++s.use.system_allocations;
  s.hand_out(b.bytes);
  return p;
}

}  // namespace

namespace pool {

void* allocate(std::size_t bytes) {
  const Bucket b = bucket_of(bytes);
  void* p = block_of(b, bytes);
  if (fills() && !detail::in_dry_run()) std::memset(p, 0xff, b.bytes);  // a dry run must not touch memory
  return p;
}

void deallocate(void* p, std::size_t bytes) noexcept {
  if (p == nullptr) return;
  const Bucket b = bucket_of(bytes);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.free[b.index] = new (p) FreeBlock{s.free[b.index], b.bytes};
  s.use.current -= b.bytes;
  s.use.cached += b.bytes;
}

}  // namespace pool

MemoryUse memory_use() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.use;
}

void reset_peak_memory() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.use.peak = s.use.current;
}

void release_cached_memory() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    while (FreeBlock* block = s.free[bucket]) {
      const auto [next, bytes] = *block;
      if (of_region(bytes)) s.empty.push_back({bucket, block});
      if (of_region(bytes) || bytes >= kHugePage) empty_pages(block, bytes);  // free() may keep the memory
      if (!of_region(bytes)) std::free(block);
      s.free[bucket] = next;
    }
  }
  s.use.cached = 0;
}

}  // namespace heed
