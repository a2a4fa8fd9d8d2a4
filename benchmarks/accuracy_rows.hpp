// The ops whose float32 errors docs/accuracy.md tells. The program accuracy prints its table, and a test holds the
// table against what it measures.
#pragma once
#include <functional>
#include <heed/core/tensor.hpp>
#include <string>
#include <vector>

namespace heed::bench {

// What an error is measured against, value by value: the value itself; the value or the first input there, whichever is
// larger, where a function cancels as its formula does; the value or 1; the largest value of the tensor, where sums
// cancel.
enum class Against { value, input, one, largest };

struct AccuracyRow {
  std::string name, domain;
  std::function<Tensor(const std::vector<Tensor>&)> f;
  std::vector<Tensor> inputs;  // float64, rounded to float32; others are passed through
  Against against = Against::value;
};

std::vector<AccuracyRow> accuracy_rows();
// Of bfloat16 inputs, which are exact in all dtypes; their errors are told in bfloat16's epsilon (2^-8, or kBfloat16
// of float32's).
std::vector<AccuracyRow> bfloat16_accuracy_rows();
inline constexpr double kBfloat16 = 0x1p15;

// The same op in float64: its value and the gradients of its inputs.
std::vector<Tensor> accuracy_reference(const AccuracyRow& row);

// In float32's epsilon (2^-23), on the instruction set in use.
struct AccuracyErrors {
  double value, derivative;
};
AccuracyErrors accuracy_errors(const AccuracyRow& row, const std::vector<Tensor>& reference);

}  // namespace heed::bench
