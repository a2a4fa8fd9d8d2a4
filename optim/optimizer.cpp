// What all optimizers share: groups, steps over chunks of parameters, and the state of a checkpoint.
#include <algorithm>
#include <cmath>
#include <heed/core/detail/profiler.hpp>
#include <heed/optim/detail/division.hpp>
#include <heed/optim/optimizer.hpp>
#include <map>
#include <numeric>

namespace heed {

using detail::Chunk;
using detail::Trained;

Optimizer::Optimizer(std::string name, const ParameterGroups& parameters, double lr, double weight_decay,
                     std::vector<StateSlot> slots, bool maximize)
    : name_(std::move(name)),
      lr_(lr),
      slots_(std::move(slots)),
      parameters_(detail::trained(name_, parameters)),
      maximize_(maximize) {
  check_option(lr >= 0, "lr", lr, "0 or more");
  check_option(weight_decay >= 0, "weight_decay", weight_decay, "0 or more");
  require(slots_.size() <= UpdateChunk::kMostStates, name_, ": ", slots_.size(),
          " tensors of state per parameter; there are at most ", UpdateChunk::kMostStates,
          " (UpdateChunk::kMostStates)");
  for (const ParameterGroup& g : parameters.groups()) {
    const double decay = g.weight_decay.value_or(weight_decay);
    check_option(g.lr_scale >= 0, "lr_scale of a group", g.lr_scale, "0 or more");
    check_option(decay >= 0, "weight_decay of a group", decay, "0 or more");
    groups_.push_back({lr * g.lr_scale, g.lr_scale, decay});
  }
  states_.resize(parameters_.size());
  steps_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].info().requires_grad) allocate_states(i);
  for (const Trained& p : parameters_) p.info().trainers.fetch_add(1, std::memory_order_relaxed);
}

Optimizer::~Optimizer() {
  for (const Trained& p : parameters_) p.info().trainers.fetch_sub(1, std::memory_order_relaxed);
}

void Optimizer::check_option(bool ok, const char* option, double value, const char* rule) const {
  require(ok && std::isfinite(value), name_, ": ", option, " is ", value, "; it must be ", ok ? "finite" : rule);
}

std::optional<Shape> Optimizer::state_shape(std::size_t parameter, const StateSlot& slot) const {
  const Trained& p = parameters_[parameter];
  return slot.shape == nullptr ? p.value.shape() : slot.shape(p.value.shape(), p.elementwise);
}

void Optimizer::allocate_states(std::size_t parameter) {
  for (const StateSlot& slot : slots_) {
    std::optional<Shape> shape = state_shape(parameter, slot);
    if (shape && division_ != nullptr) {
      const int owner = division_->owner(parameter);
      if (owner < 0)
        shape = Shape{division_->of(parameter, ranks_->rank()).count()};
      else if (owner != ranks_->rank())
        shape = Shape{0};
    }
    const DType dtype = parameters_[parameter].value.dtype();
    states_[parameter].push_back(shape ? Tensor::full(*shape, slot.initial, dtype) : Tensor());
  }
}

// Of a whole state of a parameter, what this rank keeps.
Tensor Optimizer::part_here(std::size_t parameter, const Tensor& state) const {
  const int owner = division_->owner(parameter);
  if (owner == ranks_->rank()) return state;
  const detail::Stretch none, &here = owner < 0 ? division_->of(parameter, ranks_->rank()) : none;
  return state.detach().dense().view({state.numel()}).slice(0, here.begin, here.end);
}

void Optimizer::divide(Ranks& ranks, std::vector<Index>& loads) {
  require(ranks_ == nullptr || ranks_ == &ranks, name_, ": it is divided among other ranks; make it anew");
  if (ranks_ != nullptr) return;
  std::vector<bool> whole;
  for (const Trained& p : parameters_) whole.push_back(needs_whole(p.value.shape(), p.elementwise));
  ranks_ = &ranks;
  division_ = std::make_shared<detail::Division>(parameters_, whole, loads);
  const NoTape guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (Tensor& state : states_[i])
      if (state.defined()) state = division_->owner(i) == ranks.rank() ? state : part_here(i, state).clone();
}

bool Optimizer::is_here(const Chunk& chunk) const {
  return division_ == nullptr || division_->owner_of(chunk) == ranks_->rank();
}

void Optimizer::update(const UpdateChunk&) const {
  fail(name_,
       ": it overrides neither update() nor update_whole(), so that a step would do nothing; write `override` behind "
       "yours, and the compiler tells what differs");
}

