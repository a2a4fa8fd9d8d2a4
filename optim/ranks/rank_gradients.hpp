// The gradients of several ranks. They are summed over the ranks during the backward pass of the last shard. New values
// are exchanged during the forward pass of the next step. Private to optim/ranks.
#pragma once
#include <heed/optim/ranks/exchange_thread.hpp>
#include <heed/optim/ranks/messages.hpp>
#include <heed/optim/ranks/rounded.hpp>
#include <heed/optim/ranks/step_gradients.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace heed::detail {

// Parameters are exchanged in buckets. All ranks have the same buckets in the same order, and
// start a bucket when all gradients in it are complete. The first step, in which nothing overlaps, determines the
// order. Parameters without a gradient in the first step are exchanged at the end of later steps in which they have
// one.
//
// For each bucket, a rank sends every other rank its sums over that rank's stretch, receives the sums of the others
// over its own stretch, and joins them in the order of the tree. Ranks of one machine read each other's sums in place,
// one chunk at a time, so that the chunk is in the cache when it is added. The rank then makes the optimizer's step on
// its stretch and sends the new values to all. The last bucket is first, because forward first reads the parameters
// whose gradients backward completes last. Reading a value that has not arrived waits for it (Arrival). In bfloat16,
// ranks send rounded sums, and instead of values the changes that the step made.
class RankGradients final : public StepGradients {
 public:
  // For all optimizers whose parameters may get gradients.
  RankGradients(ExchangeThread& exchanges, const ShardDivision& shards, const std::vector<DividedOptimizer>& optimizers,
                DType communication);
  ~RankGradients() override;  // later reads do not wait for values that have not arrived
  RankGradients(const RankGradients&) = delete;
  RankGradients& operator=(const RankGradients&) = delete;

  void begin() override;
  void add_shard() override { tree_.add_shard(); }
  void watch(Tape& tape) override;
  // Afterwards, a parameter that has a gradient on one rank has one on all ranks, and each rank has the sum over all
  // shards in its own stretch.
  void finish() override;
  void apply(Optimizer& optimizer, double gradient_scale) override;
  void wait() override;

 private:
  // Part k of the stretches of a parameter: at most bucket_ items of each rank's stretch.
  struct Piece {
    std::size_t parameter;
    Index k;
  };
  struct Bucket {
    std::vector<Piece> pieces;     // each of another parameter
    std::size_t awaited = 0;       // pieces whose gradients are not complete
    std::vector<std::string> has;  // [rank]: one character per piece, '1' if the rank has a gradient
    // From start() to join(): received sums, and sent sums that are rounded.
    MessageMemory memory;
    std::vector<std::vector<MessageMemory::Place>> arrived;  // [rank][piece]
    // Instead of `arrived` if ranks share memory: addresses of this rank's sums over the other's stretch, and of the
    // other's sums over this rank's stretch.
    std::vector<std::vector<const char*>> here, there;  // [rank][piece]
    ExchangeThread::Ticket exchange;
  };
  // The change, in bfloat16, that another rank's step made to a piece of a parameter.
  struct Added {
    std::shared_ptr<MessageMemory> memory;  // of a bucket
    const bfloat16* from;
    float* to;
    Index count;
  };
  // The values of a parameter that are in flight after apply().
  struct Values final : Arrival {
    ExchangeThread* exchanges = nullptr;
    Storage* storage = nullptr;
    ExchangeThread::Ticket last;  // last exchange of these values
    bool sent = false;            // in the current step
    std::mutex mutex;             // guards `added`
    std::vector<Added> added;     // to be added after arrival; empty if the values themselves are exchanged
    void wait() override;
  };
  // The progress of a parameter in the current step.
  struct Progress {
    bool complete = false;
    Tensor sum;                   // over this rank's shards, then over all shards in its stretch; undefined: none
    bool here = false;            // whether this rank has a gradient
    bool anywhere = false;        // whether a rank has a gradient
    std::vector<double> squares;  // sum of squares of each chunk in this rank's stretch
  };

  ExchangeThread& exchanges_;
  Ranks& ranks_;
  const ShardDivision& shards_;
  GradientTree tree_;
  std::vector<bool> shares_memory_;  // [rank]: whether it and this rank read each other's sums in place
  std::vector<int> others_;  // other ranks from the next one on, so that not all ranks send to the same rank at first
  std::vector<const DividedOptimizer*> owners_;              // [parameter]
  std::unordered_map<const Optimizer*, std::size_t> first_;  // index of an optimizer's first parameter
  std::unordered_map<const Storage*, std::size_t> numbers_;  // indices of parameters
  Index bucket_ = 0;                                         // items of a rank's stretches per bucket
  std::vector<std::size_t> plan_;  // parameters that are exchanged as soon as they are complete, in this order
  std::vector<bool> planned_;      // [parameter]

  std::vector<Values> values_;          // [parameter]
  std::vector<Progress> progress_;      // [parameter]
  std::vector<std::size_t> completed_;  // parameters in the order of complete()
  std::vector<Bucket> buckets_;
  std::size_t started_ = 0, joined_ = 0;  // numbers of buckets

  const Trained& trained(std::size_t parameter) const { return tree_.parameters()[parameter]; }
  std::size_t index_of(std::size_t parameter) const { return parameter - first_.at(owners_[parameter]->optimizer); }
  const Stretch& stretch_of(std::size_t parameter, int rank) const {
    return owners_[parameter]->division.of(index_of(parameter), rank);
  }
  Index longest_stretch(std::size_t parameter) const;  // over all ranks
  Stretch piece_of(const Piece& piece, int rank) const;
  std::size_t bytes_sent(const Piece& piece, int rank) const;
  // Reserves memory for one message per piece, each with a rank's part of the piece.
  std::vector<MessageMemory::Place> places(MessageMemory& memory, const std::vector<Piece>& pieces, int rank) const;
  void complete(const Tensor& parameter);  // the last shard's gradient of the parameter is complete
  void take(std::size_t parameter);
  void add_buckets(const std::vector<std::size_t>& parameters);
  void advance(bool to_the_end);
  static bool is_anywhere(const std::vector<std::string>& has, std::size_t i);
  void start(Bucket& bucket);
  void note_gradients(Bucket& bucket);
  void send_sums(Bucket& bucket, Messages& all);
  template <class T>
  T* sums_of(std::size_t rank, const Bucket& bucket, std::size_t piece, const Chunk& c, T* space);
  void join(Bucket& bucket);
  void exchange_rest();
  void await_readers();
  void profile_exchanges();
  void sum_squares(const Optimizer& optimizer, std::span<double> of_shards) override;
  void gather_sums(const Division& division, std::span<double> of_shards);
  void apply(const Bucket& bucket, const Optimizer& optimizer, const RoundedStep& step);
};

}  // namespace heed::detail
