// Samples: collating them into batches, data sets of tensors, subsets and random splits.
#include <heed/data/samples.hpp>

#include <set>

#include "tests/support.hpp"

using namespace heed;
using test::error_of;
using test::ids_of;
using Ids = std::vector<std::int32_t>;

namespace {

Sample pair_of(const Ids& source, const Ids& inputs, const Ids& targets) {
  return {{"source", Tensor::from(source)}, {"inputs", Tensor::from(inputs)}, {"targets", Tensor::from(targets)}};
}

// A type without sample() does not convert to Samples, so split() of a tensor remains that of tensors.
static_assert(std::is_convertible_v<TensorDataset, Samples> && !std::is_convertible_v<Tensor, Samples>);

TensorDataset ten() { return TensorDataset({{"inputs", Tensor::arange(10)}, {"x", Tensor::zeros({10, 3})}}); }

}  // namespace

TEST_CASE("batch: any number of tensors by name, inputs and targets among them") {
  Batch b{Tensor::arange(6), Tensor::zeros({2}), 2};
  b["source"] = Tensor::ones({4});
  b["mask"];
  CHECK(b.at("inputs").shares_storage(b.inputs));
  CHECK(b["targets"].shares_storage(b.targets));
  CHECK(b.has("source"));
  CHECK_FALSE(b.has("mask"));
  CHECK(b.read() == 6);
  const Batch& fixed = b;
  CHECK(fixed["source"].shares_storage(b.others.at("source")));
  CHECK(error_of([&] { fixed["sorce"]; }) ==
        "batch: there is no tensor sorce; it must be one of inputs, targets, source");
  CHECK(error_of([&] { b.at("mask"); }) == "batch: there is no tensor mask; it must be one of inputs, targets, source");
  CHECK(error_of([] { Batch().at("inputs"); }) == "batch: there is no tensor inputs; the batch is empty");
  b["inputs"] = Tensor::arange(3);
  CHECK(b.inputs.numel() == 3);
  CHECK(Batch{Tensor(), Tensor(), 7}.read() == 7);
}

TEST_CASE("collate: samples of different length are filled up, with lengths, masks and counts") {
  const Batch b = collate({pair_of({1, 2, 3}, {9, 4}, {4, 8}), pair_of({5}, {9, 6, 7}, {6, 7, 8})},
                          {{"source", {.value = 99, .lengths = true, .mask = true}},
                           {"inputs", {}},
                           {"targets", {.value = kIgnoreIndex}}});
  CHECK(b["source"].shape() == Shape{2, 3});
  CHECK(ids_of(b["source"]) == Ids{1, 2, 3, 5, 99, 99});
  CHECK(b["source"].dtype() == DType::int32);
  CHECK(ids_of(b["source_lengths"]) == Ids{3, 1});
  CHECK(b["source_mask"].dtype() == DType::bool8);
  CHECK(ids_of(b["source_mask"].to(DType::int32)) == Ids{1, 1, 1, 1, 0, 0});
  CHECK(ids_of(b.inputs) == Ids{9, 4, 0, 9, 6, 7});
  CHECK(ids_of(b.targets) == Ids{4, 8, -100, 6, 7, 8});
  CHECK(b.counted == 5);
  CHECK(b.tokens == 4 + 5);  // source and inputs
  CHECK(b.others.size() == 3);
}

TEST_CASE("collate: numbers, sequences of vectors, views, and samples without targets") {
  const Tensor x = Tensor::arange(24, DType::float32).reshape({4, 3, 2});
  const Batch b = collate({{{"x", x[1]}, {"y", x[0].t()}}, {{"x", x[2].slice(0, 0, 1)}, {"y", x[3].t()}}},
                          {{"x", {.value = -1}}});
  CHECK(b["x"].shape() == Shape{2, 3, 2});
  CHECK(test::same_bits(b["x"][0], x[1].clone()));
  CHECK(b["x"].to_vector<float>() == std::vector<float>{6, 7, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1});
  CHECK(test::same_bits(b["y"][0], x[0].t().contiguous()));
  CHECK(b.counted == 2);
  CHECK(b.tokens == 3 + 1);
  // Targets that are single numbers count per sample. Padded targets that are not ids are no tokens.
  const Batch c = collate({{{"targets", Tensor::ones({2})}}, {{"targets", Tensor::ones({3})}}}, {{"targets", {}}});
  CHECK(c.counted == 2);
  CHECK(c.tokens == 0);
  // With a mask or lengths, elements without padding count; also with a mask in the samples, int32 too.
  const std::vector<Sample> rows = {{{"targets", Tensor::ones({2, 4})}}, {{"targets", Tensor::ones({3, 4})}}};
  CHECK(collate(rows, {{"targets", {.mask = true}}}).counted == 5);
  CHECK(collate(rows, {{"targets", {.lengths = true}}}).counted == 5);
  const auto masked = [](const Tensor& targets) {
    return std::vector<Sample>(2, {{"targets", targets}, {"targets_mask", Tensor::from<bool>({true, false, true})}});
  };
  CHECK(collate(masked(Tensor::ones({3}))).counted == 4);
  CHECK(collate(masked(Tensor::from<std::int32_t>({1, 2, kIgnoreIndex}))).counted == 2);
  const Batch none = collate({{{"x", Tensor::zeros({0}, DType::int32)}}}, {{"x", {.mask = true}}});
  CHECK(none["x_mask"].shape() == Shape{1, 0});
}

