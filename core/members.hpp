// Walking a model. A layer is a plain struct with `void members(auto&& visit)` that names each member:
//   visit("weight", weight);  visit("blocks", blocks);  visit.buffer("omega", omega);
// A member is a Parameter, a layer, or a vector, optional or unique_ptr of these. Paths are joined by dots: blocks.0.weight.
#pragma once
#include <heed/core/parameter.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

class MemberVisitor;

namespace detail {

template <class T> concept Layer = requires(T& layer, MemberVisitor& v) { layer.members(v); };

// A parameter or a buffer, and its path below what was walked.
struct Member {
  std::string path;
  Parameter* parameter = nullptr;
  Tensor* buffer = nullptr;
};

}  // namespace detail

// What members() is called with: lists all below. One type for every purpose, so that a model's walk is compiled once,
// and may be a function of this type in a source: void members(MemberVisitor& visit).
class MemberVisitor {
 public:
  explicit MemberVisitor(std::vector<detail::Member>& found) : found_(found) {}

  void operator()(std::string_view name, Parameter& member);  // an absent bias is an undefined parameter: left out
  void buffer(std::string_view name, Tensor& member);
  template <detail::Layer T> void operator()(std::string_view name, T& layer) {
    const std::size_t above = enter(name);
    layer.members(*this);
    leave(above);
  }
  template <class T> void operator()(std::string_view name, std::vector<T>& members) {
    const std::size_t above = enter(name);
    for (std::size_t i = 0; i < members.size(); ++i) (*this)(number(i), members[i]);
    leave(above);
  }
  template <class T> void operator()(std::string_view name, std::optional<T>& member) { if (member) (*this)(name, *member); }
  template <class T> void operator()(std::string_view name, std::unique_ptr<T>& member) { if (member) (*this)(name, *member); }

 private:
  std::vector<detail::Member>& found_;
  std::string path_;  // of the layer that is visited

  std::size_t enter(std::string_view name);  // the length of the path so far
  void leave(std::size_t above);
  static std::string number(std::size_t i);
};

namespace detail {

template <class M> std::vector<Member> members_of(M& model) {
  std::vector<Member> found;
  MemberVisitor visit(found);
  model.members(visit);
  return found;
}
// Of several layers, as the decode states of a model's blocks: paths begin with their numbers.
template <class M> std::vector<Member> members_of(std::vector<M>& models) {
  std::vector<Member> found;
  MemberVisitor visit(found);
  for (std::size_t i = 0; i < models.size(); ++i) visit(std::to_string(i), models[i]);
  return found;
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

namespace detail {
std::vector<NamedParameter> named_parameters_among(const std::vector<Member>& members);
std::vector<NamedBuffer> named_buffers_among(const std::vector<Member>& members);
void freeze(const std::vector<NamedParameter>& parameters, bool frozen);
void zero_grad(const std::vector<NamedParameter>& parameters);
Index parameter_count(const std::vector<NamedParameter>& parameters);
std::vector<Parameter*> pointers(const std::vector<NamedParameter>& parameters);
}  // namespace detail

// All parameters of a model in the order of its members, a tied one once, under its first name. Stamps the names into the
// parameters, so that errors can tell them.
template <class M> std::vector<NamedParameter> named_parameters(M& model) {
  return detail::named_parameters_among(detail::members_of(model));
}

template <class M> std::vector<Parameter*> parameters(M& model) { return detail::pointers(named_parameters(model)); }

// What is saved but not trained.
template <class M> std::vector<NamedBuffer> named_buffers(M& model) {
  return detail::named_buffers_among(detail::members_of(model));
}

template <class M> void zero_grad(M& model) { detail::zero_grad(named_parameters(model)); }

// Stops (or with false resumes) the training of all parameters of a model or layer.
template <class M> void freeze(M& model, bool frozen = true) { detail::freeze(named_parameters(model), frozen); }

template <class M> Index parameter_count(M& model) { return detail::parameter_count(named_parameters(model)); }

}  // namespace heed
