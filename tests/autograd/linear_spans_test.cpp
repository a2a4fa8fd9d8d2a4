// Few heads are cut into spans of steps that threads work on side by side: the same as many heads, which are not.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/linear_reference.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

enum class Op { linear, exp, efficient };
constexpr Index kMany = 8;  // heads from which on none is cut

Tensor attend(Op op, In q, In k, In v, const AttentionCall& call) {
  if (op == Op::efficient) return efficient_attention(q, k, v, call);
  return linear_attention(q, k, v, call, {.feature_map = op == Op::exp ? FeatureMap::exp : FeatureMap::elu});
}

// Output, dq, dk and dv.
std::vector<Tensor> results(Op op, const AttentionData& x, const AttentionCall& o,
                            DType dtype = DType::float64) {
  Tape tape;
  const Tensor q = tape.watch(x.q.to(dtype)), k = tape.watch(x.k.to(dtype)), v = tape.watch(x.v.to(dtype));
  const Tensor y = attend(op, q, k, v, o);
  tape.backward(y, x.dout.to(dtype));
  return {y.detach(), tape.grad(q), tape.grad(k), tape.grad(v)};
}

AttentionData repeated(const AttentionData& x) {
  const auto many = [](const Tensor& t) { return t.expand(t.shape().with(1, kMany)).clone(); };
  AttentionData y = x;
  y.q = many(x.q), y.k = many(x.k), y.v = many(x.v), y.dout = many(x.dout);
  return y;
}

void check_spans(Op op, const AttentionData& x, const AttentionCall& o) {
  CAPTURE(static_cast<int>(op));
  CAPTURE(x.q.dim(2));
  CAPTURE(x.k.dim(2));
  CAPTURE(o.causal);
  const std::vector<Tensor> cut = results(op, x, o), whole = results(op, repeated(x), o);
  for (std::size_t i = 0; i < cut.size(); ++i) {
    CAPTURE(i);
    const Tensor wanted = whole[i].slice(1, 3, 4);
    const double scale = norm(wanted).item();
    CHECK(scale > 0);
    CHECK(close(cut[i], wanted, 0, 1e-12 * scale));
  }
}

constexpr Op kOps[] = {Op::linear, Op::exp, Op::efficient};

}  // namespace

TEST_CASE(
    "linear attention: few heads in spans equal many heads without, causal or not, T != S, masked, on each level") {
  on_each_level([] {
    for (const Op op : kOps) {
      const AttentionData square = random_attention({1, 1, 1, 2500, 2500, 8, 9});
      check_spans(op, square, {.causal = true});
      check_spans(op, square, {});
      const AttentionData prefix = random_attention({1, 1, 1, 2200, 3300, 5, 8});
      check_spans(op, prefix, {.causal = true, .key_lengths = Tensor::from<std::int32_t>({3100})});
      check_spans(op, random_attention({1, 1, 1, 2900, 2300, 6, 4}), {.causal = true});
      AttentionCall some{.causal = true, .key_mask = Tensor::ones({1, 2500}, DType::bool8)};
      some.key_mask.slice(1, 0, 700).zero_();  // the first spans see nothing
      check_spans(op, square, some);
    }
  });
}

TEST_CASE("linear attention: in spans, logarithms whose maxima rise by hundreds between them lose nothing") {
  AttentionData x = random_attention({1, 1, 1, 2500, 2500, 6, 5});
  for (Index j = 0; j < 2500; ++j)
    for (Index c = 0; c < 6; ++c)
      x.k.ptr<double>()[j * 6 + c] += 250.0 * static_cast<double>(j / 700 % (2 + c % 2)) - 100.0;
  for (const Op op : {Op::exp, Op::efficient}) check_spans(op, x, {.causal = true});
}

// A sum over all keys is one over chunks of 64 of sums in a chunk, so that its error is at most about (64 + n / 64)
// 2^-24 of its terms' size. The worst element of a result of several such sums stays below that of one, as roundings
// cancel.
TEST_CASE("linear attention: spans in float32 are those in float64, on each level") {
  on_each_level([] {
    const AttentionData x = random_attention({1, 2, 2, 2500, 2500, 8, 9});
    const double bound = (64 + 2500.0 / 64) * 0x1p-24;
    for (const Op op : kOps)
      for (const bool causal : {true, false}) {
        const std::vector<Tensor> floats = results(op, x, {.causal = causal}, DType::float32),
                                  wanted = results(op, x, {.causal = causal});
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          const double largest = max(abs(wanted[i])).item();
          INFO("op ", static_cast<int>(op), ", causal ", causal, ", result ", i);
          CHECK(floats[i].dtype() == DType::float32);
          CHECK(worst(floats[i].to(DType::float64), wanted[i], 0, bound * largest) <= 1);
        }
      }
  });
}

TEST_CASE("linear attention: spans have the same bits at any number of threads") {
  const int before = threads();
  const AttentionData x = random_attention({1, 2, 2, 2500, 2500, 8, 8});
  for (const Op op : kOps)
    for (const DType dtype : {DType::float32, DType::float64}) {
      std::vector<Tensor> first;
      for (const int n : {1, 2, 3, 8}) {
        set_threads(n);
        const std::vector<Tensor> now = results(op, x, {.causal = true}, dtype);
        if (n == 1) first = now;
        for (std::size_t i = 0; i < now.size(); ++i) CHECK(same_bits(now[i], first[i]));
      }
    }
  set_threads(before);
}
