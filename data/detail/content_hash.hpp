// A hash of what data hold, which tells data sets apart. Internal.
#pragma once
#include <heed/core/tensor.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace heed::detail {

// XXH3 with 64 bits.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;

  void add(const void* bytes, std::size_t count);
  void add(std::string_view text);  // with its length
  void add(const Tensor& x);        // its shape, dtype and values
  std::string hex() const;          // 16 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heed::detail
