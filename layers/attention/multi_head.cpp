// Multi-head attention: projections, heads, cross-attention and decoding.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/multi_head.hpp>
#include <heed/layers/model_config.hpp>

namespace heed {

static MultiHeadAttentionOptions checked(MultiHeadAttentionOptions o) {
  require(o.width > 0 && o.heads > 0 && (o.key_size != 0 || o.width % o.heads == 0), "MultiHeadAttention: width is ",
          o.width, " and heads is ", o.heads,
          "; both must be 1 or more and heads must divide width, unless key_size is given");
  if (o.key_size == 0) o.key_size = o.width / o.heads;
  if (o.value_size == 0) o.value_size = o.key_size;
  require(o.key_size > 0 && o.value_size > 0, "MultiHeadAttention: key_size is ", o.key_size, " and value_size is ",
          o.value_size, "; they must be 1 or more, or 0 for their defaults");
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (!o.dropout) o.dropout = 0;
  if (!o.qkv_bias) o.qkv_bias = o.bias;
  require(o.kv_heads > 0 && o.heads % o.kv_heads == 0, "MultiHeadAttention: heads is ", o.heads, " and kv_heads is ",
          o.kv_heads, "; kv_heads must divide heads");
  require(o.value_width == 0 || (o.value_width > 0 && o.memory_width > 0), "MultiHeadAttention: value_width is ",
          o.value_width, " and memory_width is ", o.memory_width,
          "; value_width requires memory_width, and both must be 1 or more");
  require(!o.rope || o.key_size % 2 == 0, "MultiHeadAttention: the size of a head is ", o.key_size,
          "; rope requires an even size");
  return o;
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& given, Rng& rng, AttentionMechanism m)
    : proj(checked(given).heads * checked(given).value_size, given.width, rng, {.bias = given.bias}),
      mechanism(std::move(m)),
      options_(checked(given)) {
  const MultiHeadAttentionOptions& o = options_;
  Index queries = o.heads * o.key_size, keys = o.kv_heads * o.key_size;
  const Index values = o.kv_heads * o.value_size;
  for (const MechanismInput& input : mechanism.inputs()) (input.of_queries() ? queries : keys) += input_rows(input);
  const AttentionCapabilities& can = mechanism.capabilities();
  require(o.memory_width == 0 || can.attends_to_memory(), mechanism.name(), " attention cannot attend to a memory",
          can.why.empty() ? "" : ": ", can.why);
  const LinearOptions linear{.bias = *o.qkv_bias};
  if (o.memory_width == 0)
    qkv.emplace(o.width, queries + keys + values, rng, linear);
  else
    q.emplace(o.width, queries, rng, linear);
  if (o.value_width > 0) {
    k.emplace(o.memory_width, keys, rng, linear);
    v.emplace(o.value_width, values, rng, linear);
  } else if (o.memory_width > 0) {
    kv.emplace(o.memory_width, keys + values, rng, linear);
  }
  for (const MechanismInput& input : mechanism.inputs())
    if (input.rank > 0)
      input_maps.emplace_back(input.rank, (input.of_queries() ? o.heads : o.kv_heads) * input.size, rng, linear);
  set_input_biases();
  for (std::optional<RMSNorm>* norm : {&q_norm, &k_norm})
    if (o.qk_norm) norm->emplace(o.key_size, o.norm_eps > 0 ? o.norm_eps : 1e-6, o.unit_offset);
  if (o.relative_clip == 0) return;
  require(o.relative_clip > 0 && o.memory_width == 0, "MultiHeadAttention: relative_clip is ", o.relative_clip,
          " and memory_width is ", o.memory_width,
          "; relative positions require self-attention (memory_width 0) and a clip of 1 or more");
  require(can.bias, mechanism.name(),
          " attention does not support relative positions, which are a bias of single pairs",
          can.why.empty() ? "" : ": ", can.why);
  relative.emplace(o.heads, o.relative_clip, rng);
}

Index MultiHeadAttention::input_rows(const MechanismInput& input) const {
  return input.rank > 0 ? input.rank : (input.of_queries() ? options_.heads : options_.kv_heads) * input.size;
}

void MultiHeadAttention::set_input_biases() {
  if (!*options_.qkv_bias) return;
  // Inputs are last in their product, so their rows are counted from its end.
  Linear& of_queries = qkv ? *qkv : *q;
  Linear& of_keys = qkv ? *qkv : kv ? *kv : *k;
  Index queries_end = of_queries.bias.numel(), keys_end = of_keys.bias.numel();
  const std::vector<MechanismInput>& inputs = mechanism.inputs();
  auto map = input_maps.rbegin();
  for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
    const bool first = qkv.has_value() || input->of_queries();
    Index& end = first ? queries_end : keys_end;
    const Index begin = end - input_rows(*input);
    (first ? of_queries : of_keys).bias.slice(0, begin, end).fill_(input->rank > 0 ? 0 : input->bias);
    if (input->rank > 0) (map++)->bias.fill_(input->bias);
    end = begin;
  }
}

