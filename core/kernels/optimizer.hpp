// The optimizers' updates of a part of a parameter, and kernels for clipping and averaging. Scalars are double and
// already include the corrections of the step number. Kernels round the scalars to their own type.
#pragma once
#include <stdint.h>

#include "dispatch/dispatch.hpp"

namespace heed::kernels {

struct SgdScalars {
  double gradient_scale, l2;    // the gradient is gradient_scale * g + l2 * p
  double momentum, undampened;  // buffer = momentum * buffer + undampened * gradient
  bool nesterov;
  double lr;
};

struct AdamScalars {
  double gradient_scale, l2;
  double keep;  // 1 - lr * weight_decay if decay is decoupled, else 1
  double beta1, beta2;
  double step_size;     // lr / (1 - beta1^t)
  double inverse_bias;  // 1 / sqrt(1 - beta2^t)
  double eps;
};

struct RmspropScalars {
  double gradient_scale, l2;
  double alpha, eps, momentum, lr;
};

struct AdagradScalars {
  double gradient_scale, l2;
  double eps, lr;
};

struct LionScalars {
  double gradient_scale, keep;
  double beta1, beta2, lr;
};

// A null state pointer disables its part of the update. All arrays have n elements and do not overlap.
template <class T>
struct OptimizerKernels {
  void (*sgd)(T* p, const T* g, T* buffer, int64_t n, const SgdScalars& s);  // without momentum, buffer is null
  // Without amsgrad, `highest` is null.
  void (*adam)(T* p, const T* g, T* mean, T* square, T* highest, int64_t n, const AdamScalars& s);
  // If not centered, mean is null. Without momentum, buffer is null.
  void (*rmsprop)(T* p, const T* g, T* square, T* mean, T* buffer, int64_t n, const RmspropScalars& s);
  void (*adagrad)(T* p, const T* g, T* sum, int64_t n, const AdagradScalars& s);
  void (*lion)(T* p, const T* g, T* mean, int64_t n, const LionScalars& s);

  double (*sum_squares)(const T* x, int64_t n);  // in float64, by a tree that is the same on every level
  void (*scale)(T* x, int64_t n, double factor);
  void (*clamp)(T* x, int64_t n, double limit);                       // to [-limit, limit]; NaN stays
  void (*average)(T* mean, const T* x, int64_t n, double new_share);  // mean += new_share * (x - mean)
  void (*swap)(T* x, T* y, int64_t n);
  void (*add)(T* sum, const T* x, int64_t n);
};

// Kernels for numbers that ranks send as bf16. Each number is rounded to the nearest, ties to even.
struct SentKernels {
  void (*round)(float* x, int64_t n);                    // in place
  void (*add_both)(float* sum, const float* x, int64_t n);  // sum = rounded(sum) + rounded(x)
  void (*add)(float* sum, const uint16_t* x, int64_t n);
  // p was `old` before a step: added = rounded(p - old); p = old + added. `added` may be null.
  void (*step)(float* p, const float* old, uint16_t* added, int64_t n);
};

struct OptimizerTable : FloatTable<OptimizerKernels> {
  SentKernels sent;
};
const OptimizerTable& optimizer_table();  // for the level in use

}  // namespace heed::kernels
