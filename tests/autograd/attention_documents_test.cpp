// Attention kept inside the documents of a row: against plain loops, separate rows and PyTorch.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/autograd/linear_attention.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/attention_bf16.hpp"
#include "tests/autograd/attention_documents.hpp"
#include "tests/core/levels.hpp"
#include "tests/reference/stored.hpp"

using namespace heed;
using namespace heed::test;

namespace {

AttentionResult part_of(const AttentionResult& x, Index b, Index first, Index last) {
  const auto part = [&](const Tensor& y) { return y.slice(0, b, b + 1).slice(2, first, last).dense(); };
  return {part(x.out), part(x.dq), part(x.dk), part(x.dv), {}, {}};
}

bool same_results(const AttentionResult& a, const AttentionResult& b) {
  return same_bits(a.out, b.out) && same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv);
}

}  // namespace

TEST_CASE("attention inside documents equals the naive loops at lengths around blocks, on each level") {
  int number = 0;
  for (const Index n : {1, 2, 17, 33, 63, 64, 65, 130, 257, 700}) {
    for (const Index longest : {1, 5, 40, 200, 1000}) {
      if (!is_taken(number++, 5)) continue;
      const AttentionSize s{2, 4, 2, n, n, 8, 12};
      const AttentionData x = random_attention(s, 7);
      const AttentionCall o{.causal = true, .documents = random_documents(n, longest, 3)};
      CAPTURE(n);
      CAPTURE(longest);
      const AttentionResult expected = naive_attention(x, o), rounded_x = naive_attention(rounded(x), o);
      const AttentionResult bounds = bounds_of(rounded(x), rounded_x, 1 / std::sqrt(8.0), 1);
      on_each_level([&] {
        CHECK(attention_error(run_attention(x, o), expected) < 1e-12);
        // relative to 1 at least: dq and dk of a document of one token are terms that cancel; gradients of the longest
        // documents are sums of 700 terms
        CHECK(attention_error(run_attention(x, o, DType::float32), expected, 1) < (n > 300 ? 5e-6 : 3e-6));
        const AttentionResult half = run_attention(rounded(x), o, DType::bfloat16);
        CHECK(share(half.out, rounded_x.out, bounds.out) < 1);
        CHECK(share(half.dq, rounded_x.dq, bounds.dq) < 1);
        CHECK(share(half.dk, rounded_x.dk, bounds.dk) < 1);
        CHECK(share(half.dv, rounded_x.dv, bounds.dv) < 1);
      });
    }
  }
}

TEST_CASE("attention inside documents takes every mask, a bias and dropout, on each level") {
  const AttentionSize s{2, 4, 2, 150, 150, 8, 5};
  const AttentionData x = random_attention(s);
  for (int bits = 1; bits < 32; bits += 2) {
    if (!is_taken(bits, 3)) continue;
    AttentionCall o = call_of_bits(bits, s);
    o.documents = random_documents(150, 60, 9);
    if (bits & 8) o.mask = random_mask({4, 1, 150}, 0.5, 4);
    if (bits & 16) o.bias = Rng(5).normal({4, 150, 150}, 0, 1, DType::float64);
    if (bits == 31) o.dropout = 0.3;
    CAPTURE(bits);
    manual_seed(11);
    const Rng before = default_rng();
    const AttentionResult expected = naive_attention(x, o, o.dropout > 0 ? &before : nullptr);
    on_each_level([&] {
      default_rng() = before;
      CHECK(attention_error(run_attention(x, o), expected) < 1e-12);
      default_rng() = before;
      CHECK(attention_error(run_attention(x, o, DType::float32), expected) < 3e-6);
    });
  }
}

TEST_CASE("attention inside documents equals attention to each document alone, values and gradients") {
  const std::vector<std::vector<Index>> rows = {{70, 3, 227}, {300}};
  const AttentionSize s{2, 4, 2, 300, 300, 16, 16};
  for (const DType dtype : {DType::float64, DType::float32}) {
    const AttentionData x = random_attention(s);
    const AttentionResult packed = run_attention(x, {.causal = true, .documents = documents_of(rows)}, dtype);
    for (std::size_t b = 0; b < rows.size(); ++b)
      for (Index n = 0, first = 0; n < static_cast<Index>(rows[b].size()); ++n) {
        const Index last = first + rows[b][static_cast<std::size_t>(n)], at = static_cast<Index>(b);
        const auto part = [&](const Tensor& y) { return y.slice(0, at, at + 1).slice(2, first, last).dense(); };
        const AttentionResult alone =
            run_attention({part(x.q), part(x.k), part(x.v), part(x.dout)}, {.causal = true}, dtype);
        CHECK(attention_error(part_of(packed, at, first, last), alone) < (dtype == DType::float64 ? 1e-13 : 2e-6));
        if (rows[b].size() == 1) CHECK(same_results(part_of(packed, at, first, last), alone));
        first = last;
      }
  }
}

