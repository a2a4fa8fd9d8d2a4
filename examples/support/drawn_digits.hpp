// Small images of digits that programs make themselves.
#pragma once
#include <cstdint>
#include <heed/core/random.hpp>
#include <string>
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

// Images of digits as the data of a run: image i is a pure function of the seed and i. A program adds sample(i).
struct DigitImages {
  Index count = 0;
  std::uint64_t seed = 0;

  Index size() const { return count; }
  std::string fingerprint() const { return std::to_string(count) + " digits, seed " + std::to_string(seed); }
  Rng rng_of(Index i) const { return Rng(seed, static_cast<std::uint64_t>(i)); }  // for draw_digit()
};

}  // namespace heed::examples
