// Loops that do nothing but multiply and add in registers: what the arithmetic units can do, for benchmarks.
#pragma once

namespace heed::kernels {

struct PeakTable {
  // Each runs `rounds` rounds and returns the number of floating-point operations done (2 a multiply-add).
  double (*float32)(long rounds);
  double (*float64)(long rounds);
};

const PeakTable& gemm_peak();  // of the level that runs

}  // namespace heed::kernels
