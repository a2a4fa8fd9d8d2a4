// Runs an elementwise kernel over tensors of any strides, with NumPy's broadcasting, on all threads.
#pragma once
#include <heed/core/kernels/elementwise.hpp>
#include <heed/core/tensor.hpp>
#include <initializer_list>
#include <span>
#include <type_traits>

namespace heed::detail {

// A number as another element type: bfloat16 goes by way of float, and any number but 0 is true.
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<From, bfloat16>)
    return convert<To>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bfloat16>)
    return bfloat16(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bool>)
    return x != From(0);
  else
    return static_cast<To>(x);
}

// An input of a kernel: a tensor that broadcasts to the output's shape, or one number for all of it.
class Operand {
 public:
  Operand(const Tensor& x) : tensor_(&x) {}         // undefined: one that the kernel does not read; not the last one
  Operand(double value, DType dtype);               // a number in the given type; beside bfloat16, in float32
  const Tensor* tensor() const { return tensor_; }  // null for a number
  bool is_unread() const { return tensor_ != nullptr && !tensor_->defined(); }
  const void* number() const { return number_; }
  std::size_t size() const { return size_; }  // bytes of an element

 private:
  const Tensor* tensor_ = nullptr;
  alignas(8) unsigned char number_[8] = {};
  std::size_t size_ = 0;
};

// out = kernel(inputs), elementwise; out += with options.accumulate. At most 3 inputs; out does not overlap itself. No
// checks, no version, no tape. Each element is computed alike wherever it lies, so that neither threads nor strides
// change bits. Tensors of bfloat16 go with kernels of float32: they are widened and rounded block by block.
void elementwise(kernels::ElementwiseKernel kernel, const Tensor& out, std::span<const Operand> inputs,
                 const kernels::ElementwiseOptions& options = {});
inline void elementwise(kernels::ElementwiseKernel kernel, const Tensor& out, std::initializer_list<Operand> inputs,
                        const kernels::ElementwiseOptions& options = {}) {
  elementwise(kernel, out, std::span<const Operand>(inputs.begin(), inputs.size()), options);
}

// The row of a kernel's list for a dtype; bfloat16 is computed in float32.
kernels::ElementwiseType kernel_type(DType dtype);

}  // namespace heed::detail
