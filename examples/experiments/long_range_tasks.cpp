// Draws lists, texts, digits and dashed lines.
#include "examples/experiments/long_range_tasks.hpp"

#include <algorithm>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <numbers>

#include "examples/support/drawn_digits.hpp"

namespace heed::examples {
namespace {

using Words = std::vector<std::string>;

constexpr std::int32_t kTextPadding = 256;  // after the 256 bytes
constexpr Index kLongestSentence = 64;      // max bytes of a sentence

const std::string& one_of(const Words& words, Rng& rng) {
  return words[static_cast<std::size_t>(rng.integer(static_cast<Index>(words.size())))];
}

std::vector<std::int32_t> bytes_of(const std::string& text) {
  std::vector<std::int32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

// ---- Reviews ----

const Words kParts = {"plot",    "music", "ending", "light",  "sound",    "first act", "last act", "hero",
                      "villain", "cast",  "story",  "camera", "dialogue", "stage",     "humour",   "pace"};
const Words kPraise = {"good", "clever", "moving", "lively", "bright", "honest", "warm", "rich"};
const Words kBlame = {"bad", "dull", "weak", "slow", "pale", "empty", "cold", "flat"};
const Words kOthers = {"my brother", "the man next to me", "an old critic", "our neighbour", "the poster"};
const Words kFacts = {"we sat in the third row", "it was raining that night",
                      "the hall was half full",  "a bell rang twice",
                      "we walked home",          "the tickets were yellow"};

// A sentence of a review, and what it says: 1 for praise, -1 for blame, 0 for neither.
std::pair<std::string, int> review_sentence(Rng& rng) {
  const Index kind = rng.integer(10);
  if (kind < 3) return {one_of(kFacts, rng) + ". ", 0};
  const bool praises = rng.integer(2) == 0, negated = rng.integer(3) == 0;
  const std::string opinion =
      "the " + one_of(kParts, rng) + " was " + (negated ? "not " : "") + one_of(praises ? kPraise : kBlame, rng) + ". ";
  if (kind < 5) return {one_of(kOthers, rng) + " says that " + opinion, 0};
  return {opinion, praises != negated ? 1 : -1};
}

// A review of half of `length` bytes or more. Class 1: more praise than blame.
LongRangeExample review(Rng& rng, Index length) {
  const auto bytes = static_cast<std::size_t>(length / 2 + rng.integer(length / 2 - kLongestSentence + 1));
  for (;;) {
    std::string text;
    int praise = 0;
    while (text.size() < bytes) {
      const auto [sentence, says] = review_sentence(rng);
      text += sentence, praise += says;
    }
    if (praise != 0) return {bytes_of(text), praise > 0 ? 1 : 0};
  }
}

// ---- Reports of seals ----

const Words kAnimals = {"fox", "owl", "bear", "hare", "wolf", "swan", "crab", "lynx"};
const Words kTools = {"axe", "key", "saw", "bell", "lamp", "rope", "oar", "cup"};
const Words kReports = {"the letter came by boat", "nobody knew the writer",  "the paper was thin and grey",
                        "the clerk kept a copy",   "the harbour was closed",  "two guards stood at the door",
                        "the ink had faded",       "the answer came too late"};

// A report of half of `length` bytes or more, which names the animal and the tool of a seal in two sentences.
std::string report(Rng& rng, const std::string& animal, const std::string& tool, Index length) {
  const auto bytes = static_cast<std::size_t>(length / 2 + rng.integer(length / 2 - 2 * kLongestSentence + 1));
  Words sentences;
  for (std::size_t n = 0; n < bytes; n += sentences.back().size()) sentences.push_back(one_of(kReports, rng) + ". ");
  for (const std::string& s : {"its seal shows a " + animal + ". ", "under it is a " + tool + ". "})
    sentences.insert(sentences.begin() + rng.integer(static_cast<Index>(sentences.size()) + 1), s);
  std::string text;
  for (const std::string& s : sentences) text += s;
  return text;
}

// Two reports. Class 1: their seals are equal; otherwise they differ in the animal, the tool or both.
LongRangeExample two_reports(Rng& rng, Index length) {
  const std::string animal = one_of(kAnimals, rng), tool = one_of(kTools, rng);
  const bool equal = rng.integer(2) == 0;
  std::string other_animal = animal, other_tool = tool;
  while (!equal && other_animal == animal && other_tool == tool) {
    if (rng.integer(2) == 0) other_animal = one_of(kAnimals, rng);
    if (rng.integer(2) == 0) other_tool = one_of(kTools, rng);
  }
  LongRangeExample e{bytes_of(report(rng, animal, tool, length)), equal ? 1 : 0};
  e.tokens.resize(static_cast<std::size_t>(length), kTextPadding);
  const std::vector<std::int32_t> second = bytes_of(report(rng, other_animal, other_tool, length));
  e.tokens.insert(e.tokens.end(), second.begin(), second.end());
  e.tokens.resize(static_cast<std::size_t>(2 * length), kTextPadding);
  return e;
}

// ---- Images ----

// Grey values from 0 to 255, with noise below 64 where the image is dark.
LongRangeExample digit_pixels(Rng& rng, Index side) {
  const DrawnDigit digit = draw_digit(rng, side, (side - 2) / 7);
  LongRangeExample e{{}, static_cast<std::int32_t>(digit.digit)};
  for (const float x : digit.pixels)
    e.tokens.push_back(x > 0 ? static_cast<std::int32_t>(std::lround(255 * x))
                             : static_cast<std::int32_t>(rng.integer(64)));
  return e;
}

struct Point {
  Index x, y;
};

// Lines on a square. Three dark pixels or more are between two lines, and two or more between parts of one line.
class Lines {
 public:
  explicit Lines(Index side) : side_(side), pixels_(static_cast<std::size_t>(side * side)), taken_(pixels_.size()) {}

  // Draws a dashed line of `length` pixels that bends slowly, from a random place. Returns both ends; neither if it met
  // a border or a line, and then it is not drawn.
  std::vector<Point> draw(Rng& rng, Index length) {
    std::vector<Point> points;
    double x = rng.uniform() * static_cast<double>(side_), y = rng.uniform() * static_cast<double>(side_);
    double angle = 2 * std::numbers::pi * rng.uniform();
    while (static_cast<Index>(points.size()) < length) {
      const Point p{static_cast<Index>(std::floor(x)), static_cast<Index>(std::floor(y))};
      const bool moved = points.empty() || points.back().x != p.x || points.back().y != p.y;
      if (moved && !is_free(p, points)) return {};
      if (moved) points.push_back(p);
      angle += 0.5 * (rng.uniform() - 0.5);
      x += 0.7 * std::cos(angle), y += 0.7 * std::sin(angle);
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i % 4 < 3) at(pixels_, points[i]) = 160;
      mark(points[i]);
    }
    return {points.front(), points.back()};
  }
  void dot(Point p) {  // 3 x 3 pixels
    for (Index dy = -1; dy <= 1; ++dy)
      for (Index dx = -1; dx <= 1; ++dx) at(pixels_, {p.x + dx, p.y + dy}) = 255;
  }
  const std::vector<std::int32_t>& pixels() const { return pixels_; }

 private:
  template <class T>
  T& at(std::vector<T>& image, Point p) const {
    return image[static_cast<std::size_t>(p.y * side_ + p.x)];
  }
  // Whether a line may go to p: not at the border, near another line, or near a pixel of its own but the last ones.
  bool is_free(Point p, const std::vector<Point>& own) {
    if (p.x < 1 || p.y < 1 || p.x > side_ - 2 || p.y > side_ - 2 || at(taken_, p) != 0) return false;
    for (std::size_t i = 0; i + 4 < own.size(); ++i)
      if (std::abs(own[i].x - p.x) <= 2 && std::abs(own[i].y - p.y) <= 2) return false;
    return true;
  }
  void mark(Point p) {
    for (Index y = std::max<Index>(0, p.y - 3); y <= std::min(side_ - 1, p.y + 3); ++y)
      for (Index x = std::max<Index>(0, p.x - 3); x <= std::min(side_ - 1, p.x + 3); ++x) at(taken_, {x, y}) = 1;
  }

  Index side_;
  std::vector<std::int32_t> pixels_;
  std::vector<char> taken_;
};

// Two long lines, up to two short ones, and two dots. Class 1: both dots are at the ends of one line.
LongRangeExample two_dots(Rng& rng, Index side) {
  for (;;) {
    Lines lines(side);
    std::vector<std::vector<Point>> ends;
    for (int attempt = 0; attempt < 200 && ends.size() < 4; ++attempt)
      if (auto both = lines.draw(rng, ends.size() < 2 ? side * 3 / 4 : side / 4); !both.empty()) ends.push_back(both);
    if (ends.size() < 2) continue;
    const bool connected = rng.integer(2) == 0;
    lines.dot(ends[0][0]);
    lines.dot(connected ? ends[0][1] : ends[1][static_cast<std::size_t>(rng.integer(2))]);
    return {lines.pixels(), connected ? 1 : 0};
  }
}

Batch collect(const LongRangeTask& task, const std::vector<LongRangeExample>& examples) {
  std::size_t length = 1;
  for (const LongRangeExample& e : examples) length = std::max(length, e.tokens.size());
  const auto rows = static_cast<Index>(examples.size());
  Batch b{.inputs = Tensor::full({rows, static_cast<Index>(length)}, task.classes.padding, DType::int32),
          .targets = Tensor::empty({rows}, DType::int32),
          .counted = rows};
  for (Index r = 0; r < rows; ++r) {
    const LongRangeExample& e = examples[static_cast<std::size_t>(r)];
    std::copy(e.tokens.begin(), e.tokens.end(), b.inputs.mutable_data<std::int32_t>() + r * static_cast<Index>(length));
    b.targets.mutable_data<std::int32_t>()[r] = e.label;
    b.tokens += std::count_if(e.tokens.begin(), e.tokens.end(), [&](auto t) { return t != task.classes.padding; });
  }
  return b;
}

LongRangeTask lists_task(Index length) {
  require(length >= 16, "listops: the length is ", length, "; it must be at least 16");
  const Index depth = length < 200 ? 4 : 10;
  const ListOps lists({.depth = depth, .arguments = 10, .min_tokens = length / 4, .max_tokens = length});
  return {"listops",
          "nested lists",
          ListOps::kVocabulary,
          length,
          {.classes = ListOps::kValues, .padding = ListOps::kPadding},
          true,
          [lists](Rng& rng) {
            const ListOpsExample e = lists.example(rng.next(), 0);
            return LongRangeExample{e.tokens, e.value};
          }};
}

LongRangeTask text_task(const std::string& name, Index length) {
  require(length >= 4 * kLongestSentence, name, ": the length is ", length, "; it must be at least ",
          4 * kLongestSentence);
  const bool pairs = name == "retrieval";
  return {name,
          pairs ? "pairs of texts" : "texts",
          kTextPadding + 1,
          length,
          {.classes = 2, .padding = kTextPadding, .pairs = pairs},
          true,
          [pairs, length](Rng& rng) { return pairs ? two_reports(rng, length) : review(rng, length); }};
}

LongRangeTask image_task(const std::string& name, Index side) {
  require(side >= 16, name, ": the side of images is ", side, "; it must be at least 16");
  const bool digits = name == "pixels";
  return {name,
          digits ? "drawn digits" : "dashed lines",
          256,
          side * side,
          {.classes = digits ? 10 : 2, .padding = -1},
          false,
          [digits, side](Rng& rng) { return digits ? digit_pixels(rng, side) : two_dots(rng, side); }};
}

}  // namespace

const std::vector<std::string>& long_range_task_names() {
  static const std::vector<std::string> names = {"listops", "text", "retrieval", "pixels", "path"};
  return names;
}

LongRangeTask long_range_task(const std::string& name, const LongRangeSizes& sizes) {
  if (name == "listops") return lists_task(sizes.length);
  if (name == "text" || name == "retrieval") return text_task(name, sizes.length);
  require(name == "pixels" || name == "path", "long_range_task: there is no task named ", name);
  return image_task(name, sizes.side);
}

LongRangeBatches::LongRangeBatches(LongRangeTask task, Index rows) : task_(std::move(task)), rows_(rows) {}

Batch LongRangeBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  std::vector<LongRangeExample> examples;
  for (Index r = 0; r < rows_; ++r) {
    Rng rng(2 * seed, step * static_cast<std::uint64_t>(rows_) + static_cast<std::uint64_t>(r));
    examples.push_back(task_.draw(rng));
  }
  return collect(task_, examples);
}

LongRangeHeldOut::LongRangeHeldOut(LongRangeTask task, Index count, Index rows, std::uint64_t seed)
    : task_(std::move(task)), count_(count), rows_(rows), seed_(2 * seed + 1) {}

Batch LongRangeHeldOut::batch(Index i) const {
  std::vector<LongRangeExample> examples;
  for (Index e = i * rows_; e < std::min(count_, (i + 1) * rows_); ++e) {
    Rng rng(seed_, static_cast<std::uint64_t>(e));
    examples.push_back(task_.draw(rng));
  }
  return collect(task_, examples);
}

double LongRangeHeldOut::majority() const {
  std::vector<Index> counts(static_cast<std::size_t>(task_.classes.classes));
  for (Index i = 0; i < size(); ++i) {
    const Batch b = batch(i);
    for (const auto label : b.targets.to_vector<std::int32_t>()) ++counts[static_cast<std::size_t>(label)];
  }
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) / static_cast<double>(count_);
}

}  // namespace heed::examples
