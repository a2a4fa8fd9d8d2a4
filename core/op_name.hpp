// The name of an elementwise op as a template argument: detail::unary<"sin">(x).
#pragma once
#include <stddef.h>

namespace heed {

struct OpName {
  char text[16] = {};

  template <size_t N>
  consteval OpName(const char (&name)[N]) {
    for (size_t i = 0; i < N; ++i) text[i] = name[i];
  }
  constexpr bool operator==(const OpName&) const = default;
};

}  // namespace heed
