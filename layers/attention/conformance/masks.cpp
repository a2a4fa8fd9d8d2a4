// The checks "masks" (equivalent masks), "padding" and "empty rows".
#include <algorithm>
#include <array>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <limits>

namespace heed::detail::conformance {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// x [B, Hk, S, ...] at the keys that the call masks, and 0 at the others.
Tensor at_padding(const Tensor& x, const AttentionCall& call) { return x - with_padding(x, call, 0); }

void check_padding_under(Subject& s, Finding& f, const Trial& t, DType dtype) {
  f.about(t);
  const Outcome clean = s.run(t, dtype);
  Trial dirty = t;
  const std::vector<NamedBuffer> of_keys = key_parts(dirty);
  for (const NamedBuffer& p : of_keys)
    f.zeros("the gradient of masked " + p.name, at_padding(clean.gradients.at(p.name), t.call));
  for (const double value : {kNaN, dtype == DType::float64 ? kInfinity : -kInfinity}) {
    for (const NamedBuffer& p : of_keys) *p.buffer = with_padding(*p.buffer, t.call, value);
    f.close(std::to_string(value) + " in padding", s.run(dirty, dtype), clean, rounding(dtype));
  }
  const bool lengths_alone = t.call.key_lengths.defined() && !t.call.key_mask.defined() && !t.call.mask.defined() &&
                             !t.call.bias.defined() && t.q.dim(2) == t.k.dim(2);
  if (!lengths_alone || dtype != DType::float64) return;
  for (Index b = 0; b < 2; ++b) {
    const Index length = static_cast<Index>(t.call.key_lengths.at({b}));
    f.close("a padded sequence against the sequence cut to its length", head(clean.out.slice(0, b, b + 1), length),
            s.out(cut_sequence(t, b, length)), kRounding);
  }
}

struct EmptyRows {
  Trial trial;
  Index batch, first, last;  // rows [first, last) of sequence `batch` (-1: of all) have no key
};

std::vector<EmptyRows> empty_rows(const Subject& s) {
  const Index n = 20;
  std::vector<EmptyRows> all;
  const auto add = [&](const char* name, const Sizes& sizes, const AttentionCall& call, Index b, Index first,
                       Index last) {
    all.push_back({s.with_call(s.trial(sizes), {name, call}), b, first, last});
  };
  for (const Index shared : s.sharings()) {
    if (!s.can().key_mask || shared == s.options.heads) continue;
    Tensor mask = Tensor::ones({2, n}, DType::bool8), later = mask.clone();
    mask[0].fill_(0);
    const Tensor lengths = Tensor::from<std::int32_t>({static_cast<double>(n), 0});
    add("a length of 0", {n, n, 2, shared}, {.key_lengths = lengths}, 1, 0, n);
    add("a key mask without keys", {n, n, 2, shared}, {.key_mask = mask}, 0, 0, n);
    if (s.can().cross) add("a length of 0, T < S", {n - 7, n, 2, shared}, {.key_lengths = lengths}, 1, 0, n - 7);
    // Keys 0 to 2 are padding, so the first three queries see no key.
    later.slice(1, 0, 3).fill_(0);
    if (s.can().causal)
      add("causal, the first keys masked", {n, n, 2, shared}, {.causal = true, .key_mask = later}, -1, 0, 3);
    // Key length and key mask together allow no key.
    later = Tensor::ones({2, n}, DType::bool8);
    later.slice(1, 0, 5).fill_(0);
    add("a length of 5, the first 5 keys masked", {n, n, 2, shared},
        {.key_lengths = Tensor::from<std::int32_t>({static_cast<double>(n), 5}), .key_mask = later}, 1, 0, n);
  }
  if (s.can().full_mask) {
    Tensor mask = Tensor::ones({2, 1, n, n}, DType::bool8);
    mask.slice(2, 4, 7).fill_(0);
    add("a mask with empty rows", {n, n}, {.mask = mask}, -1, 4, 7);
    if (s.can().bias)
      add("a mask with empty rows, a bias", {n, n}, {.mask = mask, .bias = Rng(3).normal({n, n}).to(DType::float64)},
          -1, 4, 7);
  }
  if (s.can().causal && s.can().cross) add("causal, T > S", {n, 12}, {.causal = true}, -1, 0, n - 12);
  return all;
}

// View of the rows of x [B, H, T, ...] without keys.
Tensor rows_of(const EmptyRows& e, const Tensor& x) {
  const Tensor of_batch = e.batch < 0 ? x : x.slice(0, e.batch, e.batch + 1);
  return of_batch.slice(2, e.first, e.last);
}

// Checks that a mask and a bias of lower rank, or with strides of 0, equal their dense form.
void check_broadcast(Subject& s, Finding& f, const Sizes& sizes) {
  const Trial t = s.trial(sizes);
  const Shape grid = {sizes.batch, s.options.heads, sizes.queries, sizes.keys};
  const auto [B, H, T, S] = std::array<Index, 4>{grid[0], grid[1], grid[2], grid[3]};
  Rng rng(s.options.seed, 95);
  for (const Shape& shape :
       {Shape{S}, Shape{T, S}, Shape{1, S}, Shape{H, T, S}, Shape{H, 1, S}, Shape{1, 1, T, S}, Shape{B, 1, T, S},
        Shape{B, H, 1, S}, Shape{B, 1, 1, S}, Shape{B, H, T, 1}, Shape{T, 1}, grid}) {
    const bool of_keys = shape.rank() == 1 || shape[-2] == 1;
    const bool same_queries_and_heads = of_keys && (shape.rank() < 3 || shape[-3] == 1);
    Tensor mask = Tensor::empty(shape, DType::bool8), bias = rng.normal(shape).to(DType::float64);
    for (Index i = 0; i < mask.numel(); ++i) mask.ptr<bool>()[i] = i % 5 != 3;
    const auto compare = [&](const char* what, const AttentionCall& call, const AttentionCall& dense,
                             const AttentionCall& strided) {
      Trial changed = s.with_call(t, {std::string(what) + " " + to_string(shape), call});
      f.about(changed);
      Outcome got = s.run(changed), expected = s.run(s.with_call(t, {"", dense}));
      expected.gradients.erase("bias");  // has another shape
      f.close("against the same tensor written out", got, expected, kRounding);
      f.close("against the same tensor with strides of 0", s.out(s.with_call(t, {"", strided})), expected.out,
              kRounding);
    };
    const auto written = [&](const Tensor& x) { return x.expand(grid).dense().clone(); };
    if (s.can().full_mask) compare("mask", {.mask = mask}, {.mask = written(mask)}, {.mask = mask.expand(grid)});
    if (s.can().bias) compare("bias", {.bias = bias}, {.bias = written(bias)}, {.bias = bias.expand(grid)});
    if (!s.can().bias && s.can().key_bias && same_queries_and_heads) {
      const Shape keys = {B, 1, 1, S};
      compare("key bias", {.bias = bias}, {.bias = bias.expand(keys).dense().clone()}, {.bias = bias.expand(keys)});
    }
  }
}

// Checks that each head uses its own part of a mask or bias with an axis of heads.
void check_of_heads(Subject& s, Finding& f, Index n) {
  const Sizes sizes{n, n};
  for (const Variant& v : s.variants(sizes)) {
    if (v.name != "mask of heads" && v.name != "bias") continue;
    const Trial t = s.with_call(s.trial(sizes), v);
    f.about(t);
    const Tensor all = s.out(t);
    for (Index h = 0; h < s.options.heads; ++h) {
      AttentionCall one = t.call;
      if (one.mask.defined()) one.mask = one.mask[h];
      if (one.bias.defined()) one.bias = one.bias[h];
      f.close("a head against all heads with its part of the mask or bias", all.slice(1, h, h + 1),
              s.out(s.with_call(t, {v.name, one})).slice(1, h, h + 1), kRounding);
    }
  }
}

}  // namespace

