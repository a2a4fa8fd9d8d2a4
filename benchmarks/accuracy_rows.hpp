// The ops whose float32 errors docs/accuracy.md lists. The program bench_accuracy prints the tables, and a test
// compares the page with measured errors.
#pragma once
#include <functional>
#include <heed/core/tensor.hpp>
#include <string>
#include <vector>

namespace heed::bench {

// The reference magnitude of an error, per value. value: the value itself. input: the larger of the value and the first
// input, for functions whose formula cancels. one: the larger of the value and 1. largest: the largest value of the
// tensor, for sums that cancel.
enum class Against { value, input, one, largest };

// One row of the table: an op and its inputs.
struct AccuracyRow {
  std::string name, domain;
  std::function<Tensor(const std::vector<Tensor>&)> f;
  std::vector<Tensor> inputs;  // float64, rounded to float32; other dtypes are passed through
  Against against = Against::value;
};

// Ops with float32 inputs.
std::vector<AccuracyRow> accuracy_rows();
// Ops with bfloat16 inputs, which are exact in all dtypes. Their errors are given in units of bfloat16's epsilon: 2^-8,
// which is kBfloat16 times that of float32.
std::vector<AccuracyRow> bfloat16_accuracy_rows();
inline constexpr double kBfloat16 = 0x1p15;

// The value and the gradients of the inputs of the same op in float64.
std::vector<Tensor> accuracy_reference(const AccuracyRow& row);

// The largest errors on the current instruction set, in units of float32's epsilon (2^-23).
struct AccuracyErrors {
  double value, derivative;
};
AccuracyErrors accuracy_errors(const AccuracyRow& row, const std::vector<Tensor>& reference);

}  // namespace heed::bench
