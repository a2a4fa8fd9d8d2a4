// The interface of attention mechanisms, and the type-erased mechanism that MultiHeadAttention calls. A mechanism is a
// value of any type with these members, one of heed's or your own:
//
//   struct MyAttention {
//     std::string name() const;
//     AttentionCapabilities capabilities() const;
//     // [B, H, T, D], [B, H, S, D], [B, H, S, Dv] -> [B, H, T, Dv]
//     Tensor apply(In q, In k, In v, const AttentionCall& call) const;
//     AttentionState make_state() const;  // if capabilities().state
//     // Optional: the weights [B, H, T, S] of a call, if capabilities().weights. Without this function, apply() with
//     // unit vectors as values gives the weights.
//     Tensor weights(In q, In k, const AttentionCall& call) const;
//     // Optional: apply() in two parts, if something is computed from the keys alone. A decoder that attends to the
//     // same keys in every step then calls map_keys() once. [B, Hk, S, D] -> the `keys` of apply_mapped().
//     Tensor map_keys(In k, const AttentionCall& call) const;
//     Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
//     // Optional: the number of keys per query and head that cost the same work, if not `positions`. For estimates of
//     // speed.
//     double keys_per_query(Index positions, Index size) const;
//     void members(auto&& visit);  // visits the parameters and buffers, if any
//   };
//
// A mechanism may need more of the layer's input than q, k and v, such as a gate or a decay. Such a mechanism declares
// inputs(). Its apply() and weights(), and the apply() of its state, then get these tensors as their last argument, in
// the order of declaration:
//
//     std::vector<MechanismInput> inputs() const { return {{.name = "gate"}}; }
//     Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const;
//
// Example:
//
//   struct UniformAttention {  // the mean of the values that a query may attend to
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

// What a mechanism supports. A call that needs anything else throws Error with `why`.
struct AttentionCapabilities {
  bool causal = false;       // causal masking
  bool causal_only = false;  // every call must be causal
  bool key_mask = false;     // key_lengths and key_mask
  bool full_mask = false;    // mask
  bool documents = false;    // documents; positions then count by their difference alone
  bool bias = false;         // a bias per pair
  bool key_bias = false;     // a bias per key, the same for all queries; `bias` includes it
  bool dropout = false;      // on weights
  bool weights = false;      // AttentionMechanism::weights()
  bool state = false;        // decoding, by make_state()
  bool cross = false;        // the numbers of queries and keys, T and S, may differ
  // Which keys a query sees depends on its position (windows, distances). Queries are aligned with the end of the keys,
  // so the mechanism supports self-attention only.
  bool aligned = false;
  bool grouped = false;   // k and v may have fewer heads than q
  bool discrete = false;  // the result is discontinuous where a choice of keys changes
  // q, k and v may be bfloat16. If this is false, the mechanism gets bfloat16 tensors as float32, and its result is
  // rounded to bfloat16.
  bool bfloat16 = false;
  // All positions share a running maximum (sums of exponentials over many queries), so a later token may change the
  // rounding of earlier rows. Otherwise a later token changes no bit of earlier rows. Read by the conformance kit only.
  bool shared_maximum = false;
  bool attends_to_memory() const { return cross && !causal_only && !aligned; }  // to another sequence
  std::string why = {};  // reason for what is missing, for messages: "the softmax over positions sees the future"

  // The capabilities of a mechanism with a score per pair, such as softmax attention, in addition to those in `can`.
  static AttentionCapabilities of_pairs(AttentionCapabilities can) {
    can.causal = can.key_mask = can.full_mask = can.bias = can.dropout = true;
    can.weights = can.state = can.cross = can.grouped = true;
    return can;
  }
  static AttentionCapabilities of_pairs() { return of_pairs({}); }
  // The same, for mechanisms that depend on positions. Sets `why` if `can` has none.
  static AttentionCapabilities of_places(AttentionCapabilities can) {
    can.aligned = true;
    if (can.why.empty()) can.why = "which keys a query sees depends on its position";
    return of_pairs(can);
  }
  static AttentionCapabilities of_places() { return of_places({}); }
};

// A mechanism of any type. Move-only, because parameters are.
class AttentionMechanism {
 public:
  // Holds any mechanism with the members listed above. Throws Error for inputs out of range.
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, AttentionMechanism>) AttentionMechanism(T mechanism)
      : name_(mechanism.name()),
        capabilities_(mechanism.capabilities()),
        inputs_(checked(mechanism.name(), inputs_of(mechanism))),
        self_(std::make_unique<Model<T>>(std::move(mechanism))) {}

  // What the mechanism declares.
  const std::string& name() const { return name_; }
  const AttentionCapabilities& capabilities() const { return capabilities_; }
  const std::vector<MechanismInput>& inputs() const { return inputs_; }
  // The mechanism itself if it is a T, else null, as from std::any_cast: get<FavorAttention>()->redraw(1). Name,
  // capabilities and inputs were read at construction and do not change afterwards.
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
  // Applies the mechanism: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv], in the dtype of q
  // (bfloat16: see AttentionCapabilities). `given`: one tensor per declared input. Throws Error for other shapes or
  // inputs, and if the call needs a capability that the mechanism does not have.
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given = {}) const;
  // apply() in two parts, for a decoder that attends to the same keys in every step.
  bool maps_keys() const { return self_->has_map_keys(); }  // whether map_keys() computes anything
  Tensor map_keys(In k, const AttentionCall& call) const;
  Tensor apply_mapped(In q, In keys, In v, const AttentionCall& call) const;
  AttentionState make_state() const;  // throws Error without capabilities().state
  // The weights [B, H, T, S] with which apply() sums the values, without dropout and gradient. Throws Error if the
  // mechanism has none.
  Tensor weights(In q, In k, const AttentionCall& call, std::span<const Tensor> given = {}) const;
  // Keys per query and head, for estimates of work: two dot products of length `size` per query, head and key.
  double keys_per_query(Index positions, Index size) const { return self_->keys_per_query(positions, size); }

  void members(MemberVisitor& visit);  // the members of the mechanism, by the same names

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
    virtual void members(MemberVisitor& visit) = 0;
  };
  template <class T>
  struct Model final : Concept {
    T mechanism;
    explicit Model(T m) : mechanism(std::move(m)) {}
    Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const override {
      if constexpr (requires { mechanism.inputs(); })  // apply() must then be const and take a std::span last
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
    void members(MemberVisitor& visit) override { mechanism.members(visit); }
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
  void check_supported(In q, Index keys, const AttentionCall& call) const;  // throws Error if a capability is missing
  bool must_widen(In q) const;

  std::string name_;  // read at construction, so that no step builds them again
  AttentionCapabilities capabilities_;
  std::vector<MechanismInput> inputs_;
  std::unique_ptr<Concept> self_;
};

}  // namespace heed
