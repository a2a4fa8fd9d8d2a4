// Memory of tensors: blocks of rounded sizes, 64-byte aligned, kept for the next tensor of the size.
#pragma once
#include <cstddef>

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

}  // namespace heed
