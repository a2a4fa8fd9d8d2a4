// on_each_level(f): calls f on each level (instruction set) of this machine and build, and prints the other levels.
// on_each_float_level(f): the same without avx512_bf16, which differs from avx512 in products of bfloat16 only.
#pragma once
#include <doctest/doctest.h>

#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <iostream>
#include <string>
#include <utility>

namespace heed::test {

// Whether another level of this machine and build has the same kernels for float32 and float64.
inline bool repeats_floats(kernels::Level l) {
  return l == kernels::Level::avx512_bf16 && kernels::available(kernels::Level::avx512);
}

template <class F>
void on_each_level(F f) {
  using kernels::Level;
  const Level before = kernels::level();
  for (int i = 0; i < kernels::kLevels; ++i) {
    const Level l = static_cast<Level>(i);
    if (!kernels::available(l)) {
      static bool reported[kernels::kLevels] = {};
      if (!std::exchange(reported[i], true))
        std::cout << kernels::name_of(l) << " is not available in this build or on this machine: not tested here\n";
      continue;
    }
    kernels::set_level(l);
    CAPTURE(std::string(kernels::name_of(l)));
    f();
  }
  kernels::set_level(before);
}

template <class F>
void on_each_float_level(F f) {
  on_each_level([&] {
    if (!repeats_floats(kernels::level())) f();
  });
}

}  // namespace heed::test
