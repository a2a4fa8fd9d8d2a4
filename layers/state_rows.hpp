// Rows of decode states: one row per text, for beams, and to drop rows that have ended. A state names each tensor that
// it keeps in members(): visit.buffer() for a tensor whose first axis is the rows, visit.shared() for a tensor that all
// rows share. Picked rows, copies and saved states follow from these names.
//
// Example:
//
//   struct MeanState {  // the mean of all inputs so far, per row
//     Tensor sum = {};                // [B, size]
//     Tensor count = Tensor::zeros({}, DType::int32);
//     Tensor next(const Tensor& x) {  // [B, size] -> [B, size]
//       sum = sum.defined() ? sum + x : x, count = count + 1;
//       return sum / count.to(x.dtype());
//     }
//     void members(MemberVisitor& visit) { visit.buffer("sum", sum), visit.shared("count", count); }
//   };
//   MeanState state;
//   state.next(Tensor::arange(6).to(DType::float32).view({3, 2}));
//   const MeanState two = pick_rows(state, Tensor::from<std::int32_t>({2, 0}));  // the last row and the first
//   std::cout << two.sum << '\n';
#pragma once
#include <concepts>
#include <heed/core/members.hpp>
#include <vector>

namespace heed {

// A state whose rows can be picked. Its buffers are named in members(), or it has its own function rows(indices), for
// data that are not tensors.
template <class T>
concept HasRows = detail::Layer<T> || requires(const T& state, const Tensor& indices) {
  { state.rows(indices) } -> std::convertible_to<T>;
};

namespace detail {
// Replaces each buffer that is not shared, [B, ...] or undefined, by its rows `indices`. Throws Error if the first axes
// differ.
void replace_by_rows(const std::vector<NamedBuffer>& buffers, const Tensor& indices);
}  // namespace detail

// Row i of the result is a copy of row indices[i] of `state`; indices int32 [N], and rows may repeat. The result shares
// the other tensors with `state`. Calls state.rows(indices) if there is such a function.
template <HasRows T>
T pick_rows(const T& state, const Tensor& indices) {
  if constexpr (requires { state.rows(indices); }) {
    return state.rows(indices);
  } else {
    T picked = state;
    detail::replace_by_rows(named_buffers(picked), indices);
    return picked;
  }
}

// Picks the same rows of several states, such as those of a model's blocks.
template <HasRows T>
std::vector<T> pick_rows(const std::vector<T>& states, const Tensor& indices) {
  std::vector<T> picked;
  for (const T& state : states) picked.push_back(pick_rows(state, indices));
  return picked;
}

}  // namespace heed
