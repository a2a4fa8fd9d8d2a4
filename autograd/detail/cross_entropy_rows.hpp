// What cross_entropy and linear_cross_entropy share: checks, and the numbers that score a row.
#pragma once
#include <heed/autograd/losses.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/loss_cross_entropy.hpp>

namespace heed::detail {

template <class T>
const kernels::CrossEntropyKernels<T>& cross_entropy_table() {
  return kernels::of<T>(kernels::cross_entropy_kernels());
}

struct CrossEntropyRows {
  Index classes;
  Index ignore_index;
  double smoothing;
  double weight_sum;  // of all classes
  double counted = 0;  // the sum of the weights of the targets that are not ignored
  bool weighted;       // by class
  double scale = 1;    // of a row's loss in the result: for the mean, 1 / counted

  // Checks the options and the (contiguous) targets.
  CrossEntropyRows(const char* op, const Where& where, const Tensor& targets, Index classes, DType dtype,
                   const CrossEntropyOptions& options);

  template <class T>
  kernels::CrossEntropy<T> of(const Tensor& weight) const {
    return {classes, ignore_index, static_cast<T>(smoothing), weight.ptr<T>(), static_cast<T>(weight_sum)};
  }
  Tensor reduce(const Tensor& loss, Reduction reduction) const;  // notes the weight of a mean
};

}  // namespace heed::detail
