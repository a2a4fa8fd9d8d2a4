// The optimizers' updates of one stretch of one parameter, and what clipping and averaging need.
// Scalars come in double, already free of the step number; kernels round them to their own type.
#pragma once
#include <stdint.h>

#include "dispatch.hpp"

namespace heed::kernels {

struct SgdScalars {
  double gradient_scale, l2;    // the gradient is scale * g + l2 * p
  double momentum, undampened;  // buffer = momentum * buffer + undampened * gradient
  bool nesterov;
  double lr;
};

struct AdamScalars {
  double gradient_scale, l2;
  double keep;  // 1 - lr * weight_decay where decay is decoupled, else 1
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

// Null state pointers switch a part off. All arrays have n items; none overlap.
template <class T>
struct OptimizerKernels {
  void (*sgd)(T* p, const T* g, T* buffer, int64_t n, const SgdScalars& s);  // no momentum: buffer null
  // Without amsgrad, `highest` is null.
  void (*adam)(T* p, const T* g, T* mean, T* square, T* highest, int64_t n, const AdamScalars& s);
  // Not centered: mean null. No momentum: buffer null.
  void (*rmsprop)(T* p, const T* g, T* square, T* mean, T* buffer, int64_t n, const RmspropScalars& s);
  void (*adagrad)(T* p, const T* g, T* sum, int64_t n, const AdagradScalars& s);
  void (*lion)(T* p, const T* g, T* mean, int64_t n, const LionScalars& s);

  double (*sum_squares)(const T* x, int64_t n);  // in double, by a tree that no instruction set changes
  void (*scale)(T* x, int64_t n, double factor);
  void (*clamp)(T* x, int64_t n, double limit);                       // to [-limit, limit]; NaN stays
  void (*average)(T* mean, const T* x, int64_t n, double new_share);  // mean += new_share * (x - mean)
  void (*swap)(T* x, T* y, int64_t n);
  void (*add)(T* sum, const T* x, int64_t n);
};

// Where ranks send bf16: each number is rounded to the nearest, of two the one whose last bit is 0.
struct SentKernels {
  void (*round)(float* x, int64_t n);                    // in place
  void (*add_both)(float* sum, const float* x, int64_t n);  // sum = sum, rounded, + x, rounded
  void (*add)(float* sum, const uint16_t* x, int64_t n);
  // p was `old` before a step: added = p - old, rounded; p = old + added. Null `added`: nobody needs it.
  void (*step)(float* p, const float* old, uint16_t* added, int64_t n);
};

struct OptimizerTable : FloatTable<OptimizerKernels> {
  SentKernels sent;
};
const OptimizerTable& optimizer_kernels();  // of the level that runs

}  // namespace heed::kernels
