// The memory that tensors share, and what belongs to it when it is a parameter's.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace heed::detail {

struct ParameterInfo;  // core/parameter.hpp

struct Storage {
  std::atomic<std::int64_t> references{1};
  void* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t version = 0;        // raised by every write that is not the making of an op's output
  ParameterInfo* parameter = nullptr;  // owned; null unless a Parameter was made of it
  std::uint64_t serial = 0;         // how many were made before this one
};

Storage* new_storage(std::size_t bytes);
void delete_storage(Storage* storage) noexcept;
std::uint64_t storages_made();  // so far: those that were there before have smaller serials

// A counted reference. Storage and its header come from the pool, so making a tensor calls malloc only when the pool is cold.
class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(std::size_t bytes) : storage_(new_storage(bytes)) {}
  StorageRef(const StorageRef& other) : storage_(other.storage_) {
    if (storage_) storage_->references.fetch_add(1, std::memory_order_relaxed);
  }
  StorageRef(StorageRef&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StorageRef& operator=(StorageRef other) noexcept { std::swap(storage_, other.storage_); return *this; }
  ~StorageRef() {
    if (storage_ && storage_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete_storage(storage_);
  }

  Storage* get() const { return storage_; }
  Storage* operator->() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }

 private:
  Storage* storage_ = nullptr;
};

}  // namespace heed::detail
