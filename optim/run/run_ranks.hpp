// Communication between the ranks of a run, except gradients and parameters. Internal.
#pragma once
#include <heed/data/checkpoint.hpp>
#include <heed/optim/optimizers/division.hpp>
#include <heed/optim/optimizers/optimizer.hpp>
#include <heed/optim/ranks/exchange_thread.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// The ranks of a run: their shards, sums over ranks, and the gathering of divided state for checkpoints.
class RunRanks {
 public:
  explicit RunRanks(Ranks* ranks, Index shards);  // null: this process is the whole run

  Ranks* get() const { return ranks_; }
  bool is_first() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  const ShardDivision& shards() const { return shards_; }
  Index begin() const { return shards_.begins[me()]; }    // first shard of this rank
  Index end() const { return shards_.begins[me() + 1]; }  // last shard of this rank + 1

  void sum(std::span<double> numbers) const;           // over ranks, in place; exact for whole numbers
  bool any(bool here) const;                           // whether `here` is true on any rank
  ExchangeThread& exchanges() { return *exchanges_; }  // only with several ranks
  // Ends the thread of exchanges. Call before the memory of exchanges in progress is freed, as after an exception.
  void stop() {
    if (exchanges_) exchanges_->stop();
  }

  // Sums in two parts. Between start and finish, other exchanges may be in progress, but only one sum of each kind. The
  // first pair of functions does what sum() does. finish_sum_of_shards() returns the sum of one number per shard, in
  // the order of the shards, and sets each flag that is set on any rank. `here`: the numbers of this rank's shards.
  void start_sum(const std::vector<double>& numbers);
  std::vector<double> finish_sum();
  void start_sum_of_shards(std::vector<double> here, std::span<const bool> flags);
  double finish_sum_of_shards(std::span<bool> flags);

  // Saves a checkpoint with the states of divided optimizers. Rank 0 calls write(), and each divided tensor is gathered
  // when it is written. The other ranks send their parts until write() is done. Returns the message of an Error of
  // write(), on other ranks only that there was one; else an empty text.
  std::string save(Checkpoint& c, const std::vector<std::pair<std::string, const Optimizer*>>& sections,
                   const std::function<void(const Checkpoint&)>& write) const;

 private:
  Ranks* ranks_;
  ShardDivision shards_;
  // Numbers of all ranks, to which each rank contributes its own.
  struct Gathered {
    std::vector<double> numbers;
    std::vector<Index> begins;  // [ranks + 1]: rank r has the numbers from begins[r] to begins[r + 1]
    ExchangeThread::Ticket ticket;
  };
  Gathered summed_, summed_of_shards_;
  std::optional<ExchangeThread> exchanges_;  // the last member, as its thread writes to the numbers above

  Gathered among_all(std::span<const double> here, std::vector<Index> begins) const;
  Gathered among_all(std::span<const double> here) const;  // each rank has equally many
  static std::vector<double> sums_of(const Gathered& g);   // over ranks that have equally many
  void start(Gathered& g);
  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  std::size_t me() const { return ranks_ == nullptr ? 0 : static_cast<std::size_t>(ranks_->rank()); }
};

}  // namespace heed::detail
