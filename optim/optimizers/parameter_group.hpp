// Groups of parameters that an optimizer trains, and clipping of their gradients.
//
// Example:
//
//   Rng rng(1);
//   Linear model(4, 2, rng);
//   const auto groups = decay_groups(model, 0.1);  // matrices decay, vectors do not
//   {
//     Tape tape;
//     tape.backward(sum(model(rng.normal({3, 4}))));
//   }
//   const double norm = clip_grad_norm_(groups, 1.0);
#pragma once
#include <algorithm>
#include <heed/core/members.hpp>
#include <heed/core/parallel.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// ---- Groups ----

// Parameters with the same settings.
struct ParameterGroup {
  std::vector<NamedParameter> parameters = {};  // not owned: the model must outlive the group
  double lr_scale = 1;                      // the group's learning rate is the optimizer's times this
  std::optional<double> weight_decay = {};  // nullopt: the optimizer's
  bool elementwise = false;                 // Muon gives these parameters AdamW's step, even matrices (embeddings)
};

// The argument type of functions that take parameters. Converts from named_parameters(model), parameters(model), a
// group, or several groups.
class ParameterGroups {
 public:
  // Groups as they are, or one group with the default settings.
  ParameterGroups(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  ParameterGroups(ParameterGroup group) { groups_.push_back(std::move(group)); }
  ParameterGroups(std::vector<NamedParameter> parameters) { groups_.push_back({std::move(parameters), 1, {}}); }
  ParameterGroups(std::initializer_list<NamedParameter> parameters) { groups_.push_back({parameters, 1, {}}); }
  ParameterGroups(const std::vector<Parameter*>& parameters);  // named by path, or parameter.N without a path

  const std::vector<ParameterGroup>& groups() const { return groups_; }  // in the order given

 private:
  std::vector<ParameterGroup> groups_;
};

// The usual two groups: matrices (rank 2 or more: weights, embeddings) decay; vectors (biases, gains) do not. Throws
// Error for a weight decay below 0.
std::vector<ParameterGroup> decay_groups(const std::vector<NamedParameter>& parameters, double weight_decay);
template <detail::Layer M>
std::vector<ParameterGroup> decay_groups(M& model, double weight_decay) {
  return decay_groups(named_parameters(model), weight_decay);
}

// Layer-wise learning rates: the groups, each split by the depth of its parameters in the model, with its lr_scale
// times decay^(top - depth), where depths are those of parameter_depths() and the top is the largest. So the rate falls
// by `decay` per block from the output to the embeddings (Clark et al., "ELECTRA", 2020, appendix A). `parameters` are
// those of the model, in its order. Throws Error unless 0 < decay <= 1, and for a parameter that is not in the model.
std::vector<ParameterGroup> layerwise_groups(const std::vector<ParameterGroup>& groups,
                                             const std::vector<NamedParameter>& parameters, double decay);
template <detail::Layer M>
std::vector<ParameterGroup> layerwise_groups(const std::vector<ParameterGroup>& groups, M& model, double decay) {
  return layerwise_groups(groups, named_parameters(model), decay);
}

// Options of muon_groups().
struct MuonGroupOptions {
  double weight_decay = 0;               // of matrices and tables
  double lr_scale = 1;                   // of all groups except matrices
  std::vector<std::string> others = {};  // more tables: names, or prefixes of names that end before a dot ("head")
};

// The groups for Muon, without empty groups:
// - matrices
// - tables, for which AdamW's step is better: parameters named by visit.table() (embeddings, output weights) or by
//   `others`, and parameters of rank 3 or more
// - vectors (rank 0 or 1), which do not decay
// Throws Error if an entry of `others` matches no parameter, or for negative options.
std::vector<ParameterGroup> muon_groups(const std::vector<NamedParameter>& parameters, const MuonGroupOptions& options);
template <detail::Layer M>
std::vector<ParameterGroup> muon_groups(M& model, const MuonGroupOptions& options = {}) {
  return muon_groups(named_parameters(model), options);
}

// The parameters in two lists, for optimizers that train different parts of a model. `chosen` has the parameters that
// `parts` names, by their names or by prefixes of names that end before a dot ("tokens", "blocks.0"). Throws Error if a
// part matches no parameter.
struct ParameterSplit {
  std::vector<NamedParameter> chosen = {}, others = {};  // in the order of the argument
};
ParameterSplit split_parameters(const std::vector<NamedParameter>& parameters, const std::vector<std::string>& parts);
template <detail::Layer M>
ParameterSplit split_parameters(M& model, const std::vector<std::string>& parts) {
  return split_parameters(named_parameters(model), parts);
}

// ---- Clipping ----

// What to do if the norm of the gradients is NaN or infinite.
enum class NonFinite {
  error,      // throw Error that names the first parameter whose gradient is not finite
  skip,       // leave gradients and weights unchanged; the returned norm is not finite
  propagate,  // scale anyway, as PyTorch does by default
};

// The 2-norm of all gradients together, computed in float64, with the same bits at any number of threads. Frozen
// parameters and parameters without a gradient count as 0.
double grad_norm(const ParameterGroups& parameters);

// min(1, max_norm / (norm + 1e-6)), the factor by which PyTorch scales gradients, for Optimizer::step(). NaN if the
// norm is NaN. Throws Error unless max_norm is positive.
double clip_coefficient(double norm, double max_norm);

// Scales the gradients so that their norm is at most max_norm, which is positive (infinity only measures). Returns the
// norm before. Optimizer::clipped_step() does the same without a separate pass for the scaling.
double clip_grad_norm_(const ParameterGroups& parameters, double max_norm, NonFinite non_finite = NonFinite::error);

// Clamps each gradient to [-limit, limit]; NaN stays NaN. Throws Error unless the limit is positive.
void clip_grad_value_(const ParameterGroups& parameters, double limit);

// ---- For sources of optim ----

namespace detail {

// A parameter as optimizers hold it: by its storage, so the model may be moved.
struct Trained : NamedTensor {
  int group = 0;
  bool elementwise = false;       // ParameterGroup::elementwise
  std::vector<Index> parts = {};  // NamedParameter::parts

