// What MultiHeadAttention takes as its way to attend: a value of any type with the right members, heed's own or a
// user's.
//
//   struct MyAttention {
//     std::string name() const;
//     AttentionCapabilities capabilities() const;
//     // [B, H, T, D], [B, H, S, D], [B, H, S, Dv] -> [B, H, T, Dv]
//     Tensor apply(In q, In k, In v, const AttentionCall& call) const;
//     AttentionState make_state() const;  // where capabilities().state
//     // [B, H, T, S], of the same call; where capabilities().weights and apply() on unit values is not good enough
//     Tensor weights(In q, In k, const AttentionCall& call) const;
//     // apply() in two parts, where something is computed of the keys alone: a decoder that attends once a step has
//     // that done once. [B, Hk, S, D] -> what apply_mapped() takes in the keys' place.
//     Tensor map_keys(In k, const AttentionCall& call) const;
//     Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
//     // The keys that the work on a query of a head is worth, where not all positions: for estimates of speed.
//     double keys_per_query(Index positions, Index size) const;
//     void members(auto&& visit);         // parameters and buffers, possibly none
//   };
//
// A mechanism that needs more of the layer's input than q, k and v, a gate or a decay, declares it; apply(), weights()
// and its state's apply() then get these tensors as a last argument, in this order:
//
//     std::vector<MechanismInput> inputs() const { return {{.name = "gate"}}; }
//     Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const;
//
// Example:
//
//   struct UniformAttention {  // the mean of what a query may see
//     std::string name() const { return "uniform"; }
//     AttentionCapabilities capabilities() const { return AttentionCapabilities::of_pairs(); }
//     Tensor apply(In q, In k, In v, const AttentionCall& call) const { return attention(q * 0, k, v, call); }
//     void members(MemberVisitor&) {}
//   };
//   Rng rng(1);
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, UniformAttention());
#pragma once
#include <functional>
#include <heed/autograd/attention.hpp>
#include <heed/layers/attention/states.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heed {

// What of the common semantics a mechanism has. Asking for the rest is an Error that says why.
struct AttentionCapabilities {
  bool causal = false;
  bool causal_only = false;  // it cannot attend to all positions: what is not asked to be causal is an Error
  bool key_mask = false;     // key_lengths and key_mask
  bool full_mask = false;    // mask
  bool bias = false;         // a bias for every pair
  bool key_bias = false;     // only one for every key, the same for all queries
  bool dropout = false;      // on weights
  bool weights = false;
  bool state = false;  // decoding token by token
  bool cross = false;  // T and S may differ
  // What a query sees hangs on its place among the keys, in whose own sequence it stands: ends are aligned. Such a
  // mechanism cannot attend to another sequence, whose length says nothing of the query's place.
  bool aligned = false;
  bool grouped = false;   // k and v may have fewer heads
  bool discrete = false;  // the result jumps where a choice changes
  // q, k and v may be bfloat16. Where they are and this is false, the mechanism gets them as float32, and what it gives
  // is rounded to bfloat16.
  bool bfloat16 = false;
  // Positions share a running maximum, as sums of exponentials over many queries do: a later token then changes the
  // rounding of earlier rows, where it otherwise changes no bit. For the conformance kit alone.
  bool shared_maximum = false;
  bool attends_to_memory() const { return cross && !causal_only && !aligned; }  // that is, to another sequence
  std::string why = {};  // of what is missing, for error messages: "the softmax over positions sees the future"

  // What can be had where every pair has a score, softmax attention's: all of these; of choices, none.
  static AttentionCapabilities of_pairs() {
    return {.causal = true,
            .key_mask = true,
            .full_mask = true,
            .bias = true,
            .dropout = true,
            .weights = true,
            .state = true,
            .cross = true,
            .grouped = true};
  }
  static AttentionCapabilities of_places() {  // the same where places count
    AttentionCapabilities can = of_pairs();
    can.aligned = true;
    can.why = "what a query sees hangs on its place among the keys";
    return can;
  }
};

