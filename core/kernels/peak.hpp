// Loops that only multiply and add in registers. They measure the peak of the arithmetic units, with which profiles,
// benchmarks and programs compare the rate of a product or a step.
#pragma once

namespace heed::kernels {

// Runs `rounds` rounds and returns the number of floating-point operations (2 per multiply-add).
using PeakLoop = double (*)(long rounds);

struct PeakTable {
  PeakLoop float32, float64;
};

const PeakTable& peak_table();  // for the level in use
PeakLoop bf16_peak_loop();      // dot products of bf16; null if the level in use has no instruction for them

}  // namespace heed::kernels
