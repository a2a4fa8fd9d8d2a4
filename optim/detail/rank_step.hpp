// A step of several ranks: while the gradients of a rank's last shard are computed, those that are complete are summed
// over the ranks; while the next step computes, the new values arrive. Internal.
#pragma once
#include <heed/optim/detail/division.hpp>
#include <heed/optim/detail/exchange_thread.hpp>
#include <heed/optim/detail/gradient_tree.hpp>
#include <heed/optim/detail/messages.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace heed::detail {

// The steps of one loss. Parameters are exchanged in buckets: all ranks have the same, in the same order, and start one
// when all gradients in it are complete. The first step, in which nothing overlaps, tells that order. What had no
// gradient then is exchanged at the end of the steps in which it has one.
//
// Of each bucket, a rank sends every other rank that one's stretch of its sums, and gets the others' sums of its own,
// which it joins in the order of the tree. Ranks of one machine read each other's where they lie, a chunk at a time
// that is still in the cache when it is added. It makes the optimizer's step there, and sends the new values to all: of
// the last bucket first, as what backward came to last is what forward reads first. Who reads a value that has not
// arrived waits for it (Arrival). In bfloat16 sums are sent rounded, and in place of values what the step added to
// them.
class RankStep {
 public:
  // Of all optimizers whose parameters may get gradients; they are divided among the ranks.
  RankStep(ExchangeThread& exchanges, const ShardDivision& shards, const std::vector<Optimizer*>& optimizers,
           DType communication);
  ~RankStep();  // nobody waits any more for what has not arrived
  RankStep(const RankStep&) = delete;
  RankStep& operator=(const RankStep&) = delete;

  void begin();            // a step
  void add_shard() { tree_.add_shard(); }  // of the shards before the last one
  void complete(const Tensor& parameter);  // the last shard's gradient of it
  // All of the last shard's gradients are there. Afterwards a parameter that has a gradient on one rank has one on all,
  // and each rank the sum in the stretch of it that it steps.
  void finish();

  // Optimizer::clipped_step() in two parts: the norm of the gradients; and the step, which returns before all values
  // have arrived, but for an optimizer that steps whole parameters (Division::owner). `of_shards`: a number of each
  // shard, of which this rank's are there and the others' arrive with the norm; empty: none.
  double norm(Optimizer& optimizer, std::span<double> of_shards = {});
  [[noreturn]] static void fail_non_finite(const Optimizer& optimizer, double norm);  // Error: names the parameter
  void step(Optimizer& optimizer, double gradient_scale);
  void wait();  // until they have

 private:
  // A part of a stretch of each rank, of one parameter: the k-th bucket_ items.
  struct Piece {
    std::size_t parameter;
    Index k;
  };
  struct Bucket {
    std::vector<Piece> pieces;     // each of another parameter
    std::size_t awaited = 0;       // of them, whose gradients are not complete
    std::vector<std::string> has;  // [rank]: for each piece '1' where that rank has a gradient
    // From start() to join(): what arrives, and what is sent in another type than it is computed in.
    MessageMemory memory;
    std::vector<std::vector<MessageMemory::Place>> arrived;  // [rank][piece]
    // In place of these, where ranks share memory: where this rank has that one's part, and that one this rank's.
    std::vector<std::vector<const char*>> here, there;  // [rank][piece]
    ExchangeThread::Ticket exchange;
  };
  // What another rank's step added to a piece of a parameter, in bfloat16.
  struct Added {
    std::shared_ptr<MessageMemory> memory;  // of a bucket
    const bfloat16* from;
    float* to;
    Index count;
  };
  // The values of a parameter, from step() on.
  struct Values final : Arrival {
    ExchangeThread* exchanges = nullptr;
    Storage* storage = nullptr;
    ExchangeThread::Ticket last;  // of their exchanges
    bool sent = false;            // in the current step
    std::mutex mutex;             // of what follows
    std::vector<Added> added;     // to be added when it has arrived; else the values themselves arrive
    void wait() override;
  };
  // A parameter in the current step.
  struct Progress {
    bool complete = false;
    Tensor sum;                   // over this rank's shards, then over all in its stretch; undefined: there is none
    bool anywhere = false;        // whether a rank has a gradient
    bool counted = false;         // as a step of the optimizer's
    std::vector<double> squares;  // the sum of each chunk's in this rank's stretch
  };

  ExchangeThread& exchanges_;
  Ranks& ranks_;
  const ShardDivision& shards_;
  GradientTree tree_;
  std::vector<bool> shares_memory_;  // [rank]: its sums are read where they lie, and these by it
  std::vector<int> others_;  // ranks, from the next one on, so that not all send to one at first
  std::vector<Optimizer*> owners_;                           // [parameter]
  std::unordered_map<const Optimizer*, std::size_t> first_;  // parameter of an optimizer
  std::unordered_map<const Storage*, std::size_t> numbers_;  // of the parameters
  Index bucket_ = 0;                                         // items of a rank's stretches in a bucket
  std::vector<std::size_t> plan_;  // parameters that are exchanged as soon as they are complete, in this order
  std::vector<bool> planned_;      // [parameter]

  std::vector<Values> values_;  // [parameter]
  std::vector<Progress> progress_;      // [parameter]
  std::vector<std::size_t> completed_;  // parameters, as complete() told
  std::vector<Bucket> buckets_;
  std::size_t started_ = 0, joined_ = 0;  // of them

  const Trained& trained(std::size_t parameter) const { return tree_.parameters()[parameter]; }
  const Stretch& stretch_of(std::size_t parameter, int rank) const;
  Index longest_stretch(std::size_t parameter) const;  // of all ranks
  Stretch piece_of(const Piece& piece, int rank) const;
  std::size_t size_sent(const Tensor& x) const {  // of an item
    return size_of(tree_.rounds() ? DType::bfloat16 : x.dtype());
  }
  std::size_t bytes_sent(const Piece& piece, int rank) const;
  // Of each piece, for a message with a rank's part of it.
  std::vector<MessageMemory::Place> places(MessageMemory& memory, const std::vector<Piece>& pieces, int rank) const;
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
  void tell_profile();
  void step_bucket(const Bucket& bucket, Optimizer& optimizer, double gradient_scale);
};

}  // namespace heed::detail
