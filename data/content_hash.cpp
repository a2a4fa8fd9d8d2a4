// A hash of data given in pieces.
#include <heed/core/check.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/text.hpp>

namespace heed::detail {

ContentHash::ContentHash() : state_(XXH3_createState(), XXH3_freeState) {
  require(state_ != nullptr, "hash: out of memory");
  XXH3_64bits_reset(state_.get());
}

void ContentHash::add(std::string_view text) {
  const std::uint64_t size = text.size();
  add(&size, sizeof size);
  add(text.data(), text.size());
}

void ContentHash::add(const Tensor& x) {
  if (!x.defined()) return add("undefined");
  add(name_of(x.dtype()));
  for (Index axis = 0; axis < x.rank(); ++axis) {
    const Index size = x.dim(axis);
    add(&size, sizeof size);
  }
  const Tensor values = x.detach().dense();
  add(values.memory(), bytes_of(values.dtype(), values.numel()));
}

std::string ContentHash::hex() const { return detail::hex(value()); }

}  // namespace heed::detail
