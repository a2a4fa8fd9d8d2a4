// What the ranks of a run tell each other beside gradients and parameters. Internal.
#pragma once
#include <heed/optim/detail/division.hpp>
#include <heed/optim/detail/exchange_thread.hpp>
#include <heed/optim/run_loop.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

class RunRanks {
 public:
  explicit RunRanks(Ranks* ranks, Index shards);  // null: this process is the run

  Ranks* get() const { return ranks_; }
  bool is_first() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  const ShardDivision& shards() const { return shards_; }
  Index begin() const { return shards_.begins[me()]; }  // of this rank's shards
  Index end() const { return shards_.begins[me() + 1]; }

  void sum(std::span<double> numbers) const;      // over ranks: exact where they are whole
  bool any(bool here) const;                      // whether on one rank
  ExchangeThread& exchanges() { return *exchanges_; }  // of several ranks

  // In two parts, beside which other exchanges may be under way, one of each kind at a time: sum(); and the sum of a
  // number of each shard, in their order (`here`: of this rank's), and of each flag whether it is set on one of the
  // ranks.
  void start_sum(const std::vector<double>& numbers);
  std::vector<double> finish_sum();
  void start_sum_of_shards(std::vector<double> here, std::span<const bool> flags);
  double finish_sum_of_shards(std::span<bool> flags);

  // The state of divided optimizers in a checkpoint that rank 0 writes: a tensor is gathered when the writer asks for
  // it. Rank 0 has write() called, all others serve until it is done. Returns the Error of write(), of which other
  // ranks know only that there was one; empty: none.
  std::string save(Checkpoint& c, const std::vector<std::pair<std::string, const Optimizer*>>& sections,
                   const std::function<void(const Checkpoint&)>& write) const;

 private:
  Ranks* ranks_;
  ShardDivision shards_;
  std::optional<ExchangeThread> exchanges_;
  // Numbers of all ranks, of which each tells the others its own.
  struct Gathered {
    std::vector<double> numbers;
    std::vector<Index> begins;  // [rank]: where its numbers begin, and behind the last one where they end
    ExchangeThread::Ticket ticket;
  };
  Gathered summed_, summed_of_shards_;

  Gathered among_all(std::span<const double> here, std::vector<Index> begins) const;
  Gathered among_all(std::span<const double> here) const;  // each has as many
  static std::vector<double> sums_of(const Gathered& g);   // where each has as many
  void start(Gathered& g);
  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  std::size_t me() const { return ranks_ == nullptr ? 0 : static_cast<std::size_t>(ranks_->rank()); }
};

}  // namespace heed::detail