bool MultiHeadAttention::keeps_bfloat16() const {
  const bool rounds = matmul_precision() == DType::bfloat16 || proj.weight.dtype() == DType::bfloat16;
  return rounds && mechanism.capabilities().bfloat16 && mechanism.inputs().empty();
}

// Projects x to heads, in the dtype that a decode state keeps. `changed`: a norm or rope follows, and in_state_dtype()
// rounds later.
Tensor MultiHeadAttention::projected(const Linear& linear, In x, bool changed) const {
  return keeps_bfloat16() && !changed && x.dtype() != DType::float64 ? linear(x, DType::bfloat16) : linear(x);
}

// Heads after a norm or rope, in the dtype that a decode state keeps.
Tensor MultiHeadAttention::in_state_dtype(const Tensor& heads) const {
  return keeps_bfloat16() && heads.dtype() == DType::float32 ? heads.to(DType::bfloat16) : heads;
}

namespace {

// Splits the columns of a product [B, T, ...] from left to right into heads [B, heads, T, size], as views.
class Columns {
 public:
  explicit Columns(Tensor y) : y_(std::move(y)) {}
  Tensor next(Index heads, Index size) { return split_heads(columns(heads * size), heads); }
  // An input of a mechanism; `map` is the next of the input maps and used by an input with a rank.
  Tensor next(const MechanismInput& input, Index heads, std::vector<Linear>::const_iterator& map) {
    return input.rank > 0 ? split_heads((*map++)(columns(input.rank)), heads) : next(heads, input.size);
  }

 private:
  Tensor y_;
  Index at_ = 0;

  Tensor columns(Index n) {
    const Index begin = at_;
    at_ += n;
    return y_.slice(-1, begin, at_);
  }
};

}  // namespace

MultiHeadAttention::Heads MultiHeadAttention::heads_of(In x, RopeOptions from) const {
  const MultiHeadAttentionOptions& o = options_;
  check(qkv.has_value(), x.where(), "MultiHeadAttention: this layer attends to a memory; call it with one");
  check(x.rank() == 3 && x.dim(2) == o.width, x.where(), "MultiHeadAttention: x is ", x.tensor(),
        "; it must be [batch, positions, ", o.width, "]");
  Columns y(projected(*qkv, x, o.rope || o.qk_norm || o.query_scale > 0));
  Heads h{y.next(o.heads, o.key_size), y.next(o.kv_heads, o.key_size), y.next(o.kv_heads, o.value_size)};
  auto map = input_maps.begin();
  for (const MechanismInput& input : mechanism.inputs())
    h.add(y.next(input, input.of_queries() ? o.heads : o.kv_heads, map));
  if (o.qk_norm) {
    h.q = (*q_norm)(h.q);
    h.k = (*k_norm)(h.k);
  }
  if (o.query_scale > 0) h.q = h.q * o.query_scale;
  if (o.rope) {
    const bool window = o.window_rope_base > 0 && mechanism.name() == "window";
    from.base = window ? o.window_rope_base : o.rope_base > 0 ? o.rope_base : from.base;
    if (!window) from.scaling = o.rope_scaling;
    h.q = rope(h.q, from);
    h.k = rope(h.k, from);
  }
  for (Tensor* heads : {&h.q, &h.k, &h.v}) *heads = in_state_dtype(*heads);
  // Rope made new queries and keys. With a copy of the values, backward does not keep the product with all three.
  if (qkv->lora && o.rope && needs_gradient({h.v})) h.v = h.v.contiguous();
  return h;
}

