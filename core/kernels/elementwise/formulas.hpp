// Calls the formulas of ops.hpp on vectors with the arguments that each formula reads. Included only by
// *.kernel.cpp.
#pragma once
#include "functions.hpp"
//
#include "ops.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// An op's constants, in every lane.
template <class V>
struct Constants {
  V a, b;
  double number_a;  // a, unrounded
  explicit Constants(const ElementwiseOptions& o)
      : a(static_cast<typename V::value_type>(o.a)), b(static_cast<typename V::value_type>(o.b)), number_a(o.a) {}
};

// f(values..., s) if f takes the constants s, else f(values...).
template <class F, class S, class... V>
concept Takes = requires(F f, S s, V... values) {
  f(values...);
}
|| requires(F f, S s, V... values) { f(values..., s); };
template <class F, class S, class... V>
inline auto apply(const S& s, V... values) {
  if constexpr (requires(F f) { f(values..., s); })
    return F{}(values..., s);
  else
    return F{}(values...);
}

// Which of p and q (x and y, or a and b) a derivative reads: bits 1 and 2. Both are tried first, so that a parameter
// that is read is never Unread.
template <class D>
consteval int reads() {
  using V = Batch<float>;
  using S = Constants<V>;
  if constexpr (Takes<D, S, V, V, V>)
    return 3;
  else if constexpr (Takes<D, S, V, Unread, V>)
    return 1;
  else
    return Takes<D, S, Unread, V, V> ? 2 : 0;
}

template <class D, class V>
inline V derivative(V p, V q, V dy, const Constants<V>& s) {
  if constexpr (reads<D>() == 3)
    return apply<D>(s, p, q, dy);
  else if constexpr (reads<D>() == 1)
    return apply<D>(s, p, Unread{}, dy);
  else if constexpr (reads<D>() == 2)
    return apply<D>(s, Unread{}, q, dy);
  else
    return apply<D>(s, Unread{}, Unread{}, dy);
}

}  // namespace
}  // namespace heed::kernels::HEED_LEVEL
