// Which parameters an optimizer trains, and how groups of them differ.
#pragma once
#include <heed/core/members.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heed {

struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double lr_scale = 1;                 // the group's learning rate is the optimizer's times this
  std::optional<double> weight_decay;  // the optimizer's, unless set here
};

// What functions take that want parameters: named_parameters(model), parameters(model), one group or several.
class ParameterGroups {
 public:
  ParameterGroups(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  ParameterGroups(ParameterGroup group) { groups_.push_back(std::move(group)); }
  ParameterGroups(std::vector<NamedParameter> parameters) { groups_.push_back({std::move(parameters), 1, {}}); }
  ParameterGroups(std::initializer_list<NamedParameter> parameters) { groups_.push_back({parameters, 1, {}}); }
  ParameterGroups(const std::vector<Parameter*>& parameters);  // named by their paths, or parameter.N without one

  const std::vector<ParameterGroup>& groups() const { return groups_; }

 private:
  std::vector<ParameterGroup> groups_;
};

// The usual two groups: matrices (rank 2 and more: weights, embeddings) decay, vectors (biases, gains) do not.
std::vector<ParameterGroup> decay_groups(const std::vector<NamedParameter>& parameters, double weight_decay);
template <detail::Layer M>
std::vector<ParameterGroup> decay_groups(M& model, double weight_decay) {
  return decay_groups(named_parameters(model), weight_decay);
}

// The parameters in two lists, for optimizers that train different parts of a model: those of `parts`, which are names
// or what names begin with up to a dot ("tokens", "blocks.0"), and all others. Error where one of the parts has none.
struct ParameterSplit {
  std::vector<NamedParameter> chosen, others;
};
ParameterSplit split_parameters(const std::vector<NamedParameter>& parameters, const std::vector<std::string>& parts);
template <detail::Layer M>
ParameterSplit split_parameters(M& model, const std::vector<std::string>& parts) {
  return split_parameters(named_parameters(model), parts);
}

// A part of the state of an optimizer, schedule or average, as a checkpoint keeps it.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

namespace detail {

// A parameter as optimizers hold it: by its storage, so that the model may be moved.
struct Trained {
  std::string name;
  Tensor value;
  int group = 0;

  ParameterInfo& info() const { return *value.storage()->parameter; }
  bool active() const { return info().requires_grad && info().has_gradient; }  // gets a step
};

// The parameters of all groups. Throws Error where there are none, one is undefined, or one stands there twice.
std::vector<Trained> trained(const std::string& who, const ParameterGroups& groups);

// Throws Error where a parameter's model has let go of it: what `who` wrote there, nobody would see.
void check_owned(const std::string& who, const char* what, const std::vector<Trained>& parameters);

// Throws Error unless `given` has the names, shapes and dtypes of `wanted`, in any order, and nothing else.
void check_state(const std::string& who, const std::vector<NamedTensor>& wanted, const std::vector<NamedTensor>& given);
// Copies the values of a checked state into the tensors of another, by name.
void copy_state(std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from);

}  // namespace detail
}  // namespace heed
