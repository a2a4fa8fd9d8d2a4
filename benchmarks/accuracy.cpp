// Prints, as the table of docs/accuracy.md, the largest float32 error of each op and of its derivative on each
// instruction set. The reference is the same op in float64, whose kernels the tests check against long double and plain
// loops.
//   accuracy
#include <cstdio>
#include <heed/core/kernels/dispatch.hpp>

#include "benchmarks/accuracy_rows.hpp"

int main() {
  using namespace heed;
  std::vector<kernels::Level> levels;
  for (const kernels::Level l : {kernels::Level::baseline, kernels::Level::avx2, kernels::Level::avx512})
    if (kernels::available(l)) levels.push_back(l);
  std::printf("| op | inputs |");
  for (const kernels::Level l : levels) std::printf(" %s | its derivative |", kernels::name_of(l));
  std::printf(" relative to |\n|---|---|");
  for (std::size_t i = 0; i < levels.size(); ++i) std::printf("---:|---:|");
  std::printf("---|\n");
  for (const bench::AccuracyRow& row : bench::accuracy_rows()) {
    std::printf("| %s | %s |", row.name.c_str(), row.domain.c_str());
    for (const kernels::Level l : levels) {
      kernels::set_level(l);
      const bench::AccuracyErrors errors = bench::accuracy_errors(row);
      std::printf(" %.2f | %.2f |", errors.value, errors.derivative);
    }
    constexpr const char* kNames[] = {"the value", "value or input", "value or 1", "largest value"};
    std::printf(" %s |\n", kNames[static_cast<int>(row.against)]);
  }
  // bfloat16, in units of 2^-8 = 2^15 float32 epsilons
  if (kernels::available(kernels::Level::avx512_bf16)) levels.push_back(kernels::Level::avx512_bf16);
  for (const bench::AccuracyRow& row : bench::bfloat16_accuracy_rows()) {
    std::printf("\n- %s, bfloat16, %s:", row.name.c_str(), row.domain.c_str());
    for (const kernels::Level l : levels) {
      kernels::set_level(l);
      const bench::AccuracyErrors errors = bench::accuracy_errors(row);
      std::printf("%s %.2f and %.2f on %s", l == levels.front() ? "" : ",", errors.value * 0x1p-15,
                  errors.derivative * 0x1p-15, kernels::name_of(l));
    }
  }
  std::printf("\n");
}
