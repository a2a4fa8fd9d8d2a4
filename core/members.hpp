// Parameters, and the visitor that lists those of a model. A layer is a plain struct with a function `members`, which
// names each member: a Parameter, a layer, or a vector, optional or unique_ptr of these. visit.buffer() names a tensor
// that is saved but not trained. Names are joined by dots: blocks.0.weight.
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
#include <typeinfo>
#include <vector>

namespace heed {

// ---- Parameters ----

namespace detail {
// The state of a parameter, kept in its storage and shared by all tensors on that storage.
struct ParameterInfo {
  Shape shape = {};           // of the whole parameter; a tensor on the storage may be a view of a part
  std::string path = {};      // blocks.0.norm.weight; empty until named_parameters() sets it
  Tensor gradient = {};       // allocated when a tape first uses the parameter, then reused
  bool has_gradient = false;  // false: the next gradient overwrites `gradient`
  bool requires_grad = true;
  Where made = {};                // where the Parameter was constructed
  std::atomic<int> trainers = 0;  // number of optimizers that train the parameter
  // Number of Parameters on the storage. 0: only Tensors use the storage, and no model trains it.
  std::atomic<int> owners = 1;
  std::uint64_t node = 0;  // leaf on the tape that used the parameter last; a tape makes one leaf per parameter
};
}  // namespace detail

// A Tensor whose gradient Tape::backward() accumulates. Move-only, so that models do not share parameters by accident:
// clone() copies a model, tie() shares a parameter. Accessors throw Error if the Parameter is undefined.
class Parameter : public Tensor {
 public:
  Parameter() = default;
  // Takes over the storage of `value`, or copies the values if the storage is shared, not contiguous or not from the
  // pool. Errors about an unnamed parameter show `made`. A quantized parameter is frozen. Throws Error if `value` is
  // undefined, or neither floating nor quantized.
  explicit Parameter(Tensor value, Where made = Where::current());
  Parameter(Parameter&&) noexcept = default;  // the number of owners stays the same
  Parameter& operator=(Parameter&& other) noexcept;
  ~Parameter() { count_owners(-1); }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // The gradient; undefined before the first backward pass and after zero_grad(). The result is not a copy: the next
  // backward pass adds to it. After zero_grad(), tensors returned before keep their values.
  Tensor grad() const;
  void zero_grad();                 // the next backward pass starts from 0
  bool requires_grad() const;       // default true
  void requires_grad_(bool on);     // false freezes the parameter; true throws Error if it is quantized
  const std::string& path() const;  // name in the model, such as blocks.0.weight; empty before named_parameters()
  void set_path(std::string path);

  friend void tie(Parameter& a, Parameter& b);

 private:
  void count_owners(int change) noexcept;
};

// Makes b share the storage and the gradient of a, as in tied embeddings. A tied parameter is counted and saved once.
// Throws Error unless shapes and dtypes are equal.
void tie(Parameter& a, Parameter& b);

class MemberVisitor;

namespace detail {

// A type with a function members(visit).
template <class T> concept Layer = requires(T& layer, MemberVisitor& v) { layer.members(v); };

}  // namespace detail

// A parameter and its path in the model. The model owns the parameter.
struct NamedParameter {
  std::string name = {};                 // such as blocks.0.weight
  Parameter* parameter = {};             // never null in the results of named_parameters()
  bool table = false;                    // named by visit.table()
  std::vector<Index> parts = {};         // visit.stacked(): the rows of each map in the matrix; empty if it is one map
  std::vector<std::string> others = {};  // further names of a tied parameter
};

// A buffer and its path in the model. The model owns the buffer.
struct NamedBuffer {
  std::string name = {};  // such as decoder.mask
  Tensor* buffer = {};    // never null in the results of named_buffers()
  bool shared = false;    // named by visit.shared()
};

// A tensor and its name, in ordered lists such as the state of an optimizer.
struct NamedTensor {
  std::string name = {};  // unique within a list
  Tensor tensor = {};     // a handle, not a copy of the values
};
// Tensors for lookup by name, such as those of a batch or a checkpoint.
using TensorsByName = std::map<std::string, Tensor, std::less<>>;

// A layer of type L and its path in the model. The model owns the layer.
template <class L>
struct NamedLayer {
  std::string name = {};          // such as blocks.0.attention.qkv
  L* layer = {};                  // never null in the results of named_layers()
  std::vector<Index> parts = {};  // visit.stacked(): the rows of each map; rows that remain are one more map
};

namespace detail {
// The members of a model, in the order in which members() names them. A tied parameter is listed under each name.
struct Members {
  std::vector<NamedParameter> parameters = {};
  std::vector<NamedBuffer> buffers = {};
  const std::type_info* layer_type = nullptr;  // the type of the layers to list; null: none
  std::vector<NamedLayer<void>> layers = {};   // of that type
  bool empty() const { return parameters.empty() && buffers.empty(); }
};
}  // namespace detail

// The argument of members(): lists the parameters and buffers of a model. All purposes use this one type, so a model's
// members() is compiled once and may be defined in a source file: void members(MemberVisitor& visit).
class MemberVisitor {
 public:
  // Visited members are appended to `found`.
  explicit MemberVisitor(detail::Members& found) : found_(found) {}

