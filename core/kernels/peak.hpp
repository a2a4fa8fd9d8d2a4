// Loops that do nothing but multiply and add in registers: what the arithmetic units can do, beside which a profile,
// benchmarks and programs put what a product or a step reaches.
#pragma once

namespace heed::kernels {

// Runs `rounds` rounds and returns the number of floating-point operations done (2 per multiply-add).
using PeakLoop = double (*)(long rounds);

struct PeakTable {
  PeakLoop float32, float64;
};

const PeakTable& peak_loops();  // of the level that runs
PeakLoop bf16_peak_loop();      // of dot products of bf16; null where the level that runs has none

}  // namespace heed::kernels
