// on_each_level(f): calls f on each level (instruction set) of this machine and build, and prints the other levels.
#pragma once
#include <doctest/doctest.h>

#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <iostream>
#include <string>
#include <utility>

namespace heed::test {

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

}  // namespace heed::test