TEST_CASE("attention inside documents gives PyTorch's values and gradients of separate documents") {
  const StoredCases& stored = stored_cases("documents_torch.json");
  const auto in = [&](const char* name) { return stored.inputs.at(name); };
  const AttentionData x{in("q"), in("k"), in("v"), in("dy")};
  const Named& torch = stored.cases.at("causal");
  const AttentionResult expected{torch.at("y"), torch.at("q"), torch.at("k"), torch.at("v"), {}, {}};
  const AttentionCall call{.causal = true, .documents = in("documents").to(DType::int32)};
  CHECK(attention_error(run_attention(x, call), expected) < 1e-14);
  CHECK(attention_error(run_attention(x, call, DType::float32), expected) < 1e-6);
  CHECK(attention_error(run_attention(x, {.causal = true}), expected) > 0.01);
}

TEST_CASE("attention inside documents passes gradcheck in float64, and shows no other document, not even NaN") {
  const AttentionSize s{2, 4, 2, 9, 9, 3, 4};
  const AttentionCall call{.causal = true, .documents = documents_of({{4, 1, 4}, {2, 7}})};
  const AttentionData x = random_attention(s);
  const Tensor bias = normal({4, 9, 9}, 4);
  gradcheck(
      [&](const std::vector<Tensor>& in) {
        AttentionCall with = call;
        with.bias = in[3];
        return attention(in[0], in[1], in[2], with);
      },
      {x.q, x.k, x.v, bias});
  on_each_level([] {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      AttentionData y = random_attention({1, 2, 1, 200, 200, 8, 8});
      const AttentionCall three{.causal = true, .documents = documents_of({{90, 30, 80}})};
      const AttentionResult clean = run_attention(y, three, dtype);
      for (Tensor t : {y.q, y.k, y.v, y.dout}) {
        Tensor middle = t.slice(2, 90, 120);
        middle.fill_(kNaN);
      }
      const AttentionResult got = run_attention(y, three, dtype);
      const double bound = dtype == DType::float64 ? 1e-13 : 1e-6;
      for (const auto& [first, last] : {std::pair{0, 90}, std::pair{120, 200}})
        CHECK(attention_error(part_of(got, 0, first, last), part_of(clean, 0, first, last)) < bound);
      CHECK(std::isnan(got.out.at({0, 0, 100, 0})));
    }
  });
}

TEST_CASE("attention inside documents gives the same bits at any number of threads and on levels with fma") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    const AttentionSize sizes[] = {{2, 1, 1, 900, 900, 32, 32}, {2, 9, 3, 300, 300, 16, 16}};
    for (const AttentionSize& s : sizes) {
      const AttentionData x = random_attention(s);
      const AttentionCall o{.causal = true, .documents = random_documents(s.keys, 170, 2), .dropout = 0.1};
      AttentionResult first;
      for (const int n : {1, 2, 3, 8}) {
        set_threads(n);
        manual_seed(3);
        const AttentionResult r = run_attention(x, o, dtype);
        if (n == 1) first = r;
        CHECK(same_results(r, first));
      }
      set_threads(0);
      if (dtype == DType::bfloat16) continue;  // levels with bf16 dot products sum in pairs
      on_each_level([&] {
        if (kernels::level() == kernels::Level::baseline) return;
        manual_seed(3);
        CHECK(same_results(run_attention(x, o, dtype), first));
      });
    }
  }
}

