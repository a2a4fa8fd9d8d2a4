// A hash of the content of a data set, for fingerprints. Internal.
#pragma once
#include <cstdint>
#include <heed/core/tensor.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace heed::detail {

// XXH3, 64 bits.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;

  void add(const void* bytes, std::size_t count);
  void add(std::string_view text);  // with its length
  void add(const Tensor& x);        // shape, dtype and values
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heed::detail
