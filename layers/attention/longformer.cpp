// Longformer: attention in windows per group of heads, attention of the global positions, and the decode state.
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/longformer.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

constexpr const char* kLongformer = "longformer attention";

// The arguments of the global queries, in the order of inputs(): q' [B, H, T, D], k' [B, Hk, S, D], v' [B, Hk, S, Dv].
struct GlobalHeads {
  Tensor q, k, v;
};

WindowAttention window_of(const LongformerOptions& o, Index head) {
  const std::vector<Index>& all = o.dilations;
  const Index dilation = all.size() == 1 ? all[0] : all[static_cast<std::size_t>(head)];
  return WindowAttention({.window = o.window, .dilation = dilation, .globals = o.globals});
}

// The part of a mask or bias for heads [first, last).
Tensor head_part(const Tensor& x, Index first, Index last) {
  return x.defined() && x.rank() >= 3 && x.dim(-3) > 1 ? x.slice(-3, first, last) : x;
}

// All queries by their windows, with q, k and v: one call per run of heads with the same dilation.
Tensor by_windows(In q, In k, In v, const AttentionCall& call, const LongformerOptions& o) {
  const Index heads = q.dim(1);
  const auto count = static_cast<Index>(o.dilations.size());
  check(count == 1 || count == heads, q.where(), kLongformer, ": q is ", q.tensor(), " and there are ", count,
        " dilations; there must be one, or one per head");
  if (count == 1) return window_of(o, 0).apply(q, k, v, call);
  const Tensor keys = detail::repeat_heads(k, heads), values = detail::repeat_heads(v, heads);
  std::vector<Tensor> parts;
  for (Index first = 0, last = 0; first < heads; first = last) {
    const auto dilation = [&](Index h) { return o.dilations[static_cast<std::size_t>(h)]; };
    while (last < heads && dilation(last) == dilation(first)) ++last;
    AttentionCall part = call;
    part.mask = head_part(call.mask, first, last), part.bias = head_part(call.bias, first, last);
    parts.push_back(window_of(o, first).apply({q->slice(1, first, last), q.where()}, keys.slice(1, first, last),
                                              values.slice(1, first, last), part));
  }
  return concatenate(parts, 1);
}

// The rows of `at` of a tensor that broadcasts to [B, H, T, S].
Tensor query_rows(const Tensor& x, const Tensor& at) {
  if (!x.defined() || x.rank() < 2 || x.dim(-2) == 1) return x;
  return index_select(x, -2, at);
}

// The queries at indices `at` by their own projections, [B, H, at, Dv].
Tensor by_globals(const GlobalHeads& g, const AttentionCall& call, const std::vector<std::int32_t>& at) {
  const Tensor rows = Tensor::from(at);
  AttentionCall some{.key_lengths = call.key_lengths, .key_mask = call.key_mask, .dropout = call.dropout};
  some.mask = query_rows(call.mask, rows), some.bias = query_rows(call.bias, rows);
  if (call.causal) {
    const Tensor ends = rows.unsqueeze(1) + static_cast<double>(query_position(0, g.q.dim(2), g.k.dim(2)));
    const Tensor seen = Tensor::arange(g.k.dim(2)) <= ends;
    some.mask = some.mask.defined() ? logical_and(some.mask, seen) : seen;
  }
  return attention(index_select(g.q, 2, rows), g.k, g.v, some);
}

Tensor attend_longformer(In q, In k, In v, const GlobalHeads& g, const AttentionCall& call,
                         const LongformerOptions& o) {
  const Tensor y = by_windows(q, k, v, call, o);
  if (!o.own_projections) return y;
  const Index queries = q.dim(2), first = query_position(0, queries, k.dim(2));
  std::vector<std::int32_t> at, order;
  for (Index i = 0; i < queries; ++i) {
    const bool global = std::binary_search(o.globals.begin(), o.globals.end(), first + i);
    order.push_back(static_cast<std::int32_t>(global ? queries + static_cast<Index>(at.size()) : i));
    if (global) at.push_back(static_cast<std::int32_t>(i));
  }
  if (at.empty()) return y;
  return index_select(concatenate({y, by_globals(g, call, at)}, 2), 2, Tensor::from(order));
}

