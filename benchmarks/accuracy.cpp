// Prints the tables of docs/accuracy.md: the largest float32 error of each op and of its derivative on each instruction
// set. The reference is the same op in float64, whose kernels the tests check against long double and plain loops.
//   bench_accuracy
#include <cstdio>
#include <heed/core/kernels/dispatch/dispatch.hpp>

#include "benchmarks/accuracy_rows.hpp"

namespace {

using namespace heed;

using Levels = std::vector<kernels::Level>;
void print_table(const std::vector<bench::AccuracyRow>& rows, const Levels& levels, double epsilon) {
  std::printf("| op | inputs |");
  for (const kernels::Level l : levels) std::printf(" %s | its derivative |", kernels::name_of(l));
  std::printf(" relative to |\n|---|---|");
  for (std::size_t i = 0; i < levels.size(); ++i) std::printf("---:|---:|");
  std::printf("---|\n");
  for (const bench::AccuracyRow& row : rows) {
    std::printf("| %s | %s |", row.name.c_str(), row.domain.c_str());
    const std::vector<Tensor> reference = bench::accuracy_reference(row);
    for (const kernels::Level l : levels) {
      kernels::set_level(l);
      const bench::AccuracyErrors errors = bench::accuracy_errors(row, reference);
      std::printf(" %.2f | %.2f |", errors.value / epsilon, errors.derivative / epsilon);
    }
    constexpr const char* kNames[] = {"the value", "value or input", "value or 1", "largest value"};
    std::printf(" %s |\n", kNames[static_cast<int>(row.against)]);
  }
}

}  // namespace

int main() {
  Levels levels;
  for (const kernels::Level l : {kernels::Level::baseline, kernels::Level::avx2, kernels::Level::avx512})
    if (kernels::available(l)) levels.push_back(l);
  print_table(bench::accuracy_rows(), levels, 1);
  if (kernels::available(kernels::Level::avx512_bf16)) levels.push_back(kernels::Level::avx512_bf16);
  std::printf("\n");
  print_table(bench::bfloat16_accuracy_rows(), levels, bench::kBfloat16);
}
