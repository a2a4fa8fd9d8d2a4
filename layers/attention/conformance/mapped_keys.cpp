// The check "mapped keys": map_keys() followed by apply_mapped() against apply().
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>
#include <limits>

namespace heed::detail::conformance {
namespace {

Tensor in_parts(const AttentionMechanism& m, const Trial& t) {
  const Tensor y = m.apply_mapped(t.q, m.map_keys(t.k, t.call), t.v, t.call);
  require(y.shape() == t.dy.shape(), "apply_mapped() returns ", y, "; it must be ", t.dy.shape());
  return y;
}

void compare(Subject& s, Finding& f, const Trial& t, DType dtype, const Outcome& expected) {
  f.about(t);
  const std::string what = std::string(name_of(dtype)) + ", apply_mapped() of map_keys() against apply()";
  const Outcome got = s.run(t, dtype, in_parts);
  f.expect(got.out.dtype() == dtype, "apply_mapped() returns " + describe(got.out) + "; it must return the dtype of q");
  close_in(s, f, what, {dtype, got, expected}, t);
}

// Uses mapped keys as a decoder does: picks their rows, and attends with one query per step.
void compare_decoder(Subject& s, Finding& f, const Trial& t, const Tensor& whole) {
  f.about(t);
  const NoTape guard;
  const AttentionMechanism& m = s.mechanism(DType::float64);
  const Tensor mapped = m.map_keys(t.k, t.call);
  const Index batch = t.q.dim(0);
  f.expect(mapped.defined() && mapped.rank() > 0 && mapped.dim(0) == batch,
           "map_keys() returns " + describe(mapped) + "; the first axis must have " + std::to_string(batch) + " rows");
  if (!f.ok()) return;
  const Tensor rows = Tensor::from<std::int32_t>({1, 1, 0});
  const Trial some = pick_rows(t, rows);
  f.close("rows 1, 1 and 0 of mapped keys", m.apply_mapped(some.q, index_select(mapped, 0, rows), some.v, some.call),
          index_select(whole, 0, rows), kRounding);
  if (!s.can().attends_to_memory() || t.call.causal || t.call.mask.defined() || t.call.bias.defined()) return;
  for (const Index i : {Index{0}, t.q.dim(2) - 1}) {
    Trial one = with_queries(t, i, i + 1);
    one.call.first_query = Tensor::scalar(static_cast<double>(i), DType::int32);
    f.close("query " + std::to_string(i) + " alone with mapped keys", m.apply_mapped(one.q, mapped, one.v, one.call),
            whole.slice(2, i, i + 1), kRounding);
  }
}

}  // namespace

void check_mapped_keys(Subject& s, Finding& f) {
  const AttentionMechanism& m = s.mechanism(DType::float64);
  if (!f.declared(m.maps_keys(), "map_keys()")) return;
  if (!m.inputs().empty()) return f.leave_out("it declares inputs, which apply_mapped() cannot pass");
  std::vector<DType> narrow = {DType::float32};
  if (s.can().bfloat16) narrow.push_back(DType::bfloat16);
  std::vector<Sizes> shapes = s.shapes(s.at_most(40));
  const Index past_a_block = s.at_most(130);
  shapes.push_back({past_a_block, past_a_block, 1});
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Sizes& sizes = shapes[i];
    const std::vector<Variant> ends = s.ends(sizes);
    std::vector<Variant> variants = s.half_of_variants(sizes, i % 2 == 1);
    if (i == 0) variants = s.variants(sizes);
    if (sizes.keys == past_a_block) variants = ends;
    for (const Variant& v : ends) {
      const Trial t = s.with_call(s.trial(sizes), v);
      const Outcome expected = s.run(t, DType::float32);
      for (const DType dtype : narrow) compare(s, f, t, dtype, expected);
    }
    for (const Variant& v : variants) {
      const Trial t = s.with_call(s.trial(sizes), v);
      const Outcome expected = s.run(t);
      compare(s, f, t, DType::float64, expected);
      if (sizes.batch > 1) compare_decoder(s, f, t, expected.out);
      if (!masks_keys(v.call)) continue;
      Trial dirty = t;
      const double nan = std::numeric_limits<double>::quiet_NaN();
      dirty.k = with_padding(t.k, t.call, nan), dirty.v = with_padding(t.v, t.call, nan);
      close_in(s, f, "NaN in padding of mapped keys and values",
               {DType::float64, s.run(dirty, DType::float64, in_parts), expected}, t);
    }
  }
}

}  // namespace heed::detail::conformance
