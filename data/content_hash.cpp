// A hash of the content of a data set.
#include <xxhash.h>

#include <heed/core/check.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/text.hpp>

namespace heed::detail {

struct ContentHash::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    require(xxh != nullptr, "hash: out of memory");
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {}
ContentHash::~ContentHash() = default;
ContentHash::ContentHash(ContentHash&&) noexcept = default;

void ContentHash::add(const void* bytes, std::size_t count) { XXH3_64bits_update(state_->xxh, bytes, count); }

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
  add(values.raw(), static_cast<std::size_t>(values.numel()) * size_of(values.dtype()));
}

std::string ContentHash::hex() const { return detail::hex(XXH3_64bits_digest(state_->xxh)); }

}  // namespace heed::detail
