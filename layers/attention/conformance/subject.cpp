// Subject: the mechanism under test in each dtype, and the problems that are posed to it.
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>

namespace heed::detail::conformance {
namespace {

// Draws values in float32, so that float32 and float64 compute the same problem.
Tensor normal(Rng& rng, const Shape& shape) { return rng.normal(shape).to(DType::float64); }

template <class F>
void each(Tensor& x, F&& f) {
  double* p = x.ptr<double>();
  for (Index i = 0; i < x.numel(); ++i) p[i] = f(p[i]);
}

// Adds noise to parameters whose elements are all equal, because equal elements hide errors.
void make_uneven(AttentionMechanism& m, Rng& rng) {
  for (const NamedParameter& p : named_parameters(m)) {
    const std::vector<double> x = p.parameter->to_vector<double>();
    if (x.empty() || std::any_of(x.begin(), x.end(), [&](double e) { return e != x[0]; })) continue;
    Tensor noise = rng.normal(p.parameter->shape(), 0, 0.1).to(p.parameter->dtype());
    detail::add_values(noise, p.parameter->detach());
    p.parameter->copy_(noise);
  }
}

AttentionMechanism made(const MechanismFactory& make, const ConformanceOptions& o, DType dtype) {
  require(o.heads >= 1 && o.size >= 1 && o.value_size >= 1 && o.longest >= 1, "conformance: heads is ", o.heads,
          ", size ", o.size, ", value_size ", o.value_size, " and longest ", o.longest, "; all must be 1 or more");
  Rng rng(o.seed), noise(o.seed, 91);
  AttentionMechanism m = make(0, rng);
  make_uneven(m, noise);
  to(m, dtype);
  return m;
}

// The min difference between two scores q . k of a row, over all rows.
double min_gap(const Tensor& q, const Tensor& k) {
  const Index rows = q.dim(0) * q.dim(1) * q.dim(2), keys = k.dim(2), size = q.dim(3), shared = q.dim(1) / k.dim(1);
  double gap = kInfinity;
  for (Index r = 0; r < rows; ++r) {
    std::vector<double> scores;
    const double* of_head = k.ptr<double>() + r / q.dim(2) / shared * keys * size;
    for (Index j = 0; j < keys; ++j) {
      double sum = 0;
      for (Index c = 0; c < size; ++c) sum += q.ptr<double>()[r * size + c] * of_head[j * size + c];
      scores.push_back(sum);
    }
    std::sort(scores.begin(), scores.end());
    for (std::size_t j = 1; j < scores.size(); ++j) gap = std::min(gap, scores[j] - scores[j - 1]);
  }
  return gap;
}

// The parts of a trial per query, per key, or both, in the order q, k, v, inputs.
std::vector<NamedBuffer> parts_of(Trial& t, bool queries, bool keys) {
  std::vector<NamedBuffer> all;
  if (queries) all.push_back({"q", &t.q});
  if (keys) all.push_back({"k", &t.k}), all.push_back({"v", &t.v});
  for (std::size_t i = 0; i < t.inputs.size(); ++i)
    if (t.declared[i].of_queries() ? queries : keys) all.push_back({"input " + t.declared[i].name, &t.inputs[i]});
  return all;
}

}  // namespace

Tensor random_mask(Rng& rng, const Shape& shape, double share) {
  Tensor mask = rng.uniform(shape) < share;
  if (shape.back() > 0) mask.slice(-1, 0, 1).fill_(1);
  return mask;
}

Tensor or_zeros(const Tensor& gradient, const Tensor& like) {
  return gradient.defined() ? gradient.detach().clone() : Tensor::zeros(like.shape(), like.dtype());
}

std::vector<NamedBuffer> parts(Trial& t) { return parts_of(t, true, true); }
std::vector<NamedBuffer> query_parts(Trial& t) { return parts_of(t, true, false); }
std::vector<NamedBuffer> key_parts(Trial& t) { return parts_of(t, false, true); }

std::vector<NamedBuffer> parts_and_bias(Trial& t) {
  std::vector<NamedBuffer> all = parts(t);
  if (t.call.bias.defined()) all.push_back({"bias", &t.call.bias});
  return all;
}

void take_parameter_gradients(AttentionMechanism& m, TensorsByName& gradients) {
  for (const NamedParameter& p : named_parameters(m)) {
    gradients["parameter " + p.name] = or_zeros(p.parameter->grad(), *p.parameter);
    p.parameter->zero_grad();
  }
}

Trial rounded_to_bfloat16(Trial t) {
  for (const NamedBuffer& p : parts(t)) *p.buffer = p.buffer->to(DType::bfloat16).to(DType::float64);
  t.dy = t.dy.to(DType::bfloat16).to(DType::float64);
  return t;
}

Trial in_dtype(const Trial& t, DType dtype) {
  Trial y = t;
  for (const NamedBuffer& p : parts(y)) *p.buffer = p.buffer->to(dtype);
  if (y.dy.defined()) y.dy = y.dy.to(dtype);
  if (y.call.bias.defined()) y.call.bias = y.call.bias.to(dtype == DType::bfloat16 ? DType::float32 : dtype);
  return y;
}

Tensor one_mask(const Trial& t, AttentionCall conditions) {
  conditions.mask = t.call.mask;
  const Shape grid = {t.q.dim(0), t.q.dim(1), t.q.dim(2), t.k.dim(2)};
  return allowed_pairs(t.q, t.k, conditions).expand(grid).dense().clone();
}

Tensor with_padding(const Tensor& x, const AttentionCall& call, double value) {
  const Tensor allowed = allowed_pairs(x, x, {.key_lengths = call.key_lengths, .key_mask = call.key_mask});
  return where(allowed.slice(2, 0, 1).transpose(2, 3), x, value);
}

Trial with_queries(const Trial& t, Index first, Index last) {
  Trial some = t;
  for (const NamedBuffer& p : query_parts(some)) *p.buffer = p.buffer->slice(2, first, last);
  some.dy = t.dy.slice(2, first, last);
  return some;
}

Trial with_keys(const Trial& t, Index length) {
  Trial some = t;
  for (const NamedBuffer& p : key_parts(some)) *p.buffer = p.buffer->slice(2, 0, length);
  return some;
}

Trial sequence(const Trial& t, Index b) {
  return pick_rows(t, Tensor::full({1}, static_cast<double>(b), DType::int32));
}

Trial cut_sequence(const Trial& t, Index b, Index length) {
  Trial one = with_keys(with_queries(sequence(t, b), 0, length), length);
  one.call = {.causal = t.call.causal};
  return one;
}

Trial heads_apart(const Trial& t) {
  Trial apart = t;
  const auto separate = [](Tensor& x) { x = x.reshape({x.dim(0) * x.dim(1), 1, x.dim(2), x.dim(3)}); };
  for (const NamedBuffer& p : parts(apart)) separate(*p.buffer);
  separate(apart.dy);
  return apart;
}

Tensor permute_keys(Trial& t, Rng rng) {
  const Index S = t.k.dim(2);
  std::vector<std::int32_t> order, back(static_cast<std::size_t>(S));
  for (const Index j : rng.permutation(S)) {
    back[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(order.size());
    order.push_back(static_cast<std::int32_t>(j));
  }
  const Tensor to = Tensor::from(order, {S});
  for (const NamedBuffer& p : key_parts(t)) *p.buffer = index_select(*p.buffer, 2, to);
  for (Tensor* x : {&t.call.key_mask, &t.call.mask, &t.call.bias})
    if (x->defined() && x->dim(-1) == S) *x = index_select(*x, x->rank() - 1, to);
  return Tensor::from(back, {S});
}

Subject::Subject(const MechanismFactory& factory, const ConformanceOptions& o)
    : make(factory), options(o), in32_(made(make, o, DType::float32)), in64_(made(make, o, DType::float64)) {}

bool Subject::any_sizes() { return options.of_sizes || members_of(in64_).empty(); }

std::unique_ptr<Subject> Subject::in_sizes(Index heads, Index size, Index value_size) {
  ConformanceOptions o = options;
  o.heads = heads, o.size = size, o.value_size = value_size;
  auto other = std::make_unique<Subject>(options.of_sizes ? options.of_sizes(heads, size) : make, o);
  other->properties_ = properties();
  return other;
}

Subject& Subject::of_few_heads() {
  constexpr Index kFew = 2;
  if (options.heads <= kFew || !any_sizes()) return *this;
  if (of_few_heads_ == nullptr) of_few_heads_ = in_sizes(kFew, options.size, options.value_size);
  return *of_few_heads_;
}

AttentionMechanism& Subject::mechanism(DType dtype) {
  if (dtype != DType::bfloat16 || named_parameters(in32_).empty()) return dtype == DType::float64 ? in64_ : in32_;
  if (float32_before_bfloat16_ && !in16_) {
    in16_.emplace(made(make, options, DType::bfloat16));
    try {
      const NoTape guard;
      applied(in32_, in_dtype(trial({1, 1}), DType::bfloat16));
    } catch (const Error&) {
      float32_before_bfloat16_ = false;
    }
  }
  return float32_before_bfloat16_ ? in32_ : *in16_;
}

std::vector<Variant> Subject::orders() const {
  std::vector<Variant> all;
  if (!can().causal_only) all.push_back({"plain", {}});
  if (can().causal) all.push_back({"causal", {.causal = true}});
  return all;
}

std::vector<Index> Subject::lengths(std::initializer_list<Index> candidates, Finding& f) const {
  std::vector<Index> taken;
  for (const Index n : candidates)
    if (takes(n, f)) taken.push_back(n);
  return taken;
}

bool Subject::takes(Index positions, Finding& f) const {
  if (positions <= options.longest) return true;
  f.leave_out(std::to_string(positions) + " positions, as longest is " + std::to_string(options.longest));
  return false;
}

std::vector<Index> Subject::sharings() const {
  if (!can().grouped || options.heads == 1) return {1};
  Index few = 2;
  while (options.heads % few != 0) ++few;
  return few == options.heads ? std::vector<Index>{1, few} : std::vector<Index>{1, few, options.heads};
}

std::vector<Sizes> Subject::shapes(Index n) const {
  std::vector<Sizes> all;
  for (const Index shared : sharings()) all.push_back({n, n, 2, shared});
  const Index few = std::max<Index>(1, n * 2 / 3);
  if (can().cross) all.insert(all.end(), {{few, n}, {n, few}});
  return all;
}

Trial Subject::trial(const Sizes& s, std::uint64_t seed) const {
  Rng rng(options.seed, 1000 + seed);
  const Index groups = options.heads / s.shared;
  Trial t{.q = normal(rng, {s.batch, options.heads, s.queries, options.size}),
          .k = normal(rng, {s.batch, groups, s.keys, options.size}),
          .v = normal(rng, {s.batch, groups, s.keys, options.value_size}),
          .dy = normal(rng, {s.batch, options.heads, s.queries, options.value_size}),
          .declared = in64_.inputs()};
  for (const MechanismInput& input : t.declared)
    t.inputs.push_back(normal(rng, input.of_queries() ? Shape{s.batch, options.heads, s.queries, input.size}
                                                      : Shape{s.batch, groups, s.keys, input.size}));
  // A discrete mechanism must choose alike in float32 and float64: products of eighths are exact in both.
  if (can().discrete)
    for (Tensor* x : {&t.q, &t.k}) each(*x, [](double e) { return std::round(e * 8) / 8; });
  if (options.non_negative)
    for (Tensor* x : {&t.q, &t.k}) each(*x, [](double e) { return std::fabs(e); });
  return can().causal_only ? with_call(t, {"causal", {.causal = true}}) : t;
}

Trial Subject::separated_trial(const Sizes& s) const {
  Trial best = trial(s);
  if (!can().discrete) return best;
  Rng rng(options.seed, 92);
  double gap = -1;
  // Difference quotients move a score by at most about 1e-5. Among many scores some are always close.
  constexpr double kFarApart = 5e-5;
  const int draws = s.queries * s.keys > 20000 ? 1 : s.queries * s.keys > 1000 ? 5 : 50;
  for (int i = 0; i < draws && gap < kFarApart; ++i) {
    Trial t = best;
    t.q = rng.normal(best.q.shape(), 0, 1, DType::float64), t.k = rng.normal(best.k.shape(), 0, 1, DType::float64);
    if (options.non_negative)
      for (Tensor* x : {&t.q, &t.k}) each(*x, [](double e) { return std::fabs(e); });
    if (const double g = draws == 1 ? 0 : min_gap(t.q, t.k); g > gap) best = t, gap = g;
  }
  return best;
}

Trial Subject::with_call(Trial t, const Variant& variant) const {
  t.call = variant.call;
  t.call.causal = t.call.causal || can().causal_only;
  t.name = variant.name;
  return t;
}

std::vector<Variant> Subject::variants(const Sizes& s) const {
  Rng rng(options.seed, 93);
  const Index last = std::max<Index>(s.batch - 1, 0);
  Tensor lengths = Tensor::full({s.batch}, static_cast<double>(s.keys), DType::int32);
  if (s.batch > 0) lengths.ptr<std::int32_t>()[last] = static_cast<std::int32_t>(std::max<Index>(1, s.keys * 2 / 3));
  const Tensor keys = random_mask(rng, {s.batch, s.keys}, 0.7);
  const Tensor pairs = random_mask(rng, {s.batch, 1, s.queries, s.keys}, 0.7);
  const Tensor of_heads = random_mask(rng, {options.heads, s.queries, s.keys}, 0.7);
  const Tensor bias = normal(rng, {options.heads, s.queries, s.keys}), key_bias = normal(rng, {s.batch, 1, 1, s.keys});
  std::vector<Variant> all;
  const auto add = [&](bool declared, const char* name, const AttentionCall& call) {
    if (declared) all.push_back({name, call});
  };
  const AttentionCapabilities& c = can();
  add(!c.causal_only, "plain", {});
  add(c.causal, "causal", {.causal = true});
  add(c.key_mask && !c.causal_only, "key lengths", {.key_lengths = lengths});
  add(c.key_mask, "key mask", {.key_mask = keys});
  add(c.full_mask, "mask", {.mask = pairs});
  add(c.full_mask, "mask of heads", {.mask = of_heads});
  add(c.bias, "bias", {.bias = bias});
  add(c.bias || c.key_bias, "key bias", {.bias = key_bias});
  add(c.causal && c.key_mask, "causal with key lengths", {.causal = true, .key_lengths = lengths});
  AttentionCall combined{.causal = c.causal};
  if (c.key_mask) combined.key_lengths = lengths, combined.key_mask = keys;
  if (c.full_mask) combined.mask = of_heads;
  if (c.bias || c.key_bias) combined.bias = c.bias ? bias : key_bias;
  add(c.key_mask || (c.causal && c.full_mask), "all masks", combined);
  for (Variant& v : all) v.call.causal = v.call.causal || c.causal_only;
  return all;
}

std::vector<Variant> Subject::half_of_variants(const Sizes& s, bool second) const {
  const std::vector<Variant> all = variants(s);
  if (all.size() == 1) return all;
  std::vector<Variant> half;
  for (std::size_t i = second ? 1 : 0; i < all.size(); i += 2) half.push_back(all[i]);
  return half;
}

std::vector<Variant> Subject::ends(const Sizes& s) const {
  const std::vector<Variant> all = variants(s);
  return all.size() == 1 ? all : std::vector<Variant>{all.front(), all.back()};
}

Tensor Subject::out(const Trial& trial, DType dtype) {
  const NoTape guard;
  const Trial t = in_dtype(trial, dtype);
  return applied(mechanism(dtype), t).detach();
}

Outcome Subject::run(const Trial& trial, DType dtype, Apply apply, const std::string& only) {
  AttentionMechanism& m = mechanism(dtype);
  zero_grad(m);
  Trial t = in_dtype(trial, dtype);
  Tape tape;
  std::vector<NamedBuffer> watched = parts_and_bias(t);
  if (!only.empty()) std::erase_if(watched, [&](const NamedBuffer& p) { return p.name != only; });
  for (const NamedBuffer& p : watched) *p.buffer = tape.watch(*p.buffer);
  const Tensor y = apply(m, t);
  if (y.node() != 0) tape.backward(y, t.dy);
  Outcome o{.out = y.detach(), .gradients = {}};
  for (const NamedBuffer& p : watched) o.gradients[p.name] = or_zeros(tape.grad(*p.buffer), *p.buffer);
  take_parameter_gradients(m, o.gradients);
  return o;
}

}  // namespace heed::detail::conformance
