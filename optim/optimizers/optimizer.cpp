// The base class of optimizers: groups, steps over chunks of parameters, and steps divided among ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/core/profiler.hpp>
#include <heed/optim/optimizers/division.hpp>
#include <heed/optim/optimizers/optimizer.hpp>
#include <heed/optim/optimizers/rounded.hpp>

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
    if (shape && division_ != nullptr && division_->owner(parameter) != ranks_->rank())
      shape = Shape{division_->kept(parameter, ranks_->rank(), shape->numel()).count()};
    const DType dtype = parameters_[parameter].value.dtype();
    states_[parameter].push_back(shape ? Tensor::full(*shape, slot.initial, dtype) : Tensor());
  }
}

// The part of a parameter's whole state that this rank keeps.
Tensor Optimizer::part_here(std::size_t parameter, const Tensor& state) const {
  if (division_->owner(parameter) == ranks_->rank()) return state;
  const detail::Stretch here = division_->kept(parameter, ranks_->rank(), state.numel());
  return state.detach().dense().view({state.numel()}).slice(0, here.begin, here.end);
}

void Optimizer::divide(Ranks& ranks, std::vector<Index>& loads) {
  require(ranks_ == nullptr || ranks_ == &ranks, name_, ": it is sharded over other ranks; create a new optimizer");
  if (ranks_ != nullptr) return;
  std::vector<bool> whole;
  for (const Trained& p : parameters_) whole.push_back(needs_whole(p.value.shape(), p.elementwise));
  ranks_ = &ranks;
  division_ = std::make_shared<detail::Division>(parameters_, whole, loads);
  const NoTape guard;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (Tensor& state : states_[i])
      if (state.defined() && division_->owner(i) != ranks.rank()) state = part_here(i, state).clone();
}

void Optimizer::set_communication_dtype(DType dtype) {
  require(dtype == DType::float32 || dtype == DType::bfloat16, name_, ": communication_dtype is ", name_of(dtype),
          "; it must be float32 or bfloat16");
  const bool rounds = dtype == DType::bfloat16;
  for (const Trained& p : parameters_)
    require(!rounds || p.value.dtype() == DType::float32, name_, ": communication_dtype is bfloat16, but ", p.name,
            " is ", name_of(p.value.dtype()), "; all parameters must be float32");
  rounds_ = rounds;
}

bool Optimizer::is_here(const Chunk& chunk) const {
  return division_ == nullptr || division_->owner_of(chunk) == ranks_->rank();
}

void Optimizer::update(const UpdateChunk&) const {
  fail(name_,
       ": it does not override update(), so a step would do nothing; if it overrides update_whole(), needs_whole() and "
       "update_whole() must return true; mark your functions `override` to let the compiler check their signatures");
}

void Optimizer::collect() {
  detail::check_owned(name_, "optimizer", parameters_);
  chunks_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].active()) chunks_.add(static_cast<int>(i), parameters_[i].value.numel());
}

void Optimizer::update_chunk(const Chunk& c, double gradient_scale, bfloat16* added) const {
  const auto i = static_cast<std::size_t>(c.parameter);
  const Trained& p = parameters_[i];
  const Group& group = groups_[static_cast<std::size_t>(p.group)];
  const auto from = [&](const Tensor& x, Index item) -> void* {
    return x.defined() ? detail::address_of(x, item) : nullptr;
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
  if (!rounds_) return update(u);
  float old[detail::Chunks::kLongest];
  std::memcpy(old, u.values, static_cast<std::size_t>(c.count) * sizeof(float));
  update(u);
  detail::round_step(u.parameter<float>(), old, added, c.count);
}

bool Optimizer::is_whole_here(std::size_t parameter) const {
  const Trained& p = parameters_[parameter];
  if (division_ != nullptr) return division_->owner(parameter) == ranks_->rank();
  return needs_whole(p.value.shape(), p.elementwise);
}

// Counts the step of each parameter that gets one, and updates the parameters that this rank updates as a whole.
void Optimizer::update_wholes_here(double gradient_scale) {
  wholes_.clear();
  old_.assign(parameters_.size(), Tensor());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Trained& p = parameters_[i];
    if (!p.active()) continue;
    count_step(i);
    if (!is_whole_here(i)) continue;
    if (rounds_) old_[i] = p.value.detach().clone();
    const Group& group = groups_[static_cast<std::size_t>(p.group)];
    wholes_.push_back({p.value, detail::gradient_of(p), states_[i], gradient_scale, group.lr, group.weight_decay,
                       steps_[i], p.elementwise, p.parts});
  }
  const NoTape guard;
  update_wholes(wholes_);
}