void check_neutral_call(Subject& s, Finding& f, const Trial& t, DType dtype, bool gradients) {
  const Index B = t.q.dim(0), H = t.q.dim(1), T = t.q.dim(2), S = t.k.dim(2);
  const AttentionCapabilities& can = s.can();
  const auto outcome = [&](const Trial& of) { return gradients ? s.run(of, dtype) : Outcome{s.out(of, dtype), {}}; };
  const Outcome expected = outcome(t);
  const auto check = [&](bool declared, const std::string& what, const AttentionCall& call) {
    if (!declared) return;
    const Outcome got = outcome(s.with_call(t, {t.name + " and " + what, call}));
    f.about(t);
    f.close(what + " added to the call", got, expected, rounding(dtype));
  };
  AttentionCall lengths = t.call, keys = t.call, mask = t.call, bias = t.call;
  lengths.key_lengths = Tensor::full({B}, static_cast<double>(S), DType::int32);
  keys.key_mask = Tensor::ones({B, S}, DType::bool8);
  mask.mask = Tensor::ones({B, H, T, S}, DType::bool8);
  bias.bias = Tensor::zeros({H, T, S}, DType::float64);
  check(can.key_mask && !t.call.key_lengths.defined(), "full key lengths", lengths);
  check(can.key_mask && !t.call.key_mask.defined(), "a key mask of all keys", keys);
  check(can.full_mask && !t.call.mask.defined(), "a mask of all pairs", mask);
  check(can.bias && !t.call.bias.defined(), "a bias of 0", bias);
  bias.bias = Tensor::zeros({B, 1, 1, S}, DType::float64);
  check((can.bias || can.key_bias) && !t.call.bias.defined(), "a key bias of 0", bias);
}

