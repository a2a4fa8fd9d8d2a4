// The selection of rows of a decode state's buffers.
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/state_rows.hpp>

namespace heed {

void detail::replace_by_rows(const std::vector<NamedBuffer>& buffers, const Tensor& indices) {
  const NamedBuffer* first = nullptr;
  for (const NamedBuffer& b : buffers) {
    if (b.shared || !b.buffer->defined()) continue;
    if (first == nullptr) first = &b;
    require(b.buffer->rank() > 0 && b.buffer->dim(0) == first->buffer->dim(0), "pick_rows: ", b.name, " is ", *b.buffer,
            " and ", first->name, " is ", *first->buffer,
            "; the first axis of a state's buffers must be its rows (name other tensors by visit.shared())");
  }
  for (const NamedBuffer& b : buffers)
    if (!b.shared && b.buffer->defined()) *b.buffer = index_select(*b.buffer, 0, indices);
}

}  // namespace heed
