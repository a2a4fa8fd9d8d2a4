// Which parameters an optimizer trains, how groups of them differ, and clipping of their gradients.
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
#include <functional>
#include <heed/core/members.hpp>
#include <heed/core/parallel.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// ---- Groups ----

// Which parameters an optimizer trains, and how groups of them differ.

struct ParameterGroup {
  std::vector<NamedParameter> parameters = {};
  double lr_scale = 1;                 // the group's learning rate is the optimizer's times this
  std::optional<double> weight_decay = {};  // the optimizer's, unless set here
  bool elementwise = false;            // no matrices to Muon, which gives them AdamW's step: embeddings, for one
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

// The groups of Muon: matrices; tables (NamedParameter::table: embeddings, output weights) and what lies in `others`,
// which are names or what names begin with up to a dot ("head"): matrices that AdamW's step is better for; and all that
// are no matrices, which do not decay. The rate of the last two is the optimizer's times lr_scale. A group without
// parameters is left out. Error where one of the others has none.
struct MuonGroupOptions {
  double weight_decay = 0;
  double lr_scale = 1;
  std::vector<std::string> others = {};
};
std::vector<ParameterGroup> muon_groups(const std::vector<NamedParameter>& parameters, const MuonGroupOptions& options);
template <detail::Layer M>
std::vector<ParameterGroup> muon_groups(M& model, const MuonGroupOptions& options = {}) {
  return muon_groups(named_parameters(model), options);
}

// The parameters in two lists, for optimizers that train different parts of a model: those of `parts`, which are names
// or what names begin with up to a dot ("tokens", "blocks.0"), and all others. Error where one of the parts has none.
struct ParameterSplit {
  std::vector<NamedParameter> chosen = {}, others = {};
};
ParameterSplit split_parameters(const std::vector<NamedParameter>& parameters, const std::vector<std::string>& parts);
template <detail::Layer M>
ParameterSplit split_parameters(M& model, const std::vector<std::string>& parts) {
  return split_parameters(named_parameters(model), parts);
}

namespace detail {

// A parameter as optimizers hold it: by its storage, so that the model may be moved.
struct Trained {
  std::string name = {};
  Tensor value = {};
  int group = 0;
  bool elementwise = false;        // the group's
  std::vector<Index> parts = {};  // NamedParameter::parts

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

namespace heed::detail {

// ---- Chunks ----

// How the optimizers' passes are split: a flat list of stretches of all parameters, gathered into tasks, so that many
// tiny parameters cost one parallel_for and large ones are shared out. Internal.

struct Chunk {
  int parameter = {};  // position in the list of parameters
  Index begin = {};
  Index count = {};  // at most Chunks::kLongest
};

class Chunks {
 public:
  // 16384 items are some 450 kB of traffic in AdamW, 15 microseconds.
  static constexpr Index kLongest = 16384;

  void clear() {
    chunks_.clear();
    tasks_.clear();
    room_ = 0;
  }
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

  // f(chunk number, chunk) for all chunks, many at once.
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
  std::vector<Index> tasks_;  // the first chunk of each
  Index room_ = 0;            // items that the last task still takes
};

// The gradient of a parameter that has one.
inline const Tensor& gradient_of(const Trained& p) { return p.info().gradient; }

}  // namespace heed::detail

namespace heed {

// ---- Clipping ----

// Clipping of gradients.

// What to do where the norm of the gradients is NaN or infinite.
enum class NonFinite {
  error,      // throw Error that names the first parameter whose gradient is not finite
  skip,       // leave gradients (and weights) as they are; the returned norm tells
  propagate,  // scale all the same, as PyTorch does by default
};

// The 2-norm of all gradients together, in float64; the same bits at any number of threads. Parameters without gradient
// and frozen ones count 0.
double grad_norm(const ParameterGroups& parameters);

// min(1, max_norm / (norm + 1e-6)): the factor by which PyTorch scales gradients. Give it to Optimizer::step.
double clip_coefficient(double norm, double max_norm);

// Scales the gradients so that their norm is at most max_norm (positive; infinity only measures). Returns the norm
// before. Optimizer::clipped_step does the same without a pass of its own for the scaling.
double clip_grad_norm_(const ParameterGroups& parameters, double max_norm, NonFinite non_finite = NonFinite::error);

// Clamps each gradient to [-limit, limit]; NaN stays NaN.
void clip_grad_value_(const ParameterGroups& parameters, double limit);

namespace detail {
class Chunks;
// The sums of squares of the gradients of `chunks`, one per chunk, of those that `wanted` takes; empty: of all. Their
// order is that of norm_of(), whoever computed them.
void squares_of(const std::vector<Trained>& parameters, const Chunks& chunks, std::vector<double>& sums,
                const std::function<bool(const Chunk&)>& wanted = {});
double norm_of(const std::vector<double>& sums);
[[noreturn]] void fail_non_finite(const std::string& who, double norm, const std::vector<Trained>& parameters,
                                  const Chunks& chunks, const std::vector<double>& sums);
void check_max_norm(std::string_view who, double max_norm);
}  // namespace detail

}  // namespace heed
