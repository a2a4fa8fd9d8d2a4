// Memory: what tensors use of it, and how much there is. Tensors take blocks of rounded sizes, 64-byte aligned, which
// are kept for the next tensor of the size. With HEED_FILL_MEMORY=1 in the environment, as always under the address
// sanitizer, memory is full of NaN when it is handed out, so that an op which reads what nobody wrote shows it.
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

struct MemoryUse {
  std::size_t current = 0;  // bytes in tensors now
  std::size_t peak = 0;     // the most since the start or the last reset_peak_memory()
  std::size_t cached = 0;   // bytes that wait for reuse
  std::size_t system_allocations = 0;  // how often the pool asked the system; a warm training step adds none
};

MemoryUse memory_use();
void reset_peak_memory();
void release_cached_memory();  // gives what waits back to the system

namespace pool {
void* allocate(std::size_t bytes);                         // throws Error when the system has no more
void deallocate(void* p, std::size_t bytes) noexcept;      // the bytes asked for
}  // namespace pool

// Scratch of a kernel's driver: uninitialised, returned to the pool at the end of the scope.
template <class T> class Scratch {
 public:
  explicit Scratch(std::size_t n) : data_(static_cast<T*>(pool::allocate(n * sizeof(T)))), n_(n) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { pool::deallocate(data_, n_ * sizeof(T)); }
  T* data() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  std::size_t size() const { return n_; }

 private:
  T* data_;
  std::size_t n_;
};

// For std::allocate_shared and the like, whose memory is the pool's then.
template <class T> struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U> PoolAllocator(const PoolAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(pool::allocate(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { pool::deallocate(p, n * sizeof(T)); }
  template <class U> bool operator==(const PoolAllocator<U>&) const { return true; }
};

// Bytes that this process can have at most: the machine's, or less by cgroup or by ulimit -v.
double memory_limit();

// Throws Error, which begins with `what`, where `bytes` are certainly needed and more than memory_limit(): before what
// would take them, and might make the whole machine halt first.
void check_memory(const std::string& what, double bytes);

}  // namespace heed