  ParameterInfo& info() const { return *tensor.storage()->parameter; }
  bool active() const { return info().requires_grad && info().has_gradient; }  // a step updates it
};

// The parameters of all groups. Throws Error if there are none, one is undefined, or a parameter or name occurs twice.
std::vector<Trained> trained(const std::string& caller, const ParameterGroups& groups);

// Throws Error if no model owns one of the parameters any more, because writes to it would have no effect. `what` is
// the object to make again, for the message.
void check_owned(const std::string& caller, const char* what, const std::vector<Trained>& parameters);

// Throws Error unless `given` has the names, shapes and dtypes of `expected`, in any order, and nothing else.
void check_state(const std::string& caller, const std::vector<NamedTensor>& expected,
                 const std::vector<NamedTensor>& given);
// Copies the values of a checked state into tensors, by name.
void copy_state(std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from);

// ---- Chunks ----

// Items of a tensor, in row-major order.
struct Stretch {
  Index begin = 0, end = 0;
  Index count() const { return end - begin; }
};

// The items of a state of `state_numel` items that are kept with a part of its parameter of `numel` items. All or none
// of the parameter's items, or the same items of a state of its shape.
inline Stretch part_of_state(const Stretch& part, Index numel, Index state_numel) {
  if (part.count() == numel) return {0, state_numel};
  return part.count() == 0 ? Stretch() : part;
}

// The address of an item of a contiguous tensor.
inline char* address_of(const Tensor& x, Index item) {
  return static_cast<char*>(x.raw()) + static_cast<std::size_t>(item) * size_of(x.dtype());
}

// A stretch of one parameter.
struct Chunk {
  int parameter = {};  // index in the list of parameters
  Index begin = {};
  Index count = {};  // at most Chunks::kLongest
};

// A pass of an optimizer over all parameters, split into chunks. The chunks are grouped into tasks, so that many small
// parameters cost one parallel_for and large parameters are shared among threads.
class Chunks {
 public:
  // Max items of a chunk and of a task: about 450 kB of memory traffic in AdamW.
  static constexpr Index kLongest = 16384;

  void add(int parameter, Index numel) {
    for (Index begin = 0; begin < numel; begin += kLongest) {
      const Index count = std::min(kLongest, numel - begin);
      if (room_ < count) {
        tasks_.push_back(static_cast<Index>(chunks_.size()));
        room_ = kLongest;
      }
      room_ -= count;
      chunks_.push_back({parameter, begin, count});
    }
  }

  Index size() const { return static_cast<Index>(chunks_.size()); }
  const Chunk& operator[](Index i) const { return chunks_[static_cast<std::size_t>(i)]; }

  // The chunks of the parameters that have a gradient and are not frozen. `left_out`: [parameter], or empty.
  void assign_active(const std::vector<Trained>& parameters, const std::vector<bool>& left_out = {}) {
    chunks_.clear();
    tasks_.clear();
    room_ = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].active() && (left_out.empty() || !left_out[i]))
        add(static_cast<int>(i), parameters[i].tensor.numel());
  }

  // Calls f(chunk number, chunk) for all chunks, on several threads at once.
  template <class F>
  void run(F&& f) const {
    const Index tasks = static_cast<Index>(tasks_.size());
    parallel_for(tasks, 1, [&](Index first, Index last) {
      const Index end = last < tasks ? tasks_[static_cast<std::size_t>(last)] : size();
      for (Index i = tasks_[static_cast<std::size_t>(first)]; i < end; ++i) f(i, (*this)[i]);
    });
  }

 private:
  std::vector<Chunk> chunks_;
  std::vector<Index> tasks_;  // the first chunk of each task
  Index room_ = 0;            // items for which the last task has room
};

// Calls f(array, first item, count) for the chunks of several arrays, in one parallel pass. Each array has a `count`.
template <class Array, class F>
void for_each_chunk(const std::vector<Array>& arrays, const F& f) {
  Chunks chunks;
  for (std::size_t i = 0; i < arrays.size(); ++i) chunks.add(static_cast<int>(i), arrays[i].count);
  chunks.run([&](Index, const Chunk& c) { f(arrays[static_cast<std::size_t>(c.parameter)], c.begin, c.count); });
}

// The gradient of a parameter. The parameter must have one.
inline const Tensor& gradient_of(const Trained& p) { return p.info().gradient; }

// Sets `sums` to the sums of squares of the gradients, one per chunk. norm_of() adds the sums in this order.
void squares_of(const std::vector<Trained>& parameters, const Chunks& chunks, std::vector<double>& sums);
// The square root of the total.
double norm_of(const std::vector<double>& sums);
// Throws Error that names the first parameter with a sum that is not finite.
[[noreturn]] void fail_non_finite(const std::string& caller, double norm, const std::vector<Trained>& parameters,
                                  const Chunks& chunks, const std::vector<double>& sums);
// Throws Error unless max_norm is positive.
void check_max_norm(std::string_view caller, double max_norm);

}  // namespace detail
}  // namespace heed
