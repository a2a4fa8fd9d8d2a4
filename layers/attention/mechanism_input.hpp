// What a mechanism takes beside queries, keys and values, such as a gate or a decay: a linear function of what they are
// made of, which the layer computes in the same product.
//
//   std::vector<MechanismInput> inputs() const { return {{.name = "gate", .bias = 1}}; }
#pragma once
#include <heed/core/tensor.hpp>
#include <span>
#include <string>
#include <vector>

namespace heed {

struct MechanismInput {
  enum class Of {
    queries,  // of x, for each query head: [B, H, T, size]
    keys      // of what keys are made of, x or the memory, for each key head: [B, Hk, S, size]
  };
  std::string name;  // for errors
  Index size = 1;    // numbers per head and position
  Of of = Of::keys;
  double bias = 0;  // what the projection's biases begin with, where the layer has biases

  bool of_queries() const { return of == Of::queries; }
};
inline constexpr std::size_t kMostMechanismInputs = 4;  // of one mechanism; each may have any size

namespace detail {
// Error, which begins with `who` and `what`, unless there are as many as are declared, of their shapes and q's dtype.
void check_inputs(const std::string& who, const char* what, const std::vector<MechanismInput>& declared, In q, In k,
                  std::span<const Tensor> given);
}  // namespace detail

}  // namespace heed