TEST_CASE("collate: errors") {
  const Sample a = pair_of({1, 2}, {3}, {4});
  test::check_errors({
      {"collate: there are no samples; there must be one or more", [] { collate({}); }},
      {"collate: padding is given for mask, but sample 0 has no such tensor",
       [&] {
         collate({a}, {{"mask", {}}});
       }},
      {"collate: sample 1 has the tensors inputs, source and sample 0 inputs, source, targets; they must be the same",
       [&] {
         collate({a, {{"inputs", Tensor::arange(1)}, {"source", Tensor::arange(2)}}});
       }},
      {"collate: source of sample 1 is [3] int32 and of sample 0 [2] int32; they must be equal, because no padding is "
       "given for it",
       [&] {
         collate({a, pair_of({1, 2, 3}, {3}, {4})});
       }},
      {"collate: x of sample 1 is [2, 4] float32 and of sample 0 [2, 3] float32; they must be equal except for the "
       "first axis",
       [] {
         collate({{{"x", Tensor::zeros({2, 3})}}, {{"x", Tensor::zeros({2, 4})}}}, {{"x", {}}});
       }},
      {"collate: x of sample 1 is [2] float64 and of sample 0 [2] float32",
       [] {
         collate({{{"x", Tensor::zeros({2})}}, {{"x", Tensor::zeros({2}, DType::float64)}}}, {{"x", {}}});
       }},
      {"collate: x of sample 0 is [] float32; it must be defined, and needs an axis for padding",
       [] {
         collate({{{"x", Tensor::scalar(1)}}}, {{"x", {}}});
       }},
      {"collate: x of sample 0 is",
       [] {
         collate({{{"x", Tensor()}}});
       }},
  });
}

TEST_CASE("samples: rows of tensors, some of them, and a split at random") {
  const Samples all = ten();
  CHECK(all.size() == 10);
  CHECK(all.sample(3).at("inputs").item() == 3);
  CHECK(all.sample(3).at("x").shape() == Shape{3});
  const Samples some = all.chosen({7, 2, 7});
  CHECK(some.size() == 3);
  CHECK(some.sample(2).at("inputs").item() == 7);
  const auto ids = [](const Samples& s) {
    Ids list;
    for (Index i = 0; i < s.size(); ++i) list.push_back(s.sample(i).at("inputs").item<std::int32_t>());
    return list;
  };
  const auto [training, held_out] = split(all, 0.3, 5);
  CHECK(held_out.size() == 3);
  Ids both = ids(training), rest = ids(held_out);
  CHECK(std::is_sorted(both.begin(), both.end()));
  CHECK(std::is_sorted(rest.begin(), rest.end()));
  CHECK(rest != Ids{7, 8, 9});
  CHECK(ids(split(all, 0.3, 5).second) == rest);
  CHECK(ids(split(all, 0.3, 6).second) != rest);
  both.insert(both.end(), rest.begin(), rest.end());
  CHECK(std::set<std::int32_t>(both.begin(), both.end()).size() == 10);
  CHECK(split(all, 0, 1).second.size() == 0);
  test::check_errors({
      {"samples: sample 10 is out of range; there are 10", [&] { all.sample(10); }},
      {"samples: sample -1 is out of range; there are 10", [&] { all.chosen({-1}); }},
      {"split: the share is 1.5; it must be from 0 to 1", [&] { split(all, 1.5, 1); }},
      {"TensorDataset: there are no tensors; there must be one or more", [] { TensorDataset({}); }},
      {"TensorDataset: y is [3] float32 and x [2] float32; their first axes (samples) must have the same size",
       [] {
         TensorDataset({{"x", Tensor::zeros({2})}, {"y", Tensor::zeros({3})}});
       }},
      {"TensorDataset: x is [] float32",
       [] {
         TensorDataset({{"x", Tensor::scalar(1)}});
       }},
  });
}
