// A hash of data given in pieces, for checkpoint files and for the fingerprints of data sets. Internal.
#pragma once
#include <xxhash.h>

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

  void add(const void* bytes, std::size_t count) { XXH3_64bits_update(state_.get(), bytes, count); }
  void add(std::string_view text);  // with its length
  void add(const Tensor& x);        // shape, dtype and values
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }
  std::string hex() const;  // value() as 16 digits

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace heed::detail