TEST_CASE("other attention ops keep inside documents too, or refuse them") {
  const AttentionData x = random_attention({2, 4, 2, 20, 20, 4, 4});
  const Tensor documents = documents_of({{4, 1, 9, 6}, {12, 8}});
  const AttentionCall call{.causal = true, .documents = documents};
  const Tensor expected = attention(x.q, x.k, x.v, call);
  CHECK(close(flex_attention(x.q, x.k, x.v, {}, call), expected, 0, 1e-13));
  CHECK(close(generic_attention(x.q, x.k, x.v, similarity_by_name("embedded-gaussian"), call, {.scale = 0.5}), expected,
              0, 1e-12));
  std::vector<std::int32_t> all, offsets = {0};  // lists of all keys up to the query
  for (std::int32_t i = 0; i < 20; ++i) {
    for (std::int32_t j = 0; j <= i; ++j) all.push_back(j);
    offsets.push_back(static_cast<std::int32_t>(all.size()));
  }
  const KeyLists lists{Tensor::from(offsets), Tensor::from(all)};
  CHECK(close(sparse_attention(x.q, x.k, x.v, lists, call), expected, 0, 1e-13));
  gradcheck([&](const std::vector<Tensor>& in) { return sparse_attention(in[0], in[1], in[2], lists, call); },
            {x.q, x.k, x.v});
  // others, against their own results for each document
  const Tensor u = normal({4, 4}, 8), additive = additive_attention(x.q, x.k, x.v, u, call);
  for (const auto& [first, last] : {std::pair{0, 4}, std::pair{5, 14}}) {
    const auto part = [&, from = first, to = last](const Tensor& y) { return y.slice(0, 0, 1).slice(2, from, to); };
    const Tensor q = part(x.q), k = part(x.k), v = part(x.v);
    CHECK(close(part(additive), additive_attention(q, k, v, u, {.causal = true}), 0, 1e-13));
    for (const std::string& name : similarity_names()) {
      CAPTURE(name);
      const Similarity f = similarity_by_name(name);
      CHECK(close(part(generic_attention(x.q, x.k, x.v, f, call)), generic_attention(q, k, v, f, {.causal = true}), 0,
                  1e-12));
    }
  }
  check_errors(
      {{"linear_attention: documents are given; its sums over keys do not end with a document. Give each "
        "document a row",
        [&] { linear_attention(x.q, x.k, x.v, call); }}});
}

TEST_CASE("documents: positions, allowed pairs, and documents that do not fit") {
  const Tensor documents = documents_of({{3, 2, 1}, {6}});
  CHECK(ids_of(positions_in_documents(documents)) == std::vector<std::int32_t>{0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 4, 5});
  CHECK(positions_in_documents(Tensor::zeros({2, 0}, DType::int32)).shape() == Shape{2, 0});
  const Tensor x = normal({2, 4, 6, 4}), y = normal({2, 4, 5, 4});
  const Tensor allowed = allowed_pairs(x, x, {.causal = true, .documents = documents});
  CHECK(allowed.shape() == Shape{2, 1, 6, 6});
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 6; ++i)
      for (Index j = 0; j < 6; ++j)
        CHECK(allowed.at({b, 0, i, j}) == (j <= i && static_cast<double>(j) >= documents.at({b, i}) ? 1 : 0));
  const auto call = [](std::initializer_list<double> begins, const Shape& shape) {
    return AttentionCall{.causal = true, .documents = Tensor::from<std::int32_t>(begins, shape)};
  };
  const Tensor one = normal({1, 1, 4, 4});
  check_errors({
      {"attention: q is [2, 4, 6, 4] float64, k is [2, 4, 6, 4] float64 and causal is false; documents require a "
       "causal "
       "call with as many queries as keys",
       [&] { attention(x, x, x, {.documents = documents}); }},
      {"attention: q is [2, 4, 6, 4] float64, k is [2, 4, 5, 4] float64 and causal is true; documents require",
       [&] { attention(x, y, y, {.causal = true, .documents = documents}); }},
      {"attention: documents is [1, 4] int32; it must be [batch, positions] [2, 6] int32",
       [&] {
         attention(x, x, x, call({0, 0, 0, 3}, {1, 4}));
       }},
      {"positions_in_documents: documents is [1, 4] float32; it must be [batch, positions] int32",
       [&] {
         attention(one, one, one, {.causal = true, .documents = Tensor::zeros({1, 4})});
       }},
      {"positions_in_documents: documents[0, 0] is 1; it must be 0, where a document begins",
       [&] {
         attention(one, one, one, call({1, 1, 1, 1}, {1, 4}));
       }},
      {"positions_in_documents: documents[0, 2] is 1; it must be 2, where a document begins, or the number before",
       [&] {
         attention(one, one, one, call({0, 0, 1, 1}, {1, 4}));
       }},
      {"documents[0, 3] is -1",
       [&] {
         attention(one, one, one, call({0, 0, 0, -1}, {1, 4}));
       }},
      {"positions_in_documents: documents is undefined; it must be [batch, positions] int32",
       [] { positions_in_documents(Tensor()); }},
  });
}
