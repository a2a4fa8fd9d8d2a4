// Rows that hold several samples: first fit, documents, batches by epoch, resume and errors.
#include <heed/data/fine_tuning.hpp>
//
#include <algorithm>
#include <heed/core/random.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::error_of;
using test::ids_of;
using Ids = std::vector<std::int32_t>;
using Rows = std::vector<std::vector<Index>>;

namespace {

// Samples of the given lengths: sample i repeats 10 + i, and only its last target counts.
struct Lengths {
  std::vector<Index> of;
  Index size() const { return static_cast<Index>(of.size()); }
  Sample sample(Index i) const {
    const Index n = of[static_cast<std::size_t>(i)];
    Tensor targets = Tensor::full({n}, kIgnoreIndex, DType::int32);
    if (n > 0) targets.ptr<std::int32_t>()[n - 1] = static_cast<std::int32_t>(i);
    return {{"inputs", Tensor::full({n}, static_cast<double>(10 + i), DType::int32)}, {"targets", targets}};
  }
  std::string fingerprint() const { return "lengths"; }
};

Lengths many_lengths(Index count, Index longest) {
  Lengths all;
  Rng rng(5);
  for (Index i = 0; i < count; ++i) all.of.push_back(1 + rng.integer(longest));
  return all;
}

}  // namespace

TEST_CASE("packed samples: each sample is in the first open row with room for it") {
  const Lengths six{{3, 4, 2, 5, 1, 3}};
  CHECK(PackedSamples(six, {.context = 6}).rows() == Rows{{0, 2, 4}, {1}, {3}, {5}});  // a full row is closed at once
  CHECK(PackedSamples(six, {.context = 6, .window = 1}).rows() == Rows{{0}, {1, 2}, {3, 4}, {5}});
  CHECK(PackedSamples(Lengths{{6, 6}}, {.context = 6}).rows() == Rows{{0}, {1}});
  CHECK(PackedSamples(Lengths{{2, 2, 2, 2}}, {.context = 6}).filled() == 8.0 / 12);
}

TEST_CASE("packed samples: inputs, targets and documents of a row") {
  const PackedSamples rows(Lengths{{3, 2, 1}}, {.context = 8, .padding = 7});
  REQUIRE(rows.size() == 1);
  const Sample row = rows.sample(0);
  constexpr std::int32_t X = kIgnoreIndex;
  CHECK(ids_of(row.at("inputs")) == Ids{10, 10, 10, 11, 11, 12, 7, 7});
  CHECK(ids_of(row.at("targets")) == Ids{X, X, 0, X, 1, 2, X, X});
  CHECK(ids_of(row.at("documents")) == Ids{0, 0, 0, 3, 3, 5, 6, 7});
  const SampleEvaluation batches(rows, {.rows = 4});
  const Batch b = batches.batch(0);
  CHECK((b.counted == 3 && b.has_token_targets() && b["documents"].shape() == Shape{1, 8}));
}

