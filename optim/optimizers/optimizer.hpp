// The base class of all optimizers: steps, groups, learning rates and state. Names and formulas are PyTorch's.
//
// A step is one parallel pass over all parameters of all groups. Optimizers that need whole parameters (Adafactor,
// Muon) update these one after another, or several at once. A step writes into the storages of the parameters and
// raises their versions, so the model may be moved while the optimizer exists. As in PyTorch, each parameter counts its
// own steps. A step skips frozen parameters and parameters without a gradient, including their decay and state. Make
// the optimizer after calls that replace parameters (to(), tie(), assignment): a step throws Error if no model owns one
// of its parameters any more.
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
#include <heed/optim/optimizers/parameter_group.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heed {

// A chunk of one parameter, as update() gets it: arrays of `count` items of `dtype` (float32 or float64).
struct UpdateChunk {
  static constexpr int kMaxStates = 6;  // max number of state slots of an optimizer

  DType dtype = {};                   // of values, gradients and states
  Index count = {};                   // number of items
  void* values = {};                  // the parameter's; written by update()
  const void* gradients = {};         // as backward left them
  void* states[kMaxStates] = {};      // by slot; null if the parameter has no such state
  double gradient_scale = {};         // multiply gradients by this factor; negative if steps maximize
  double lr = {}, weight_decay = {};  // of the group
  Index step = {};                    // number of this step for the parameter, from 1

  // The arrays as pointers to T, which must be the C++ type of `dtype`. state() returns null if the parameter has no
  // such state.
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

// A whole parameter, as update_whole() and update_wholes() get it, for optimizers that need sums over a parameter or
// products of matrices.
struct WholeParameter {
  Tensor values = {}, gradient = {};    // of the parameter's shape; the gradient as backward left it
  std::span<const Tensor> states = {};  // by slot; undefined if the parameter has no such state
  double gradient_scale = {};           // multiply the gradient by this factor; negative if steps maximize
  double lr = {}, weight_decay = {};    // of the group
  Index step = {};                      // number of this step for the parameter, from 1
  bool elementwise = {};                // ParameterGroup::elementwise
  std::span<const Index> parts = {};    // NamedParameter::parts: rows of each map in the matrix; empty if it is one map
  bool done = false;                    // whether the parameter was updated; if not, update() updates its chunks
};

// Trains the parameters that it was made with. A derived class overrides update(), update_whole() or update_wholes().
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient and is not frozen. Multiplies gradients by `gradient_scale`.
  void step(double gradient_scale = 1);

  // step() with gradients clipped to a 2-norm of max_norm, which is positive (infinity does not clip). Reads the
  // gradients twice in all and does not change them. Returns their norm before clipping. If the norm is not finite,
  // throws Error, takes no step, or steps with NaN, as `non_finite` says.
  double clipped_step(double max_norm, NonFinite non_finite = NonFinite::error);

  double grad_norm();  // 2-norm of the gradients of the parameters that step() would update
  void zero_grad();    // discards the gradients of all parameters, without writing to memory

  const std::string& name() const { return name_; }  // for example "AdamW"
  Index step_count() const { return step_count_; }   // calls of step() so far

  // The learning rate. A group has this rate times its lr_scale, until set_lr(lr, group) sets its own rate. Rates and
  // weight decays must be 0 or more. The functions throw Error for other values and for a group that does not exist.
  double lr() const { return lr_; }
  double lr(int group) const { return groups_[checked(group)].lr; }
  void set_lr(double lr);
  void set_lr(double lr, int group);  // of one group, until the next set_lr(lr)
  double weight_decay(int group) const { return groups_[checked(group)].weight_decay; }
  void set_weight_decay(double weight_decay, int group);
  int groups() const { return static_cast<int>(groups_.size()); }
  bool trains(const Parameter& parameter) const;  // whether this optimizer has the parameter
  const std::vector<detail::Trained>& trained_parameters() const { return parameters_; }

  // The state that a checkpoint stores for an exact resume, by name:
  //   exp_avg.blocks.0.weight   a state of a parameter, of the shape of its slot; one per slot and parameter
  //   steps                     int32 [parameters]: the steps of each parameter, in bytewise order of the names
  //   step_count                int32, a scalar
  //   lr                        float64 [1 + groups]: the rate of the optimizer, then of each group
  // States of parameters are handles, not copies. Throws Error if the optimizer keeps a part of the state only (keep).
  std::vector<NamedTensor> state() const;
  // Copies a state into the optimizer. Throws Error, and changes nothing, if a name is missing or unknown, or a shape
  // or dtype differs. A parameter that was always frozen in the saved run has no tensors in the state. If it is not
  // frozen here, its state begins with the initial values at its next step.
  void load_state(const std::vector<NamedTensor>& state);

  // ---- For run() ----

  // Keeps the state of these items only, one stretch per parameter, so that several processes can share the state. A
  // parameter that is updated as a whole has all its items or none. If items are missing, step(), clipped_step(),
  // grad_norm() and state() throw Error from now on.
  void keep(std::vector<detail::Stretch> parts);
  const std::vector<detail::Stretch>& parts() const { return parts_; }  // [parameter]; at first all items

