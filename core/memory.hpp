// The memory pool of tensors, its statistics, and the memory limit of the process. The pool rounds sizes up, aligns
// blocks to 64 bytes, and keeps freed blocks for the next tensor of that size. With HEED_FILL_MEMORY=1 in the
// environment, and by default under the address sanitizer, the pool fills each block that it hands out with NaN. An op
// that reads uninitialized memory then gives wrong results that tests notice.
//
// Example:
//
//   reset_peak_memory();
//   const Tensor x = Tensor::zeros({1024, 1024});
//   std::cout << memory_use().peak << " of " << memory_limit() << " bytes\n";
#pragma once
#include <cstddef>
#include <string>

namespace heed {

// Statistics of the pool, in bytes of rounded blocks.
struct MemoryUse {
  std::size_t current = 0;             // in use now, by tensors and scratch
  std::size_t peak = 0;                // maximum of `current` since the start or the last reset_peak_memory()
  std::size_t cached = 0;              // freed and kept for reuse
  std::size_t system_allocations = 0;  // number of blocks that were not reused; a training step after warm-up adds none
};

MemoryUse memory_use();        // of all threads
void reset_peak_memory();      // sets `peak` to `current`
void release_cached_memory();  // returns cached blocks to the system

namespace pool {
void* allocate(std::size_t bytes);                     // throws Error if the system has no memory left
void deallocate(void* p, std::size_t bytes) noexcept;  // `bytes`: as given to allocate()
}  // namespace pool

// An uninitialized array of n elements from the pool, for drivers of kernels. Returned at the end of the scope.
template <class T> class Scratch {
 public:
  // Takes memory for n elements. Throws Error if the system has no memory left.
  explicit Scratch(std::size_t n) : data_(static_cast<T*>(pool::allocate(n * sizeof(T)))), n_(n) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { pool::deallocate(data_, n_ * sizeof(T)); }
  // The elements. Indices are not checked.
  T* data() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  std::size_t size() const { return n_; }

 private:
  T* data_;
  std::size_t n_;
};

// An allocator that takes memory from the pool, for std::allocate_shared and containers.
template <class T> struct PoolAllocator {
  // The members of a standard allocator. allocate() throws Error if the system has no memory left. Memory of one
  // allocator can be freed by any other.
  using value_type = T;
  PoolAllocator() = default;
  template <class U> PoolAllocator(const PoolAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(pool::allocate(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { pool::deallocate(p, n * sizeof(T)); }
  template <class U> bool operator==(const PoolAllocator<U>&) const { return true; }
};

// The maximum number of bytes that this process can use: the machine's memory, or a lower limit set by a cgroup or by
// ulimit -v.
double memory_limit();

// Throws Error if `bytes`, a lower bound of the memory that `what` needs, exceeds memory_limit(). The message begins
// with `what`. Call it before the allocation, which could stall the whole machine.
void check_memory(const std::string& what, double bytes);

}  // namespace heed
