// The checks "grouped", "views", "batch", "sizes", "zero vectors" and "empty tensors".
#include <algorithm>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>
#include <set>

namespace heed::detail::conformance {
namespace {

// Sums gradients of repeated heads over the `shared` heads of q that share a head of k.
Tensor summed(const Tensor& x, Index shared) {
  return sum(x.view({x.dim(0), x.dim(1) / shared, shared, x.dim(2), x.dim(3)}), {2});
}

// The heads of `like` in a projection [B, T, columns], from column `first` on: a view.
Tensor heads_at(const Tensor& fused, Index first, const Tensor& like) {
  return split_heads(fused.slice(2, first, first + like.dim(1) * like.dim(3)), like.dim(1));
}

// Checks that heads are independent: [B, H, ...] as [B * H, 1, ...] gives the same.
void compare_heads_apart(Subject& s, Finding& f, const Trial& t) {
  Outcome got = s.run(t), expected = s.run(heads_apart(t));
  const auto back = [](Tensor& x, const Tensor& like) { x = x.view(like.shape()); };
  back(expected.out, got.out);
  for (auto& [name, gradient] : expected.gradients) back(gradient, got.gradients.at(name));
  f.close("all heads together against each head alone", got, expected, kRounding);
}

// Checks that a head does not depend on the inputs of other heads.
void compare_other_heads(Subject& s, Finding& f, const Trial& t) {
  const Index H = t.q.dim(1);
  if (H < 2) return;
  Trial drawn = s.trial({t.q.dim(2), t.k.dim(2), t.q.dim(0)}, 1);
  const Outcome before = s.run(t);
  for (const Index h : std::set<Index>{0, H / 2, H - 1}) {
    Trial other = t;
    const std::vector<NamedBuffer> all = parts(other), others = parts(drawn);
    for (std::size_t i = 0; i < all.size(); ++i) {
      Tensor x = others[i].buffer->clone();
      x.slice(1, h, h + 1).copy_(all[i].buffer->slice(1, h, h + 1));
      *all[i].buffer = x;
    }
    const Outcome after = s.run(other);
    const std::string what =
        "head " + std::to_string(h) + " of " + std::to_string(H) + " with other inputs in the other heads";
    f.close(what, after.out.slice(1, h, h + 1), before.out.slice(1, h, h + 1), kRounding);
    for (const NamedBuffer& p : all)
      f.close(what + ", gradient of " + p.name, after.gradients.at(p.name).slice(1, h, h + 1),
              before.gradients.at(p.name).slice(1, h, h + 1), kRounding);
  }
}

// x with a zero vector at every third position or, if `all`, at every position.
Tensor with_zeros(const Tensor& x, bool all) {
  Tensor y = x.clone();
  for (Index i = 0; i < x.dim(2); ++i)
    if (all || i % 3 == 0) y.slice(2, i, i + 1).fill_(0);
  return y;
}

// Broadcasts inputs by strides of 0: keys and values over sequences and heads, queries over heads.
void check_strides_of_0(Subject& s, Finding& f, const Trial& t, DType dtype) {
  Trial broadcast = t;
  const auto first = [](const Tensor& x, Index batch) { return x.slice(0, 0, batch).slice(1, 0, 1).expand(x.shape()); };
  for (const NamedBuffer& p : query_parts(broadcast)) *p.buffer = first(*p.buffer, t.q.dim(0));
  for (const NamedBuffer& p : key_parts(broadcast)) *p.buffer = first(*p.buffer, 1);
  broadcast.dy = first(t.dy, 1);
  Trial copied = broadcast;
  for (const NamedBuffer& p : parts(copied)) *p.buffer = p.buffer->clone();
  copied.dy = broadcast.dy.clone();
  f.close("strides of 0", s.run(broadcast, dtype), s.run(copied, dtype), rounding(dtype));
  f.close("strides of 0, no tape", s.out(broadcast, dtype), s.out(copied, dtype), rounding(dtype));
}

}  // namespace

void check_grouped(Subject& s, Finding& f) {
  if (!f.declared(s.can().grouped, "heads that share keys")) return;
  const Index n = s.at_most(40), few = std::max<Index>(1, n * 2 / 3);
  std::vector<Sizes> shapes = {{n, n}};
  if (s.can().cross) shapes.push_back({few, n});
  for (Sizes sizes : shapes)
    for (const Index shared : s.sharings()) {
      if (shared == 1) continue;
      sizes.shared = shared;
      for (const Variant& v : s.variants(sizes)) {
        const Trial t = s.with_call(s.trial(sizes), v);
        Trial repeated = t;
        const std::vector<NamedBuffer> of_keys = key_parts(repeated);
        for (const NamedBuffer& p : of_keys) *p.buffer = repeat_heads(*p.buffer, s.options.heads);
        Outcome expected = s.run(repeated);
        for (const NamedBuffer& p : of_keys) expected.gradients[p.name] = summed(expected.gradients[p.name], shared);
        f.about(t);
        f.close("shared heads against repeated ones", s.run(t), expected, kRounding);
      }
    }
}

void check_views(Subject& s, Finding& f) {
  const Index n = s.at_most(40);
  for (const DType dtype : {DType::float64, DType::float32}) {
    Trial t = in_dtype(s.trial({n, n}), dtype);
    t.call.causal = s.can().causal;
    f.about(t);
    const Outcome expected = s.run(t, dtype);
    const double tolerance = rounding(dtype);
    Trial fused = t;
    const std::vector<NamedBuffer> all = parts(fused);
    std::vector<Tensor> columns;
    for (const NamedBuffer& p : all) columns.push_back(merge_heads(*p.buffer));
    Tape tape;
    const Tensor product = tape.watch(concatenate(columns, 2));
    const auto each_part = [&](auto&& act) {  // calls act(part, its first column)
      Index at = 0;
      for (const NamedBuffer& p : all) act(p, at), at += p.buffer->dim(1) * p.buffer->dim(3);
    };
    each_part([&](const NamedBuffer& p, Index at) { *p.buffer = heads_at(product, at, *p.buffer); });
    const Tensor y = applied(s.mechanism(dtype), fused);
    f.close("parts of one tensor, outputs", y.detach(), expected.out, tolerance);
    if (y.node() != 0) {
      tape.backward(y, t.dy);
      const Tensor d = tape.grad(product);
      each_part([&](const NamedBuffer& p, Index at) {
        f.close("parts of one tensor, gradient of " + p.name, heads_at(d, at, *p.buffer), expected.gradients.at(p.name),
                tolerance);
      });
    }
    check_strides_of_0(s, f, t, dtype);
  }
}

void check_batch(Subject& s, Finding& f) {
  const Index n = s.at_most(30);
  for (const Variant& v : s.variants({n, n, 3})) {
    Trial t = s.with_call(s.trial({n, n, 3}), v);
    f.about(t);
    const Outcome all = s.run(t);
    for (Index b = 0; b < 3; ++b) {
      const Outcome one = s.run(sequence(t, b));
      f.close("a sequence in a batch of three against the same sequence alone", all.out.slice(0, b, b + 1), one.out,
              kRounding);
      for (const NamedBuffer& p : parts(t))
        f.close("a sequence in a batch of three against the same sequence alone, gradient of " + p.name,
                all.gradients.at(p.name).slice(0, b, b + 1), one.gradients.at(p.name), kRounding);
    }
  }
  if (s.options.fixed_values) return f.leave_out("columns of v, as options.fixed_values is true");
  // Each column of v is independent of the others.
  for (const DType dtype : {DType::float64, DType::float32})
    for (const Variant& variant : s.ends({n, n})) {
      Trial t = s.with_call(s.trial({n, n}), variant);
      Rng rng(s.options.seed, 99);
      t.v = rng.normal(t.v.shape().with(3, 67)).to(DType::float64);
      f.about(t);
      const Tensor whole = s.out(t, dtype);
      for (const auto& [begin, end] : std::vector<std::pair<Index, Index>>{{0, 1}, {3, 16}, {10, 42}, {66, 67}}) {
        Trial part = t;
        part.v = t.v.slice(3, begin, end).clone();
        f.close("some columns of v against all columns", s.out(part, dtype), whole.slice(3, begin, end),
                rounding(dtype));
      }
    }
}

void check_sizes(Subject& s, Finding& f) {
  AttentionMechanism& mechanism = s.mechanism(DType::float64);
  if (!s.any_sizes())
    return f.leave_out("its parameters and buffers have fixed sizes, and options.of_sizes is undefined");
  const Index n = s.at_most(20);
  const Sizes square{n, n};
  constexpr Index kSizes[][3] = {{2, 1, 1},   {2, 2, 1},    {2, 16, 16}, {6, 5, 3}, {10, 4, 9},
                                 {2, 33, 64}, {2, 64, 33},  {2, 128, 2}, {1, 8, 8}, {3, 40, 24},
                                 {5, 96, 12}, {7, 12, 100}, {3, 100, 40}};
  for (const auto& [heads, size, value_size] : kSizes) {
    const std::unique_ptr<Subject> owner =
        s.in_sizes(heads, size, s.options.fixed_values ? s.options.value_size : value_size);
    Subject& other = *owner;
    const Trial drawn = other.trial(square), separated = other.separated_trial(square);
    for (const Variant& v : other.ends(square)) {
      const Trial t = other.with_call(drawn, v), smooth = other.with_call(separated, v);
      compare_float32(other, f, t);
      if (s.options.reference) compare_reference(other, f, smooth);
      compare_direction(other, f, smooth);
    }
    f.about(drawn);
    if (!members_of(mechanism).empty()) continue;
    compare_other_heads(other, f, drawn);
    if (s.properties().heads_alike) compare_heads_apart(other, f, drawn);
  }
}

void check_zero_vectors(Subject& s, Finding& f) {
  const Index n = s.at_most(24);
  for (const Variant& v : s.ends({n, n}))
    for (const std::string of : {"q", "k", "v", "q, k and v"})
      for (const bool all : {false, true}) {
        Trial t = s.with_call(s.trial({n, n}),
                              {v.name + (all ? ", only zero vectors in " : ", some zero vectors in ") + of, v.call});
        f.about(t);
        const auto zero = [&](const char* name, Tensor& x) {
          if (of.find(name) != std::string::npos) x = with_zeros(x, all);
        };
        zero("q", t.q), zero("k", t.k), zero("v", t.v);
        compare_float32(s, f, t);  // fails on NaN and infinity
      }
}

void check_empty_tensors(Subject& s, Finding& f) {
  const Index n = s.at_most(5);
  std::vector<Sizes> shapes = {{n, n, 0}, {0, 0}};
  if (s.can().cross) shapes.insert(shapes.end(), {{0, n}, {n, 0}});
  for (const DType dtype : {DType::float64, DType::float32})
    for (const Sizes& sizes : shapes)
      for (const Variant& order : s.orders()) {
        const Trial t = s.with_call(s.trial(sizes), order);
        f.about(t);
        const Outcome o = s.run(t, dtype);  // apply() checks the shape of the output
        f.zeros("outputs without a key", o.out);
        for (const auto& [name, gradient] : o.gradients) f.zeros("gradient of " + name, gradient);
      }
}

}  // namespace heed::detail::conformance
