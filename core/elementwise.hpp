// Loops over tensors of any strides, and elementwise kernels in such loops, with NumPy's broadcasting, on all threads.
#pragma once
#include <array>
#include <heed/core/kernels/elementwise/elementwise.hpp>
#include <heed/core/tensor.hpp>
#include <initializer_list>
#include <limits>
#include <span>
#include <type_traits>

namespace heed::detail {

// Truncates a floating-point number. Numbers out of range give the nearest integer of the type, NaN gives 0.
template <class To, class From>
To truncated(From x) {
  constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  constexpr From end = From(2) * static_cast<From>(high / 2 + 1);  // high + 1, which To does not hold
  if (x >= end) return high;
  return x > static_cast<From>(low) ? static_cast<To>(x) : x <= static_cast<From>(low) ? low : To(0);
}

// Converts a number to another element type. bfloat16 is converted through float. To bool, any number except 0 is true.
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
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
    return truncated<To>(x);
  else
    return static_cast<To>(x);
}

// An input of a kernel: a tensor that broadcasts to the output's shape, or one number for all elements.
class Operand {
 public:
  Operand(const Tensor& x) : tensor_(&x) {}         // undefined if the kernel does not read it; never the last one
  Operand(double value, DType dtype);               // a number in this dtype; in float32 for bfloat16
  const Tensor* tensor() const { return tensor_; }  // null for a number
  bool is_unread() const { return tensor_ != nullptr && !tensor_->defined(); }
  const void* number() const { return number_; }
  std::size_t size() const { return size_; }  // bytes per element

 private:
  const Tensor* tensor_ = nullptr;
  alignas(8) unsigned char number_[8] = {};
  std::size_t size_ = 0;
};

// ---- Loops over tensors of any strides ----

inline constexpr int kMaxParts = 4;  // the output and three inputs

// Memory that a kernel reads or writes, with strides in elements along the axes of a nest. Part 0 is the output.
struct LoopPart {
  char* data = nullptr;
  std::size_t size = 4;
  std::array<Index, kMaxRank> strides{};

  char* at(Index offset) const { return data + offset * static_cast<Index>(size); }  // offset: in elements
  bool is_bfloat16() const { return size == sizeof(bfloat16); }
  Index size_in_block() const { return static_cast<Index>(is_bfloat16() ? sizeof(float) : size); }
};

// Nested loops over the axes of the output. Neighbouring axes are joined if every part has them as one run.
struct LoopNest {
  std::array<Index, kMaxRank> shape{};
  int rank = 0;
  std::array<LoopPart, kMaxParts> parts;
  int count = 0;

  Index numel() const {
    Index n = 1;
    for (int a = 0; a < rank; ++a) n *= shape[a];
    return n;
  }
  void add_axis(Index size, const std::array<Index, kMaxParts>& strides) {
    bool joins = rank > 0;
    for (int k = 0; k < count && joins; ++k) joins = parts[k].strides[rank - 1] == size * strides[k];
    if (!joins) ++rank;
    shape[rank - 1] = joins ? shape[rank - 1] * size : size;
    for (int k = 0; k < count; ++k) parts[k].strides[rank - 1] = strides[k];
  }
};

// The nest for `out` and inputs that broadcast to it. It has at least one axis.
LoopNest loop_nest(const Tensor& out, std::span<const Operand> inputs);

// A position in a nest: an index per axis, and the offset of each part in elements.
struct LoopCursor {
  const LoopNest& nest;
  std::array<Index, kMaxRank> index{};
  std::array<Index, kMaxParts> offset{};

  LoopCursor(const LoopNest& n, Index flat) : nest(n) {
    for (int a = nest.rank - 1; a >= 0; --a) {
      index[a] = flat % nest.shape[a];
      flat /= nest.shape[a];
      for (int k = 0; k < nest.count; ++k) offset[k] += index[a] * nest.parts[k].strides[a];
    }
  }
  Index left_in_run() const { return nest.shape[nest.rank - 1] - index[nest.rank - 1]; }

  void advance(Index n) {  // n <= left_in_run()
    int a = nest.rank - 1;
    index[a] += n;
    for (int k = 0; k < nest.count; ++k) offset[k] += n * nest.parts[k].strides[a];
    for (; a > 0 && index[a] == nest.shape[a]; --a) {
      for (int k = 0; k < nest.count; ++k)
        offset[k] += nest.parts[k].strides[a - 1] - nest.shape[a] * nest.parts[k].strides[a];
      index[a] = 0;
      ++index[a - 1];
    }
  }
};

// ---- Kernels ----

// out = kernel(inputs) for each element, or out += with options.accumulate. Takes at most 3 inputs. Elements of `out`
// must not share memory. Checks nothing, raises no version; no tape records it. The result of an element does not
// depend on its place in memory, so neither threads nor strides change bits. Tensors of bfloat16 use the kernel of
// float32: they are widened and rounded block by block.
void elementwise(kernels::ElementwiseKernel kernel, const Tensor& out, std::span<const Operand> inputs,
                 const kernels::ElementwiseOptions& options = {});
inline void elementwise(kernels::ElementwiseKernel kernel, const Tensor& out, std::initializer_list<Operand> inputs,
                        const kernels::ElementwiseOptions& options = {}) {
  elementwise(kernel, out, std::span<const Operand>(inputs.begin(), inputs.size()), options);
}

// The type by which the kernels of an op are indexed. For bfloat16 it is that of float32.
kernels::ElementwiseType kernel_type(DType dtype);

}  // namespace heed::detail
