// Groups of parameters, and checks of the parameters and states of optimizers.
#include <cmath>
#include <heed/optim/optimizers/parameter_group.hpp>
#include <map>

namespace heed {

ParameterGroups::ParameterGroups(const std::vector<Parameter*>& parameters) {
  ParameterGroup group;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter* p = parameters[i];
    const bool named = p != nullptr && p->defined() && !p->path().empty();
    group.parameters.push_back({named ? p->path() : "parameter." + std::to_string(i), p});
  }
  groups_.push_back(std::move(group));
}

std::vector<ParameterGroup> decay_groups(const std::vector<NamedParameter>& parameters, double weight_decay) {
  require(weight_decay >= 0, "decay_groups: weight_decay is ", weight_decay, "; it must be 0 or more");
  ParameterGroup decayed, kept;
  decayed.weight_decay = weight_decay;
  kept.weight_decay = 0;
  for (const NamedParameter& p : parameters) (p.parameter->rank() >= 2 ? decayed : kept).parameters.push_back(p);
  return {decayed, kept};
}

std::vector<ParameterGroup> layerwise_groups(const std::vector<ParameterGroup>& groups,
                                             const std::vector<NamedParameter>& parameters, double decay) {
  require(decay > 0 && decay <= 1, "layerwise_groups: decay is ", decay, "; it must be above 0 and at most 1");
  const std::vector<Index> depths = parameter_depths(parameters);
  const Index top = *std::max_element(depths.begin(), depths.end());
  std::map<std::string, Index> depth_of;
  for (std::size_t i = 0; i < parameters.size(); ++i) depth_of[parameters[i].name] = depths[i];
  std::vector<ParameterGroup> all;
  for (const ParameterGroup& group : groups) {
    std::map<Index, ParameterGroup> by_depth;
    for (const NamedParameter& p : group.parameters) {
      const auto depth = depth_of.find(p.name);
      require(depth != depth_of.end(), "layerwise_groups: ", p.name, " is not a parameter of the model");
      by_depth[depth->second].parameters.push_back(p);
    }
    for (auto& [depth, part] : by_depth) {
      part.lr_scale = group.lr_scale * std::pow(decay, static_cast<double>(top - depth));
      part.weight_decay = group.weight_decay, part.elementwise = group.elementwise;
      all.push_back(std::move(part));
    }
  }
  return all;
}

ParameterSplit split_parameters(const std::vector<NamedParameter>& parameters, const std::vector<std::string>& parts) {
  const auto is_within = [](const std::string& name, const std::string& part) {
    return name == part || name.starts_with(part + ".");
  };
  for (const std::string& part : parts)
    require(std::any_of(parameters.begin(), parameters.end(), [&](auto& p) { return is_within(p.name, part); }),
            "split_parameters: part ", part, " has no parameters; each part must have at least one");
  ParameterSplit split;
  for (const NamedParameter& p : parameters) {
    const bool chosen = std::any_of(parts.begin(), parts.end(), [&](auto& part) { return is_within(p.name, part); });
    (chosen ? split.chosen : split.others).push_back(p);
  }
  return split;
}

std::vector<ParameterGroup> muon_groups(const std::vector<NamedParameter>& parameters, const MuonGroupOptions& o) {
  require(o.weight_decay >= 0 && o.lr_scale >= 0, "muon_groups: weight_decay is ", o.weight_decay, " and lr_scale is ",
          o.lr_scale, "; they must be 0 or more");
  ParameterGroup matrices{{}, 1, o.weight_decay, false};
  ParameterGroup tables{{}, o.lr_scale, o.weight_decay, true}, vectors{{}, o.lr_scale, 0.0, true};
  const ParameterSplit split = split_parameters(parameters, o.others);
  for (const auto* part : {&split.chosen, &split.others})
    for (const NamedParameter& p : *part) {
      const bool table = p.table || part == &split.chosen;
      const int rank = p.parameter->rank();
      (rank < 2 ? vectors : table || rank > 2 ? tables : matrices).parameters.push_back(p);
    }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&matrices, &tables, &vectors})
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  return groups;
}

namespace detail {

std::vector<Trained> trained(const std::string& caller, const ParameterGroups& groups) {
  std::vector<Trained> list;
  std::map<const Storage*, std::string> storages;
  std::map<std::string, int> names;
  int g = 0;
  for (const ParameterGroup& group : groups.groups()) {
    for (const NamedParameter& p : group.parameters) {
      require(p.parameter != nullptr && p.parameter->defined(), caller, ": parameter '", p.name,
              "' is undefined; it must have values");
      const DType dtype = p.parameter->dtype();
      require(dtype == DType::float32 || dtype == DType::float64, caller, ": parameter '", p.name, "' is ", dtype,
              "; to be trained it must be float32 or float64");
      const auto [first, is_new] = storages.insert({p.parameter->storage(), p.name});
      require(is_new, caller, ": parameter '", p.name, "' is given twice (before as '", first->second,
              "'); each must be in one group, once");
      require(names.insert({p.name, g}).second, caller, ": two parameters are named '", p.name, "'; names must differ");
      list.push_back({{p.name, *p.parameter}, g, group.elementwise, p.parts});
    }
    ++g;
  }
  require(!list.empty(), caller, ": there are no parameters; there must be at least one");
  return list;
}

void check_owned(const std::string& caller, const char* what, const std::vector<Trained>& parameters) {
  for (const Trained& p : parameters)
    require(p.info().owners.load(std::memory_order_relaxed) > 0, caller, ": ", p.name,
            " no longer belongs to a model (it was converted by to(), tied, replaced or destroyed); create a new ",
            what);
}

void check_state(const std::string& caller, const std::vector<NamedTensor>& expected,
                 const std::vector<NamedTensor>& given) {
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& part : given) {
    require(part.tensor.defined(), caller, ": '", part.name, "' in the state is undefined; it must have values");
    require(by_name.insert({part.name, &part.tensor}).second, caller, ": the state has '", part.name, "' twice");
  }
  for (const NamedTensor& part : expected) {
    const auto found = by_name.find(part.name);
    require(found != by_name.end(), caller, ": the state has no '", part.name, "'; it must be the state of ", caller,
            " with the same parameters");
    const Tensor& t = *found->second;
    require(t.shape() == part.tensor.shape() && t.dtype() == part.tensor.dtype(), caller, ": '", part.name,
            "' in the state is ", t, "; it must be ", part.tensor);
    by_name.erase(found);
  }
  require(by_name.empty(), caller, ": the state has an unknown '", by_name.empty() ? "" : by_name.begin()->first,
          "'; it must be the state of ", caller, " with the same parameters");
}

void copy_state(std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from) {
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& part : from) by_name[part.name] = &part.tensor;
  for (NamedTensor& part : to) {
    const Tensor& values = *by_name.at(part.name);
    if (!part.tensor.shares_storage(values)) part.tensor.copy_(values);
  }
}

}  // namespace detail
}  // namespace heed
