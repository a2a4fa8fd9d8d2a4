#include <heed/autograd/indices.hpp>

namespace heed::detail {

void check_indices(const char* op, const char* name, const Where& where, const Tensor& indices, Index n,
                   Index ignored) {
  const std::int32_t* p = indices.ptr<std::int32_t>();
  for (Index i = 0; i < indices.numel(); ++i) {
    if ((p[i] >= 0 && p[i] < n) || p[i] == ignored) continue;
    Shape position = indices.shape();
    Index rest = i;
    for (int a = position.rank() - 1; a >= 0; --a) {
      const Index size = position[a];
      position[a] = rest % size;
      rest /= size;
    }
    check(false, where, op, ": ", name, position, " is ", p[i], "; it must be in [0, ", n, ")",
          ignored == kNoneIgnored ? "" : " or ignore_index, " + std::to_string(ignored));
  }
}

}  // namespace heed::detail