  void operator()(std::string_view name, Parameter& member);  // skips an undefined parameter, such as an absent bias
  // A tensor that is saved but not trained. In a decode state, its first axis is the rows.
  void buffer(std::string_view name, Tensor& member);
  void buffer(std::string_view name, std::vector<Tensor>& members);  // each is named by its index
  // A buffer of a decode state that does not have rows: all rows share it (layers/state_rows.hpp).
  void shared(std::string_view name, Tensor& member);
  // A layer whose matrix stacks several linear maps of the same input, such as queries, keys and values. `rows` gives
  // the rows of each map. Rows that remain are one more map. Matrices of layers inside this layer are not stacked.
  template <class T> void stacked(std::string_view name, T& member, const std::vector<Index>& rows) {
    const std::size_t first = found_.parameters.size();
    (*this)(name, member);
    inside(name, [&] { mark_parts(first, rows); });
  }
  // A parameter that is not a linear map of hidden vectors: its rows are looked up one by one, or each row holds the
  // weights of one token.
  void table(std::string_view name, Parameter& member);
  // A layer. The paths of its members begin with `name`.
  template <detail::Layer T> void operator()(std::string_view name, T& layer) {
    inside(name, [&] {
      if (found_.layer_type != nullptr && *found_.layer_type == typeid(T)) found_.layers.push_back({path_, &layer});
      layer.members(*this);
    });
  }
  // The elements of a vector, each named by its index.
  template <class T> void operator()(std::string_view name, std::vector<T>& members) {
    inside(name, [&] {
      for (std::size_t i = 0; i < members.size(); ++i) (*this)(std::to_string(i), members[i]);
    });
  }
  // An optional or unique_ptr is skipped if it is empty.
  template <class T> void operator()(std::string_view name, std::optional<T>& member) {
    if (member) (*this)(name, *member);
  }
  template <class T> void operator()(std::string_view name, std::unique_ptr<T>& member) {
    if (member) (*this)(name, *member);
  }

 private:
  detail::Members& found_;
  std::string path_;  // of the layer being visited

  void mark_parts(std::size_t first, const std::vector<Index>& rows);
  // Calls visit() with `name` appended to path_.
  template <class F>
  void inside(std::string_view name, const F& visit) {
    const std::size_t above = path_.size();
    if (above > 0) path_ += '.';
    path_ += name;
    visit();
    path_.resize(above);
  }
};

namespace detail {

// The members of a layer, or of a vector of layers, such as the decoding states of a model's blocks. In a vector, paths
// begin with the layer's index.
template <class M>
Members members_of(M& model) {
  Members found;
  MemberVisitor visit(found);
  visit("", model);
  return found;
}

// The parameters, each once: a tied parameter has its first name, and the others in `others`.
std::vector<NamedParameter> merge_tied(const std::vector<NamedParameter>& parameters);
}  // namespace detail

// The parameters of a model, in the order of its members. A tied parameter is listed once, under its first name. Sets
// the path of each parameter, relative to `model`, so that errors can name the parameter.
template <class M> std::vector<NamedParameter> named_parameters(M& model) {
  std::vector<NamedParameter> all = detail::merge_tied(detail::members_of(model).parameters);
  for (const NamedParameter& p : all) p.parameter->set_path(p.name);
  return all;
}

// The parameters of named_parameters(), without names.
template <class M>
std::vector<Parameter*> parameters(M& model) {
  std::vector<Parameter*> all;
  for (const NamedParameter& p : named_parameters(model)) all.push_back(p.parameter);
  return all;
}

// The tensors of a model that are saved but not trained, in the order of its members.
template <class M> std::vector<NamedBuffer> named_buffers(M& model) {
  return detail::members_of(model).buffers;
}

// The layers of type L in a model, in the order of its members: named_layers<Linear>(model). A layer of a derived type
// is not listed.
template <class L, class M>
std::vector<NamedLayer<L>> named_layers(M& model) {
  detail::Members found{.layer_type = &typeid(L)};
  MemberVisitor visit(found);
  visit("", model);
  std::vector<NamedLayer<L>> all;
  for (NamedLayer<void>& l : found.layers)
    all.push_back({std::move(l.name), static_cast<L*>(l.layer), std::move(l.parts)});
  return all;
}

// Calls zero_grad() on each parameter of a model or layer.
template <class M>
void zero_grad(M& model) {
  for (const NamedParameter& p : named_parameters(model)) p.parameter->zero_grad();
}

// Freezes all parameters of a model or layer: they get no gradients. `frozen` = false trains them again.
template <class M>
void freeze(M& model, bool frozen = true) {
  for (const NamedParameter& p : named_parameters(model)) p.parameter->requires_grad_(!frozen);
}

// The parameters of named_parameters() that are not frozen, for an optimizer of a model that is partly frozen.
template <class M>
std::vector<NamedParameter> trainable_parameters(M& model) {
  std::vector<NamedParameter> all = named_parameters(model);
  std::erase_if(all, [](const NamedParameter& p) { return !p.parameter->requires_grad(); });
  return all;
}

// The depth of each parameter in a stack of blocks, whose members are named blocks.0 and so on: 0 before the first
// block, i + 1 in block i, and 1 + the number of blocks after them. Throws Error if there are no blocks.
std::vector<Index> parameter_depths(const std::vector<NamedParameter>& parameters);

// Freezes the lower part of a model: the parameters before its blocks (embeddings, and an output tied to them), and the
// first `blocks` blocks. Others are unchanged. Throws Error if the model has fewer blocks, or none.
void freeze_lower(const std::vector<NamedParameter>& parameters, Exactly<Index> blocks);
template <detail::Layer M>
void freeze_lower(M& model, Exactly<Index> blocks) {
  freeze_lower(named_parameters(model), blocks);
}

// The number of elements in all parameters. A tied parameter is counted once.
template <class M>
Index parameter_count(M& model) {
  Index n = 0;
  for (const NamedParameter& p : named_parameters(model)) n += p.parameter->numel();
  return n;
}

}  // namespace heed
