// ListOps: values computed by hand and by a naive evaluation of the text, and generated examples.
#include <doctest/doctest.h>

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <map>
#include <set>
#include <sstream>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using Ids = std::vector<std::int32_t>;

namespace {

std::int32_t value_of(const std::string& text) { return ListOps::value(ListOps::tokens(text)); }

// Replaces the innermost list of the text by its value until one digit is left. `depth` receives the max nesting depth.
int naive(std::string text, int* depth = nullptr) {
  int max_depth = 0, open = 0;
  for (const char c : text) {
    open += c == '[' ? 1 : c == ']' ? -1 : 0;
    max_depth = std::max(max_depth, open);
  }
  if (depth != nullptr) *depth = max_depth;
  for (std::size_t end = text.find(']'); end != std::string::npos; end = text.find(']')) {
    const std::size_t begin = text.rfind('[', end);
    std::istringstream list(text.substr(begin + 1, end - begin - 1));
    std::string op;
    list >> op;
    std::vector<int> x;
    for (int digit; list >> digit;) x.push_back(digit);
    std::sort(x.begin(), x.end());
    int value = 0;
    if (op == "MAX") value = x.back();
    if (op == "MIN") value = x.front();
    if (op == "MED") value = x.size() % 2 == 1 ? x[x.size() / 2] : (x[x.size() / 2 - 1] + x[x.size() / 2]) / 2;
    if (op == "SM") {
      for (int v : x) value += v;
      value %= 10;
    }
    text.replace(begin, end - begin + 1, std::to_string(value));
  }
  return std::stoi(text);
}

}  // namespace

TEST_CASE("ListOps: values by hand") {
  CHECK(value_of("[MAX 2 9 [MIN 4 7 ] 0 ]") == 9);
  CHECK(value_of("[MIN 2 9 [MIN 4 7 ] 3 ]") == 2);
  CHECK(value_of("[SM 9 9 9 ]") == 7);
  CHECK(value_of("[SM 5 5 ]") == 0);
  CHECK(value_of("[MED 1 9 2 ]") == 2);
  CHECK(value_of("[MED 1 4 ]") == 2);      // 2.5, rounded down
  CHECK(value_of("[MED 8 1 6 3 ]") == 4);  // 4.5
  CHECK(value_of("[MED 3 [SM 8 8 ] [MAX 1 0 ] ]") == 3);
  CHECK(value_of("[SM [SM [SM 7 7 ] 7 ] 7 ]") == 8);
  CHECK(value_of("4") == 4);
  CHECK(ListOps::tokens("[MAX 2 [SM 1 0 ] ]") == Ids{10, 2, 13, 1, 0, 14, 14});
  CHECK(ListOps::text(Ids{12, 0, 11, 9, 3, 14, 14, 15, 15}) == "[MED 0 [MIN 9 3 ] ]");
}

TEST_CASE("ListOps: examples have the value of a naive evaluation of their text, and the requested sizes") {
  const ListOps lists({.depth = 4, .arguments = 5, .min_tokens = 10, .max_tokens = 60});
  std::map<std::int32_t, int> values, operators;
  std::set<std::size_t> lengths;
  std::set<std::string> texts;
  int deepest = 0, flat = 0;
  const int n = 4000;
  for (int i = 0; i < n; ++i) {
    const ListOpsExample e = lists.example(3, static_cast<std::uint64_t>(i));
    const std::string text = ListOps::text(e.tokens);
    int depth = 0;
    REQUIRE_MESSAGE(naive(text, &depth) == e.value, text);
    REQUIRE(ListOps::tokens(text) == e.tokens);
    deepest = std::max(deepest, depth);
    flat += depth == 1 ? 1 : 0;
    REQUIRE((e.tokens.size() >= 10 && e.tokens.size() <= 60));
    ++values[e.value], ++operators[e.tokens.front()];
    lengths.insert(e.tokens.size());
    texts.insert(text);
  }
  CHECK(deepest == 4);
  CHECK(flat == 0);  // a list of digits has at most 7 tokens
  CHECK(values.size() == 10);
  for (const auto& [value, count] : values) CHECK(count > n / 25);
  for (const auto& [value, count] : values) CHECK(count < n / 5);
  CHECK(operators.size() == 4);
  for (const auto& [op, count] : operators) CHECK(std::abs(count - n / 4) < n / 10);
  CHECK(lengths.size() > 45);
  CHECK(texts.size() > n * 99 / 100);
}

