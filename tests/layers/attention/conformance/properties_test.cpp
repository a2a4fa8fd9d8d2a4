// Correct mechanisms of unusual kinds pass the kit: with tables, choices, caches and gates.
#include <atomic>
#include <heed/heed.hpp>
#include <heed/layers/attention/detail/compositions.hpp>

#include "tests/layers/attention/right_mechanisms.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

// ---- With parameters, tables and buffers ----

// Softmax attention with a learned table, e.g. a factor or a bias of scores. Supports every dtype of q.
struct Tabled {
  enum class Kind { temperature, head_gain, near_table, mixed_heads, value_gain, sink, buffer };
  Kind kind;
  Parameter table;
  Tensor buffer;

  Tabled(Kind which, Rng& rng)
      : kind(which),
        table(rng.uniform(which == Kind::near_table    ? Shape{4, 33}
                          : which == Kind::mixed_heads ? Shape{4, 4}
                                                       : Shape{4, 1, 1},
                          0.5, 1.5)),
        buffer(rng.normal({4, 1, 1})) {}
  std::string name() const { return "tabled"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = kind == Kind::near_table ? kPlaced : kAll;
    can.state = true;
    // Each output mixes all heads, so masks and biases per head do not hide keys from an output.
    if (kind == Kind::mixed_heads) can.full_mask = can.bias = false;
    return can;
  }
  Tensor as(const Tensor& x, const Tensor& q) const { return x.dtype() == q.dtype() ? x : x.to(q.dtype()); }
  Tensor apply(In q, In k, In v, const Call& original) const {
    Call call = original;
    const Tensor t = as(table, q);
    switch (kind) {
      case Kind::temperature: return softmax_of(q.tensor() * t, k, v, call);
      case Kind::head_gain: return softmax_of(q, k, v, call) * t;
      case Kind::value_gain: return softmax_of(q, k, without_padding(v, call) * t, call);
      case Kind::buffer: return softmax_of(q, k, v, call) * as(buffer, q) * t;
      case Kind::near_table: {
        const Tensor at = minimum(maximum(distances(q, k), -16.0), 16.0) + 16.0;
        const Index T = q.dim(2), S = k.dim(2);
        const Tensor bias = index_select(t, 1, at.to(DType::int32).reshape({T * S})).view({4, T, S});
        call.bias = call.bias.defined() ? call.bias + bias : bias;
        return softmax_of(q, k, v, call);
      }
      case Kind::mixed_heads: {  // talking heads
        const Tensor y = softmax_of(q, k, v, call);
        const Shape shape = y.shape();
        return matmul(t, y.view({shape[0], shape[1], shape[2] * shape[3]})).view(shape);
      }
      case Kind::sink: {  // adds exp(t) to the sum of the softmax
        if (k.dim(2) == 0) return softmax_of(q, k, v, call);
        const Tensor allowed = allowed_pairs(q, k, call);
        const Tensor s = masked_fill(scores_of(q, k, call), logical_not(allowed), -1e30);
        const Tensor max_score = maximum(max(s.detach(), {-1}, true), t.detach());
        const Tensor w = where(allowed.expand(s.shape()), exp(s - max_score), 0.0);
        return matmul(w / (sum(w, {-1}, true) + exp(t - max_score)), without_padding(v, call));
      }
    }
    return {};
  }
  AttentionState make_state() const {
    auto copy = std::make_shared<Tabled>(*this);
    copy->table = Parameter(table.detach().clone());
    return KeyValueState(row_by_row(
        [copy](const Tensor& q, const Tensor& k, const Tensor& v, const Call& c) { return copy->apply(q, k, v, c); }));
  }
  Tabled(const Tabled& from) : kind(from.kind), table(from.table.detach().clone()), buffer(from.buffer) {}
  Tabled(Tabled&&) = default;
  void members(auto&& visit) {
    visit("table", table);
    visit.buffer("buffer", buffer);
  }
};

std::vector<Right> with_tables() {
  using Kind = Tabled::Kind;
  std::vector<Right> all;
  for (const Kind kind : {Kind::temperature, Kind::head_gain, Kind::near_table, Kind::value_gain, Kind::buffer,
                          Kind::mixed_heads, Kind::sink})
    all.push_back({"a table",
                   [kind](Index, Rng& rng) { return AttentionMechanism(Tabled(kind, rng)); },
                   {.normalised = kind == Kind::temperature || kind == Kind::near_table}});
  return all;
}

// ---- Linear attention, choices, and caches between calls ----

Tensor in_bits(const Tensor& x) { return x.to(DType::bfloat16).to(x.dtype()); }

Apply linear_of(const std::function<Tensor(const Tensor&)>& feature) {
  return [feature](const Tensor& q, const Tensor& k, const Tensor& v, const Call& call) {
    const Tensor pairs = matmul(feature(q), feature(without_padding(k, call)).t());
    const Tensor w = where(allowed_pairs(q, k, call).expand(pairs.shape()), pairs, 0.0);
    return matmul(w, without_padding(v, call)) / (sum(w, {-1}, true) + 1e-6);
  };
}

