// What this machine could compute at best.
#pragma once

namespace heed::examples {

// float32 multiply-adds on all threads in use, operations a second (2 a multiply-add): measured for some 50 ms.
double machine_peak_flops();

}  // namespace heed::examples
