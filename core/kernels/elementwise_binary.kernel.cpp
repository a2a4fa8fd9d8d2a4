// Functions of two numbers.
#include "elementwise_loops.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class V>
using S = Constants<V>;

struct Add {
  template <class V>
  static V forward(V a, V b, S<V>) {
    return a + b;
  }
  template <class V>
  static V backward_a(V, V, V dy, S<V>) {
    return dy;
  }
  template <class V>
  static V backward_b(V, V, V dy, S<V>) {
    return dy;
  }
};

struct Sub {
  template <class V>
  static V forward(V a, V b, S<V>) {
    return a - b;
  }
  template <class V>
  static V backward_a(V, V, V dy, S<V>) {
    return dy;
  }
  template <class V>
  static V backward_b(V, V, V dy, S<V>) {
    return -dy;
  }
};

struct Mul {
  template <class V>
  static V forward(V a, V b, S<V>) {
    return a * b;
  }
  template <class V>
  static V backward_a(V, V b, V dy, S<V>) {
    return dy * b;
  }
  template <class V>
  static V backward_b(V a, V, V dy, S<V>) {
    return dy * a;
  }
};

struct Div {
  template <class V>
  static V forward(V a, V b, S<V>) {
    return a / b;
  }
  template <class V>
  static V backward_a(V, V b, V dy, S<V>) {
    return dy / b;
  }
  template <class V>
  static V backward_b(V a, V b, V dy, S<V>) {
    return -dy * ((a / b) / b);
  }
};

// Where a = b, each gets half.
struct Maximum {
  template <class V>
  static V forward(V a, V b, S<V>) {
    return max(a, b);
  }
  template <class V>
  static V backward_a(V a, V b, V dy, S<V>) {
    return select(a == b, V(0.5) * dy, select(a < b, V(0), dy));
  }
  template <class V>
  static V backward_b(V a, V b, V dy, S<V>) {
    return select(a == b, V(0.5) * dy, select(a > b, V(0), dy));
  }
};

struct Minimum {
  template <class V>
  static V forward(V a, V b, S<V>) {
    return min(a, b);
  }
  template <class V>
  static V backward_a(V a, V b, V dy, S<V>) {
    return select(a == b, V(0.5) * dy, select(a > b, V(0), dy));
  }
  template <class V>
  static V backward_b(V a, V b, V dy, S<V>) {
    return select(a == b, V(0.5) * dy, select(a < b, V(0), dy));
  }
};

// a^b. da = b a^(b - 1), 0 for b = 0; db = a^b log(a), 0 for a = 0 and b >= 0.
struct Pow {
  template <class V>
  static V forward(V a, V b, S<V>) {
    return pow_lanes(a, b);
  }
  template <class V>
  static V backward_a(V a, V b, V dy, S<V>) {
    return select(b == V(0), V(0), dy * (b * pow_lanes(a, b - V(1))));
  }
  template <class V>
  static V backward_b(V a, V b, V dy, S<V>) {
    return select((a == V(0)) & (b >= V(0)), V(0), dy * (pow_lanes(a, b) * log(a)));
  }
};

// int32 wraps around, as PyTorch's does.
template <class Op>
void int_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n, const ElementwiseOptions&) {
  int32_t* out = static_cast<int32_t*>(to);
  const int32_t *a = static_cast<const int32_t*>(in[0]), *b = static_cast<const int32_t*>(in[1]);
  if (step[0] && step[1])
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = Op::of(a[i], b[i]);
  else
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = Op::of(a[i * step[0]], b[i * step[1]]);
}
inline uint32_t bits(int32_t x) { return static_cast<uint32_t>(x); }
struct IntAdd {
  static int32_t of(int32_t a, int32_t b) { return static_cast<int32_t>(bits(a) + bits(b)); }
};
struct IntSub {
  static int32_t of(int32_t a, int32_t b) { return static_cast<int32_t>(bits(a) - bits(b)); }
};
struct IntMul {
  static int32_t of(int32_t a, int32_t b) { return static_cast<int32_t>(bits(a) * bits(b)); }
};
struct IntMaximum {
  static int32_t of(int32_t a, int32_t b) { return a > b ? a : b; }
};
struct IntMinimum {
  static int32_t of(int32_t a, int32_t b) { return a < b ? a : b; }
};

template <class F, ElementwiseKernel ints = nullptr>
constexpr BinaryKernel binary_kernel = {
    {binary_loop<float, F>, binary_loop<double, F>, ints, nullptr},
    {binary_backward_loop<float, F, BackwardA>, binary_backward_loop<double, F, BackwardA>},
    {binary_backward_loop<float, F, BackwardB>, binary_backward_loop<double, F, BackwardB>}};

}  // namespace

extern const BinaryTable binary_table;
const BinaryTable binary_table = {{binary_kernel<Add, int_loop<IntAdd>>, binary_kernel<Sub, int_loop<IntSub>>,
                                   binary_kernel<Mul, int_loop<IntMul>>, binary_kernel<Div>,
                                   binary_kernel<Maximum, int_loop<IntMaximum>>,
                                   binary_kernel<Minimum, int_loop<IntMinimum>>, binary_kernel<Pow>}};

}  // namespace heed::kernels::HEED_LEVEL
