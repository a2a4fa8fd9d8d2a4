// The classes of the tasks of attention_long_range, found again from their sequences.
#include "examples/experiments/long_range_tasks.hpp"

#include <algorithm>
#include <functional>
#include <heed/data/tasks.hpp>
#include <set>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::examples;

namespace {

// Whether every text of the task says what its class says, both classes occur about equally often, and lengths differ.
void check_long_range_texts(const LongRangeTask& task, const std::function<int(const LongRangeExample&)>& expected) {
  int ones = 0;
  std::size_t shortest = 100000, longest = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Rng rng(3, i);
    const LongRangeExample e = task.draw(rng);
    CAPTURE(i);
    CHECK(e.label == expected(e));
    ones += e.label;
    shortest = std::min(shortest, e.tokens.size()), longest = std::max(longest, e.tokens.size());
  }
  CHECK(ones > 60);
  CHECK(ones < 140);
  const auto all_tokens = static_cast<std::size_t>((task.classes.pairs ? 2 : 1) * task.length);
  CHECK(longest <= all_tokens);
  CHECK(longest > all_tokens * 9 / 10);
  if (task.padded && !task.classes.pairs) CHECK(shortest < all_tokens * 6 / 10);
}

std::string text_of(const std::vector<std::int32_t>& tokens, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end && tokens[i] < 256; ++i) text += static_cast<char>(tokens[i]);
  return text;
}

int praise_in(const std::string& text) {
  const std::set<std::string> praise = {"good", "clever", "moving", "lively", "bright", "honest", "warm", "rich"},
                              blame = {"bad", "dull", "weak", "slow", "pale", "empty", "cold", "flat"};
  int sum = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find(". ", begin);
    const std::string sentence = text.substr(begin, end - begin);
    begin = end + 2;
    if (sentence.find(" says that ") != std::string::npos) continue;
    const std::string last = sentence.substr(sentence.rfind(' ') + 1);
    const int says = praise.count(last) == 1 ? 1 : blame.count(last) == 1 ? -1 : 0;
    sum += sentence.find(" was not ") != std::string::npos ? -says : says;
  }
  return sum;
}

// The words of a seal: "fox axe".
std::string seal_in(const std::string& text) {
  const auto word_after = [&](const std::string& begin) {
    const std::size_t at = text.find(begin);
    REQUIRE(at != std::string::npos);
    return text.substr(at + begin.size(), text.find('.', at) - at - begin.size());
  };
  return word_after("its seal shows a ") + " " + word_after("under it is a ");
}

// Whether a walk over lit pixels, of at most two pixels per step, leads from one dot to the other.
bool dots_are_connected(const std::vector<std::int32_t>& image, Index side) {
  const auto at = [&](Index x, Index y) { return image[static_cast<std::size_t>(y * side + x)]; };
  std::vector<std::pair<Index, Index>> dots;
  std::vector<char> lit(image.size());
  for (Index y = 1; y + 1 < side; ++y)
    for (Index x = 1; x + 1 < side; ++x) {
      bool whole = true;
      for (Index n = 0; n < 9; ++n) whole = whole && at(x + n % 3 - 1, y + n / 3 - 1) == 255;
      if (whole) dots.emplace_back(x, y);
      lit[static_cast<std::size_t>(y * side + x)] = at(x, y) > 0;
    }
  REQUIRE(dots.size() == 2);
  std::vector<std::pair<Index, Index>> reached = {dots[0]};
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (Index dy = -2; dy <= 2; ++dy)
      for (Index dx = -2; dx <= 2; ++dx) {
        const Index x = reached[i].first + dx, y = reached[i].second + dy;
        if (x < 0 || y < 0 || x >= side || y >= side || lit[static_cast<std::size_t>(y * side + x)] == 0) continue;
        const bool dots_alone = at(reached[i].first, reached[i].second) == 255 && at(x, y) == 255;
        if (dots_alone && (std::abs(dx) > 1 || std::abs(dy) > 1)) continue;  // two dots may be two pixels apart
        lit[static_cast<std::size_t>(y * side + x)] = 0;
        reached.emplace_back(x, y);
      }
  return std::count(reached.begin(), reached.end(), dots[1]) > 0;
}

}  // namespace

TEST_CASE("long_range_task: reviews, reports and dashed lines have the class that they show") {
  check_long_range_texts(long_range_task("text", {.length = 600}), [](const LongRangeExample& e) {
    return praise_in(text_of(e.tokens, 0, e.tokens.size())) > 0 ? 1 : 0;
  });
  check_long_range_texts(long_range_task("retrieval", {.length = 500}), [](const LongRangeExample& e) {
    const std::size_t half = e.tokens.size() / 2;
    return seal_in(text_of(e.tokens, 0, half)) == seal_in(text_of(e.tokens, half, 2 * half)) ? 1 : 0;
  });
  for (const Index side : {16, 32})
    check_long_range_texts(long_range_task("path", {.side = side}),
                           [&](const LongRangeExample& e) { return dots_are_connected(e.tokens, side) ? 1 : 0; });
}

TEST_CASE("long_range_task: lists have their value, and digits fill the image's rows") {
  const LongRangeTask lists = long_range_task("listops", {.length = 100}),
                      digits = long_range_task("pixels", {.side = 16});
  std::set<std::int32_t> seen;
  for (std::uint64_t i = 0; i < 60; ++i) {
    Rng rng(1, i);
    const LongRangeExample list = lists.draw(rng), digit = digits.draw(rng);
    CHECK(list.label == ListOps::value(list.tokens));
    CHECK(digit.tokens.size() == 256);
    CHECK(std::count_if(digit.tokens.begin(), digit.tokens.end(), [](auto x) { return x >= 153; }) > 20);
    seen.insert(digit.label);
  }
  CHECK(seen.size() == 10);
}

TEST_CASE("LongRangeBatches: rows depend on their numbers, and held-out rows are others") {
  const LongRangeTask task = long_range_task("listops", {.length = 40});
  const Batch one = LongRangeBatches(task, 4).batch(1, 0), again = LongRangeBatches(task, 2).batch(1, 1);
  for (const Index r : {0, 1}) {
    const auto row = [](const Batch& b, Index i) {
      std::vector<std::int32_t> tokens = b.inputs.select(0, i).to_vector<std::int32_t>();
      tokens.resize(
          static_cast<std::size_t>(std::find(tokens.begin(), tokens.end(), ListOps::kPadding) - tokens.begin()));
      return tokens;
    };
    CHECK(row(one, 2 + r) == row(again, r));
    CHECK(row(one, r) != row(LongRangeHeldOut(task, 4, 4, 1).batch(0), r));
  }
  const LongRangeHeldOut held_out(task, 5, 2, 1);
  CHECK(held_out.size() == 3);
  CHECK(held_out.batch(2).counted == 1);
  CHECK(held_out.majority() >= 0.2);
}

TEST_CASE("long_range_task: sizes that are too small are refused") {
  CHECK_THROWS_WITH_AS(long_range_task("text", {.length = 100}), "text: the length is 100; it must be at least 256",
                       Error);
  CHECK_THROWS_WITH_AS(long_range_task("path", {.side = 8}), "path: the side of images is 8; it must be at least 16",
                       Error);
  CHECK_THROWS_AS(long_range_task("words", {}), Error);
}
