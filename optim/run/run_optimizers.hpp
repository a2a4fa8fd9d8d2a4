// The optimizers of a run, with the run's ranks and communication dtype. Internal.
#pragma once
#include <deque>
#include <heed/optim/run/options.hpp>
#include <heed/optim/run/parts.hpp>
#include <vector>

namespace heed::detail {

// The optimizers of a run, each listed once. During its lifetime, they have the run's communication_dtype; afterwards
// their own one is restored. With several ranks, the optimizers are divided among the ranks and stay divided, because a
// single rank may not have enough memory for a whole state.
class RunOptimizers {
 public:
  // Throws Error if an optimizer is divided among other ranks than the run's, or has parameters that
  // communication_dtype does not permit. All optimizers then have their previous communication dtypes.
  RunOptimizers(const std::vector<Update>& updates, const RunOptions& options);

  const std::vector<Optimizer*>& all() const { return all_; }

 private:
  class CommunicationScope {
   public:
    CommunicationScope(Optimizer& optimizer, DType dtype);
    ~CommunicationScope();
    CommunicationScope(const CommunicationScope&) = delete;
    CommunicationScope& operator=(const CommunicationScope&) = delete;

   private:
    Optimizer& optimizer_;
    DType before_;
  };

  std::vector<Optimizer*> all_;
  std::deque<CommunicationScope> scopes_;
};

}  // namespace heed::detail