void Optimizer::collect() {
  detail::check_owned(name_, "optimizer", parameters_);
  chunks_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].active()) chunks_.add(static_cast<int>(i), parameters_[i].value.numel());
}

void Optimizer::update_chunk(const Chunk& c, double gradient_scale) const {
  const auto i = static_cast<std::size_t>(c.parameter);
  const Trained& p = parameters_[i];
  const Group& group = groups_[static_cast<std::size_t>(p.group)];
  const auto from = [&](const Tensor& x, Index item) -> void* {
    return x.defined() ? static_cast<char*>(x.raw()) + static_cast<std::size_t>(item) * size_of(x.dtype()) : nullptr;
  };
  const Index states_begin = division_ == nullptr ? 0 : division_->of(i, ranks_->rank()).begin;
  UpdateChunk u{p.value.dtype(),
                c.count,
                from(p.value, c.begin),
                from(detail::gradient_of(p), c.begin),
                {},
                gradient_scale,
                group.lr,
                group.weight_decay,
                steps_[i]};
  for (std::size_t s = 0; s < slots_.size(); ++s) u.states[s] = from(states_[i][s], c.begin - states_begin);
  update(u);
}

void Optimizer::apply(double gradient_scale) {
  const detail::ProfileScope scope("optimizer");
  if (maximize_) gradient_scale = -gradient_scale;
  wholes_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Trained& p = parameters_[i];
    if (!p.active()) continue;
    count_step(i);
    if (division_ != nullptr && division_->owner(i) != ranks_->rank()) continue;
    const Group& group = groups_[static_cast<std::size_t>(p.group)];
    wholes_.push_back({p.value, detail::gradient_of(p), states_[i], gradient_scale, group.lr, group.weight_decay,
                       steps_[i], p.elementwise, p.parts});
  }
  {
    const NoTape guard;
    update_wholes(wholes_);
  }
  chunks_.clear();
  auto whole = wholes_.begin();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].active()) continue;
    const bool tried = division_ == nullptr || division_->owner(i) == ranks_->rank();
    if (!(tried && (whole++)->done)) chunks_.add(static_cast<int>(i), parameters_[i].value.numel());
  }
  wholes_.clear();
  chunks_.run([&](Index, const Chunk& c) {
    if (is_here(c)) update_chunk(c, gradient_scale);
  });
  if (division_ != nullptr) {
    std::vector<Tensor> values(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].active()) values[i] = parameters_[i].value;
    detail::all_gather(*ranks_, *division_, values);
  }
  end_step();
}

// Of a parameter that this step updates.
void Optimizer::count_step(std::size_t parameter) {
  if (states_[parameter].size() < slots_.size()) allocate_states(parameter);
  steps_[parameter]++;
}

// When all of them are.
void Optimizer::end_step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].active()) continue;
    parameters_[i].value.bump_version();
    for (Tensor& s : states_[i])
      if (s.defined()) s.bump_version();
  }
  step_count_++;
}

void Optimizer::step(double gradient_scale) {
  collect();
  apply(gradient_scale);
}

double Optimizer::clipped_step(double max_norm, NonFinite non_finite) {
  detail::check_max_norm(name_, max_norm);
  const double norm = grad_norm();
  if (!std::isfinite(norm)) {
    if (non_finite == NonFinite::error) fail_non_finite(norm);
    if (non_finite == NonFinite::skip) return norm;
  }
  apply(clip_coefficient(norm, max_norm));
  return norm;
}

void Optimizer::fail_non_finite(double norm) const {
  detail::fail_non_finite(name_, norm, parameters_, chunks_, sums_);
}

double Optimizer::grad_norm() {
  const detail::ProfileScope scope("clipping");
  collect();
  detail::squares_of(parameters_, chunks_, sums_, [this](const Chunk& c) { return is_here(c); });
  if (division_ != nullptr) gather_sums();
  return detail::norm_of(sums_);
}

// The sums of squares of all chunks, each of which one rank has.
void Optimizer::gather_sums() {
  std::vector<std::vector<std::size_t>> chunks(static_cast<std::size_t>(ranks_->size()));  // by rank
  for (Index i = 0; i < chunks_.size(); ++i)
    chunks[static_cast<std::size_t>(division_->owner_of(chunks_[i]))].push_back(static_cast<std::size_t>(i));
  std::vector<Index> begins = {0};
  std::vector<double> by_rank;
  for (const auto& of_rank : chunks) {
    for (const std::size_t i : of_rank) by_rank.push_back(sums_[i]);
    begins.push_back(static_cast<Index>(by_rank.size()));
  }
  detail::all_gather(*ranks_, by_rank, begins);
  auto sum = by_rank.begin();
  for (const auto& of_rank : chunks)
    for (const std::size_t i : of_rank) sums_[i] = *sum++;
}

