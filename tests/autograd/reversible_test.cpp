// reversible(): the gradients of its equations, memory that does not depend on the number of blocks, and equal second
// runs.
#include <heed/core/dry_run.hpp>
#include <heed/core/memory.hpp>
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::close;
using test::contains;
using test::error_of;
using test::same_bits;

namespace {

using ReversibleList = std::vector<ReversibleBlock>;

// Blocks of two maps each, with dropout in f.
struct DeepStack {
  std::vector<Parameter> f, g;

  DeepStack(Index blocks, Index width, DType dtype) {
    Rng rng(3);
    for (Index i = 0; i < blocks; ++i)
      for (std::vector<Parameter>* maps : {&f, &g})
        maps->emplace_back(rng.normal({width, width}, 0, 1 / std::sqrt(static_cast<double>(width)), dtype));
  }
  ReversibleList blocks(double p) const {
    ReversibleList list;
    for (std::size_t i = 0; i < f.size(); ++i)
      list.push_back({[this, i, p](const Tensor& x) { return dropout(tanh(matmul(x, f[i])), p); },
                      [this, i](const Tensor& x) { return sin(matmul(x, g[i])); }});
    return list;
  }
  // The equations, with all values on the tape.
  Tensor ordinary(const Tensor& x1, const Tensor& x2, double p) const {
    Tensor a = x1, b = x2;
    for (const ReversibleBlock& block : blocks(p)) {
      a = a + block.f(b);
      b = b + block.g(a);
    }
    return stack({a, b});
  }
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (std::vector<Parameter>* maps : {&f, &g})
      for (Parameter& p : *maps) {
        all.push_back(p.grad().clone());
        p.zero_grad();
      }
    return all;
  }
};

// The result, the gradients of x1 and x2, and those of the maps.
std::vector<Tensor> results_of(DeepStack& deep, DType dtype, double p, bool again) {
  default_rng() = Rng(9);
  Tape tape;
  const Tensor x1 = tape.watch(test::normal({5, 8}, 1, dtype)), x2 = tape.watch(test::normal({5, 8}, 2, dtype));
  const Tensor y = again ? reversible(deep.blocks(p), x1, x2) : deep.ordinary(x1, x2, p);
  tape.backward(y, test::normal({2, 5, 8}, 4, dtype));
  std::vector<Tensor> all = {y.detach().clone(), tape.grad(x1), tape.grad(x2)};
  for (const Tensor& g : deep.gradients()) all.push_back(g);
  return all;
}

// Bytes kept on the tape, and the peak of backward in addition to the gradients of the maps.
std::pair<std::size_t, std::size_t> memory_of(Index blocks) {
  DeepStack deep(blocks, 64, DType::float32);
  const Tensor x = test::normal({256, 64}, 1, DType::float32);
  std::pair<std::size_t, std::size_t> bytes;
  for (int step = 0; step < 2; ++step) {  // the first step makes the gradients
    const std::size_t before = memory_use().current;
    reset_peak_memory();
    Tape tape;
    const Tensor y = reversible(deep.blocks(0.1), x, x);
    bytes.first = tape.saved_bytes();
    tape.backward(sum(y));
    bytes.second = memory_use().peak - before;
  }
  return bytes;
}

std::string error_in(const ReversibleBlock& block, DType dtype = DType::float32) {
  return error_of([&] {
    Tape tape;
    const Tensor x = tape.watch(test::normal({4}, 1, dtype));
    tape.backward(sum(reversible({block}, x, x)));
  });
}

}  // namespace

TEST_CASE("reversible: results and gradients of its equations, with dropout that draws the same numbers again") {
  for (const DType dtype : {DType::float32, DType::float64})
    for (const double p : {0.0, 0.4})
      for (const Index blocks : {1, 2, 12}) {
        INFO(std::string(name_of(dtype)), " ", p, " ", blocks);
        DeepStack deep(blocks, 8, dtype);
        const std::vector<Tensor> expected = results_of(deep, dtype, p, false), got = results_of(deep, dtype, p, true);
        REQUIRE(got.size() == expected.size());
        const double tolerance = dtype == DType::float32 ? 3e-4 : 1e-12;  // sums of both signs
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(close(got[i], expected[i], tolerance, tolerance));
      }
}

TEST_CASE("reversible: gradcheck, also of parameters") {
  DeepStack deep(3, 3, DType::float64);
  const auto f = [&](const std::vector<Tensor>& x) { return reversible(deep.blocks(0.3), x[0], x[1]); };
  gradcheck(f, {test::normal({4, 3}, 1), test::normal({4, 3}, 2)});
  std::vector<NamedParameter> all;
  for (std::size_t i = 0; i < deep.f.size(); ++i) {
    all.push_back({"f" + std::to_string(i), &deep.f[i]});
    all.push_back({"g" + std::to_string(i), &deep.g[i]});
  }
  const Tensor x = test::normal({4, 3}, 5);
  gradcheck([&] { return f({x, x}); }, all);
}

TEST_CASE("reversible: memory does not depend on the number of blocks") {
  const auto [kept, peak] = memory_of(4);
  const auto [kept_of_many, peak_of_many] = memory_of(16);
  CHECK(kept == 2 * 256 * 64 * sizeof(double));
  CHECK(kept_of_many == kept);
  const auto few = static_cast<double>(peak), many = static_cast<double>(peak_of_many);
  INFO(few, " bytes with 4 blocks, ", many, " with 16");
  CHECK(many < 1.05 * few);  // steps of the tape
}

