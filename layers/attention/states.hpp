// What decoding keeps between steps. AttentionState holds a value of any type with the right members, heed's own or a
// user's, as a mechanism's make_state() gives it. It can be copied, its rows can be picked and repeated, and they may
// be of different length. KeyValueState and LinearAttentionState are what most mechanisms need.
//
// Example:
//
//   Rng rng(1);
//   AttentionState state = SoftmaxAttention().make_state();
//   const Tensor x = rng.normal({3, 2, 5, 8}), next = rng.normal({3, 2, 1, 8});
//   state.apply(x, x, x, {.key_lengths = Tensor::from<std::int32_t>({5, 2, 4})});  // prompts, padded behind
//   state = state.rows(Tensor::from<std::int32_t>({0, 0, 2}));  // go on from row 0 twice, and from row 2
//   const Tensor y = state.apply(next, next, next);             // one more position for each
#pragma once
#include <functional>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/record.hpp>
#include <heed/core/members.hpp>
#include <heed/core/tensor.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heed {

// ---- Inputs of mechanisms ----

// What a mechanism takes beside queries, keys and values, such as a gate or a decay: a linear function of what they are
// made of, which the layer computes in the same product.
//
//   std::vector<MechanismInput> inputs() const { return {{.name = "gate", .bias = 1}}; }

struct MechanismInput {
  enum class Of {
    queries,  // of x, for each query head: [B, H, T, size]
    keys      // of what keys are made of, x or the memory, for each key head: [B, Hk, S, size]
  };
  std::string name;  // for errors
  Index size = 1;    // numbers per head and position
  Of of = Of::keys;  // a gate of the output is Of::queries: where queries and keys are as many, both have one shape
  double bias = 0;   // what the projection's biases begin with, where the layer has biases

  bool of_queries() const { return of == Of::queries; }
};
inline constexpr std::size_t kMostMechanismInputs = 4;  // of one mechanism; each may have any size

namespace detail {
// Error, which begins with `who` and `what`, unless there are as many as are declared, of their shapes and q's dtype.
void check_inputs(const std::string& who, const char* what, const std::vector<MechanismInput>& declared, In q, In k,
                  std::span<const Tensor> given);
// As float32 where they are bfloat16.
Tensor widened(In x);
std::vector<Tensor> widened(std::span<const Tensor> inputs);
}  // namespace detail

// Another one that has seen the same is made by copying, or by make_state() and the buffers: store_state() and
// load_state(), by way of a Checkpoint.
class AttentionState {
 public:
  AttentionState() = default;
  // T can be copied and has
  //   Tensor apply(In q, In k, In v, const AttentionCall& call);  // the next positions, as apply() below; what it
  //                                                               // cannot honour of key_lengths and bias is an Error
  //   Tensor lengths() const;     // int32 [B]: positions of each row; [0] before the first step
  //   void members(auto&& visit)  // visit.buffer for each tensor that it keeps, the rows as first axis
  //   T rows(const Tensor& indices) const;  // where some buffers have other axes than the rows
  // Where the mechanism takes `inputs` beside q, k and v, apply() has a fifth argument, their std::span<const Tensor>.
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, AttentionState>)
      AttentionState(T state, std::vector<MechanismInput> inputs = {})
      : self_(std::make_unique<Model<T>>(std::move(state))), inputs_(std::move(inputs)) {}
  // The copy and the original go on apart: they share no buffer.
  AttentionState(const AttentionState& from)
      : self_(from.self_ ? from.self_->clone() : nullptr), inputs_(from.inputs_), widens_(from.widens_) {}
  AttentionState(AttentionState&&) = default;
  AttentionState& operator=(AttentionState from) noexcept {
    self_ = std::move(from.self_);
    inputs_ = std::move(from.inputs_);
    widens_ = from.widens_;
    return *this;
  }

  // T new positions for each row, attended to causally: q [B, H, T, D], k [B, Hk, T, D] and v [B, Hk, T, Dv] give
  // [B, H, T, Dv]. Of the call:
  //   key_lengths  int32 [B], each from 0 to T: of row b so many of the T positions are there; the rest is padding,
  //                which the state does not keep, and for which the result says nothing. Undefined: all
  //   bias         of pairs, broadcasts to [B, H, T, length() + T]: column j is position j of the row
  // Errors: no state in it; other numbers of queries and keys, or of rows than before; the rest of the call but causal;
  // a bias where T takes none; other `inputs` than T takes; any of them on a tape, as nothing is trained through a
  // state.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {}, std::span<const Tensor> inputs = {});
  // Row i of the result is row indices[i] of this, as a copy; int32 [N], rows may repeat. For beams, and to drop rows
  // that are done. Before the first step all rows are alike: a copy.
  AttentionState rows(const Tensor& indices) const;
  Tensor lengths() const;  // int32 [B]: positions that each row has seen; [0] before the first step
  Index length() const;    // of the longest row
  explicit operator bool() const { return self_ != nullptr; }
  void members(MemberVisitor& visit);
  // From now on apply() gives bfloat16 q, k, v and inputs to T as float32, and rounds what T gives.
  void take_float32() { widens_ = true; }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual std::unique_ptr<Concept> clone() const = 0;
    virtual Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) = 0;
    virtual std::unique_ptr<Concept> rows(const Tensor& indices) const = 0;
    virtual Tensor lengths() const = 0;
    virtual std::vector<NamedBuffer> buffers() = 0;
  };
  template <class T>
  struct Model;
  std::unique_ptr<Concept> self_;
  std::vector<MechanismInput> inputs_;
  bool widens_ = false;
};

