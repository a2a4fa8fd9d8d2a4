// Samples: what a data set is made of that is no endless row of tokens, and how several of them become a batch.
//
//   const TensorDataset points({{"inputs", x}, {"targets", y}});  // x [N, 2], y int32 [N]
//   const auto [training, held_out] = split(points, 0.1, 7);      // a tenth to evaluate on
//   const Batch b = collate({training.sample(0), training.sample(1)});
//
// data/sample_batches.hpp draws batches of them, data/text_pairs.hpp and data/csv.hpp read them from files.
#pragma once
#include <concepts>
#include <functional>
#include <heed/data/batches.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heed {

// One example: its tensors by name, without the axis of the batch. A sequence is [T] or [T, ...], a class int32 [].
using Sample = TensorsByName;

// What fills up a tensor whose first axis is shorter in some samples than in others.
struct Padding {
  double value = 0;      // of targets that do not count: kIgnoreIndex
  bool lengths = false;  // NAME_lengths in the batch: int32 [B], the lengths without padding
  bool mask = false;     // NAME_mask in the batch: bool8 [B, T], true where there is no padding
};
using PaddingByName = std::map<std::string, Padding, std::less<>>;

// A batch of these samples, each tensor [B, ...]. Those that `padding` names are as long as the longest, and filled up
// at the end. Where there are int32 `targets`, Batch::counted is the number of those that are not kIgnoreIndex, else
// that of the samples. Batch::tokens is the length of all padded tensors but the targets, without padding. Error: no
// samples; samples with other tensors than the first, or of other shape or dtype; nothing that `padding` names.
Batch collate(const std::vector<Sample>& samples, const PaddingByName& padding = {});

// A row of samples: any type with `Index size() const` and `Sample sample(Index i) const` for 0 <= i < size(), yours as
// well. A pure function.
template <class T>
concept SamplesLike = requires(const T& t, Index i) {
  { t.size() } -> std::convertible_to<Index>;
  { t.sample(i) } -> std::convertible_to<Sample>;
};

class Samples {
 public:
  template <SamplesLike T>
  requires(!std::same_as<T, Samples>) Samples(T set)
      : size_(set.size()),
        sample_([held = std::make_shared<T>(std::move(set))](Index i) -> Sample { return held->sample(i); }) {}
  Index size() const { return size_; }
  Sample sample(Index i) const;                          // Error unless 0 <= i < size()
  Samples chosen(const std::vector<Index>& rows) const;  // these, in this order; Error as of sample()

 private:
  Index size_;
  std::function<Sample(Index)> sample_;
};

// Chooses a share of the samples at random, by the seed, and gives the others and these, both in the order that they
// have. Error unless 0 <= share <= 1.
std::pair<Samples, Samples> split(const Samples& samples, double share, std::uint64_t seed);

// Samples in memory: sample i is row i of each tensor. Error where their first axes differ, or there is no tensor.
class TensorDataset {
 public:
  explicit TensorDataset(TensorsByName tensors);
  Index size() const { return tensors_.begin()->second.dim(0); }
  Sample sample(Index i) const;
  const TensorsByName& tensors() const { return tensors_; }

 private:
  TensorsByName tensors_;
};

}  // namespace heed
