// The sizes of buffers of a decode state.
#pragma once
#include <heed/layers/attention/states.hpp>
#include <string_view>

namespace heed::test {

// The number of elements of the named buffer; 0 without such a buffer.
inline Index items_of(AttentionState& state, std::string_view name) {
  for (const NamedBuffer& b : named_buffers(state))
    if (b.name == name) return b.buffer->numel();
  return 0;
}

}  // namespace heed::test
