// What decoding keeps between steps: a value of any type with the right members, heed's own or a user's, as a mechanism's
// make_state() gives it. It can be copied, its rows can be picked and repeated, and they may be of different length.
//
//   AttentionState state = mechanism.make_state();
//   state.apply(q, k, v, {.key_lengths = lengths});           // prompts of different length, padded behind
//   state = state.rows(Tensor::from<std::int32_t>({0, 0, 2}, {3}));  // go on from row 0 twice, and from row 2
//   state.apply(q1, k1, v1);                                  // one more position for each
#pragma once
#include <heed/autograd/attention_call.hpp>
#include <heed/autograd/record.hpp>
#include <heed/core/members.hpp>
#include <heed/layers/attention/mechanism_input.hpp>
#include <memory>
#include <span>
#include <vector>

namespace heed {

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
      : self_(from.self_ ? from.self_->clone() : nullptr), inputs_(from.inputs_) {}
  AttentionState(AttentionState&&) = default;
  AttentionState& operator=(AttentionState from) noexcept {
    self_ = std::move(from.self_);
    inputs_ = std::move(from.inputs_);
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
  // Row i of the result is row indices[i] of this, as a copy; int32 [N], rows may repeat. For beams, and to drop rows that
  // are done. Before the first step all rows are alike: a copy.
  AttentionState rows(const Tensor& indices) const;
  Tensor lengths() const;  // int32 [B]: positions that each row has seen; [0] before the first step
  Index length() const;    // of the longest row
  explicit operator bool() const { return self_ != nullptr; }
  void members(MemberVisitor& visit);

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
    if constexpr (requires { state.apply(q, k, v, call, inputs); })
      return state.apply(q, k, v, call, inputs);
    else
      return state.apply(q, k, v, call);
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

}  // namespace heed
