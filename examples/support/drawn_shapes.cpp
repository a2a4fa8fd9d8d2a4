// Draws circles, squares, triangles and crosses, and scenes of them with captions.
#include "examples/support/drawn_shapes.hpp"

#include <cstdlib>
#include <heed/core/check.hpp>

namespace heed::examples {
namespace {

// Red, green and blue of each colour.
constexpr std::array<std::array<float, 3>, 4> kColours = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 0}}};

// Whether a shape has a pixel at this distance from its center.
bool has_pixel(Index kind, Index r, Index x, Index y) {
  switch (kind) {
    case 0: return x * x + y * y <= r * r + 1;
    case 1: return true;
    case 2: return 2 * std::abs(x) <= y + r;
    default: return std::abs(x) <= r / 4 || std::abs(y) <= r / 4;
  }
}

// The words of captions. Sizes, colours, kinds and places are in the order of their numbers.
constexpr std::array<const char*, DrawnScene::kVocabulary> kWords = {
    "(end)",  "a",      "and",      "small", "large", "red",    "green", "blue", "yellow",
    "circle", "square", "triangle", "cross", "top",   "bottom", "left",  "right"};
constexpr Index kA = 1, kAnd = 2, kSizes = 3, kColourWords = 5, kKinds = 9, kRows = 13, kColumns = 15;

}  // namespace

DrawnImage::DrawnImage(Rng& rng, Index side, double noise)
    : side_(side), pixels_(rng.normal({side, side, 3}, 0, noise).to_vector<float>()) {}

void DrawnImage::draw(const DrawnShape& s) {
  const Index r = s.radius, last = side_ - 1 - r;
  require(s.x >= r && s.y >= r && s.x <= last && s.y <= last, "draw: a shape of radius ", r, " is at (", s.x, ", ", s.y,
          "); in an image of side ", side_, ", both must be from ", r, " to ", last);
  for (Index y = -r; y <= r; ++y)
    for (Index x = -r; x <= r; ++x)
      if (has_pixel(s.kind, r, x, y))
        for (std::size_t c = 0; c < 3; ++c)
          pixels_[static_cast<std::size_t>(((s.y + y) * side_ + s.x + x) * 3) + c] +=
              kColours[static_cast<std::size_t>(s.colour)][c];
}

Tensor DrawnImage::tensor() const { return Tensor::from(pixels_, {side_, side_, 3}); }

DrawnScene::DrawnScene(Rng& rng) : image(rng, kSide, 0.05) {
  const Index shapes = 1 + rng.integer(2), half = kSide / 2;
  Index quadrant = rng.integer(5 - shapes);
  for (Index n = 0; n < shapes; ++n) {
    if (n > 0) quadrant += 1 + rng.integer(3 - quadrant);
    const Index row = quadrant / 2, column = quadrant % 2, large = rng.integer(2);
    DrawnShape s{.kind = rng.integer(4), .colour = rng.integer(4), .radius = 2 + 2 * large};
    s.x = half * column + s.radius + 1 + rng.integer(half - 2 - 2 * s.radius);
    s.y = half * row + s.radius + 1 + rng.integer(half - 2 - 2 * s.radius);
    image.draw(s);
    if (n > 0) words.push_back(kAnd);
    for (const Index word :
         {kA, kSizes + large, kColourWords + s.colour, kKinds + s.kind, kRows + row, kColumns + column})
      words.push_back(static_cast<std::int32_t>(word));
  }
  words.push_back(kEnd);
}

const char* DrawnScene::word(std::int32_t i) { return kWords[static_cast<std::size_t>(i)]; }

}  // namespace heed::examples
