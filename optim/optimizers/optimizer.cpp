// The base class of optimizers: groups, and steps over chunks of parameters.
#include <algorithm>
#include <cmath>
#include <heed/core/profiler.hpp>
#include <heed/optim/optimizers/optimizer.hpp>

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
  require(slots_.size() <= UpdateChunk::kMaxStates, name_, ": ", slots_.size(),
          " tensors of state per parameter; there must be at most ", UpdateChunk::kMaxStates,
          " (UpdateChunk::kMaxStates)");
  for (const ParameterGroup& g : parameters.groups()) {
    const double decay = g.weight_decay.value_or(weight_decay);
    check_option(g.lr_scale >= 0, "lr_scale of a group", g.lr_scale, "0 or more");
    check_option(decay >= 0, "weight_decay of a group", decay, "0 or more");
    groups_.push_back({lr * g.lr_scale, g.lr_scale, decay});
  }
  for (const Trained& p : parameters_) parts_.push_back({0, p.tensor.numel()});
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
  return slot.shape == nullptr ? p.tensor.shape() : slot.shape(p.tensor.shape(), p.elementwise);
}

bool Optimizer::keeps_all(std::size_t parameter) const {
  return parts_[parameter].count() == parameters_[parameter].tensor.numel();
}

void Optimizer::require_all_kept() const {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    require(keeps_all(i), name_, ": its state is sharded over ranks; only a run with these ranks can step and save it");
}

// The items that this optimizer keeps of a state of a parameter. A state of another shape than the parameter is kept
// as a whole or not at all.
detail::Stretch Optimizer::kept_of(std::size_t parameter, const Shape& state) const {
  return detail::part_of_state(parts_[parameter], parameters_[parameter].tensor.numel(), state.numel());
}

void Optimizer::allocate_states(std::size_t parameter) {
  for (const StateSlot& slot : slots_) {
    std::optional<Shape> shape = state_shape(parameter, slot);
    if (shape && !keeps_all(parameter)) shape = Shape{kept_of(parameter, *shape).count()};
    const DType dtype = parameters_[parameter].tensor.dtype();
    states_[parameter].push_back(shape ? Tensor::full(*shape, slot.initial, dtype) : Tensor());
  }
}

// The part that this optimizer keeps of a parameter's whole state.
Tensor Optimizer::part_of(std::size_t parameter, const Tensor& state) const {
  const detail::Stretch kept = kept_of(parameter, state.shape());
  return state.detach().dense().view({state.numel()}).slice(0, kept.begin, kept.end);
}

void Optimizer::keep(std::vector<detail::Stretch> parts) {
  require_all_kept();
  parts_ = std::move(parts);
  const NoTape guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (Tensor& state : states_[i])
      if (state.defined() && !keeps_all(i)) state = part_of(i, state).clone();
}

void Optimizer::update(const UpdateChunk&) const {
  fail(name_,
       ": it does not override update(), so a step would do nothing; if it overrides update_whole(), needs_whole() and "
       "update_whole() must return true; mark your functions `override` to let the compiler check their signatures");
}

bool Optimizer::is_updated_whole(std::size_t parameter) const {
  const Trained& p = parameters_[parameter];
  return needs_whole(p.tensor.shape(), p.elementwise);
}

void Optimizer::begin_step() {
  detail::check_owned(name_, "optimizer", parameters_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].active()) continue;
    if (states_[i].size() < slots_.size()) allocate_states(i);  // it was frozen before
    steps_[i]++;
  }
}

const std::vector<bool>& Optimizer::update_whole_parameters(double gradient_scale) {
  wholes_.clear();
  updated_.assign(parameters_.size(), false);
  const auto is_here = [this](std::size_t i) { return parameters_[i].active() && is_updated_whole(i) && keeps_all(i); };
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_here(i)) continue;
    const Trained& p = parameters_[i];
    const Group& group = groups_[static_cast<std::size_t>(p.group)];
    wholes_.push_back({p.tensor, detail::gradient_of(p), states_[i], scale_of(gradient_scale), group.lr,
                       group.weight_decay, steps_[i], p.elementwise, p.parts});
  }
  const NoTape guard;
  update_wholes(wholes_);
  auto whole = wholes_.begin();
  for (std::size_t i = 0; i < parameters_.size(); ++i) updated_[i] = is_here(i) && (whole++)->done;
  wholes_.clear();
  return updated_;
}

void Optimizer::update_chunk(const Chunk& c, double gradient_scale) const {
  const auto i = static_cast<std::size_t>(c.parameter);
  const Trained& p = parameters_[i];
  const Group& group = groups_[static_cast<std::size_t>(p.group)];
  const auto from = [&](const Tensor& x, Index item) -> void* {
    return x.defined() ? detail::address_of(x, item) : nullptr;
  };
  UpdateChunk u{p.tensor.dtype(),
                c.count,
                from(p.tensor, c.begin),
                from(detail::gradient_of(p), c.begin),
                {},
                scale_of(gradient_scale),
                group.lr,
                group.weight_decay,
                steps_[i]};
  for (std::size_t s = 0; s < slots_.size(); ++s) u.states[s] = from(states_[i][s], c.begin - parts_[i].begin);
  update(u);
}

void Optimizer::end_step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].active()) continue;
    parameters_[i].tensor.bump_version();
    for (Tensor& s : states_[i])
      if (s.defined()) s.bump_version();
  }
  step_count_++;
}

void Optimizer::step(double gradient_scale) {
  require_all_kept();
  const detail::ProfileScope scope("optimizer");
  begin_step();
  chunks_.assign_active(parameters_, update_whole_parameters(gradient_scale));
  chunks_.run([&](Index, const Chunk& c) { update_chunk(c, gradient_scale); });
  end_step();
}

double Optimizer::clipped_step(double max_norm, NonFinite non_finite) {
  detail::check_max_norm(name_, max_norm);
  const double norm = grad_norm();
  if (!std::isfinite(norm)) {
    if (non_finite == NonFinite::error) detail::fail_non_finite(name_, norm, parameters_, chunks_, sums_);
    if (non_finite == NonFinite::skip) return norm;
  }
  step(clip_coefficient(norm, max_norm));
  return norm;
}

double Optimizer::grad_norm() {
  require_all_kept();
  const detail::ProfileScope scope("clipping");
  detail::check_owned(name_, "optimizer", parameters_);
  chunks_.assign_active(parameters_);
  detail::squares_of(parameters_, chunks_, sums_);
  return detail::norm_of(sums_);
}

void Optimizer::zero_grad() {
  for (Trained& p : parameters_) p.info().has_gradient = false;
}

std::size_t Optimizer::checked(int group) const {
  require(group >= 0 && group < groups(), name_, ": group is ", group, "; it must be at least 0 and below ", groups());
  return static_cast<std::size_t>(group);
}

void Optimizer::set_lr(double lr) {
  check_option(lr >= 0, "lr", lr, "0 or more");
  lr_ = lr;
  for (Group& g : groups_) g.lr = lr * g.lr_scale;
}

void Optimizer::set_lr(double lr, int group) {
  check_option(lr >= 0, "lr", lr, "0 or more");
  groups_[checked(group)].lr = lr;
}

void Optimizer::set_weight_decay(double weight_decay, int group) {
  check_option(weight_decay >= 0, "weight_decay", weight_decay, "0 or more");
  groups_[checked(group)].weight_decay = weight_decay;
}

bool Optimizer::trains(const Parameter& parameter) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const Trained& p) { return p.tensor.shares_storage(parameter); });
}

}  // namespace heed