  // The part of a tensor of state() that this optimizer keeps: the whole tensor, a stretch of it, or no items.
  struct StatePart : NamedTensor {
    Shape whole = {};    // the shape of the whole tensor
    int parameter = -1;  // index of its parameter; -1: none, and the part is the whole tensor
  };
  std::vector<StatePart> state_parts() const;  // the last three are "steps", "step_count" and "lr"

  // A step in parts: begin_step(), update_whole_parameters(), update_chunk() for chunks of parts() on any threads, and
  // end_step(). Parameters are those that have a gradient and are not frozen.
  void begin_step();  // counts a step of each parameter
  // Updates those that are updated as a whole. Returns which ones were [parameter]; the others are updated in chunks.
  const std::vector<bool>& update_whole_parameters(double gradient_scale);
  void update_chunk(const detail::Chunk& chunk, double gradient_scale) const;
  void end_step();
  bool is_updated_whole(std::size_t parameter) const;  // needs_whole()

 protected:
  // A state that the optimizer keeps for each parameter, such as exp_avg, in the parameter's dtype. An optimizer has at
  // most UpdateChunk::kMaxStates slots.
  struct StateSlot {
    std::string name;    // such as exp_avg
    double initial = 0;  // value of all items before the first step
    // The shape of the state for a parameter of this shape, in a group that is elementwise or not; nullopt if such a
    // parameter has no such state. Null: the shape of the parameter.
    std::optional<Shape> (*shape)(const Shape& parameter, bool elementwise) = nullptr;
  };
  // Throws Error without parameters, for a parameter or a name given twice, for rates or weight decays below 0, and for
  // more than UpdateChunk::kMaxStates slots.
  Optimizer(std::string name, const ParameterGroups& parameters, double lr, double weight_decay,
            std::vector<StateSlot> slots, bool maximize = false);

  // A derived class overrides one of these three functions; otherwise its first step throws Error.
  //
  // Updates a chunk. The chunks of all parameters are updated in one parallel pass, from several threads at once. Every
  // state must have the shape of its parameter. A state that the parameter does not have is null.
  virtual void update(const UpdateChunk& chunk) const;
  // Updates a whole parameter for which needs_whole() is true. Called for one parameter after another and outside of
  // any tape, so ops and loops may use all threads. Returns true, or false to update the parameter in chunks.
  virtual bool update_whole(const WholeParameter&) const { return false; }
  // Updates whole parameters, all that have a gradient, for optimizers that update several at once. Sets `done` of each
  // parameter that it updated.
  virtual void update_wholes(std::span<WholeParameter> parameters) const {
    for (WholeParameter& p : parameters) p.done = update_whole(p);
  }

  // Whether a parameter of this shape, in a group that is elementwise or not, is updated as a whole or has a state of
  // another shape. In a run of several processes, such a parameter is updated by one of them. Others are divided by
  // items.
  virtual bool needs_whole(const Shape&, bool /*elementwise*/) const { return true; }

  // For constructors. Throws Error "AdamW: eps is -1; it must be 0 or more" unless `ok`, and for a value that is not
  // finite.
  void check_option(bool ok, const char* option, double value, const char* rule) const;

 private:
  struct Group {
    double lr, lr_scale, weight_decay;
  };

  std::string name_;
  double lr_;
  std::vector<StateSlot> slots_;
  std::vector<Group> groups_;
  std::vector<detail::Trained> parameters_;
  std::vector<detail::Stretch> parts_;       // [parameter]: the items whose state is kept
  std::vector<std::vector<Tensor>> states_;  // [parameter][slot]; empty for a frozen parameter before its first step
  std::vector<std::int32_t> steps_;          // [parameter]
  bool maximize_;
  Index step_count_ = 0;
  detail::Chunks chunks_;               // of the parameters in the current step
  std::vector<WholeParameter> wholes_;  // parameters that the current step updates as a whole
  std::vector<bool> updated_;           // [parameter]: whether the current step updated it as a whole
  std::vector<double> sums_;            // sums of squares, one per chunk

  std::size_t checked(int group) const;  // the number of a group; throws Error if there is no such group
  std::optional<Shape> state_shape(std::size_t parameter, const StateSlot& slot) const;
  void allocate_states(std::size_t parameter);
  bool keeps_all(std::size_t parameter) const;
  void require_all_kept() const;  // throws Error if items are missing in parts()
  detail::Stretch kept_of(std::size_t parameter, const Shape& state) const;
  Tensor part_of(std::size_t parameter, const Tensor& state) const;
  std::vector<std::size_t> by_name() const;  // indices of the parameters, in the order of "steps" in a state
  void fit_states(const std::vector<NamedTensor>& given);
  double scale_of(double gradient_scale) const { return maximize_ ? -gradient_scale : gradient_scale; }
};

}  // namespace heed