TEST_CASE("packed samples: every sample is in one row, and rows are almost full") {
  const Lengths lengths = many_lengths(2000, 60);
  for (const std::optional<std::uint64_t> seed : {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(3)}) {
    const PackedSamples packed(lengths, {.context = 100, .seed = seed});
    std::vector<Index> seen;
    for (const std::vector<Index>& row : packed.rows()) {
      Index tokens = 0;
      for (const Index i : row) tokens += lengths.of[static_cast<std::size_t>(i)], seen.push_back(i);
      CHECK(tokens <= 100);
    }
    CHECK(packed.filled() > 0.97);
    CHECK(seen.size() == 2000);
    std::sort(seen.begin(), seen.end());
    for (Index i = 0; i < 2000; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("packed samples: rows are a function of samples, options and seed") {
  const Lengths lengths = many_lengths(300, 40);
  const auto rows = [&](std::uint64_t seed, Index window = 64) {
    return PackedSamples(lengths, {.context = 64, .window = window, .seed = seed}).rows();
  };
  CHECK(rows(1) == rows(1));
  CHECK(rows(1) != rows(2));
  CHECK(rows(1) != rows(1, 4));
  const auto print = [&](const PackOptions& o) { return *PackedSamples(lengths, o).fingerprint(); };
  const std::string first = print({.context = 64, .seed = 1});
  CHECK(first == print({.context = 64, .seed = 1}));
  CHECK(first != print({.context = 64, .seed = 2}));
  CHECK(first != print({.context = 64, .seed = 1, .padding = 1}));
  CHECK(print({.context = 999999}) != print({.context = 1000000}));
  CHECK(!PackedSamples(TensorDataset({{"inputs", Tensor::zeros({2, 3}, DType::int32)},
                                      {"targets", Tensor::zeros({2, 3}, DType::int32)}}),
                       {.context = 4})
             .fingerprint()
             ->empty());
}

TEST_CASE("packed samples: epochs read each row once, in an order by seed, and continue with batches of another size") {
  const PackedSamples rows(many_lengths(200, 30), {.context = 64, .seed = 1});
  const SampleBatches batches(rows, {.rows = 4});
  const auto epoch = static_cast<std::uint64_t>(batches.size());
  const auto targets_of = [](const Batch& b) {
    Ids all = ids_of(b.targets);
    std::erase(all, kIgnoreIndex);
    return all;
  };
  Ids first, second;
  for (std::uint64_t step = 0; step < 2 * epoch; ++step) {
    const Ids targets = targets_of(batches.batch(9, step));
    Ids& seen = step < epoch ? first : second;
    seen.insert(seen.end(), targets.begin(), targets.end());
  }
  CHECK(first != second);
  std::sort(first.begin(), first.end()), std::sort(second.begin(), second.end());
  CHECK((first.size() == 200 && first == second && std::adjacent_find(first.begin(), first.end()) == first.end()));
  // the same batches from any step, as after a resume
  const SampleBatches again(PackedSamples(many_lengths(200, 30), {.context = 64, .seed = 1}), {.rows = 4});
  for (const std::uint64_t step : {epoch + 3, std::uint64_t{1}}) {
    const Batch a = batches.batch(9, step), b = again.batch(9, step);
    CHECK((test::same_bits(a.inputs, b.inputs) && test::same_bits(a["documents"], b["documents"])));
  }
  const SampleBatches smaller = SampleBatches(rows, {.rows = 2}).continued({{{.rows = 4}, 3}});
  Ids rest;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Ids targets = targets_of(batches.batch(9, step));
    rest.insert(rest.end(), targets.begin(), targets.end());
  }
  for (std::uint64_t step = 0; step < smaller.batches_until(9, 1); ++step) {
    const Ids targets = targets_of(smaller.batch(9, step));
    rest.insert(rest.end(), targets.begin(), targets.end());
  }
  std::sort(rest.begin(), rest.end());
  CHECK(rest == first);
}

TEST_CASE("packed samples: examples are split into training and validation before they are packed") {
  std::vector<TextExample> list;
  for (int i = 0; i < 40; ++i)
    list.push_back({.prompt = "p", .completion = std::string(1, static_cast<char>('A' + i))});
  const TokenExamples examples(list, ByteTokenizer(), {.context = 8});
  const auto [training, held_out] = split(examples, 0.25, 3);
  const PackedSamples a(training, {.context = 8, .seed = 1}), b(held_out, {.context = 8});
  Ids seen;
  for (const PackedSamples* part : {&a, &b})
    for (Index i = 0; i < part->size(); ++i)
      for (const std::int32_t y : ids_of(part->sample(i).at("targets")))
        if (y != kIgnoreIndex) seen.push_back(y);
  CHECK((a.size() == 4 && b.size() == 2));  // one input per example
  std::sort(seen.begin(), seen.end());
  CHECK((seen.size() == 40 && std::adjacent_find(seen.begin(), seen.end()) == seen.end()));
}

TEST_CASE("packed samples: errors") {
  struct Other {
    TensorsByName tensors;
    Index size() const { return 1; }
    Sample sample(Index) const { return tensors; }
    std::string where(Index) const { return "line 3 of f"; }
  };
  const Tensor ids = Tensor::zeros({3}, DType::int32);
  test::check_errors({
      {"packing: context is 0 and window is 64; both must be 1 or more", [] { PackedSamples(Lengths{{1}}, {}); }},
      {"packing: context is 4 and window is 0", [] { PackedSamples(Lengths{{1}}, {.context = 4, .window = 0}); }},
      {"packing: there are no samples; there must be one or more", [] { PackedSamples(Lengths{}, {.context = 4}); }},
      {"packing: sample 1 has the inputs [5] int32 and the targets [5] int32; both must be int32 of one length, from 1 "
       "to "
       "the context, 4",
       [] {
         PackedSamples(Lengths{{4, 5}}, {.context = 4});
       }},
      {"packing: sample 1 has the inputs [0] int32",
       [] {
         PackedSamples(Lengths{{4, 0}}, {.context = 4});
       }},
      {"packing: sample 0 (line 3 of f) lacks inputs or targets; it must have both",
       [&] {
         PackedSamples(Other{{{"inputs", ids}}}, {.context = 4});
       }},
      {"packing: sample 0 (line 3 of f) has the inputs [3] int32 and the targets [3] float32",
       [&] {
         PackedSamples(Other{{{"inputs", ids}, {"targets", Tensor::zeros({3})}}}, {.context = 4});
       }},
      {"packing: row 1 is out of range; there are 1", [] { PackedSamples(Lengths{{1}}, {.context = 4}).sample(1); }},
  });
}
