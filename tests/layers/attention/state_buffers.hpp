// What a decode state holds.
#pragma once
#include <heed/layers/attention/states.hpp>
#include <string_view>

namespace heed::test {

// Elements of the buffer of this name; 0 where there is none.
inline Index items_of(AttentionState& state, std::string_view name) {
  for (const NamedBuffer& b : named_buffers(state))
    if (b.name == name) return b.buffer->numel();
  return 0;
}

}  // namespace heed::test
