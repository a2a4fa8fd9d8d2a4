// Comparisons, masks and choices by mask: plain loops, which the compiler turns into vectors of the level.
#include "elementwise.hpp"

#include <stdint.h>

namespace heed::kernels::HEED_LEVEL {
namespace {

struct Eq {
  template <class T>
  static bool of(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  static bool of(T a, T b) {
    return a != b;
  }
};
struct Lt {
  template <class T>
  static bool of(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  static bool of(T a, T b) {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  static bool of(T a, T b) {
    return a > b;
  }
};
struct Ge {
  template <class T>
  static bool of(T a, T b) {
    return a >= b;
  }
};
struct And {
  template <class T>
  static bool of(T a, T b) {
    return (a != 0) & (b != 0);
  }
};
struct Or {
  template <class T>
  static bool of(T a, T b) {
    return (a != 0) | (b != 0);
  }
};
struct Xor {
  template <class T>
  static bool of(T a, T b) {
    return (a != 0) != (b != 0);
  }
};

template <class T, class F>
void compare_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n, const ElementwiseOptions&) {
  uint8_t* out = static_cast<uint8_t*>(to);
  const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  if (n > 0 && step[0] && !step[1]) {
    const T bound = *b;
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = F::of(a[i], bound);
  } else if (step[0] && step[1]) {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = F::of(a[i], b[i]);
  } else {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] = F::of(a[i * step[0]], b[i * step[1]]);
  }
}

struct Not {
  template <class T>
  static bool of(T x) {
    return x == 0;
  }
};
struct IsNan {
  template <class T>
  static bool of(T x) {
    return x != x;
  }
};
struct IsFinite {
  template <class T>
  static bool of(T x) {
    return x - x == 0;
  }
};

template <class T, class F>
void test_loop(void* to, const void* const* in, const unsigned char*, ptrdiff_t n, const ElementwiseOptions&) {
  uint8_t* out = static_cast<uint8_t*>(to);
  const T* x = static_cast<const T*>(in[0]);
  for (ptrdiff_t i = 0; i < n; ++i) out[i] = F::of(x[i]);
}

// where(mask, a, b) and its derivatives, with dy for a or b and 0 for the other.
struct Choose {
  template <class T>
  static T of(bool m, T a, T b) {
    return m ? a : b;
  }
};
struct ChooseA {
  template <class T>
  static T of(bool m, T dy, T) {
    return m ? dy : T(0);
  }
};
struct ChooseB {
  template <class T>
  static T of(bool m, T, T dy) {
    return m ? T(0) : dy;
  }
};

template <class T, class F>
void where_loop(void* to, const void* const* in, const unsigned char* step, ptrdiff_t n, const ElementwiseOptions& o) {
  T* out = static_cast<T*>(to);
  const uint8_t* m = static_cast<const uint8_t*>(in[0]);
  const T *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
  if (o.accumulate) {
    for (ptrdiff_t i = 0; i < n; ++i) out[i] += F::of(m[i * step[0]] != 0, a[i * step[1]], b[i * step[2]]);
  } else if (step[0] && step[1] && step[2]) {
    for (ptrdiff_t i = 0; i < n; ++i) {
      const T x = a[i], y = b[i];  // read both, so that the loop has no branch
      out[i] = F::of(m[i] != 0, x, y);
    }
  } else {
    for (ptrdiff_t i = 0; i < n; ++i) {
      const T x = a[i * step[1]], y = b[i * step[2]];
      out[i] = F::of(m[i * step[0]] != 0, x, y);
    }
  }
}

template <class F>
constexpr MaskKernel compare_kernel = {
    {compare_loop<float, F>, compare_loop<double, F>, compare_loop<int32_t, F>, compare_loop<uint8_t, F>}};
template <class F>
constexpr MaskKernel logical_kernel = {{nullptr, nullptr, nullptr, compare_loop<uint8_t, F>}};
template <class F>
constexpr MaskKernel float_test_kernel = {{test_loop<float, F>, test_loop<double, F>, nullptr, nullptr}};
template <class F>
constexpr MaskKernel where_kernel = {
    {where_loop<float, F>, where_loop<double, F>, where_loop<int32_t, F>, where_loop<uint8_t, F>}};
template <class F>
constexpr MaskKernel where_backward_kernel = {{where_loop<float, F>, where_loop<double, F>, nullptr, nullptr}};

}  // namespace

extern const MaskingTable masking_table;
const MaskingTable masking_table = {{compare_kernel<Eq>,
                                     compare_kernel<Ne>,
                                     compare_kernel<Lt>,
                                     compare_kernel<Le>,
                                     compare_kernel<Gt>,
                                     compare_kernel<Ge>,
                                     logical_kernel<And>,
                                     logical_kernel<Or>,
                                     logical_kernel<Xor>,
                                     {{nullptr, nullptr, nullptr, test_loop<uint8_t, Not>}},
                                     float_test_kernel<IsNan>,
                                     float_test_kernel<IsFinite>,
                                     where_kernel<Choose>,
                                     where_backward_kernel<ChooseA>,
                                     where_backward_kernel<ChooseB>}};

}  // namespace heed::kernels::HEED_LEVEL
