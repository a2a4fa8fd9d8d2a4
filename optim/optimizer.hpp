// The base of all optimizers: step, groups, learning rates, state. Names and formulas are PyTorch's.
//
// A step is one parallel pass over all parameters of all groups, or, where an update needs whole parameters (Adafactor,
// Muon), one parameter after another or several at once. It writes into the parameters' storage, so the model
// may be moved while the optimizer lives, and raises the storages' versions. As in PyTorch each parameter counts its
// own steps, and one without gradient is left alone (state and decay included); so is a frozen one. One whose model let
// go of it (by to(), tie() or another in its place) makes the next step an Error: the optimizer is to be made after
// that.
//
// Example:
//
//   Rng rng(1);
//   Linear model(4, 2, rng);
//   AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-3});
//   Tape tape;
//   tape.backward(sum(model(rng.normal({3, 4}))));
//   const double norm = optimizer.clipped_step(1.0);
//   optimizer.zero_grad();
#pragma once
#include <heed/optim/parameter_group.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heed {

class Ranks;  // optim/ranks.hpp
namespace detail {
class Division;
class RankStep;
}

// A stretch of one parameter, as an optimizer of your own updates it: arrays of `count` items of `dtype` (float32,
// float64).
struct UpdateChunk {
  static constexpr int kMostStates = 6;

  DType dtype = {};
  Index count = {};
  void* values = {};
  const void* gradients = {};  // as backward left them
  void* states[kMostStates] = {};
  double gradient_scale = {};         // multiply gradients by it; negative where steps go up
  double lr = {}, weight_decay = {};  // the group's
  Index step = {};                    // of this parameter: 1 at its first

  template <class T>
  T* parameter() const {
    return static_cast<T*>(values);
  }
  template <class T>
  const T* gradient() const {
    return static_cast<const T*>(gradients);
  }
  template <class T>
  T* state(int i) const {
    return static_cast<T*>(states[i]);
  }
};

