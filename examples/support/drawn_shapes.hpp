// Images of coloured shapes that programs draw themselves.
#pragma once
#include <array>
#include <heed/core/random.hpp>
#include <vector>

namespace heed::examples {

inline constexpr std::array<const char*, 4> kShapeKinds = {"circle", "square", "triangle", "cross"};
inline constexpr std::array<const char*, 4> kShapeColours = {"red", "green", "blue", "yellow"};

// A shape in a square of 2 radius + 1 pixels around its center.
struct DrawnShape {
  Index kind = 0, colour = 0;  // of kShapeKinds and kShapeColours
  Index radius = 2, x = 0, y = 0;
};

// An image of side x side pixels of red, green and blue, with numbers around 0 to 1: [side, side, 3].
class DrawnImage {
 public:
  DrawnImage(Rng& rng, Index side, double noise);  // only noise, of this standard deviation
  void draw(const DrawnShape& shape);              // throws Error unless the shape fits into the image
  Tensor tensor() const;

 private:
  Index side_;
  std::vector<float> pixels_;
};

// An image of one or two shapes in quadrants of their own, and its caption: "a large red circle top left and a small
// blue cross bottom right". Shapes are in the order of reading.
struct DrawnScene {
  static constexpr Index kSide = 24, kMaxWords = 14, kVocabulary = 17;  // of the image; of a caption, with its end
  static constexpr std::int32_t kEnd = 0;

  DrawnImage image;
  std::vector<std::int32_t> words;  // of the caption, with kEnd

  explicit DrawnScene(Rng& rng);
  static const char* word(std::int32_t i);
};

}  // namespace heed::examples
