// The loops around an elementwise kernel: axes joined, inputs broadcast, short or transposed runs gathered in blocks.
#include <heed/core/elementwise.hpp>
//
#include <algorithm>
#include <cstring>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/parallel.hpp>

namespace heed::detail {

Operand::Operand(double value, DType dtype) {
  visit_dtype(dtype, [&]<class T>(T) {
    const auto v = static_cast<std::conditional_t<std::is_same_v<T, bfloat16>, float, T>>(value);
    std::memcpy(number_, &v, sizeof v);
    size_ = sizeof v;
  });
}

kernels::ElementwiseType kernel_type(DType dtype) {
  switch (dtype) {
    case DType::float64: return kernels::kFloat64;
    case DType::int32: return kernels::kInt32;
    case DType::bool8: return kernels::kBool8;
    case DType::float32:
    case DType::bfloat16: return kernels::kFloat32;
    default: refuse_quantized(dtype);
  }
}

LoopNest loop_nest(const Tensor& out, std::span<const Operand> inputs) {
  LoopNest nest;
  nest.count = 1 + static_cast<int>(inputs.size());
  nest.parts[0].data = static_cast<char*>(out.raw());
  nest.parts[0].size = size_of(out.dtype());
  std::array<const Tensor*, kMaxParts> tensors{};
  for (int k = 1; k < nest.count; ++k) {
    const Operand& x = inputs[k - 1];
    // An input that the kernel does not read still needs a valid address: use the last input's.
    const Tensor* t = tensors[k] = x.is_unread() ? inputs.back().tensor() : x.tensor();
    nest.parts[k].data = static_cast<char*>(const_cast<void*>(t == nullptr ? x.number() : t->raw()));
    nest.parts[k].size = t == nullptr ? x.size() : size_of(t->dtype());
  }
  const int rank = out.rank();
  for (int axis = 0; axis < rank; ++axis) {
    if (out.shape()[axis] == 1) continue;
    std::array<Index, kMaxParts> strides{out.strides()[axis]};
    for (int k = 1; k < nest.count; ++k) {
      const Tensor* x = tensors[k];
      if (x == nullptr) continue;
      const int own = axis - (rank - x->rank());
      strides[k] = own >= 0 && x->shape()[own] != 1 ? x->strides()[own] : 0;
    }
    nest.add_axis(out.shape()[axis], strides);
  }
  if (nest.rank == 0) nest.add_axis(1, {1, 1, 1, 1});
  return nest;
}

namespace {

constexpr Index kSerial = 32768;      // up to this many elements, threads cost more than they save
constexpr Index kBlock = 512;         // elements gathered at once
constexpr Index kTransposed = 16384;  // from this many elements on, a transposed input is copied first
constexpr Index kShortestRun = 32;    // shorter runs are gathered

// Whether the last axis has a stride above 1, and another axis has stride 1.
bool is_transposed(const Tensor& x) {
  if (!x.defined() || x.rank() < 2 || x.shape()[-1] < 8 || x.strides()[-1] <= 1) return false;
  for (int a = 0; a + 1 < x.rank(); ++a)
    if (x.strides()[a] == 1 && x.shape()[a] >= 8) return true;
  return false;
}

template <class T>
void copy_items(char* to, Index to_step, const char* from, Index from_step, Index n) {
  constexpr Index size = sizeof(T);
  for (Index i = 0; i < n; ++i) std::memcpy(to + i * to_step * size, from + i * from_step * size, sizeof(T));
}

void copy_items(std::size_t size, char* to, Index to_step, const char* from, Index from_step, Index n) {
  if (size == 8)
    copy_items<std::uint64_t>(to, to_step, from, from_step, n);
  else if (size == 4)
    copy_items<std::uint32_t>(to, to_step, from, from_step, n);
  else
    copy_items<std::uint8_t>(to, to_step, from, from_step, n);
}

// Copy elements of a part, with its stride, to or from a block. A block holds bfloat16 as float32.
void load_items(const LoopPart& part, char* block, const char* own, Index stride, Index n) {
  if (!part.is_bfloat16()) return copy_items(part.size, block, 1, own, stride, n);
  const auto* from = reinterpret_cast<const bfloat16*>(own);
  auto* to = reinterpret_cast<float*>(block);
  for (Index i = 0; i < n; ++i) to[i] = static_cast<float>(from[i * stride]);
}
void store_items(const LoopPart& part, char* own, Index stride, const char* block, Index n) {
  if (!part.is_bfloat16()) return copy_items(part.size, own, stride, block, 1, n);
  const auto* from = reinterpret_cast<const float*>(block);
  auto* to = reinterpret_cast<bfloat16*>(own);
  for (Index i = 0; i < n; ++i) to[i * stride] = bfloat16(from[i]);
}

// A kernel on a nest: run on the tensors' own memory, or block by block on gathered copies.
struct Job {
  kernels::ElementwiseKernel kernel;
  const kernels::ElementwiseOptions& options;
  LoopNest nest;
  bool direct = true;                           // the kernel runs on the tensors' own memory
  std::array<unsigned char, kMaxParts> step{};  // direct: 0 or 1, along the last axis
  std::array<bool, kMaxParts> gathered{};       // not direct: copied to or from a block
  bool repeats = true;                          // the kernel accepts inputs of step 0