// The type-erased mechanism. Move-only, as its parameters are.
class AttentionMechanism {
 public:
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, AttentionMechanism>) AttentionMechanism(T mechanism)
      : name_(mechanism.name()),
        capabilities_(mechanism.capabilities()),
        inputs_(checked(mechanism.name(), inputs_of(mechanism))),
        self_(std::make_unique<Model<T>>(std::move(mechanism))) {}

  const std::string& name() const { return name_; }
  const AttentionCapabilities& capabilities() const { return capabilities_; }
  const std::vector<MechanismInput>& inputs() const { return inputs_; }
  // The mechanism itself where it is a T, else null, as of std::any_cast: get<FavorAttention>()->redraw(1). What it
  // said of its name, capabilities and inputs at the beginning stays.
  template <class T>
  T* get() {
    auto* model = dynamic_cast<Model<T>*>(self_.get());
    return model != nullptr ? &model->mechanism : nullptr;
  }
  template <class T>
  const T* get() const {
    const auto* model = dynamic_cast<const Model<T>*>(self_.get());
    return model != nullptr ? &model->mechanism : nullptr;
  }
  // Checks shapes, and that `call` asks for nothing that the mechanism lacks; then applies it. `given`: its inputs().
  // The result has the dtype of q. For bfloat16 see AttentionCapabilities.
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given = {}) const;
  // apply() in two parts, for a decoder that attends to the same keys again and again.
  bool maps_keys() const { return self_->has_map_keys(); }  // whether the first part computes anything
  Tensor map_keys(In k, const AttentionCall& call) const;
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // Error where the mechanism has none
  // The weights [B, H, T, S] that apply() gives the values, without dropout and gradient. Error where it has none.
  Tensor weights(In q, In k, const AttentionCall& call, std::span<const Tensor> given = {}) const;
  // Of work: 2 products of `size` a key for each query and head.
  double keys_per_query(Index positions, Index size) const { return self_->keys_per_query(positions, size); }

  void members(MemberVisitor& visit);

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const = 0;
    virtual bool has_map_keys() const = 0;
    virtual Tensor map_keys(In k, const AttentionCall& call) const = 0;
    virtual Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const = 0;
    virtual AttentionState make_state() const = 0;
    virtual Tensor weights(In q, In k, const AttentionCall& call, std::span<const Tensor> given) const = 0;
    virtual double keys_per_query(Index positions, Index size) const = 0;
    virtual std::vector<detail::Member> members() = 0;
  };
  template <class T>
  struct Model final : Concept {
    T mechanism;
    explicit Model(T m) : mechanism(std::move(m)) {}
    Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const override {
      if constexpr (requires { mechanism.inputs(); })  // which apply() must read: a const function, std::span last
        return mechanism.apply(q, k, v, call, given);
      else
        return mechanism.apply(q, k, v, call);
    }
    static constexpr bool maps_keys = requires(const T& m, In x, const AttentionCall& call) {
      m.map_keys(x, call), m.apply_mapped(x, x, x, call);
    };
    bool has_map_keys() const override { return maps_keys; }
    Tensor map_keys(In k, const AttentionCall& call) const override {
      if constexpr (maps_keys)
        return mechanism.map_keys(k, call);
      else
        return k;
    }
    Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const override {
      if constexpr (maps_keys)
        return mechanism.apply_mapped(q, keys, v, call);
      else
        return apply(q, keys, v, call, {});
    }
    AttentionState make_state() const override {
      if constexpr (requires { mechanism.make_state(); })
        return mechanism.make_state();
      else
        return {};
    }
    Tensor weights(In q, In k, const AttentionCall& call, std::span<const Tensor> given) const override {
      if constexpr (requires { mechanism.weights(q, k, call, given); })
        return mechanism.weights(q, k, call, given);
      else if constexpr (requires { mechanism.weights(q, k, call); })
        return mechanism.weights(q, k, call);
      else
        return {};
    }
    double keys_per_query(Index positions, Index size) const override {
      if constexpr (requires { mechanism.keys_per_query(positions, size); })
        return mechanism.keys_per_query(positions, size);
      else
        return static_cast<double>(positions);
    }
    std::vector<detail::Member> members() override { return detail::members_of(mechanism); }
  };
  template <class T>
  static std::vector<MechanismInput> inputs_of(const T& mechanism) {
    if constexpr (requires { mechanism.inputs(); })
      return mechanism.inputs();
    else
      return {};
  }
  static std::vector<MechanismInput> checked(const std::string& name, std::vector<MechanismInput> inputs);
  void check_call(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const;
  void check_asked(In q, Index keys, const AttentionCall& call) const;  // that the mechanism has what the call asks for
  bool must_widen(In q) const;

  std::string name_;  // as the mechanism said at the beginning: asked for in every step, they are not built anew
  AttentionCapabilities capabilities_;
  std::vector<MechanismInput> inputs_;
  std::unique_ptr<Concept> self_;
};

}  // namespace heed
