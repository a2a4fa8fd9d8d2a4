// Types shared by the checks of the conformance kit: problems that are posed to a mechanism, and findings.
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/attention/luong.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::detail::conformance;

namespace {

const MechanismFactory softmax_attention = [](Index, Rng&) { return AttentionMechanism(SoftmaxAttention()); };

}  // namespace

TEST_CASE("conformance subject: trials have the sizes that were asked for, and values that float32 has too") {
  const Subject subject(softmax_attention, {});
  const Trial t = subject.trial({.queries = 3, .keys = 5, .batch = 2, .shared = 2});
  CHECK(t.q.shape().first(1) == Shape{2});
  CHECK(t.q.dim(2) == 3);
  CHECK(t.k.dim(2) == 5);
  CHECK(t.q.dim(1) == 2 * t.k.dim(1));
  CHECK(t.dy.shape() == t.q.shape().with(3, t.v.dim(3)));
  CHECK(test::same_bits(t.q, t.q.to(DType::float32).to(DType::float64)));
  CHECK(test::same_bits(t.q, subject.trial({.queries = 3, .keys = 5, .batch = 2, .shared = 2}).q));
  CHECK(!test::same_bits(t.q, subject.trial({.queries = 3, .keys = 5, .batch = 2, .shared = 2}, 1).q));
  CHECK(with_keys(t, 4).k.dim(2) == 4);
  CHECK(with_queries(t, 1, 3).q.dim(2) == 2);
}

TEST_CASE("conformance subject: one sequence of a trial, cut to a length, with one mask, and with permuted keys") {
  const Subject subject(softmax_attention, {});
  const auto values = [](const Tensor& x) { return x.to_vector<double>(); };
  Trial t = subject.trial({.queries = 5, .keys = 5});
  t.call.key_lengths = Tensor::from<std::int32_t>({5, 2}, {2});
  Trial one = sequence(t, 1);
  CHECK(values(one.k) == values(t.k.slice(0, 1, 2)));
  CHECK(values(one.call.key_lengths) == std::vector<double>{2});
  const Trial cut = cut_sequence(t, 1, 2);
  CHECK(values(cut.k) == values(t.k.slice(0, 1, 2).slice(2, 0, 2)));
  CHECK(cut.q.dim(2) == 2);
  CHECK(!cut.call.key_lengths.defined());
  const Tensor mask = one_mask(one, {.causal = true, .key_lengths = one.call.key_lengths});
  CHECK(mask.shape() == Shape{1, 4, 5, 5});
  CHECK(mask.at({0, 3, 4, 1}) == 1);
  CHECK(mask.at({0, 3, 4, 2}) == 0);
  CHECK(mask.at({0, 3, 0, 1}) == 0);
  const Tensor keys = one.k, back = permute_keys(one, Rng(1));
  for (Index j = 0; j < 5; ++j) {
    const auto place = static_cast<Index>(back.at({j}));
    CHECK(values(one.k.slice(2, place, place + 1)) == values(keys.slice(2, j, j + 1)));
  }
}

TEST_CASE("conformance subject: a call that writes to an argument, or returns its memory, is found") {
  Tensor x = test::normal({3, 4});
  const auto passes = [&](const std::function<Tensor()>& call) {
    const Arguments arguments(std::vector<NamedBuffer>{{"x", &x}});
    Finding finding;
    arguments.check(finding, call());
    return finding.ok();
  };
  CHECK(passes([&] { return x + 1.0; }));
  CHECK(!passes([&] { return x; }));
  CHECK(!passes([&] {
    const Tensor y = x + 1.0;
    x.fill_(0);
    return y;
  }));
}

TEST_CASE("conformance subject: few heads are two, of a mechanism that may have other heads") {
  Subject any(softmax_attention, {}), small(softmax_attention, {.heads = 2});
  CHECK(any.of_few_heads().options.heads == 2);
  CHECK(&any.of_few_heads() == &any.of_few_heads());
  CHECK(&small.of_few_heads() == &small);
  const auto with_parameters = [](Index heads) {
    return [heads](Index, Rng& rng) { return BahdanauAttention(heads, 8, rng); };
  };
  Subject fixed(with_parameters(4), {}),
      sized(with_parameters(4),
            {.of_sizes = [&](Index heads, Index) { return MechanismFactory(with_parameters(heads)); }});
  CHECK(&fixed.of_few_heads() == &fixed);
  CHECK(sized.of_few_heads().trial({}).q.dim(1) == 2);
}

TEST_CASE("conformance subject: every declared mask and bias is asked for once, and what is not declared is left out") {
  const Subject subject(softmax_attention, {});
  std::vector<std::string> names;
  for (const Variant& v : subject.variants({.queries = 4, .keys = 4})) names.push_back(v.name);
  for (const char* name : {"plain", "causal", "key lengths", "key mask", "mask", "bias", "all masks"}) {
    INFO(name);
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
  Finding finding;
  CHECK(!finding.declared(false, "state"));
  CHECK(finding.left_out() == std::vector<std::string>{"it declares no state"});
  CHECK(finding.declared(true, "masks"));
}

TEST_CASE("conformance subject: a finding passes what is close and tells the worst of what is not") {
  const Tensor x = test::normal({3, 4});
  Finding close;
  close.close("values", x + 1e-9, x, 1e-8);
  CHECK(close.result("a check").passed);
  Finding apart;
  apart.close("values", x + 1e-3, x, 1e-8);
  const ConformanceCheck failed = apart.result("a check");
  CHECK(!failed.passed);
  CHECK(failed.name == "a check");
  CHECK(test::contains(failed.detail, "values"));
  Finding nan;
  nan.finite("values", x * test::kNaN);
  CHECK(!nan.result("a check").passed);
  Finding bits;
  bits.same_bits("values", x, x.clone());
  bits.zeros("zeros", Tensor::zeros({2}));
  bits.expect(true, "is not so");
  CHECK(bits.result("a check").passed);
  bits.expect(false, "is not so");
  CHECK(test::contains(bits.result("a check").detail, "is not so"));
}