void Optimizer::apply(double gradient_scale) {
  const detail::ProfileScope scope("optimizer");
  if (maximize_) gradient_scale = -gradient_scale;
  update_wholes_here(gradient_scale);
  sent_.assign(parameters_.size(), Tensor());
  chunks_.clear();
  detail::Chunks updated;
  auto whole = wholes_.begin();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Trained& p = parameters_[i];
    if (!p.active()) continue;
    if (division_ != nullptr) sent_[i] = rounds_ ? Tensor::empty(p.value.shape(), DType::bfloat16) : p.value;
    const bool done = is_whole_here(i) && (whole++)->done;
    if (!done || rounds_) (done ? updated : chunks_).add(static_cast<int>(i), p.value.numel());
  }
  wholes_.clear();
  const auto added = [&](const Chunk& c) {
    const Tensor& x = sent_[static_cast<std::size_t>(c.parameter)];
    return rounds_ && x.defined() ? x.ptr<bfloat16>() + c.begin : nullptr;
  };
  chunks_.run([&](Index, const Chunk& c) {
    if (is_here(c)) update_chunk(c, gradient_scale, added(c));
  });
  if (rounds_)
    updated.run([&](Index, const Chunk& c) {
      const auto i = static_cast<std::size_t>(c.parameter);
      float* const values = parameters_[i].value.ptr<float>() + c.begin;
      detail::round_step(values, old_[i].ptr<float>() + c.begin, added(c), c.count);
    });
  if (division_ != nullptr) gather_steps();
  old_.clear();
  sent_.clear();
  end_step();
}

// Gathers the parts of other ranks of all parameters in this step: their new values, or their changes in bfloat16.
void Optimizer::gather_steps() {
  detail::all_gather(*ranks_, *division_, sent_);
  if (!rounds_) return;
  detail::Chunks all;
  for (std::size_t i = 0; i < sent_.size(); ++i)
    if (sent_[i].defined()) all.add(static_cast<int>(i), sent_[i].numel());
  all.run([&](Index, const Chunk& c) {
    const auto i = static_cast<std::size_t>(c.parameter);
    if (!is_here(c))
      detail::add_rounded(parameters_[i].value.ptr<float>() + c.begin, sent_[i].ptr<bfloat16>() + c.begin, c.count);
  });
}

// Counts a step of the parameter. Allocates its state if it was frozen before.
void Optimizer::count_step(std::size_t parameter) {
  if (states_[parameter].size() < slots_.size()) allocate_states(parameter);
  steps_[parameter]++;
}

// Call when all parameters of the step are updated.
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

// Gathers the sum of squares of each chunk from the rank that steps it, and the numbers in `extra`.
void Optimizer::gather_sums(std::span<double> extra, std::span<const Index> parts) {
  std::vector<std::vector<std::size_t>> chunks(static_cast<std::size_t>(ranks_->size()));  // [rank]
  for (Index i = 0; i < chunks_.size(); ++i)
    chunks[static_cast<std::size_t>(division_->owner_of(chunks_[i]))].push_back(static_cast<std::size_t>(i));
  const auto extra_of = [&](std::size_t r) {
    if (extra.empty()) return extra;
    return extra.subspan(static_cast<std::size_t>(parts[r]), static_cast<std::size_t>(parts[r + 1] - parts[r]));
  };
  std::vector<Index> begins = {0};
  std::vector<double> by_rank;
  for (std::size_t r = 0; r < chunks.size(); ++r) {
    for (const std::size_t i : chunks[r]) by_rank.push_back(sums_[i]);
    for (const double x : extra_of(r)) by_rank.push_back(x);
    begins.push_back(static_cast<Index>(by_rank.size()));
  }
  detail::all_gather(*ranks_, by_rank, begins);
  auto number = by_rank.begin();
  for (std::size_t r = 0; r < chunks.size(); ++r) {
    for (const std::size_t i : chunks[r]) sums_[i] = *number++;
    for (double& x : extra_of(r)) x = *number++;
  }
}

void Optimizer::zero_grad() {
  for (Trained& p : parameters_) p.info().has_gradient = false;
}

const Optimizer::Group& Optimizer::group_at(int group) const {
  require(group >= 0 && group < groups(), name_, ": group is ", group, "; it must be at least 0 and below ", groups());
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

}  // namespace heed
