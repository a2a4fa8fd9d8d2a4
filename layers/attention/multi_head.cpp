#include <heed/autograd/elementwise.hpp>
#include <heed/layers/attention/multi_head.hpp>
#include <heed/layers/attention/states/row_lengths.hpp>

namespace heed {

static MultiHeadAttentionOptions checked(MultiHeadAttentionOptions o) {
  require(o.width > 0 && o.heads > 0 && o.width % o.heads == 0, "MultiHeadAttention: width is ", o.width,
          " and heads is ", o.heads, "; both must be 1 or more and heads must divide width");
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  require(o.kv_heads > 0 && o.heads % o.kv_heads == 0, "MultiHeadAttention: heads is ", o.heads, " and kv_heads is ",
          o.kv_heads, "; kv_heads must divide heads");
  require(o.value_width == 0 || (o.value_width > 0 && o.memory_width > 0), "MultiHeadAttention: value_width is ",
          o.value_width, " and memory_width is ", o.memory_width,
          "; values of their own need keys from a memory: both must be 1 or more");
  require(!o.rope || o.width / o.heads % 2 == 0, "MultiHeadAttention: the size of a head is ", o.width / o.heads,
          "; rotary positions need an even one");
  return o;
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& o, Rng& rng, AttentionMechanism m)
    : proj(checked(o).width, o.width, rng, {.bias = o.bias}),
      mechanism(std::move(m)),
      options_(checked(o)),
      size_(o.width / o.heads) {
  const Index kv_width = options_.kv_heads * size_;
  const LinearOptions linear{.bias = o.bias};
  if (o.memory_width == 0)
    qkv.emplace(o.width, o.width + 2 * kv_width, rng, linear);
  else
    q.emplace(o.width, o.width, rng, linear);
  if (o.value_width > 0) {
    k.emplace(o.memory_width, kv_width, rng, linear);
    v.emplace(o.value_width, kv_width, rng, linear);
  } else if (o.memory_width > 0) {
    kv.emplace(o.memory_width, 2 * kv_width, rng, linear);
  }
  if (o.relative_clip == 0) return;
  require(o.relative_clip > 0 && o.memory_width == 0, "MultiHeadAttention: relative_clip is ", o.relative_clip,
          " and memory_width is ", o.memory_width,
          "; relative positions are of self-attention, up to a distance of 1 or more");
  const AttentionCapabilities& can = mechanism.capabilities();
  require(can.bias, mechanism.name(),
          " attention: relative positions were asked for, which are a bias of single pairs, ",
          "and it has no scores of single pairs to add one to", can.why.empty() ? "" : ": ", can.why);
  relative.emplace(o.heads, o.relative_clip, rng);
}

// Columns [begin, begin + heads * size) of y [B, T, ...] as [B, heads, T, size]: a view.
static Tensor heads_of(const Tensor& y, Index begin, Index heads, Index size) {
  return y.slice(-1, begin, begin + heads * size).view({y.dim(0), y.dim(1), heads, size}).transpose(1, 2);
}

MultiHeadAttention::Heads MultiHeadAttention::split_self(In x, const RopeOptions& from) const {
  check(qkv.has_value(), x.where(), "MultiHeadAttention: this layer attends to a memory; call it with one");
  check(x.rank() == 3 && x.dim(2) == options_.width, x.where(), "MultiHeadAttention: x is ", x.tensor(),
        "; it must be [batch, positions, ", options_.width, "]");
  const Tensor y = (*qkv)(x);
  const Index h = options_.heads, g = options_.kv_heads;
  Heads out{heads_of(y, 0, h, size_), heads_of(y, h * size_, g, size_), heads_of(y, (h + g) * size_, g, size_)};
  if (options_.rope) {
    out.q = rope(out.q, from);
    out.k = rope(out.k, from);
  }
  return out;
}

Tensor MultiHeadAttention::merge(In y) const {
  return proj(y->transpose(1, 2).reshape({y.dim(0), y.dim(2), y.dim(1) * y.dim(3)}));
}

void MultiHeadAttention::add_relative(In x, AttentionCall& call) const {
  if (!relative) return;
  const Tensor bias = (*relative)(x.dim(1), x.dim(1), x.where());
  call.bias = call.bias.defined() ? bias + call.bias : bias;
}

Tensor MultiHeadAttention::operator()(In x, AttentionCall call) const {
  call.dropout = options_.dropout;
  const Heads h = split_self(x);
  add_relative(x, call);
  return merge(mechanism.apply({h.q, x.where()}, h.k, h.v, call));
}

MultiHeadAttention::Heads MultiHeadAttention::split_cross(In x, In memory, In values) const {
  check(q.has_value(), x.where(), "MultiHeadAttention: this layer attends to itself; call it without a memory");
  check(x.rank() == 3 && x.dim(2) == options_.width && memory.rank() == 3 && memory.dim(2) == options_.memory_width &&
            memory.dim(0) == x.dim(0),
        x.where(), "MultiHeadAttention: x is ", x.tensor(), " and memory is ", memory.tensor(),
        "; they must be [batch, positions, ", options_.width, "] and [batch, positions, ", options_.memory_width, "]");
  const Index g = options_.kv_heads;
  if (v) {
    const Tensor keys = (*k)(memory), queries = (*q)(x);
    return {heads_of(queries, 0, options_.heads, size_), heads_of(keys, 0, g, size_),
            values->defined() ? heads_of((*v)(values), 0, g, size_) : Tensor()};
  }
  const Tensor keys_values = (*kv)(memory), queries = (*q)(x);
  return {heads_of(queries, 0, options_.heads, size_), heads_of(keys_values, 0, g, size_),
          heads_of(keys_values, g * size_, g, size_)};
}

Tensor MultiHeadAttention::operator()(In x, In memory, AttentionCall call) const {
  check(!v, x.where(), "MultiHeadAttention: value_width is ", options_.value_width,
        ", so that the memory gives keys alone; call this layer with keys and values");
  call.dropout = options_.dropout;
  const Heads h = split_cross(x, memory, Tensor());
  return merge(mechanism.apply({h.q, x.where()}, h.k, h.v, call));
}

Tensor MultiHeadAttention::operator()(In x, In keys, In values, AttentionCall call) const {
  check(v.has_value(), x.where(),
        "MultiHeadAttention: value_width is 0; set it, or call this layer without values of their own");
  check(keys.rank() == 3 && values.shape() == keys.shape().with(-1, options_.value_width), x.where(),
        "MultiHeadAttention: keys are ", keys.tensor(), " and values are ", values.tensor(),
        "; they must be [batch, positions, ", options_.memory_width, "] and [batch, positions, ", options_.value_width,
        "] of one batch and as many positions");
  call.dropout = options_.dropout;
  const Heads h = split_cross(x, keys, values);
  return merge(mechanism.apply({h.q, x.where()}, h.k, h.v, call));
}

Tensor MultiHeadAttention::decode(In x, AttentionState& state, AttentionCall call) const {
  if (!state) state = mechanism.make_state();
  const Tensor seen = state.lengths();
  const bool ragged = !detail::all_alike(seen);
  const Index before = state.length();
  const Heads h = split_self(x, ragged ? RopeOptions{.offsets = seen} : RopeOptions{.offset = before});
  if (relative) {
    const Index queries = x.dim(1);
    const Tensor bias =
        ragged ? relative->of_rows(queries, seen) : (*relative)(queries, before + queries, x.where());
    call.bias = call.bias.defined() ? bias + call.bias : bias;
  }
  return merge(state.apply({h.q, x.where()}, h.k, h.v, call));
}

Tensor MultiHeadAttention::weights(In x, AttentionCall call) const {
  const NoTape guard;
  const Heads h = split_self(x);
  add_relative(x, call);
  return mechanism.weights({h.q, x.where()}, h.k, call);
}

Tensor MultiHeadAttention::weights(In x, In memory, AttentionCall call) const {
  const NoTape guard;
  const Heads h = split_cross(x, memory, Tensor());
  return mechanism.weights({h.q, x.where()}, h.k, call);
}

void MultiHeadAttention::members(MemberVisitor& visit) {
  visit("qkv", qkv);
  visit("q", q);
  visit("kv", kv);
  visit("k", k);
  visit("v", v);
  visit("proj", proj);
  visit("relative", relative);
  visit("mechanism", mechanism);
}

}  // namespace heed