MultiHeadAttention::Heads MultiHeadAttention::heads_of(In x, const ProjectedMemory& memory) const {
  check(q.has_value(), x.where(), "MultiHeadAttention: this layer is self-attention; call it without a memory");
  check(x.rank() == 3 && x.dim(2) == options_.width && x.dim(0) == memory.k.dim(0), x.where(),
        "MultiHeadAttention: x is ", x.tensor(), " and the memory's keys are ", memory.k,
        "; x must be [batch, positions, ", options_.width, "] with the same batch");
  Columns y(projected(*q, x, q_norm.has_value() || options_.query_scale > 0));
  Heads h{y.next(options_.heads, options_.key_size), memory.k, memory.v, memory.mapped};
  if (q_norm) h.q = (*q_norm)(h.q);
  if (options_.query_scale > 0) h.q = h.q * options_.query_scale;
  h.q = in_state_dtype(h.q);
  auto of_keys = memory.inputs.begin();
  auto map = input_maps.begin();
  for (const MechanismInput& input : mechanism.inputs()) {
    h.add(input.of_queries() ? y.next(input, options_.heads, map) : *of_keys++);
    if (!input.of_queries() && input.rank > 0) ++map;
  }
  return h;
}

ProjectedMemory MultiHeadAttention::project(In memory, const Tensor& values) const {
  const MultiHeadAttentionOptions& o = options_;
  check(q.has_value(), memory.where(), "MultiHeadAttention: this layer is self-attention; call it without a memory");
  check(memory.rank() == 3 && memory.dim(2) == o.memory_width, memory.where(), "MultiHeadAttention: memory is ",
        memory.tensor(), "; it must be [batch, positions, ", o.memory_width, "]");
  check(!values.defined() || (v && values.shape() == memory.shape().with(-1, o.value_width)), memory.where(),
        "MultiHeadAttention: keys are ", memory.tensor(), " and values are ", values, "; values must be [batch, ",
        "positions, ", o.value_width, "] with the batch and positions of keys, and require value_width above 0");
  Columns y(projected(kv ? *kv : *k, memory, k_norm.has_value()));
  ProjectedMemory p;
  p.k = y.next(o.kv_heads, o.key_size);
  if (k_norm) p.k = in_state_dtype((*k_norm)(p.k));
  if (kv)
    p.v = in_state_dtype(y.next(o.kv_heads, o.value_size));
  else if (values.defined())
    p.v = Columns(projected(*v, {values, memory.where()})).next(o.kv_heads, o.value_size);
  auto map = input_maps.begin();
  for (const MechanismInput& input : mechanism.inputs()) {
    if (!input.of_queries()) p.inputs.push_back(y.next(input, o.kv_heads, map));
    if (input.of_queries() && input.rank > 0) ++map;
  }
  return p;
}

void ProjectedMemory::members(MemberVisitor& visit) {
  visit.buffer("k", k), visit.buffer("v", v), visit.buffer("inputs", inputs), visit.buffer("mapped", mapped);
}

Tensor MultiHeadAttention::merge(const Tensor& y) const { return proj(merge_heads(y)); }

Tensor MultiHeadAttention::attend(const Heads& h, AttentionCall call, const Where& where) const {
  call.dropout = *options_.dropout;
  if (h.mapped.defined()) return merge(mechanism.apply_mapped({h.q, where}, h.mapped, h.v, call));
  return merge(mechanism.apply({h.q, where}, h.k, h.v, call, h.inputs()));
}

static AttentionCall plus_bias(AttentionCall call, const Tensor& bias) {
  call.bias = call.bias.defined() ? bias + call.bias : bias;
  return call;
}

AttentionCall MultiHeadAttention::with_relative(In x, const AttentionCall& call) const {
  return relative ? plus_bias(call, (*relative)(x.dim(1), x.dim(1), x.where())) : call;
}

RopeOptions MultiHeadAttention::rope_of(const AttentionCall& call) const {
  if (!options_.rope || !call.documents.defined()) return {};
  return {.positions = positions_in_documents(call.documents)};
}

Tensor MultiHeadAttention::operator()(In x, const AttentionCall& call) const {
  const Heads heads = heads_of(x, rope_of(call));  // first, because it checks x
  return attend(heads, with_relative(x, call), x.where());
}

