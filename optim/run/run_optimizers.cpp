// Prepares the optimizers of a run.
#include <algorithm>
#include <heed/core/memory.hpp>
#include <heed/optim/ranks/ranks.hpp>
#include <heed/optim/run/run_optimizers.hpp>

namespace heed::detail {

RunOptimizers::CommunicationScope::CommunicationScope(Optimizer& optimizer, DType dtype)
    : optimizer_(optimizer), before_(optimizer.communication_dtype()) {
  optimizer_.set_communication_dtype(dtype);
}

RunOptimizers::CommunicationScope::~CommunicationScope() { optimizer_.set_communication_dtype(before_); }

RunOptimizers::RunOptimizers(const std::vector<Update>& updates, const RunOptions& options) {
  for (const Update& u : updates)
    if (std::find(all_.begin(), all_.end(), &u.optimizer) == all_.end()) all_.push_back(&u.optimizer);
  for (Optimizer* o : all_) scopes_.emplace_back(*o, options.communication_dtype);
  if (options.ranks == nullptr) {
    for (const Optimizer* o : all_)
      require(o->division() == nullptr, "run: ", o->name(), " is sharded over ranks, but this run has none; create a ",
              "new optimizer");
    return;
  }
  std::vector<Index> loads(static_cast<std::size_t>(options.ranks->size()));
  for (Optimizer* o : all_) o->divide(*options.ranks, loads);
  release_cached_memory();  // memory of states that other ranks keep
}

}  // namespace heed::detail