void check_masks(Subject& s, Finding& f) {
  const AttentionCapabilities& can = s.can();
  if (!f.declared(can.key_mask || can.full_mask || can.bias || can.key_bias, "mask or a bias")) return;
  const Index n = s.at_most(40);
  const bool of_keys = !s.folds_key_masks();
  if (of_keys) f.leave_out("a key mask as a mask: a key mask may also hide what the mechanism computes from keys");
  for (const Sizes& sizes : s.shapes(n)) {
    const Trial t = s.trial(sizes);
    for (const Variant& v : s.variants(sizes)) {
      const Trial changed = s.with_call(t, v);
      if (sizes.queries == sizes.keys) check_neutral_call(s, f, changed, DType::float64);
      if (!can.full_mask || !v.call.key_mask.defined() || of_keys) continue;
      Trial folded = changed;
      folded.call.mask = one_mask(changed, {.key_mask = v.call.key_mask}), folded.call.key_mask = {};
      f.about(changed);
      f.close("a key mask and a mask against one mask of both", s.run(changed), s.run(folded), kRounding);
    }
  }
  for (const Variant& v : s.ends({n, n})) check_neutral_call(s, f, s.with_call(s.trial({n, n}), v), DType::float32);
  check_of_heads(s, f, n);
  if (can.full_mask || can.bias || can.key_bias) {
    const Index small = s.at_most(12), fewer = std::max<Index>(1, small - 3);
    check_broadcast(s, f, {can.cross ? fewer : small, small});
  }
}

void check_padding(Subject& s, Finding& f) {
  if (!f.declared(s.can().key_mask, "key mask")) return;
  for (const Sizes& sizes : s.shapes(s.at_most(70)))
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Trial t = s.trial(sizes);
      for (Variant v : s.variants(sizes)) {
        if (!masks_keys(v.call)) continue;
        if (sizes.shared == 1 && sizes.queries == sizes.keys) check_padding_under(s, f, s.with_call(t, v), dtype);
        // The other shapes with lengths only and with all masks.
        else if (v.name == "key lengths" || v.name == "all masks")
          check_padding_under(s, f, s.with_call(t, v), dtype);
        // A bias with lengths alone, so that no other mask hides the effect of the bias.
        if (v.name != "key lengths" || !(s.can().bias || s.can().key_bias)) continue;
        Rng rng(s.options.seed, 96);
        v.call.bias = rng.normal({sizes.batch, 1, 1, sizes.keys}).to(DType::float64);
        check_padding_under(s, f, s.with_call(t, {"key lengths and key bias", v.call}), dtype);
      }
    }
}

void check_empty_rows(Subject& s, Finding& f) {
  if (!s.takes(20, f)) return;
  if (!f.declared(s.can().key_mask || s.can().full_mask || (s.can().causal && s.can().cross), "mask")) return;
  for (const EmptyRows& e : empty_rows(s)) {
    f.about(e.trial);
    const Outcome all = s.run(e.trial);
    f.zeros("outputs", rows_of(e, all.out));
    Trial t = e.trial;
    for (const NamedBuffer& p : query_parts(t))
      if (!s.options.shared) f.zeros("gradient of " + p.name, rows_of(e, all.gradients.at(p.name)));
    f.finite("outputs of all rows", all);
    // If only these rows have output gradients, all gradients are 0.
    Trial only = e.trial;
    only.dy = Tensor::zeros(e.trial.dy.shape(), DType::float64);
    rows_of(e, only.dy).copy_(rows_of(e, e.trial.dy));
    for (const auto& [name, gradient] : s.run(only).gradients)
      f.zeros("gradient of " + name + " from these rows", gradient);
  }
}

}  // namespace heed::detail::conformance