// One query per row, at the last of its key_lengths positions.
Tensor attend_last(In q, In k, In v, const GlobalHeads& g, const AttentionCall& call, const LongformerOptions& o) {
  const Index batch = q.dim(0), heads = q.dim(1), keys = k.dim(2);
  Tensor seen = Tensor::zeros({batch, heads, 1, keys}, DType::bool8),
         global = Tensor::zeros({batch, 1, 1, 1}, DType::bool8);
  for (Index b = 0; b < batch; ++b) {
    const Index length = call.key_lengths.ptr<std::int32_t>()[b];
    global.ptr<bool>()[b] = std::binary_search(o.globals.begin(), o.globals.end(), length - 1);
    for (Index h = 0; h < heads; ++h) {
      std::vector<std::int32_t> near;
      window_of(o, h).see(length - 1, length, true, near);
      for (const std::int32_t j : near) seen.ptr<bool>()[(b * heads + h) * keys + j] = true;
    }
  }
  AttentionCall local = call, whole = call;
  local.causal = whole.causal = false, local.mask = seen;
  const Tensor y = attention(q, k, v, local);
  return o.own_projections ? where(global, attention(g.q, g.k, g.v, whole), y) : y;
}

// Stores k and k' side by side, and v and v'.
struct LongformerState {
  LongformerOptions options;
  KeyValueState all;

  explicit LongformerState(const LongformerOptions& o)
      : options(o), all([o](In q, In k, In v, const AttentionCall& call) {
          const Index size = o.own_projections ? o.size : q.dim(3),
                      value_size = o.own_projections ? o.value_size : v.dim(3);
          const auto own = [](In x, Index n) { return x->slice(3, 0, n); };
          const auto other = [&](In x, Index n) { return o.own_projections ? x->slice(3, n, x.dim(3)) : Tensor(); };
          const GlobalHeads g{other(q, size), other(k, size), other(v, value_size)};
          const bool last = call.key_lengths.defined() && q.dim(2) == 1;
          return (last ? attend_last : attend_longformer)({own(q, size), q.where()}, own(k, size), own(v, value_size),
                                                          g, call, o);
        }) {}
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
    if (!options.own_projections) return all.apply(q, k, v, call);
    const NoTape guard;
    return all.apply({concatenate({q.tensor(), inputs[0]}, 3), q.where()},
                     {concatenate({k.tensor(), inputs[1]}, 3), k.where()},
                     {concatenate({v.tensor(), inputs[2]}, 3), v.where()}, call);
  }
  Tensor lengths() const { return all.lengths(); }
  void members(auto&& visit) { all.members(visit); }
};

}  // namespace

LongformerAttention::LongformerAttention(const LongformerOptions& options) : options_(options) {
  LongformerOptions& o = options_;
  if (o.value_size == 0) o.value_size = o.size;
  require(!o.dilations.empty(), "LongformerAttention: there is no dilation; give one, or one per head");
  require(!o.own_projections || (o.size > 0 && o.value_size > 0), "LongformerAttention: size is ", o.size,
          " and value_size is ", o.value_size, "; both must be 1 or more");
  for (std::size_t h = 0; h < o.dilations.size(); ++h)  // checks the window, the dilations and the globals
    o.globals = window_of(o, static_cast<Index>(h)).options().globals;
}

AttentionCapabilities LongformerAttention::capabilities() const {
  AttentionCapabilities can = AttentionCapabilities::of_places({});
  can.weights = !options_.own_projections;
  return can;
}

std::vector<MechanismInput> LongformerAttention::inputs() const {
  if (!options_.own_projections) return {};
  return {{.name = "global_query", .size = options_.size, .of = MechanismInput::Of::queries},
          {.name = "global_key", .size = options_.size},
          {.name = "global_value", .size = options_.value_size}};
}

Tensor LongformerAttention::apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const {
  detail::check_heads(kLongformer, q, k, v);
  detail::check_pairs(kLongformer, q, k, call);
  detail::check_inputs(kLongformer, "", inputs(), q, k, given);
  check(!options_.own_projections || v.dim(3) == options_.value_size, q.where(), kLongformer, ": v is ", v.tensor(),
        "; its last axis must be ", options_.value_size, ", as value_size");
  const GlobalHeads g = options_.own_projections ? GlobalHeads{given[0], given[1], given[2]} : GlobalHeads();
  return attend_longformer(q, k, v, g, call, options_);
}

AttentionState LongformerAttention::make_state() const { return AttentionState(LongformerState(options_), inputs()); }

}  // namespace heed
