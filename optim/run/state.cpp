// The construction of a run's state.
#include <algorithm>
#include <heed/optim/run/state.hpp>

namespace heed::detail {
namespace {

std::vector<std::string> names_of(const std::vector<Update>& updates) {
  require(!updates.empty(), "run: there are no updates; there must be one or more");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    names.push_back(updates[i].name.empty() || i == 0 ? std::to_string(i + 1) : updates[i].name);
    require(std::count(names.begin(), names.end(), names.back()) == 1, "run: two updates are named ", names.back(),
            "; names must differ");
  }
  return names;
}

}  // namespace

RunState::RunState(RunParts given, const RunOptions& o)
    : parts(std::move(given)),
      options(o),
      ranks(o.ranks, o.shards),
      data(parts.data, parts.validation, o),
      names(names_of(parts.updates)) {}

}  // namespace heed::detail
