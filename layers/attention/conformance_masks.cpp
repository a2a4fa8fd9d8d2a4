// Checks of what may not be seen: the future, padding, rows without keys; and the gradients under all of it.
#include <algorithm>
#include <heed/autograd/gradcheck.hpp>
#include <heed/layers/attention/conformance_subject.hpp>
#include <limits>

namespace heed::detail::conformance {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// float32, where a maximum is shared: exp(x - maximum) is rounded otherwise when the maximum is another. In gradients
// of q and k terms cancel, and what is left may be an eighth of them: 64 epsilons, where 1e-6 is 8. (In 200 problems
// each, linear attention by exp reached 1.2e-6, random features 1.4e-6, causal Efficient attention 4.1e-6.)
constexpr double kSharedMaximum = 1e-6, kSharedMaximumCancelled = 64 * 0x1p-23;

void gradcheck_of(Subject& s, Finding& f, const std::string& name, const Trial& t) {
  AttentionMechanism& m = s.mechanism(DType::float64);
  const GradcheckOptions options{.most_elements = 40};
  const auto apply = [&](const std::vector<Tensor>& x) {
    AttentionCall call = t.call;
    if (call.bias.defined()) call.bias = x[3];
    return m.apply(x[0], x[1], x[2], call);
  };
  try {
    std::vector<Tensor> inputs = {t.q, t.k, t.v};  // inputs 0, 1, 2 and, where it is, 3
    if (t.call.bias.defined()) inputs.push_back(t.call.bias);
    gradcheck(apply, inputs, options);
    const std::vector<NamedParameter> parameters = named_parameters(m);
    if (!parameters.empty()) gradcheck([&] { return apply({t.q, t.k, t.v, t.call.bias}); }, parameters, options);
    f.expect(true, "");
  } catch (const Error& e) {
    std::string text = e.what();  // which says «input 0»
    const char* names[] = {"q", "k", "v", "the bias"};
    for (int i = 0; i < 4; ++i)
      if (const auto at = text.find("input " + std::to_string(i)); at != std::string::npos)
        text.replace(at, 7, names[i]);
    f.expect(false, name + ": " + text);
  }
}

// With one of q, k and v wanted, and the others constants, its gradient is the same.
void check_alone(Subject& s, Finding& f, const Trial& t) {
  const Outcome all = s.run(t);
  for (const std::string name : {"q", "k", "v"}) {
    Tape tape;
    const auto input = [&](const char* of, const Tensor& x) { return name == of ? tape.watch(x) : x; };
    const Tensor q = input("q", t.q), k = input("k", t.k), v = input("v", t.v);
    const Tensor y = s.mechanism(DType::float64).apply(q, k, v, t.call);
    if (y.node() != 0) tape.backward(y, t.dy);
    const Tensor g = tape.grad(name == "q" ? q : name == "k" ? k : v);
    const Tensor& wanted = all.gradients.at(name);
    f.close("the gradient of " + name + " alone", g.defined() ? g : Tensor::zeros(wanted.shape(), wanted.dtype()),
            wanted, kRounding);
  }
  for (const NamedParameter& p : named_parameters(s.mechanism(DType::float64))) p.parameter->zero_grad();
}

// x with other values at and after position `from`, or those of `like` there; the rest is a copy.
Tensor with_tail(const Tensor& x, Index from, const Tensor& like) {
  Tensor y = x.clone();
  Tensor tail = y.slice(2, from, y.dim(2));
  copy_values(tail, like.slice(2, from, y.dim(2)));
  return y;
}

Tensor tail(const Tensor& x, Index from) { return x.slice(2, from, x.dim(2)); }
Tensor head(const Tensor& x, Index length) { return x.slice(2, 0, length); }

void check_causal_at(Subject& s, Finding& f, Index n, Index from, DType dtype) {
  const std::string at = " at position " + std::to_string(from) + " of " + std::to_string(n);
  const auto same = [&](const std::string& what, const Tensor& got, const Tensor& wanted, double float32) {
    if (!s.can().shared_maximum) return f.same_bits(what + at, got, wanted);
    f.close(what + at, got, wanted, dtype == DType::float64 ? kRounding : float32);
  };
  Trial early = s.trial({n, n});
  early.call.causal = true;
  early.dy = with_tail(early.dy, from, Tensor::zeros(early.dy.shape(), DType::float64));
  const Outcome before = s.run(early, dtype);
  for (const char* name : {"q", "k", "v"})
    f.zeros("the gradient of earlier outputs with respect to later " + std::string(name) + at,
            tail(before.gradients.at(name), from));
  // Later tokens are others, and larger, so that what is shared, as running maxima, moves.
  Trial other = early;
  const Trial drawn = s.trial({n, n}, 1);
  const auto thrice = [](const Tensor& x) {
    Tensor y = x.clone();
    add_values(y, x);
    add_values(y, x);
    return y;
  };
  other.q = with_tail(early.q, from, thrice(drawn.q));
  other.k = with_tail(early.k, from, thrice(drawn.k));
  other.v = with_tail(early.v, from, thrice(drawn.v));
  const Outcome after = s.run(other, dtype);
  same("earlier outputs with other tokens", head(after.out, from), head(before.out, from), kSharedMaximum);
  for (const std::string name : {"q", "k", "v"})
    same("the gradient of earlier " + name + " with other tokens", head(after.gradients.at(name), from),
         head(before.gradients.at(name), from), name == "v" ? kSharedMaximum : kSharedMaximumCancelled);
  // Gradients of later outputs are not those of earlier queries.
  if (s.options.shared) return;
  Trial late = early;
  late.dy = with_tail(early.dy, from, drawn.dy);
  same("the gradient of earlier q with gradients of later outputs", head(s.run(late, dtype).gradients.at("q"), from),
       head(before.gradients.at("q"), from), kSharedMaximumCancelled);
}

// x [B, Hk, S, ...] with `value` at the keys that the call masks, or at those that it does not.
Tensor with_keys(const Tensor& x, const AttentionCall& call, bool masked, double value) {
  Tensor y = x.clone();
  for (Index b = 0; b < x.dim(0); ++b)
    for (Index j = 0; j < x.dim(2); ++j) {
      const bool padding = call.key_lengths.defined() ? static_cast<double>(j) >= call.key_lengths.at({b})
                                                      : call.key_mask.at({b, j}) == 0;
      if (padding == masked) y[b].slice(1, j, j + 1).fill_(value);
    }
  return y;
}

// Sequence b of a trial, cut to its length; its own call.
Trial cut(const Trial& t, Index b, Index length) {
  const auto part = [&](const Tensor& x) { return head(x.slice(0, b, b + 1), length); };
  return {part(t.q), part(t.k), part(t.v), part(t.dy), {.causal = t.call.causal}};
}

void check_padding_under(Subject& s, Finding& f, const Variant& variant, Index n, DType dtype) {
  const double tolerance = dtype == DType::float64 ? kRounding : 1e-5;
  Trial t = s.trial({n, n});
  t.call = variant.call;
  const Outcome clean = s.run(t, dtype);
  for (const char* name : {"k", "v"})
    f.zeros("the gradient of masked " + std::string(name) + " under " + variant.name,
            with_keys(clean.gradients.at(name), t.call, false, 0));
  Trial dirty = t;
  dirty.k = with_keys(t.k, t.call, true, kNaN), dirty.v = with_keys(t.v, t.call, true, kNaN);
  f.close("NaN in padding under " + variant.name, s.run(dirty, dtype), clean, tolerance);
  if (!t.call.key_lengths.defined() || dtype != DType::float64) return;
  for (Index b = 0; b < 2; ++b) {
    const Index length = static_cast<Index>(t.call.key_lengths.at({b}));
    f.close("a sequence cut to its length against " + variant.name, head(clean.out.slice(0, b, b + 1), length),
            s.out(cut(t, b, length)), tolerance);
  }
}

struct EmptyRows {
  std::string name;
  Trial trial;
  Index batch, first, last;  // rows [first, last) of sequence `batch` (-1: of all) have no key
};

std::vector<EmptyRows> empty_rows(const Subject& s) {
  const Index n = 20;
  std::vector<EmptyRows> all;
  const auto add = [&](const char* name, const Sizes& sizes, const AttentionCall& call, Index b, Index first,
                       Index last) {
    Trial t = s.trial(sizes);
    t.call = call;
    all.push_back({name, t, b, first, last});
  };
  if (s.can().key_mask) {
    add("a length of 0", {n, n}, {.key_lengths = Tensor::from<std::int32_t>({static_cast<double>(n), 0})}, 1, 0, n);
    Tensor mask = Tensor::ones({2, n}, DType::bool8);
    mask[0].fill_(0);
    add("a key mask of nothing", {n, n}, {.key_mask = mask}, 0, 0, n);
    // Key 0 is padding, so that the first query sees nothing.
    Tensor later = Tensor::ones({2, n}, DType::bool8);
    later.slice(1, 0, 3).fill_(0);
    if (s.can().causal) add("causal, the first keys masked", {n, n}, {.causal = true, .key_mask = later}, -1, 0, 3);
  }
  if (s.can().full_mask) {
    Tensor mask = Tensor::ones({2, 1, n, n}, DType::bool8);
    mask.slice(2, 4, 7).fill_(0);
    add("a mask with empty rows", {n, n}, {.mask = mask}, -1, 4, 7);
  }
  if (s.can().causal && s.can().cross) add("causal, T > S", {n, 12}, {.causal = true}, -1, 0, n - 12);
  return all;
}

// The rows of x [B, H, T, ...] without keys: a view.
Tensor rows_of(const EmptyRows& e, const Tensor& x) {
  const Tensor of_batch = e.batch < 0 ? x : x.slice(0, e.batch, e.batch + 1);
  return of_batch.slice(2, e.first, e.last);
}

}  // namespace