// A whole parameter, as an optimizer updates it that needs sums over it, or products of it.
struct WholeParameter {
  Tensor values = {}, gradient = {};    // of the parameter's shape; the gradient as backward left it
  std::span<const Tensor> states = {};  // by slot; undefined where the parameter has none
  double gradient_scale = {};           // multiply the gradient by it; negative where steps go up
  double lr = {}, weight_decay = {};    // the group's
  Index step = {};                      // of this parameter: 1 at its first
  bool elementwise = {};                // the group's
  std::span<const Index> parts = {};  // NamedParameter::parts: rows of each map that a matrix is; none where it is one
  bool done = false;               // whether it is updated; the chunks of the others are, by update()
};

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient, which counts `gradient_scale` times.
  void step(double gradient_scale = 1);

  // step() with gradients clipped to a norm of max_norm (positive; infinity does not clip), for two reads of the
  // gradients in all; they themselves stay as they are. Returns their norm before clipping. Throws Error, or takes no
  // step, where it is not finite.
  double clipped_step(double max_norm, NonFinite non_finite = NonFinite::error);

  double grad_norm();  // 2-norm of the gradients of the parameters that step() would update
  void zero_grad();    // of all parameters, without touching memory

  const std::string& name() const { return name_; }  // AdamW
  Index step_count() const { return step_count_; }   // calls of step() so far

  // The learning rate. Groups have it times their lr_scale, until they are given their own.
  double lr() const { return lr_; }
  double lr(int group) const { return group_at(group).lr; }
  void set_lr(double lr);
  void set_lr(double lr, int group);  // of one group, until the next set_lr(lr)
  double weight_decay(int group) const { return group_at(group).weight_decay; }
  void set_weight_decay(double weight_decay, int group);
  int groups() const { return static_cast<int>(groups_.size()); }
  std::vector<std::string> parameter_names() const;
  bool trains(const Parameter& parameter) const;  // whether it was given this one
  const std::vector<detail::Trained>& trained_parameters() const { return parameters_; }

  // All that a checkpoint must keep for an exact resume: "exp_avg.blocks.0.weight" and so on, of the shape that its
  // slot has; "steps" int32, one per parameter, in the order of their names, byte by byte; "step_count" int32; "lr"
  // float64, the optimizer's and each group's. Large tensors are the optimizer's own, not copies.
  std::vector<NamedTensor> state() const;
  // Copies a state in. Throws Error, changing nothing, where a name is missing or unknown or a shape or dtype differs.
  // A parameter that was frozen in the saved run, and is not here, has no tensors there and begins anew at its next
  // step.
  void load_state(const std::vector<NamedTensor>& state);

  // Divides state and steps among ranks, as run() does of its own accord: from now on each rank keeps the state of its
  // part of the parameters, and has gradients that count there alone. step(), clipped_step() and grad_norm() are calls
  // of all ranks together, after which they have the same parameters; state() is an Error. `loads`: the items of each
  // rank so far, of optimizers that were divided before; goes on. The ranks must outlive the optimizer's last step.
  // Error where it was divided among others. Source: Rajbhandari, Rasley, Ruwase, He, «ZeRO: Memory Optimizations
  // Toward Training Trillion Parameter Models», 2020, section 5.1.
  void divide(Ranks& ranks, std::vector<Index>& loads);
  const detail::Division* division() const { return division_.get(); }  // null: it is not
  // What ranks send each other of a step: float32, and in a run what that says (RunOptions::communication_dtype). With
  // bfloat16, what a step adds to each weight is rounded to it, in one process too. Throws Error, changing nothing, for
  // other types than it and float32, and for bfloat16 where a parameter is not float32.
  void set_communication_dtype(DType dtype);
  DType communication_dtype() const { return rounds_ ? DType::bfloat16 : DType::float32; }
  // state() of an optimizer that is divided: of tensors that are divided, what is here. The last three are on all.
  struct StatePart {
    std::string name;
    Shape shape;  // of the whole
    DType dtype;
    Tensor here;            // the whole, a stretch of it, or without items
    int parameter;          // whose; -1: it is whole on each rank
  };
  std::vector<StatePart> state_parts() const;

 protected:
  // One tensor per parameter, of its dtype: exp_avg. An optimizer has at most UpdateChunk::kMostStates.
  struct StateSlot {
    std::string name;
    double initial = 0;
    // Its shape for a parameter of this shape, whose group is elementwise or not; nothing where that parameter has no
    // such state. Null: the parameter's.
    std::optional<Shape> (*shape)(const Shape& parameter, bool elementwise) = nullptr;
  };
  Optimizer(std::string name, const ParameterGroups& parameters, double lr, double weight_decay,
            std::vector<StateSlot> slots, bool maximize = false);

  // An optimizer overrides one of these; else its first step is an Error. Chunks of all parameters are updated in one
  // parallel pass, from several threads at once, where every state has the parameter's shape. A state that a parameter
  // does not have is null.
  virtual void update(const UpdateChunk& chunk) const;
  // Whole parameters, those of which needs_whole() is true, are updated one after another, outside of any tape: ops and
  // loops inside may use all threads. Returns true; false means that chunks are meant.
  virtual bool update_whole(const WholeParameter&) const { return false; }
  // All of these that have a gradient, for who works on several at once: sets `done` of those that it updates.
  virtual void update_wholes(std::span<WholeParameter> parameters) const {
    for (WholeParameter& p : parameters) p.done = update_whole(p);
  }

  // Whether a parameter of this shape, in a group that is elementwise or not, is updated as a whole, or has states of
  // another shape. Others are divided by items where a run has several ranks.
  virtual bool needs_whole(const Shape&, bool /*elementwise*/) const { return true; }

  // For constructors: Error «AdamW: eps is -1; it must be 0 or more» unless ok.
  void check_option(bool ok, const char* option, double value, const char* rule) const;

 private:
  friend class detail::RankStep;  // steps a divided one in parts

  struct Group {
    double lr, lr_scale, weight_decay;
  };

  std::string name_;
  double lr_;
  std::vector<StateSlot> slots_;
  std::vector<Group> groups_;
  std::vector<detail::Trained> parameters_;
  std::vector<std::vector<Tensor>> states_;  // [parameter][slot]; empty for a frozen one before its first step
  std::vector<std::int32_t> steps_;          // [parameter]
  bool maximize_;
  Index step_count_ = 0;
  detail::Chunks chunks_;     // of the parameters that the current step updates
  std::vector<WholeParameter> wholes_;  // the same parameters, during the step
  std::vector<Tensor> old_;   // [parameter] where steps are rounded: whole ones before the step
  std::vector<Tensor> sent_;  // [parameter] what ranks send each other of their part of the step
  std::vector<double> sums_;  // of squares, one per chunk
  Ranks* ranks_ = nullptr;    // that it is divided among
  std::shared_ptr<const detail::Division> division_;
  bool rounds_ = false;  // what a step adds

  const Group& group_at(int group) const;
  std::optional<Shape> state_shape(std::size_t parameter, const StateSlot& slot) const;
  void allocate_states(std::size_t parameter);
  Tensor part_here(std::size_t parameter, const Tensor& state) const;
  bool is_here(const detail::Chunk& chunk) const;  // to be stepped by this rank
  // `beside`: further numbers, of which rank r has those from parts[r] to parts[r + 1].
  void gather_sums(std::span<double> beside = {}, std::span<const Index> parts = {});
  [[noreturn]] void fail_non_finite(double norm) const;
  void count_step(std::size_t parameter);
  void end_step();
  std::vector<NamedTensor> small_state() const;
  // `added`: where what it added goes, rounded; null: nobody needs it.
  void update_chunk(const detail::Chunk& chunk, double gradient_scale, bfloat16* added = nullptr) const;
  void gather_steps();
  std::vector<std::size_t> by_name() const;  // the parameters in the order that "steps" has in a state
  void fit_states(const std::vector<NamedTensor>& given);
  void collect();  // chunks_; Error where a parameter belongs to no model any more
  void apply(double gradient_scale);
  bool is_whole_here(std::size_t parameter) const;  // to be updated as a whole by this rank
  void update_wholes_here(double gradient_scale);
};

}  // namespace heed
