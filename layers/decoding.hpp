// Decoding: what writes tokens, one after another, whatever the model.
//
// Example:
//
//   struct Cycle {  // a model of four tokens, each of which is followed by the next
//     Tensor read(const Tensor& tokens, const Tensor&) {
//       return one_hot(gather(Tensor::from<std::int32_t>({1, 2, 3, 0}), 0, tokens.select(1, tokens.dim(1) - 1)), 4)
//       * 9.0;
//     }
//     Cycle rows(const Tensor&) const { return *this; }
//   };
//   DecodeState state = Cycle();
//   const Tensor logits = state.read(Tensor::from<std::int32_t>({2, 3}, {2, 1}));  // [2, 4]
#pragma once
#include <concepts>
#include <heed/core/mode.hpp>
#include <heed/core/tensor.hpp>
#include <memory>
#include <utility>

namespace heed {

// What a DecodeState can hold. `read` takes what each of N rows reads next, int32 [N, T], of row i the first lengths[i]
// of its T tokens (int32 [N], each from 1 to T; undefined: all), and gives the logits [N, vocabulary] of what follows.
// `rows` gives a state whose row i is row indices[i] of this, int32 [M]; rows may repeat.
template <class T>
concept DecodeStateLike = std::copyable<T> && requires(T& state, const T& seen, const Tensor& x) {
  { state.read(x, x) } -> std::convertible_to<Tensor>;
  { seen.rows(x) } -> std::convertible_to<T>;
};

// What a model has read so far, and how it reads on: a value of any such type, yours as well. Nothing is recorded on a
// tape, and there is no dropout. The model must live as long.
class DecodeState {
 public:
  template <DecodeStateLike T>
  requires(!std::same_as<std::remove_cvref_t<T>, DecodeState>) DecodeState(T state)
      : self_(std::make_unique<Model<T>>(std::move(state))) {}
  DecodeState(const DecodeState& from) : self_(from.self_->rows({})) {}
  DecodeState(DecodeState&&) = default;
  DecodeState& operator=(DecodeState from) noexcept {
    self_ = std::move(from.self_);
    return *this;
  }

  Tensor read(const Tensor& tokens, const Tensor& lengths = {}) { return self_->read(tokens, lengths); }
  DecodeState rows(const Tensor& indices) const { return DecodeState(self_->rows(indices)); }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual Tensor read(const Tensor& tokens, const Tensor& lengths) = 0;
    virtual std::unique_ptr<Concept> rows(const Tensor& indices) const = 0;  // undefined: all of them, a copy
  };
  template <class T>
  struct Model final : Concept {
    T state;
    explicit Model(T s) : state(std::move(s)) {}
    Tensor read(const Tensor& tokens, const Tensor& lengths) override {
      const NoTape no_tape;
      const Evaluation evaluation;
      return state.read(tokens, lengths);
    }
    std::unique_ptr<Concept> rows(const Tensor& indices) const override {
      return std::make_unique<Model>(indices.defined() ? state.rows(indices) : state);
    }
  };
  explicit DecodeState(std::unique_ptr<Concept> self) : self_(std::move(self)) {}

  std::unique_ptr<Concept> self_;
};

}  // namespace heed