void Optimizer::zero_grad() {
  for (Trained& p : parameters_) p.info().has_gradient = false;
}

const Optimizer::Group& Optimizer::group_at(int group) const {
  require(group >= 0 && group < groups(), name_, ": group ", group, " was asked for; there are ", groups());
  return groups_[static_cast<std::size_t>(group)];
}

void Optimizer::set_lr(double lr) {
  check_option(lr >= 0, "lr", lr, "0 or more");
  lr_ = lr;
  for (Group& g : groups_) g.lr = lr * g.lr_scale;
}

void Optimizer::set_lr(double lr, int group) {
  check_option(lr >= 0, "lr", lr, "0 or more");
  group_at(group);
  groups_[static_cast<std::size_t>(group)].lr = lr;
}

void Optimizer::set_weight_decay(double weight_decay, int group) {
  check_option(weight_decay >= 0, "weight_decay", weight_decay, "0 or more");
  group_at(group);
  groups_[static_cast<std::size_t>(group)].weight_decay = weight_decay;
}

std::vector<std::string> Optimizer::parameter_names() const {
  std::vector<std::string> names;
  for (const Trained& p : parameters_) names.push_back(p.name);
  return names;
}

bool Optimizer::trains(const Parameter& parameter) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const Trained& p) { return p.value.shares_storage(parameter); });
}

std::vector<std::size_t> Optimizer::by_name() const {
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](std::size_t a, std::size_t b) { return parameters_[a].name < parameters_[b].name; });
  return order;
}

std::vector<NamedTensor> Optimizer::state() const {
  require(division_ == nullptr, name_, ": its state is divided among ranks; each has a part of it, state_parts()");
  std::vector<NamedTensor> parts;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (std::size_t s = 0; s < states_[i].size(); ++s)
      if (states_[i][s].defined()) parts.push_back({slots_[s].name + "." + parameters_[i].name, states_[i][s]});
  for (NamedTensor& part : small_state()) parts.push_back(std::move(part));
  return parts;
}

std::vector<Optimizer::StatePart> Optimizer::state_parts() const {
  std::vector<StatePart> parts;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (std::size_t s = 0; s < states_[i].size(); ++s)
      if (const Tensor& here = states_[i][s]; here.defined())
        parts.push_back({slots_[s].name + "." + parameters_[i].name, *state_shape(i, slots_[s]), here.dtype(), here,
                         static_cast<int>(i)});
  for (const NamedTensor& part : small_state())
    parts.push_back({part.name, part.tensor.shape(), part.tensor.dtype(), part.tensor, -1});
  return parts;
}

// The rest of the state: how many steps were made, and the learning rates.
std::vector<NamedTensor> Optimizer::small_state() const {
  std::vector<NamedTensor> parts;
  std::vector<double> lrs = {lr_};
  for (const Group& g : groups_) lrs.push_back(g.lr);
  std::vector<std::int32_t> steps;
  for (const std::size_t i : by_name()) steps.push_back(steps_[i]);
  parts.push_back({"steps", Tensor::from(steps, {static_cast<Index>(steps.size())})});
  parts.push_back({"step_count", Tensor::scalar(static_cast<double>(step_count_), DType::int32)});
  parts.push_back({"lr", Tensor::from(lrs, {static_cast<Index>(lrs.size())})});
  return parts;
}

// Makes states_ those of the parameters that have tensors in `given`. One may have been frozen when this was made and
// trained in the run that saved: it gets its tensors now. Or the reverse: without steps and tensors there, it has none
// here until its first step.
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
  for (const StatePart& p : parts)  // of those that are divided: a tensor of their shape
    mine.push_back({p.name, p.here.shape() == p.shape ? p.here : Tensor::scalar(0, p.dtype).expand(p.shape)});
  try {
    detail::check_state(name_, mine, given);
  } catch (const Error&) {
    states_ = had;
    throw;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (division_ == nullptr || parts[i].parameter < 0) continue;
    const auto whole = std::ranges::find(given, parts[i].name, &NamedTensor::name);
    mine[i].tensor = parts[i].here;
    mine[i].tensor.copy_(part_here(static_cast<std::size_t>(parts[i].parameter), whole->tensor));
  }
  if (division_ != nullptr) mine.erase(mine.begin(), mine.end() - 3);
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