std::vector<Right> others() {
  const AttentionCapabilities linear{.causal = true, .key_mask = true, .full_mask = true, .cross = true};
  AttentionCapabilities discrete = linear;
  discrete.discrete = true;
  AttentionCapabilities narrow = AttentionCapabilities::of_pairs();
  narrow.bfloat16 = true, narrow.weights = narrow.state = narrow.dropout = narrow.bias = false;
  AttentionCapabilities whole = AttentionCapabilities::of_pairs();
  whole.bfloat16 = true;
  whole.state = whole.weights = false;
  return {
      decoded("linear by elu", linear, linear_of(elu_feature)),
      decoded("linear by a sigmoid", linear, linear_of([](const Tensor& x) { return sigmoid(x); })),
      decoded("linear by squares", linear, linear_of([](const Tensor& x) { return x * x + 0.1; })),
      decoded("linear by softmax over the size", linear, linear_of([](const Tensor& x) { return softmax(x, -1); })),
      decoded("linear by exp", linear, linear_of([](const Tensor& x) { return exp(minimum(x * 0.5, 20.0)); }),
              {.spread = 60}),
      decoded("linear by softplus", linear, linear_of([](const Tensor& x) { return softplus(x); })),
      decoded("the best key alone", discrete,
              [](auto& q, auto& k, auto& v, auto& call) {
                const Tensor allowed = allowed_pairs(q, k, call);
                const Tensor s = masked_fill(scores_of(q, k, call), logical_not(allowed), -1e30);
                if (k.dim(2) == 0) return softmax_of(q, k, v, call);
                return matmul(masked_softmax(s, logical_and(allowed, ge(s, max(s.detach(), {-1}, true)))),
                              without_padding(v, call));
              }),
      composed("the fused op, in bfloat16 too", whole,
               [](auto& q, auto& k, auto& v, auto& call) { return attention(q, k, v, call); }),
      composed("the fused op with another scale", whole,
               [](auto& q, auto& k, auto& v, auto& call) { return attention(q, k, v, call, 0.7); }),
      composed("bfloat16 by way of float32", narrow,
               [](auto& q, auto& k, auto& v, auto& call) {
                 if (q.dtype() != DType::bfloat16) return attention(q, k, v, call);
                 const auto wide = [](const Tensor& x) { return x.to(DType::float32); };
                 return attention(wide(q), wide(k), wide(v), call).to(DType::bfloat16);
               }),
      composed("scores in few bits where bfloat16 is asked for", narrow,
               [](auto& q, auto& k, auto& v, auto& call) {
                 if (q.dtype() != DType::bfloat16) return attention(q, k, v, call);
                 const auto wide = [](const Tensor& x) { return x.to(DType::float32); };
                 const auto heads = [&](const Tensor& x) { return detail::repeat_heads(wide(x), q.dim(1)); };
                 const Tensor s = in_bits(scores_of(wide(q), heads(k), call));
                 const Tensor w = in_bits(masked_softmax(s, allowed_pairs(q, k, call)));
                 return matmul(w, heads(without_padding(v, call))).to(DType::bfloat16);
               }),
      composed("a cache of masks by their shape", kAll,
               [cache = std::make_shared<std::map<std::pair<Index, Index>, Tensor>>()](auto& q, auto& k, auto& v,
                                                                                       Call call) {
                 if (!call.causal || call.mask.defined()) return softmax_of(q, k, v, call);
                 Tensor& mask = (*cache)[{q.dim(2), k.dim(2)}];
                 if (!mask.defined()) mask = allowed_pairs(q, k, {.causal = true}).clone();
                 call.causal = false, call.mask = mask;
                 return softmax_of(q, k, v, call);
               }),
      composed("a count of calls that changes nothing", kAll,
               [count = std::make_shared<std::atomic<int>>(0)](auto& q, auto& k, auto& v, auto& call) {
                 ++*count;
                 return softmax_of(q, k, v, call);
               }),
      composed("a result that is a view of a larger one", kAll,
               [](auto& q, auto& k, auto& v, auto& call) {
                 const Tensor y = softmax_of(q, k, v, call);
                 return concatenate({y, y}, 3).slice(3, 0, v.dim(3));
               }),
      composed("a result with heads side by side", kAll,
               [](auto& q, auto& k, auto& v, auto& call) {
                 return softmax_of(q, k, v, call).transpose(1, 2).contiguous().transpose(1, 2);
               }),
  };
}

// ---- With inputs ----

struct Gated {
  enum class Kind { output, value, keys, two };
  Kind kind;
  std::string name() const { return "gated"; }
  AttentionCapabilities capabilities() const { return kAll; }
  std::vector<MechanismInput> inputs() const {
    if (kind == Kind::output) return {{.name = "gate", .of = MechanismInput::Of::queries}};
    if (kind == Kind::two) return {{.name = "gate", .of = MechanismInput::Of::queries}, {.name = "write", .size = 2}};
    return {{.name = "write"}};
  }
  Tensor apply(In q, In k, In v, const Call& call, std::span<const Tensor> in) const {
    const auto of_keys = [&](std::size_t i) { return sigmoid(without_padding(in[i], call)); };
    if (kind == Kind::output) return softmax_of(q, k, v, call) * sigmoid(in[0]);
    if (kind == Kind::value) return softmax_of(q, k, without_padding(v, call) * of_keys(0), call);
    if (kind == Kind::keys) return softmax_of(q, without_padding(k, call) * of_keys(0), v, call);
    return softmax_of(q, k, without_padding(v, call) * sum(of_keys(1), {-1}, true), call) * sigmoid(in[0]);
  }
  void members(auto&&) {}
};

std::vector<Right> with_inputs() {
  std::vector<Right> all;
  for (const Gated::Kind kind : {Gated::Kind::output, Gated::Kind::value, Gated::Kind::keys, Gated::Kind::two})
    all.push_back({"a gate", [kind](Index, Rng&) { return AttentionMechanism(Gated{kind}); }, {.normalised = false}});
  return all;
}

}  // namespace

RELEASE_TEST_CASE("conformance: what is right passes, with tables and buffers") { check_pass(with_tables()); }
RELEASE_TEST_CASE("conformance: what is right passes, linear, by choices, in few bits, and with caches") {
  check_pass(others());
}
RELEASE_TEST_CASE("conformance: what is right passes, with gates") { check_pass(with_inputs()); }
