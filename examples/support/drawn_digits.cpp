// Draws digits of 5 x 7 dots.
#include "examples/support/drawn_digits.hpp"

#include <array>
#include <heed/core/check.hpp>

namespace heed::examples {
namespace {

// The bits of each row of dots; the highest of five is the left dot.
constexpr std::array<std::array<int, 7>, 10> kDots = {{{14, 17, 19, 21, 25, 17, 14},
                                                       {4, 12, 4, 4, 4, 4, 14},
                                                       {14, 17, 1, 6, 8, 16, 31},
                                                       {14, 17, 1, 6, 1, 17, 14},
                                                       {2, 6, 10, 18, 31, 2, 2},
                                                       {31, 16, 30, 1, 1, 17, 14},
                                                       {6, 8, 16, 30, 17, 17, 14},
                                                       {31, 1, 2, 4, 8, 8, 8},
                                                       {14, 17, 17, 14, 17, 17, 14},
                                                       {14, 17, 17, 15, 1, 2, 12}}};

// Whether a digit has a dot there.
bool has_dot(Index digit, Index row, Index column) {
  if (row < 0 || row >= 7 || column < 0 || column >= 5) return false;
  return ((kDots[static_cast<std::size_t>(digit)][static_cast<std::size_t>(row)] >> (4 - column)) & 1) != 0;
}

}  // namespace

DrawnDigit draw_digit(Rng& rng, Index side, Index dot) {
  const Index height = 7 * dot, width = 5 * dot + 2;
  require(dot >= 1 && side >= height + 2, "draw_digit: side is ", side, " and dot is ", dot, "; side must be at least ",
          height + 2);
  DrawnDigit drawn{std::vector<float>(static_cast<std::size_t>(side * side)), rng.integer(10)};
  const Index left = rng.integer(side - width + 1), top = rng.integer(side - height + 1), slant = rng.integer(3);
  const float bright = 0.6f + 0.1f * static_cast<float>(rng.integer(5));
  for (Index y = 0; y < height; ++y)
    for (Index x = 0; x < width; ++x) {
      const Index column = x - slant * (height - 1 - y) / (height - 1);
      if (column >= 0 && has_dot(drawn.digit, y / dot, column / dot))
        drawn.pixels[static_cast<std::size_t>((top + y) * side + left + x)] = bright;
    }
  return drawn;
}

}  // namespace heed::examples