void check_gradient(Subject& s, Finding& f) {
  const auto check = [&](const std::string& name, const Sizes& sizes, const AttentionCall& call) {
    Trial t = s.separated_trial(sizes);
    t.call = call;
    gradcheck_of(s, f, name, t);
  };
  const Index n = std::min<Index>(6, s.options.longest);
  for (const Variant& v : s.variants({n, n})) check(v.name, {n, n}, v.call);
  check_alone(s, f, s.trial({n, n}));
  if (s.can().grouped) check("grouped heads", {n, n, 2, true}, {});
  if (s.can().dropout) check("dropout", {n, n}, {.dropout = 0.4});
  if (!s.can().cross || n < 3) return;
  check("T < S", {n - 2, n}, {});
  check("T > S", {n, n - 2}, {});
  if (s.can().causal) check("causal, T < S", {n - 2, n}, {.causal = true});
}

void check_causal(Subject& s, Finding& f) {
  if (!s.can().causal) return;
  for (const DType dtype : {DType::float64, DType::float32})
    for (const auto& [n, from] : std::vector<std::pair<Index, Index>>{{12, 5}, {150, 64}, {150, 99}})
      if (n <= s.options.longest) check_causal_at(s, f, n, from, dtype);
}

void check_padding(Subject& s, Finding& f) {
  const Index n = std::min<Index>(70, s.options.longest);
  for (const DType dtype : {DType::float64, DType::float32})
    for (const Variant& v : s.variants({n, n}))
      if (masks_keys(v.call)) check_padding_under(s, f, v, n, dtype);
}

void check_empty_rows(Subject& s, Finding& f) {
  if (s.options.longest < 20) return;
  for (const EmptyRows& e : empty_rows(s)) {
    const Outcome all = s.run(e.trial);
    f.zeros(e.name + ", outputs", rows_of(e, all.out));
    if (!s.options.shared) f.zeros(e.name + ", gradient of q", rows_of(e, all.gradients.at("q")));
    f.finite(e.name + ", outputs of all rows", all.out);
    for (const auto& [name, gradient] : all.gradients) f.finite(e.name + ", gradient of " + name, gradient);
    // Gradients that come to these rows alone go nowhere.
    Trial only = e.trial;
    only.dy = Tensor::zeros(e.trial.dy.shape(), DType::float64);
    Tensor rows = rows_of(e, only.dy);
    copy_values(rows, rows_of(e, e.trial.dy));
    for (const auto& [name, gradient] : s.run(only).gradients)
      f.zeros(e.name + ", gradient of " + name + " from these rows", gradient);
  }
}

}  // namespace heed::detail::conformance