TEST_CASE("reversible: the same bits without a tape, at any number of threads, and inside recompute") {
  DeepStack deep(4, 8, DType::float32);
  const std::vector<Tensor> expected = results_of(deep, DType::float32, 0.4, true);
  for (const int threads : {1, 2, 3}) {
    set_threads(threads);
    const std::vector<Tensor> got = results_of(deep, DType::float32, 0.4, true);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], expected[i]));
  }
  set_threads(0);
  const Tensor x1 = test::normal({5, 8}, 1, DType::float32), x2 = test::normal({5, 8}, 2, DType::float32);
  CHECK(same_bits(reversible(deep.blocks(0), x1, x2), results_of(deep, DType::float32, 0, true)[0]));

  default_rng() = Rng(9);
  Tape tape;
  const Tensor a = tape.watch(x1), b = tape.watch(x2);
  const Tensor y = recompute([&](const auto& x) { return reversible(deep.blocks(0.4), x[0], x[1]); }, {a, b});
  tape.backward(y, test::normal({2, 5, 8}, 4, DType::float32));
  CHECK(same_bits(y, expected[0]));
  CHECK(same_bits(tape.grad(a), expected[1]));
  for (const Tensor& g : deep.gradients()) CHECK(g.defined());
}

TEST_CASE("reversible: bits of the second run, also of choices that depend on the last bit") {
  // A function that jumps where a value is rounded differently.
  const auto parity = [](const Tensor& x) { return sin(x * 1e7); };
  Parameter w(Tensor::full({64}, 1.5));
  ReversibleList blocks(10, ReversibleBlock{[&](const Tensor& x) { return parity(x) * w; }, parity});
  Tape tape;
  const Tensor x = test::normal({64}, 1, DType::float32);
  CHECK(error_of([&] { tape.backward(sum(reversible(blocks, x, x * 1e-5))); }).empty());
  CHECK(w.grad().defined());
  // Values above 2^17 are rounded, and NaN stays NaN: no error, as the runs may differ.
  for (const double large : {1e7, test::kNaN, test::kInf}) {
    Tape another;
    const Tensor y = another.watch(Tensor::full({64}, large));
    CHECK(error_of([&] { another.backward(sum(reversible(blocks, y, x))); }).empty());
  }
}

TEST_CASE("reversible: blocks without gradients, other dtypes, and no block") {
  const Tensor x = test::normal({3, 4}, 1, DType::float32);
  CHECK(same_bits(reversible({}, x, x * 2), stack({x, x * 2})));
  Parameter w(Tensor::ones({4})), frozen(Tensor::ones({4}));
  frozen.requires_grad_(false);
  const ReversibleBlock with{[&](const Tensor& h) { return h * w; }, [&](const Tensor& h) { return h * frozen; }};
  const ReversibleBlock without{[&](const Tensor& h) { return h * frozen; }, [](const Tensor& h) { return h; }};
  for (const ReversibleList& blocks : {ReversibleList{without, with, without}, ReversibleList{with, without}}) {
    w.zero_grad();
    Tape tape;
    tape.backward(sum(reversible(blocks, x, x)));
    CHECK(w.grad().defined());
  }
  {
    Tape tape;
    CHECK(reversible({without}, x, x).node() == 0);  // nothing to record
  }
  const Tensor low = x.to(DType::bfloat16);
  const ReversibleBlock half{[](const Tensor& h) { return tanh(h); }, [](const Tensor& h) { return h * h; }};
  Tape tape;
  const Tensor watched = tape.watch(low), y = reversible({half, half}, watched, low);
  CHECK(y.dtype() == DType::bfloat16);
  tape.backward(sum(y.to(DType::float32)));
  CHECK(tape.grad(watched).dtype() == DType::float32);
}

TEST_CASE("reversible: no values in a dry run") {
  Parameter w(Tensor::ones({4}));
  int runs = 0;
  const ReversibleBlock block{[&](const Tensor& x) { return x * w * ++runs; }, [](const Tensor& x) { return x; }};
  detail::dry_run([&] {
    Tape tape;
    tape.backward(sum(reversible({block}, Tensor::ones({4}), Tensor::ones({4}))));
  });
  CHECK(runs == 2);
  w.zero_grad();
}

TEST_CASE("reversible: wrong functions and tensors are errors") {
  Parameter w(Tensor::ones({4}));
  const auto times = [&](const Tensor& x) { return x * w; };
  Rng own(5);
  const std::string noisy = error_in({[&](const Tensor& x) { return x * own.normal({4}); }, times});
  CHECK(contains(noisy, "reversible: f returned another result when it ran again, [4] float32"));
  CHECK(contains(noisy, "draw random numbers from default_rng()"));
  CHECK(error_in({[&](const Tensor& x) { return x * default_rng().normal({4}); }, times}).empty());
  CHECK(contains(error_in({times, [](const Tensor& x) { return sum(x); }}),
                 "reversible: the result of g is [] float32 and its input is [4] float32"));
  CHECK(contains(error_in({times, [](const Tensor& x) { return x.to(DType::float64); }}),
                 "shape and dtype must be the same"));
  CHECK(contains(error_of([] { reversible({}, Tensor::ones({4}), Tensor::ones({3})); }),
                 "reversible: x1 is [4] float32 and x2 is [3] float32; they must be floating"));
  CHECK(contains(error_of([&] {
                   Tape tape;
                   const Tensor outside = times(Tensor::ones({4}));
                   reversible({{[&](const Tensor& x) { return x * outside; }, times}}, outside, outside);
                 }),
                 "was not given to recompute() or reversible()"));
  Tensor read = Tensor::ones({4});
  CHECK(contains(error_of([&] {
                   Tape tape;
                   const Tensor y = sum(reversible({{[&](const Tensor& x) { return x * read; }, times}}, read, read));
                   read.fill_(2);
                   tape.backward(y);
                 }),
                 "reversible: a tensor that its derivative needs, [4] float32, was written to before backward()"));
}
