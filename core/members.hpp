// Walking a model. A layer is a plain struct with `void members(auto&& visit)` that names each member:
//   visit("weight", weight);  visit("blocks", blocks);  visit.buffer("omega", omega);
// A member is a Parameter, a layer, or a vector, optional or unique_ptr of these. Paths are joined by dots: blocks.0.weight.
#pragma once
#include <heed/core/parameter.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heed {

namespace detail {

struct AnyVisitor {
  template <class T> void operator()(const char*, T&) {}
  void buffer(const char*, Tensor&) {}
};

template <class T> concept Layer = requires(T& layer, AnyVisitor& v) { layer.members(v); };

// Calls on_parameter(path, Parameter&) and on_buffer(path, Tensor&) for all below a member.
template <class OnParameter, class OnBuffer> class Walker {
 public:
  Walker(OnParameter& on_parameter, OnBuffer& on_buffer, std::string prefix = {})
      : on_parameter_(on_parameter), on_buffer_(on_buffer), prefix_(std::move(prefix)) {}

  template <class T> void operator()(const std::string& name, T& member) { visit(path(name), member); }
  void buffer(const std::string& name, Tensor& member) { on_buffer_(path(name), member); }
  // For type-erased layers: the same walk without templates at the call.
  template <class T> void below(T& layer) { layer.members(*this); }

 private:
  OnParameter& on_parameter_;
  OnBuffer& on_buffer_;
  std::string prefix_;

  std::string path(const std::string& name) const { return prefix_.empty() ? name : prefix_ + "." + name; }

  void visit(const std::string& p, Parameter& member) {
    if (member.defined()) on_parameter_(p, member);  // an absent bias is an undefined parameter
  }
  template <Layer T> void visit(const std::string& p, T& layer) {
    Walker below(on_parameter_, on_buffer_, p);
    layer.members(below);
  }
  template <class T> void visit(const std::string& p, std::vector<T>& members) {
    for (std::size_t i = 0; i < members.size(); ++i) visit(p + "." + std::to_string(i), members[i]);
  }
  template <class T> void visit(const std::string& p, std::optional<T>& member) { if (member) visit(p, *member); }
  template <class T> void visit(const std::string& p, std::unique_ptr<T>& member) { if (member) visit(p, *member); }
};

template <class M, class P, class B> void walk(M& model, P&& on_parameter, B&& on_buffer) {
  Walker<std::remove_reference_t<P>, std::remove_reference_t<B>> walker(on_parameter, on_buffer);
  model.members(walker);
}
// Of several layers, as the decode states of a model's blocks: paths begin with their numbers.
template <class M, class P, class B> void walk(std::vector<M>& models, P&& on_parameter, B&& on_buffer) {
  for (std::size_t i = 0; i < models.size(); ++i) {
    Walker<std::remove_reference_t<P>, std::remove_reference_t<B>> walker(on_parameter, on_buffer, std::to_string(i));
    models[i].members(walker);
  }
}

}  // namespace detail

struct NamedParameter {
  std::string name;
  Parameter* parameter;
};

struct NamedBuffer {
  std::string name;
  Tensor* buffer;
};

// All parameters of a model in the order of its members, a tied one once, under its first name. Stamps the names into the
// parameters, so that errors can tell them.
template <class M> std::vector<NamedParameter> named_parameters(M& model) {
  std::vector<NamedParameter> list;
  std::set<const detail::Storage*> seen;
  detail::walk(
      model,
      [&](const std::string& path, Parameter& p) {
        if (!seen.insert(p.storage()).second) return;
        p.set_path(path);
        list.push_back({path, &p});
      },
      [](const std::string&, Tensor&) {});
  return list;
}

template <class M> std::vector<Parameter*> parameters(M& model) {
  std::vector<Parameter*> list;
  for (const NamedParameter& p : named_parameters(model)) list.push_back(p.parameter);
  return list;
}

// What is saved but not trained.
template <class M> std::vector<NamedBuffer> named_buffers(M& model) {
  std::vector<NamedBuffer> list;
  detail::walk(model, [](const std::string&, Parameter&) {}, [&](const std::string& path, Tensor& b) { list.push_back({path, &b}); });
  return list;
}

template <class M> void zero_grad(M& model) { for (Parameter* p : parameters(model)) p->zero_grad(); }

// Stops (or with false resumes) the training of all parameters of a model or layer.
template <class M> void freeze(M& model, bool frozen = true) { for (Parameter* p : parameters(model)) p->requires_grad_(!frozen); }

template <class M> Index parameter_count(M& model) {
  Index n = 0;
  for (Parameter* p : parameters(model)) n += p->numel();
  return n;
}

}  // namespace heed
