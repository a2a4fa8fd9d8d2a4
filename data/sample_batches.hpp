// Batches of samples, for training and for evaluation.
//
//   const PaddingByName padding = {{"inputs", {.lengths = true}}};
//   SampleBatches training(samples, {.tokens = 4096, .padding = padding});           // of similar length
//   SampleEvaluation held_out(other_samples, {.tokens = 4096, .padding = padding});  // in order
#pragma once
#include <heed/data/samples.hpp>
#include <mutex>

namespace heed {

struct SampleBatchOptions {
  Index rows = 0;  // samples per batch, at most; 0: as many as `tokens` lets
  // What a batch may hold at most, padding included: rows times the longest of its padded tensors. 0: any number.
  Index tokens = 0;
  PaddingByName padding = {};  // as of collate()
};

// Every sample once per epoch, in an order that is a function of the seed and the epoch; batch s of a run is a pure
// function of (seed, s). Given `tokens`, batches are of samples of similar length, within a tenth, and long ones have
// fewer rows: samples are drawn within such a bucket, and then the batches of all buckets are shuffled. The last batch
// of a bucket, or of an epoch without buckets, may have fewer rows. Then all samples are read once, for their lengths.
// Error: there are none; neither rows nor tokens; a sample that is longer than `tokens`.
class SampleBatches {
 public:
  SampleBatches(Samples samples, SampleBatchOptions options);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  Index size() const { return batches_; }  // batches of an epoch, in each the same number

 private:
  struct Bucket {
    std::vector<Index> samples;
    Index rows;  // of its batches
  };
  struct Epoch;  // the order of one
  struct Cache;  // the last one asked for

  Samples samples_;
  SampleBatchOptions options_;
  std::vector<Bucket> buckets_;
  Index batches_ = 0;
  std::shared_ptr<Cache> cache_;

  std::shared_ptr<const Epoch> epoch(std::uint64_t seed, std::uint64_t number) const;
};

// Every sample once, in order: each batch holds as many as the options let. Errors as above.
class SampleEvaluation {
 public:
  SampleEvaluation(Samples samples, SampleBatchOptions options);
  Index size() const { return static_cast<Index>(begins_.size()) - 1; }
  Batch batch(Index i) const;

 private:
  Samples samples_;
  SampleBatchOptions options_;
  std::vector<Index> begins_;  // of the batches, and the end of the last
};

}  // namespace heed
