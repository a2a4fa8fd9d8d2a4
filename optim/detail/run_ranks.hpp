// What the ranks of a run tell each other beside gradients and parameters. Internal.
#pragma once
#include <heed/optim/detail/division.hpp>
#include <heed/optim/detail/exchange_thread.hpp>
#include <heed/optim/run_loop.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// Means over the counted targets of evaluation batches that come in order.
class MetricsMean {
 public:
  void add(Index batch, double counted, const Metrics& metrics);  // Error where it has other numbers than the first
  Metrics value(Index batches) const;                             // Error where no target of so many counted

 private:
  Metrics sums_;
  double counted_ = 0;
};

// evaluate_metrics(), the batches dealt out to the ranks; null: one process.
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches,
                         Ranks* ranks);

// A property of a run that must be the same on all ranks, and what it is here.
using RunProperties = std::vector<std::pair<std::string, std::string>>;
// Of a run whose updates have these names and which goes on from this step. Weights and data are told by hashes, data
// by those of their first batches.
RunProperties properties_of(const RunParts& parts, const RunOptions& options, const std::vector<std::string>& names,
                            Index step);

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

  // Error on all ranks where two differ: it names rank, host and what differs.
  void require_same(const RunProperties& here) const;

  // The state of divided optimizers in a checkpoint that rank 0 writes: a tensor is gathered when the writer asks for
  // it. Rank 0 has write() called, all others serve until it is done.
  void save(Checkpoint& c, const std::vector<std::pair<std::string, const Optimizer*>>& sections,
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
