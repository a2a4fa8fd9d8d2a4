// What a run makes of its optimizers. Internal.
#pragma once
#include <deque>
#include <heed/optim/run_loop.hpp>
#include <vector>

namespace heed::detail {

// The optimizers of a run, each once. Their steps are of the run's communication_dtype for as long as this lives, and
// afterwards as before. Where the run has several ranks they are divided among these, and remain so: nobody gathers a
// state that one rank may have no memory for.
class RunOptimizers {
 public:
  // Error where one is divided among other ranks than the run's, or has parameters that its communication_dtype is not
  // for; all take steps as before then.
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
