// The functions of product_sums.hpp, compiled once per level.
#include "product_sums.hpp"

#include "core/kernels/linear_attention/rows.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

using namespace linear;

template <class T>
Panel<T> panel(const T* x, long stride) {
  return {const_cast<T*>(x), stride};
}

template <class T>
void lower(long n, long depth, const T* x, const T* y, const T* u, T* t, long stride, T* scratch) {
  lower_triangle<T>(n, depth, panel(x, stride), transposed(y, stride, n, depth, scratch), u, panel(t, stride), nullptr);
}
template <class T>
void with_triangle(char part, long n, long columns, long depth, const T* x, const T* y, const T* t, const T* z, T* c,
                   long stride) {
  const auto of = [&](const auto& triangle) {
    product_and_triangle(n, columns, times(panel(x, stride), panel(y, stride).right(), depth), part != '-', triangle,
                         nullptr, into_panel(panel(c, stride)));
  };
  if (part == 'u')
    of(upper_times(panel(t, stride), panel(z, stride), n));
  else
    of(lower_times(panel(t, stride), panel(z, stride), n));
}
template <class T>
void add(long n, long width, long columns, const T* x, const T* y, T* c, long stride) {
  add_product<T>(panel(c, stride), n, width, columns, panel(x, stride), panel(y, stride), nullptr);
}

}  // namespace

extern const ProductSums product_sums;
const ProductSums product_sums = {{lower<float>, with_triangle<float>, add<float>},
                                  {lower<double>, with_triangle<double>, add<double>}};

}  // namespace heed::kernels::HEED_LEVEL
