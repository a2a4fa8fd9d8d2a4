// Decode states: the data that attention keeps between the steps of a decoder. An AttentionState holds a value of any
// type with the right members, as make_state() of a mechanism returns it. It can be copied, its rows can be picked and
// repeated, and rows may have different lengths. KeyValueState and LinearAttentionState serve most mechanisms.
//
// Example:
//
//   Rng rng(1);
//   AttentionState state = SoftmaxAttention().make_state();
//   const Tensor x = rng.normal({3, 2, 5, 8}), next = rng.normal({3, 2, 1, 8});
//   state.apply(x, x, x, {.key_lengths = Tensor::from<std::int32_t>({5, 2, 4})});  // prompts, with padding at the end
//   state = state.rows(Tensor::from<std::int32_t>({0, 0, 2}));  // continue row 0 twice, and row 2
//   const Tensor y = state.apply(next, next, next);             // one more position per row
#pragma once
#include <functional>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/record.hpp>
#include <heed/core/members.hpp>
#include <heed/core/tensor.hpp>
#include <heed/layers/state_rows.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heed {

// ---- Inputs of mechanisms ----

// A tensor that a mechanism needs in addition to queries, keys and values, such as a gate or a decay. It is a linear
// function of the layer's input, and the layer computes it in the same product as queries and keys.
//
//   std::vector<MechanismInput> inputs() const { return {{.name = "gate", .bias = 1}}; }
struct MechanismInput {
  // The positions and heads for which the layer computes the tensor.
  enum class Of {
    queries,  // computed from x, per query head: [B, H, T, size]
    keys      // computed from x or the memory, as keys are, per key head: [B, Hk, S, size]
  };
  std::string name;  // for error messages
  Index size = 1;    // numbers per head and position
  Of of = Of::keys;  // queries for a gate of the output; with T = S and Hk = H, both choices have the same shape
  double bias = 0;   // initial value of the projection's biases, if the layer has biases
  // > 0: the layer computes x W1 W2 with W1 [width, rank] for all heads together; else a matrix of full rank.
  Index rank = 0;

  bool of_queries() const { return of == Of::queries; }  // one row per query, otherwise one per key
};
inline constexpr std::size_t kMaxMechanismInputs = 4;  // per mechanism; each input may have any size

namespace detail {
// Throws Error, beginning with `name` and `what`, unless there is one tensor per declared input, of its shape and q's
// dtype.
void check_inputs(const std::string& name, const char* what, const std::vector<MechanismInput>& declared, In q, In k,
                  std::span<const Tensor> given);
// bfloat16 as float32; other dtypes unchanged.
Tensor widened(In x);
std::vector<Tensor> widened(std::span<const Tensor> inputs);
}  // namespace detail

// A decode state of any type. To copy a state to another process or model, make one by make_state() and load its
// buffers: store_state() and load_state(), through a Checkpoint.
class AttentionState {
 public:
  AttentionState() = default;
  // T can be copied and has these members:
  //   Tensor apply(In q, In k, In v, const AttentionCall& call);  // the next positions, as apply() below; throws Error
  //                                                               // for a key_lengths or bias that it does not support
  //   Tensor lengths() const;     // int32 [B]: positions of each row; [0] before the first step
  //   void members(auto&& visit)  // names each tensor that it keeps: visit.buffer("keys", keys) if the first axis is
  //                               // the rows, visit.shared("start", start) if all rows share the tensor
  //   T rows(const Tensor& indices) const;  // optional, for a state that keeps other data than tensors; see
  //                                         // layers/state_rows.hpp
  // If the mechanism has inputs, apply() has a fifth argument for them, std::span<const Tensor>.
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, AttentionState>)
      AttentionState(T state, std::vector<MechanismInput> inputs = {})
      : self_(std::make_unique<Model<T>>(std::move(state))), inputs_(std::move(inputs)) {}
  // The copy shares no buffer with the original.
  AttentionState(const AttentionState& from) : AttentionState(from, {}) {}
  AttentionState(AttentionState&&) = default;
  AttentionState& operator=(AttentionState&&) = default;
  AttentionState& operator=(const AttentionState& from) { return *this = AttentionState(from); }

  // Appends T new positions per row and attends causally: q [B, H, T, D], k [B, Hk, T, D], v [B, Hk, T, Dv] -> [B, H,
  // T, Dv]. The call may have:
  //   key_lengths  int32 [B], each from 0 to T: number of the T positions that row b has; undefined: all T. The others
  //                are padding, which the state does not keep. The result at padding is unspecified.
  //   bias         broadcasts to [B, H, T, length() + T]; column j is position j of the row
  //
  // Throws Error if the state is empty, if q and k differ in T, if the number of rows has changed, and if `inputs` do
  // not match the declaration. Throws Error if the call has a mask, documents, dropout, or a bias that T does not
  // support. Throws Error if q, k, v or an input needs a gradient, because a state passes none on.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {}, std::span<const Tensor> inputs = {});
  // Row i of the result is a copy of row indices[i]; indices int32 [N], rows may repeat. For beam search, and to drop
  // finished rows. Before the first step, returns a copy of the state.
  AttentionState rows(const Tensor& indices) const;
  Tensor lengths() const;  // int32 [B]: positions seen by each row; [0] before the first step
  Index length() const;    // of the longest row
  explicit operator bool() const { return self_ != nullptr; }
  // Names the buffers of T.
  void members(MemberVisitor& visit);
  // From now on apply() passes bfloat16 q, k, v and inputs to T as float32, and rounds the result.
  void take_float32() { widens_ = true; }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) = 0;
    virtual std::unique_ptr<Concept> rows(const Tensor& indices) const = 0;  // undefined: a copy of all rows
    virtual Tensor lengths() const = 0;
    virtual void members(MemberVisitor& visit) = 0;
  };
  template <class T>
  struct Model;
  AttentionState(const AttentionState& from, const Tensor& indices)  // these rows; undefined: all
      : self_(from.self_ ? from.self_->rows(indices) : nullptr), inputs_(from.inputs_), widens_(from.widens_) {}

  std::unique_ptr<Concept> self_;
  std::vector<MechanismInput> inputs_;
  bool widens_ = false;
};