// The same rows of all states of a model.
std::vector<AttentionState> pick_rows(const std::vector<AttentionState>& states, const Tensor& indices);

namespace detail {
// Gives a copy buffers of its own where it shares them.
void unshare(const std::vector<NamedBuffer>& copy, const std::vector<NamedBuffer>& from);
// Replaces each buffer, which is undefined or [B, ...], by these rows of it.
void pick_rows(const std::vector<NamedBuffer>& buffers, const Tensor& indices);

// A state with these rows of all buffers of `state`, which has members().
template <class T>
T with_rows(const T& state, const Tensor& indices) {
  T picked = state;
  pick_rows(named_buffers(picked), indices);
  return picked;
}
}  // namespace detail

template <class T>
struct AttentionState::Model final : Concept {
  mutable T state;  // members() gives access to write
  explicit Model(T s) : state(std::move(s)) {}

  std::unique_ptr<Concept> apart(T copy) const {
    detail::unshare(named_buffers(copy), named_buffers(state));
    return std::make_unique<Model>(std::move(copy));
  }
  std::unique_ptr<Concept> clone() const override { return apart(state); }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) override {
    if constexpr (requires { state.apply(q, k, v, call, inputs); }) {
      return state.apply(q, k, v, call, inputs);
    } else {
      check(inputs.empty(), q.where(),
            "AttentionState: the mechanism takes inputs, but apply() of its state has no "
            "std::span<const Tensor> as its last argument; it must read them");
      return state.apply(q, k, v, call);
    }
  }
  std::unique_ptr<Concept> rows(const Tensor& indices) const override {
    if constexpr (requires { state.rows(indices); })
      return apart(state.rows(indices));
    else
      return apart(detail::with_rows(state, indices));
  }
  Tensor lengths() const override { return state.lengths(); }
  std::vector<NamedBuffer> buffers() override { return named_buffers(state); }
};

// ---- All keys and values ----

// The decode state of mechanisms that need all keys: it keeps keys and values, and attends to them anew.
//
//   AttentionState make_state() const {
//     const auto attend = [self = *this](In q, In k, In v, const AttentionCall& c) { return self.apply(q, k, v, c); };
//     return KeyValueState(attend);
//   }

// Room doubles as positions come, so that one more costs no copy of the others.
class KeyValueState {
 public:
  // Attends to all S keys and values so far, position j of each row at j: q [B, H, T, D], k [B, Hk, S, D], v
  // [B, Hk, S, Dv] -> [B, H, T, Dv]. The call is causal and has a bias, where one was given, [.., T, S]. It has
  // key_lengths where not every row has S positions: then T is 1, and the query is a row's last position, or all rows
  // had seen as many before the T positions.
  using Attend = std::function<Tensor(In q, In k, In v, const AttentionCall& call)>;

  explicit KeyValueState(Attend attend) : attend_(std::move(attend)) {}
  // Appends k and v, and attends, by the state's own function or another: as AttentionState::apply(). No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {}) { return apply(q, k, v, call, attend_); }
  Tensor apply(In q, In k, In v, const AttentionCall& call, const Attend& attend);
  const Tensor& lengths() const { return lengths_; }
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  Attend attend_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor lengths_ = Tensor::zeros({0}, DType::int32);
};

// A KeyValueState that maps keys as they come, so that it keeps mapped keys; `attend` gets these. As of a mechanism's
// map_keys() and apply_mapped().
class MappedKeyState {
 public:
  using Map = std::function<Tensor(In k)>;  // [B, Hk, T, D] -> [B, Hk, T, A] or [B, H, T, A]

  MappedKeyState(Map key, KeyValueState::Attend attend) : key_(std::move(key)), mapped_(std::move(attend)) {}
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});
  const Tensor& lengths() const { return mapped_.lengths(); }
  void members(auto&& visit) { mapped_.members(visit); }

 private:
  Map key_;
  KeyValueState mapped_;
};

// ---- Sums over keys and values ----

// The decode state of linear attention and its relatives: the sums over all keys and values so far, of one size however
// many came before.
//
//   return LinearAttentionState([](In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call) {
//     return linear_attention_step(q, k, v, sums, call);
//   });

class LinearAttentionState {
 public:
  // Goes on from the sums, of which each row has its own. The call has key_lengths where some of the T keys are
  // padding.
  using Step = std::function<Tensor(In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call)>;

  explicit LinearAttentionState(Step step) : step_(std::move(step)) {}
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});  // causally: [B, H, T, Dv]
  const Tensor& lengths() const { return lengths_; }
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.buffer("sums", sums_.sums);
    visit.buffer("norms", sums_.norms);
    visit.buffer("maxima", sums_.maxima);
  }

 private:
  Step step_;
  LinearAttentionSums sums_;
  Tensor lengths_ = Tensor::zeros({0}, DType::int32);
};

}  // namespace heed