  void plan();
  void run(Index begin, Index end) const { direct ? run_direct(begin, end) : run_blocks(begin, end); }
  void run_direct(Index begin, Index end) const;
  void run_blocks(Index begin, Index end) const;
};

void Job::plan() {
  const int last = nest.rank - 1;
  direct = nest.rank == 1 || nest.shape[last] >= kShortestRun;
  for (int k = 0; k < nest.count; ++k) {
    const Index s = nest.parts[k].strides[last];
    direct = direct && (s == 1 || (s == 0 && k > 0 && repeats)) && !nest.parts[k].is_bfloat16();
    step[k] = s != 0;
  }
  if (direct) return;
  for (int k = 0; k < nest.count; ++k) {
    Index dense = 1;
    bool is_dense = true, is_number = true;
    for (int a = last; a >= 0; --a) {
      is_dense = is_dense && nest.parts[k].strides[a] == dense;
      is_number = is_number && nest.parts[k].strides[a] == 0;
      dense *= nest.shape[a];
    }
    const bool number = is_number && k > 0 && repeats && !nest.parts[k].is_bfloat16();
    gathered[k] = (!is_dense && !number) || nest.parts[k].is_bfloat16();
    step[k] = !number;
  }
}

void Job::run_direct(Index begin, Index end) const {
  LoopCursor at(nest, begin);
  while (begin < end) {
    const Index n = std::min(end - begin, at.left_in_run());
    const void* in[kMaxParts];
    for (int k = 1; k < nest.count; ++k) in[k - 1] = nest.parts[k].at(at.offset[k]);
    kernel(nest.parts[0].at(at.offset[0]), in, step.data() + 1, n, options);
    at.advance(n);
    begin += n;
  }
}

void Job::run_blocks(Index begin, Index end) const {
  alignas(64) char scratch[kMaxParts][kBlock * 8];
  while (begin < end) {
    const Index n = std::min(end - begin, kBlock);
    const LoopCursor start(nest, begin);
    char* at[kMaxParts];
    for (int k = 0; k < nest.count; ++k) at[k] = gathered[k] ? scratch[k] : nest.parts[k].at(start.offset[k]);
    const auto transfer = [&](int k, bool to_scratch) {
      const LoopPart& p = nest.parts[k];
      const Index stride = p.strides[nest.rank - 1];
      LoopCursor cursor = start;
      for (Index done = 0; done < n;) {
        const Index run = std::min(n - done, cursor.left_in_run());
        char *own = p.at(cursor.offset[k]), *block = scratch[k] + done * p.size_in_block();
        if (to_scratch)
          load_items(p, block, own, stride, run);
        else
          store_items(p, own, stride, block, run);
        cursor.advance(run);
        done += run;
      }
    };
    for (int k = options.accumulate ? 0 : 1; k < nest.count; ++k)
      if (gathered[k]) transfer(k, true);
    const void* in[kMaxParts];
    for (int k = 1; k < nest.count; ++k) in[k - 1] = at[k];
    kernel(at[0], in, step.data() + 1, n, options);
    if (gathered[0]) transfer(0, false);
    begin += n;
  }
}

}  // namespace

void elementwise(kernels::ElementwiseKernel kernel, const Tensor& out, std::span<const Operand> inputs,
                 const kernels::ElementwiseOptions& options) {
  const Index total = out.numel();
  if (total == 0) return;
  // A large transposed input is copied first, in tiles. Reading it here would miss the cache at each element.
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Tensor* x = inputs[k].tensor();
    if (total < kTransposed || x == nullptr || !is_transposed(*x) || x->shape() != out.shape()) continue;
    std::array<Operand, kMaxParts - 1> copies{Operand(0, DType::float32), Operand(0, DType::float32),
                                              Operand(0, DType::float32)};
    std::copy(inputs.begin(), inputs.end(), copies.begin());
    const Tensor dense = x->dense();
    copies[k] = dense;
    return elementwise(kernel, out, std::span<const Operand>(copies.data(), inputs.size()), options);
  }
  Job job{kernel, options, loop_nest(out, inputs)};
  job.repeats = inputs.size() > 1;
  job.plan();
  parallel_for(total, total <= kSerial ? total : grain_for(4), [&](Index b, Index e) { job.run(b, e); });
}

}  // namespace heed::detail