namespace detail {
// Clones each buffer of `copy` that shares memory with `from`.
void unshare(const std::vector<NamedBuffer>& copy, const std::vector<NamedBuffer>& from);
}  // namespace detail

template <class T>
struct AttentionState::Model final : Concept {
  mutable T state;  // mutable because members() gives write access
  explicit Model(T s) : state(std::move(s)) {}

  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) override {
    if constexpr (requires { state.apply(q, k, v, call, inputs); }) {
      return state.apply(q, k, v, call, inputs);
    } else {
      check(inputs.empty(), q.where(),
            "AttentionState: the mechanism declares inputs, but apply() of its state does not take them; its last "
            "argument must be std::span<const Tensor>");
      return state.apply(q, k, v, call);
    }
  }
  std::unique_ptr<Concept> rows(const Tensor& indices) const override {
    T picked = indices.defined() ? pick_rows(state, indices) : state;
    detail::unshare(named_buffers(picked), named_buffers(state));
    return std::make_unique<Model>(std::move(picked));
  }
  Tensor lengths() const override { return state.lengths(); }
  void members(MemberVisitor& visit) override { state.members(visit); }
};

// ---- All keys and values ----

// The decode state of mechanisms that need all keys: stores keys and values, and attends to all of them in each step.
//
//   AttentionState make_state() const { return KeyValueState(*this); }
//
// The capacity doubles when it is exceeded, so most steps copy no earlier positions.
class KeyValueState {
 public:
  // Attends to all S keys and values so far; index j is position j of each row. q [B, H, T, D], k [B, Hk, S, D], v [B,
  // Hk, S, Dv] -> [B, H, T, Dv]. The call is causal. It has a bias [.., T, S] if one was given, and key_lengths if some
  // row has fewer than S positions. In that case, either T is 1 and the query is the last position of its row, or all
  // rows had the same length before the T positions.
  using Attend = std::function<Tensor(In q, In k, In v, const AttentionCall& call)>;
  using Map = std::function<Tensor(In k)>;  // [B, Hk, T, D] -> [B, Hk, T, A] or [B, H, T, A]

  // Both functions are for apply() without a function of its own. `map_keys`, for mechanisms with map_keys() and
  // apply_mapped(): maps each key when it is appended. The state then stores the mapped keys, and `attend` gets them in
  // place of keys.
  explicit KeyValueState(Attend attend, Map map_keys = {})
      : attend_(std::move(attend)), map_keys_(std::move(map_keys)) {}
  // Attends by apply() of the mechanism, which must have a copy constructor.
  template <class M>
  requires requires(const M& m, In x, const AttentionCall& call) { m.apply(x, x, x, call); }
  explicit KeyValueState(M mechanism)
      : attend_([m = std::move(mechanism)](In q, In k, In v, const AttentionCall& call) {
          return m.apply(q, k, v, call);
        }) {}
  // Appends k and v, and attends with the state's own function or with `attend`. As AttentionState::apply(). No
  // gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});
  Tensor apply(In q, In k, In v, const AttentionCall& call, const Attend& attend);
  const Tensor& lengths() const { return lengths_; }
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  Attend attend_;
  Map map_keys_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor lengths_ = Tensor::zeros({0}, DType::int32);
};

// ---- Sums over keys and values ----

// The decode state of linear attention and related mechanisms: sums over all keys and values so far. Its size does not
// grow with their number.
//
//   return LinearAttentionState([](In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call) {
//     return linear_attention_step(q, k, v, sums, call);
//   });
class LinearAttentionState {
 public:
  // Updates the sums of each row with T new positions. The call has key_lengths if some of the T keys are padding.
  using Step = std::function<Tensor(In q, In k, In v, LinearAttentionSums& sums, const AttentionCall& call)>;

  explicit LinearAttentionState(Step step) : step_(std::move(step)) {}  // `step` computes apply()
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});  // causal: [B, H, T, Dv]; no gradient
  const Tensor& lengths() const { return lengths_; }  // int32 [B]: positions of each row; [0] before the first step
  // The buffers: lengths, sums, norms and maxima.
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
