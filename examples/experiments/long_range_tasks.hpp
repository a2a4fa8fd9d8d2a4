// Tasks of long sequences for encoders, after those of "Long Range Arena" (Tay et al. 2020), on data that the program
// makes itself. Each sequence has one of a few classes.
#pragma once
#include <cstdint>
#include <functional>
#include <heed/core/random.hpp>
#include <heed/data/batches.hpp>
#include <string>
#include <vector>

#include "examples/support/sequence_classifier.hpp"

namespace heed::examples {

// A sequence and its class. A row of a task of pairs holds two sequences, each padded to LongRangeTask::length.
struct LongRangeExample {
  std::vector<std::int32_t> tokens;
  std::int32_t label = 0;
};

// One task.
struct LongRangeTask {
  std::string name, about;
  Index vocabulary = 0, length = 0;  // max tokens of a sequence
  SequenceClasses classes = {};
  bool padded = false;                         // sequences may be shorter than `length`
  std::function<LongRangeExample(Rng&)> draw;  // without padding; of a task of pairs, with it
};

// The sizes of the tasks.
struct LongRangeSizes {
  Index length = 2000;  // max tokens of nested lists, bytes of texts, and bytes of each text of a pair
  Index side = 32;      // of an image, in pixels
};

// The names of the tasks:
// - listops: the value of nested lists (ListOps), of a quarter of `length` to `length` tokens.
// - text: bytes of a review. Does its writer praise more than blame? Some sentences are no opinion, some are the
//   opinion of another, and some say "not".
// - retrieval: bytes of two reports. Are both about the same seal?
// - pixels: the grey values of a drawn digit, row by row.
// - path: the grey values of dashed lines, row by row. Are both dots at the ends of one line? (Linsley et al. 2018)
const std::vector<std::string>& long_range_task_names();

// Throws Error for an unknown name, or sizes that are too small for the task.
LongRangeTask long_range_task(const std::string& name, const LongRangeSizes& sizes);

// Training batches: inputs int32 [B, T], padded at the end, and targets int32 [B]. Row r of step s is a pure function
// of (seed, s, r).
class LongRangeBatches {
 public:
  LongRangeBatches(LongRangeTask task, Index rows);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  Batching batching() const { return {.rows = rows_}; }

 private:
  LongRangeTask task_;
  Index rows_;
};

// Held-out examples, which use separate random streams.
class LongRangeHeldOut {
 public:
  LongRangeHeldOut(LongRangeTask task, Index count, Index rows, std::uint64_t seed);
  Index size() const { return (count_ + rows_ - 1) / rows_; }
  Batch batch(Index i) const;
  double majority() const;  // accuracy of a constant answer

 private:
  LongRangeTask task_;
  Index count_, rows_;
  std::uint64_t seed_;
};

}  // namespace heed::examples
