// Shared by cross_entropy and linear_cross_entropy: checks of arguments, and the constants of a row's loss.
#pragma once
#include <heed/autograd/losses.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/losses/cross_entropy.hpp>

namespace heed::detail {

template <class T>
const kernels::CrossEntropyKernels<T>& cross_entropy_table() {
  return kernels::of<T>(kernels::cross_entropy_table());
}

struct CrossEntropyRows {
  Index classes;
  Index ignore_index;
  double smoothing;
  double weight_sum;   // sum over all classes
  double counted = 0;  // sum of the weights of the targets that are not ignored
  bool weighted;       // class weights were given
  double scale = 1;    // factor of a row's loss in the result: 1 / counted for the mean

  // Checks the options and the contiguous targets. Throws Error.
  CrossEntropyRows(const char* op, const Where& where, const Tensor& targets, Index classes, DType dtype,
                   const CrossEntropyOptions& options);

  template <class T>
  kernels::CrossEntropy<T> of(const Tensor& weight) const {
    return {classes, ignore_index, static_cast<T>(smoothing), weight.ptr<T>(), static_cast<T>(weight_sum)};
  }
  // The gradients of the logits of rows from `first` on. dy: one number per row, or one for all rows.
  template <class T>
  kernels::CrossEntropyGradient<T> gradient(const Tensor& dy, Index first, T* dlogits, bool accumulate) const {
    const Index stride = dy.rank() == 0 ? 0 : 1;
    return {dy.ptr<T>() + first * stride, stride, static_cast<T>(scale), dlogits, accumulate};
  }
  Tensor reduce(const Tensor& loss, Reduction reduction) const;  // reports the weight of a mean
};

}  // namespace heed::detail
