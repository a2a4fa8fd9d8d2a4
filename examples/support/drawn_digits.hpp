// Small images of digits that programs make themselves.
#pragma once
#include <heed/core/random.hpp>
#include <vector>

namespace heed::examples {

// An image of side x side numbers from 0 to 1, row by row, and its digit.
struct DrawnDigit {
  std::vector<float> pixels;
  Index digit;
};

// Draws a digit of 5 x 7 dots at a random place, slanted by up to two pixels, faint or bright. `dot` is the side of a
// dot in pixels; `side` must be at least 7 * dot + 2.
DrawnDigit draw_digit(Rng& rng, Index side, Index dot = 1);

}  // namespace heed::examples
