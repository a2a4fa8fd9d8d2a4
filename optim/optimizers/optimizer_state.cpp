// The state of optimizers for checkpoints.
#include <algorithm>
#include <heed/optim/optimizers/optimizer.hpp>
#include <map>
#include <numeric>

namespace heed {

std::vector<std::size_t> Optimizer::by_name() const {
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](std::size_t a, std::size_t b) { return parameters_[a].name < parameters_[b].name; });
  return order;
}

std::vector<NamedTensor> Optimizer::state() const {
  require_all_kept();
  const std::vector<StatePart> parts = state_parts();
  return {parts.begin(), parts.end()};
}

std::vector<Optimizer::StatePart> Optimizer::state_parts() const {
  std::vector<StatePart> parts;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (std::size_t s = 0; s < states_[i].size(); ++s)
      if (const Tensor& here = states_[i][s]; here.defined())
        parts.push_back(
            {{slots_[s].name + "." + parameters_[i].name, here}, *state_shape(i, slots_[s]), static_cast<int>(i)});
  const auto add_whole = [&parts](const char* name, const Tensor& x) { parts.push_back({{name, x}, x.shape()}); };
  std::vector<std::int32_t> steps;
  for (const std::size_t i : by_name()) steps.push_back(steps_[i]);
  add_whole("steps", Tensor::from(steps));
  add_whole("step_count", Tensor::scalar(static_cast<double>(step_count_), DType::int32));
  std::vector<double> lrs = {lr_};
  for (const Group& g : groups_) lrs.push_back(g.lr);
  add_whole("lr", Tensor::from(lrs));
  return parts;
}

// Makes states_ fit the tensors in `given`. A parameter that was frozen when this optimizer was made, but trained in
// the saved run, gets its state now. A parameter without steps and tensors in `given` loses its state until its next
// step.
void Optimizer::fit_states(const std::vector<NamedTensor>& given) {
  std::map<std::string, const Tensor*> parts;
  for (const NamedTensor& part : given) parts[part.name] = &part.tensor;
  const auto steps = parts.find("steps");
  const bool counted = steps != parts.end() && steps->second->shape() == Shape{static_cast<Index>(steps_.size())};
  const std::vector<std::size_t> order = by_name();
  for (std::size_t place = 0; place < order.size() && !slots_.empty(); ++place) {
    const std::size_t i = order[place];
    const auto has = [&](const StateSlot& slot) { return parts.count(slot.name + "." + parameters_[i].name) == 1; };
    const bool any = std::any_of(slots_.begin(), slots_.end(), has);
    if (any && states_[i].empty()) allocate_states(i);
    if (!any && counted && steps->second->at({static_cast<Index>(place)}) == 0) states_[i].clear();
  }
}

void Optimizer::load_state(const std::vector<NamedTensor>& given) {
  for (const NamedTensor& part : given)
    if (part.name == "lr" && part.tensor.defined() && part.tensor.rank() == 1)
      require(part.tensor.numel() == groups() + 1, name_, ": the number of parameter groups in the state is ",
              part.tensor.numel() - 1, "; it must be ", groups(), ", as in this optimizer");
  const auto had = states_;
  fit_states(given);
  std::vector<NamedTensor> mine;
  const std::vector<StatePart> parts = state_parts();
  const auto is_whole = [](const StatePart& p) { return p.tensor.shape() == p.whole; };
  for (const StatePart& p : parts)
    mine.push_back({p.name, is_whole(p) ? p.tensor : Tensor::scalar(0, p.tensor.dtype()).expand(p.whole)});
  try {
    detail::check_state(name_, mine, given);
  } catch (const Error&) {
    states_ = had;
    throw;
  }
  mine.clear();
  for (const StatePart& p : parts) {
    Tensor here = p.tensor;
    if (is_whole(p))
      mine.push_back(p);
    else
      here.copy_(
          part_of(static_cast<std::size_t>(p.parameter), std::ranges::find(given, p.name, &NamedTensor::name)->tensor));
  }
  detail::copy_state(mine, given);
  const std::size_t last = mine.size();
  const std::vector<std::int32_t> steps = mine[last - 3].tensor.to_vector<std::int32_t>();
  const std::vector<std::size_t> order = by_name();
  for (std::size_t place = 0; place < order.size(); ++place) steps_[order[place]] = steps[place];
  step_count_ = mine[last - 2].tensor.item<Index>();
  const std::vector<double> lrs = mine[last - 1].tensor.to_vector<double>();
  lr_ = lrs[0];
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].lr = lrs[g + 1];
}

}  // namespace heed