TEST_CASE("ListOps: examples and batches are a pure function of seed and place, and held-out ones are others") {
  const ListOps lists({.min_tokens = 8, .max_tokens = 40});
  CHECK(lists.example(1, 5).tokens == lists.example(1, 5).tokens);
  CHECK(lists.example(1, 5).tokens != lists.example(1, 6).tokens);
  CHECK(lists.example(1, 5).tokens != lists.example(2, 5).tokens);
  const ListOpsBatches data(lists, 16);
  const Batch b = data.batch(4, 9);
  CHECK(b.counted == 16);
  CHECK(b.targets.shape() == Shape{16});
  CHECK(b.inputs.to_vector<std::int32_t>() == data.batch(4, 9).inputs.to_vector<std::int32_t>());
  CHECK(b.inputs.to_vector<std::int32_t>() != data.batch(4, 10).inputs.to_vector<std::int32_t>());
  Index longest = 0;
  std::set<std::string> training;
  for (Index r = 0; r < 16; ++r) {
    Ids row = b.inputs[r].to_vector<std::int32_t>();
    const auto end = std::find(row.begin(), row.end(), ListOps::kPadding);
    CHECK(std::all_of(end, row.end(), [](std::int32_t t) { return t == ListOps::kPadding; }));
    longest = std::max<Index>(longest, end - row.begin());
    row.erase(end, row.end());
    CHECK(ListOps::value(row) == b.targets.at({r}));
    training.insert(ListOps::text(row));
  }
  CHECK(longest == b.inputs.dim(1));
  CHECK(training.size() == 16);

  const ListOpsHeldOut held_out(lists, 250, 100, 4);
  REQUIRE(held_out.size() == 3);
  CHECK(held_out.batch(2).counted == 50);
  CHECK(held_out.batch(1).targets.at({3}) == held_out.example(103).value);
  std::map<int, double> counts;
  for (Index i = 0; i < 250; ++i) counts[held_out.example(i).value] += 1.0 / 250;
  double max_share = 0;
  for (const auto& [value, share] : counts) max_share = std::max(max_share, share);
  CHECK(held_out.majority() == doctest::Approx(max_share));
  CHECK(max_share < 0.25);
  std::set<std::string> seen;
  for (int i = 0; i < 250; ++i) seen.insert(ListOps::text(lists.example(2 * 4, static_cast<std::uint64_t>(i)).tokens));
  int shared = 0;
  for (Index i = 0; i < 250; ++i) shared += static_cast<int>(seen.count(ListOps::text(held_out.example(i).tokens)));
  CHECK(shared < 10);
}

TEST_CASE("ListOps: batches count their inputs without padding") {
  const Batch b = ListOpsBatches(ListOps({.min_tokens = 5, .max_tokens = 40}), 16).batch(1, 0);
  const std::vector<std::int32_t> inputs = b.inputs.to_vector<std::int32_t>();
  const auto padding = std::count(inputs.begin(), inputs.end(), ListOps::kPadding);
  CHECK(padding > 0);
  CHECK(b.read() == b.inputs.numel() - padding);
  CHECK(Batch{b.inputs, b.targets, 16}.read() == b.inputs.numel());
  CHECK(Batch{Tensor::zeros({16, 3}), b.targets, 16}.read() == 16);  // numbers, not tokens
}

TEST_CASE("ListOps: errors") {
  const auto error = [](const ListOpsOptions& o) { return error_of([&] { ListOps lists(o); }); };
  CHECK(error({.depth = 0}) == "listops: depth is 0 and arguments 5; they must be 1 or more and 2 or more");
  CHECK(error({.min_tokens = 9, .max_tokens = 8}) ==
        "listops: expressions have 9 to 8 tokens; the maximum must be at least 4 and at least the minimum");
  CHECK(error({.list = 2}) == "listops: the share of lists is 2; it must be from 0 to 1");
  CHECK(error({.depth = 1, .min_tokens = 20}) ==
        "listops: none of 10000 expressions had 20 to 48 tokens; change the lengths, the depth or the arguments");
  const auto wrong = [](const std::string& text) { return error_of([&] { value_of(text); }); };
  CHECK(wrong("[MAX 1 2") == "listops: the expression ends within a list; each list must end with ]");
  CHECK(wrong("") == "listops: the expression ends within a list; each list must end with ]");
  CHECK(wrong("[MAX ]") == "listops: the list that ends at 1 is empty; it must have an argument");
  CHECK(wrong("] 1") == "listops: token 14 at 0 must be a digit or begin a list");
  CHECK(wrong("1 2") == "listops: the expression ends at 1 but there are 2 tokens");
  CHECK(contains(wrong("[MAXI 1 2 ]"), "listops: '[MAXI' is not a token"));
  CHECK(contains(error_of([] { ListOps::text(Ids{16}); }), "listops: token 16 is out of range; tokens are 0 to "));
  CHECK(contains(error_of([] { ListOpsBatches(ListOps(), 0); }), "a batch has 0 rows; it must have 1 or more"));
  CHECK(contains(error_of([] { ListOpsHeldOut(ListOps(), 0, 5, 1); }), "count is 0 and rows is 5"));
  const ListOpsHeldOut held_out(ListOps(), 9, 5, 1);
  CHECK(error_of([&] { held_out.batch(2); }) == "batches: batch 2 is out of range; there are 2");
  CHECK(error_of([&] { held_out.batch(-1); }) == "batches: batch -1 is out of range; there are 2");
}