Tensor MultiHeadAttention::operator()(In x, const ProjectedMemory& memory, const AttentionCall& call) const {
  check(memory.v.defined(), x.where(), "MultiHeadAttention: value_width is ", options_.value_width,
        ", so the memory holds only keys; call this layer with keys and values");
  return attend(heads_of(x, memory), call, x.where());
}

Tensor MultiHeadAttention::decode(In x, AttentionState& state, AttentionCall call) const {
  if (!state) state = mechanism.make_state();
  const Tensor seen = state.lengths();
  const bool ragged = !detail::all_alike(seen);
  const Index before = state.length(), queries = x.dim(1);
  const Heads h = heads_of(x, ragged ? RopeOptions{.offsets = seen} : RopeOptions{.offset = before});
  if (relative)
    call =
        plus_bias(call, ragged ? relative->of_rows(queries, seen) : (*relative)(queries, before + queries, x.where()));
  return merge(state.apply({h.q, x.where()}, h.k, h.v, call, h.inputs()));
}

Tensor MultiHeadAttention::weights(In x, const AttentionCall& call) const {
  const NoTape guard;
  const Heads h = heads_of(x, rope_of(call));
  return mechanism.weights({h.q, x.where()}, h.k, with_relative(x, call), h.inputs());
}

Tensor MultiHeadAttention::weights(In x, const ProjectedMemory& memory, const AttentionCall& call) const {
  const NoTape guard;
  const Heads h = heads_of(x, memory);
  return mechanism.weights({h.q, x.where()}, h.k, call, h.inputs());
}

void MultiHeadAttentionOptions::fields(OptionFields& f) {
  f({"width", "Size of a token's vector"}, width, 1);
  f({"heads", "Attention heads; must divide the width"}, heads, 1), f({"bias", "Biases in the linear layers"}, bias);
  f.optional("kv_heads", kv_heads);
  f.optional({"key_size", "Size of queries and keys per head [width / heads]"}, key_size, 1);
  f.optional({"value_size", "Size of values per head [key size]"}, value_size, 1);
  f.optional("memory_width", memory_width, 1);
  f.optional("value_width", value_width, 1);
  if (f.has("attention_dropout", dropout.has_value())) {
    dropout = dropout.value_or(0);
    f("attention_dropout", *dropout);
  }
  if (f.has("qkv_bias", qkv_bias.value_or(bias) != bias)) {
    qkv_bias = qkv_bias.value_or(bias);
    f("qkv_bias", *qkv_bias);
  }
  f.optional("rope", rope);
  f.optional("rope_base", rope_base, OptionField::positive);
  f.optional("rope_scaling", rope_scaling.kind, rope_scaling_kinds());
  if (rope_scaling.kind != RopeScalingKind::none) {
    f("rope_factor", rope_scaling.factor, OptionField::positive);
    f("rope_low_turns", rope_scaling.low_turns, OptionField::positive);
    f("rope_high_turns", rope_scaling.high_turns, OptionField::positive);
    f("rope_original_context", rope_scaling.original_context, 1);
  }
  f.optional("window_rope_base", window_rope_base, OptionField::positive);
  f.optional("query_scale", query_scale, OptionField::positive);
  f.optional({"qk_norm", "RMSNorm of each head's queries and keys"}, qk_norm);
  f.optional("norm_eps", norm_eps, OptionField::positive);
  f.optional("unit_offset", unit_offset);
  f.optional("relative_clip", relative_clip, 1);
  f.ensure(key_size > 0 || (heads > 0 && width % heads == 0), "heads",
           "a divisor of the width, " + std::to_string(width));
  f.ensure(kv_heads <= 0 || heads % kv_heads == 0, "kv_heads", "a divisor of the heads, " + std::to_string(heads));
}

void MultiHeadAttention::members(MemberVisitor& visit) {
  const MultiHeadAttentionOptions& o = options_;
  const Index queries = o.heads * o.key_size, keys = o.kv_heads * o.key_size, values = o.kv_heads * o.value_size;
  visit.stacked("qkv", qkv, {queries, keys, values});
  visit.stacked("q", q, {queries});
  visit.stacked("kv", kv, {keys, values});
  visit.stacked("k", k, {keys});
  visit("v", v);
  visit("proj", proj);
  visit("input_maps", input_maps);
  visit("q_norm", q_norm);
  visit("k_norm", k_norm);
  visit("relative", relative);
  visit("mechanism", mechanism);
}

}  // namespace heed
