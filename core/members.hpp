// Parameters, and walking a model. A layer is a plain struct with a function `members` that names each member: a
// Parameter, a layer, or a vector, optional or unique_ptr of these; visit.buffer() names a tensor that is saved but not
// trained. Paths are joined by dots: blocks.0.weight.
//
// Example:
//
//   struct Scale {
//     Parameter weight{Tensor::ones({4})};
//     Tensor operator()(In x) const { return x.tensor(); }
//     void members(MemberVisitor& visit) { visit("weight", weight); }
//   };
//   Scale layer;
//   for (const NamedParameter& p : named_parameters(layer)) std::cout << p.name << '\n';  // weight
#pragma once
#include <atomic>
#include <heed/core/tensor.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// ---- Parameters ----

// A tensor that is trained.

namespace detail {
struct ParameterInfo {
  Shape shape = {};             // of the whole parameter, whatever view of it is used
  std::string path = {};        // blocks.0.norm.weight, once the model was named
  Tensor gradient = {};         // allocated at the first backward, then kept
  bool has_gradient = false;    // false: the next write overwrites
  bool requires_grad = true;
  Where made = {};
  std::atomic<int> trainers = 0;  // live optimizers that step it
  // Live Parameters of the storage; 0: only tensors hold it, and no model trains it any more.
  std::atomic<int> owners = 1;
  std::uint64_t node = 0;       // on the tape that used it last: one leaf a tape, however often it is used
};
}  // namespace detail

// A Tensor whose gradient Tape::backward accumulates. Move-only, so that a model is not aliased by accident: clone()
// copies a model, tie() shares a parameter on purpose.
class Parameter : public Tensor {
 public:
  Parameter() = default;
  // Takes the values over (copies them where the storage is shared, not contiguous or not the pool's). Errors name
  // where it was made.
  explicit Parameter(Tensor value, Where made = Where::current());
  Parameter(Parameter&&) noexcept = default;  // the owner moves: their number stays
  Parameter& operator=(Parameter&& other) noexcept;
  ~Parameter() { count_owners(-1); }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // Undefined before the first backward and after zero_grad(). It is the gradient itself: a later backward adds to it,
  // but after zero_grad() leaves it as it is to whoever still holds it.
  Tensor grad() const;
  void zero_grad();
  bool requires_grad() const;
  void requires_grad_(bool on);  // false freezes it
  const std::string& path() const;
  void set_path(std::string path);

  friend void tie(Parameter& a, Parameter& b);

 private:
  void count_owners(int change) noexcept;
};

// b becomes another name of a: one storage, one gradient, counted and saved once. Shapes and dtypes must agree.
void tie(Parameter& a, Parameter& b);

class MemberVisitor;

namespace detail {

template <class T> concept Layer = requires(T& layer, MemberVisitor& v) { layer.members(v); };

// A parameter or a buffer, and its path below what was walked.
struct Member {
  std::string path;
  Parameter* parameter = nullptr;
  Tensor* buffer = nullptr;
  bool table = false;
  std::vector<Index> parts = {};
};

}  // namespace detail

// What members() is called with: lists all below. One type for every purpose, so that a model's walk is compiled once,
// and may be a function of this type in a source: void members(MemberVisitor& visit).
class MemberVisitor {
 public:
  explicit MemberVisitor(std::vector<detail::Member>& found) : found_(found) {}

  void operator()(std::string_view name, Parameter& member);  // an absent bias is an undefined parameter: left out
  void buffer(std::string_view name, Tensor& member);
  // A layer whose matrix is several maps of the same input, one below the other, of so many rows each: queries, keys
  // and values, for one. What is left of its rows is one more.
  template <class T> void stacked(std::string_view name, T& member, const std::vector<Index>& rows) {
    const std::size_t first = found_.size();
    (*this)(name, member);
    mark_parts(first, rows);
  }
  // A parameter whose rows are looked up one by one, or are each the weights of one token: no linear map of hidden
  // vectors.
  void table(std::string_view name, Parameter& member);
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
  template <class T> void operator()(std::string_view name, std::optional<T>& member) {
    if (member) (*this)(name, *member);
  }
  template <class T> void operator()(std::string_view name, std::unique_ptr<T>& member) {
    if (member) (*this)(name, *member);
  }

 private:
  std::vector<detail::Member>& found_;
  std::string path_;  // of the layer that is visited

  void mark_parts(std::size_t first, const std::vector<Index>& rows);
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
  std::string name = {};
  Parameter* parameter = {};
  bool table = false;             // named by visit.table()
  std::vector<Index> parts = {};  // rows of each map of a matrix that is more than one: by visit.stacked()
};

struct NamedBuffer {
  std::string name = {};
  Tensor* buffer = {};
};

// Values by their names: in order, as the state of an optimizer, or to be looked up, as a batch or a checkpoint.
struct NamedTensor {
  std::string name = {};
  Tensor tensor = {};
};
using TensorsByName = std::map<std::string, Tensor, std::less<>>;

namespace detail {
std::vector<NamedParameter> named_parameters_among(const std::vector<Member>& members);
std::vector<NamedBuffer> named_buffers_among(const std::vector<Member>& members);
void freeze(const std::vector<NamedParameter>& parameters, bool frozen);
void zero_grad(const std::vector<NamedParameter>& parameters);
Index parameter_count(const std::vector<NamedParameter>& parameters);
std::vector<Parameter*> pointers(const std::vector<NamedParameter>& parameters);
}  // namespace detail

// All parameters of a model in the order of its members, a tied one once, under its first name. Stamps the names into
// the parameters, so that errors can tell them.
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
