// The ranks of run(): their shards, their optimizers, and their communication except gradients and values. Private to
// optim.
#pragma once
#include <filesystem>
#include <heed/data/checkpoint.hpp>
#include <heed/optim/ranks/division.hpp>
#include <heed/optim/ranks/exchange_thread.hpp>
#include <heed/optim/ranks/messages.hpp>
#include <heed/optim/ranks/step_gradients.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heed::detail {

// RankOptions::communicator. If null, the only rank of a run in one process, which exchanges nothing.
Ranks& ranks_of(const RankOptions& options);

// The ranks of a run: their shards, sums over ranks, and the gathering of divided state for checkpoints. A run in one
// process has one rank.
class RunRanks {
 public:
  explicit RunRanks(const RankOptions& options = {}, Index shards = 1);

  bool is_first() const { return ranks_.rank() == 0; }
  bool is_alone() const { return ranks_.size() == 1; }
  std::string host() const { return ranks_.host(); }
  Index begin() const { return shards_.begins[me()]; }    // first shard of this rank
  Index end() const { return shards_.begins[me() + 1]; }  // last shard of this rank + 1

  // Ends the thread of exchanges. Call before the memory of exchanges in progress is freed, as after an exception.
  void stop() { exchanges_.stop(); }

  void sum(std::span<double> numbers) const;                       // over ranks, in place; exact for whole numbers
  bool any(bool here) const;                                       // whether `here` is true on any rank
  std::vector<std::string> gather(const std::string& here) const;  // one text per rank

  // Whether to end the run. `in_step`: what the ranks agreed on during the last step. A single rank needs no agreement
  // and decides by `now`.
  bool agreed(bool in_step, bool now) const { return is_alone() ? now : in_step; }

  // Calls compute(i), which returns a text, for i from 0 to n - 1, each on one rank. All ranks then call use(i, text)
  // for all i in order. A single rank uses each text before it computes the next.
  template <class Compute, class Use>
  void each_in_order(Index n, const Compute& compute, const Use& use) const {
    if (is_alone()) {
      for (Index i = 0; i < n; ++i) use(i, compute(i));
      return;
    }
    Packed here;
    for (Index i = ranks_.rank(); i < n; i += ranks_.size()) here.add(compute(i));
    std::vector<Packed> all;
    for (std::string& bytes : gather(here.bytes())) all.emplace_back(std::move(bytes));
    for (Index i = 0; i < n; ++i) use(i, all[static_cast<std::size_t>(i % ranks_.size())].text());
  }

  // Sums in two parts. Between start and finish, other exchanges may be in progress, but only one sum of each kind. The
  // first pair of functions does what sum() does. finish_sum_of_shards() returns the sum of one number per shard, in
  // the order of the shards, and sets each flag that is set on any rank. `here`: the numbers of this rank's shards.
  void start_sum(const std::vector<double>& numbers);
  std::vector<double> finish_sum();
  void start_sum_of_shards(std::vector<double> here, std::span<const bool> flags);
  double finish_sum_of_shards(std::span<bool> flags);

  // Divides the optimizers of the run among the ranks. They stay divided after the run, because one rank may not have
  // enough memory for a whole state. Call once, on all ranks. Throws Error if other ranks divided them, or if they have
  // parameters that RankOptions::dtype does not permit.
  void divide(const std::vector<Optimizer*>& optimizers);
  std::unique_ptr<StepGradients> gradients();  // of one loss

  // Stores the state of an optimizer in a section of a checkpoint. Divided tensors are gathered when they are written.
  void store(const Optimizer& optimizer, const std::string& section, Checkpoint& c) const;
  // Saves a checkpoint with such sections. Rank 0 writes the file. The other ranks send their parts until rank 0 is
  // done. Returns the message of an Error of rank 0, on other ranks only that there was one; else an empty text.
  std::string save(Checkpoint& c, const std::filesystem::path& file) const;

 private:
  Ranks& ranks_;
  DType dtype_;  // of gradients and values that ranks exchange
  ShardDivision shards_;
  std::vector<DividedOptimizer> optimizers_;
  // Numbers of all ranks, to which each rank contributes its own.
  struct Gathered {
    std::vector<double> numbers;
    std::vector<Index> begins;  // [ranks + 1]: rank r has the numbers from begins[r] to begins[r + 1]
    ExchangeThread::Ticket ticket;
  };
  Gathered summed_, summed_of_shards_;
  ExchangeThread exchanges_;  // the last member, as its thread writes to the numbers above

  Gathered among_all(std::span<const double> here, std::vector<Index> begins) const;
  Gathered among_all(std::span<const double> here) const;  // each rank has equally many
  static std::vector<double> sums_of(const Gathered& g);   // over ranks that have equally many
  void start(Gathered& g);
  const Division& division_of(const Optimizer& optimizer) const;
  std::size_t me() const { return static_cast<std::size_t>(ranks_.rank()); }
};

}  // namespace heed::detail
