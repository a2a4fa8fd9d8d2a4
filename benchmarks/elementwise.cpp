// Speed of elementwise ops: gigabytes read and written per second, compared with a plain parallel copy in the same run.
//   bench_elementwise [threads]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <heed/core/elementwise.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/elementwise/ops.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "benchmarks/peak.hpp"

using namespace heed;
using detail::elementwise;

namespace {

double gigabytes_a_second(double bytes, const std::function<void()>& f) {
  // Small tensors are processed repeatedly, so that the clock's cost is negligible.
  const int repeats = static_cast<int>(std::max(1.0, 4e6 / bytes));
  return bytes * repeats /
         benchmarks::median_seconds(
             [&] {
               for (int i = 0; i < repeats; ++i) f();
             },
             0.15) /
         1e9;
}

void measure(const char* title, Index rows, Index columns) {
  Rng rng(1);
  const Tensor a = rng.uniform({rows, columns}, 0.5, 2), b = rng.uniform({rows, columns}, 0.5, 2),
               row = rng.uniform({columns}, 0.5, 2);
  const Tensor y = Tensor::zeros({rows, columns}), turned = rng.uniform({columns, rows}, 0.5, 2).t();
  const double one = 4.0 * static_cast<double>(rows * columns);
  const double copy = gigabytes_a_second(2 * one, [&] {
    parallel_for(a.numel(), a.numel() <= 32768 ? a.numel() : 8192, [&](Index i, Index j) {
      std::memcpy(y.ptr<float>() + i, a.ptr<float>() + i, static_cast<std::size_t>(j - i) * sizeof(float));
    });
  });
  std::printf("\n%s, %ld x %ld float32: a copy moves %.1f GB/s\n", title, static_cast<long>(rows),
              static_cast<long>(columns), copy);
  const auto line = [&](const char* name, int streams, const std::function<void()>& f) {
    const double rate = gigabytes_a_second(streams * one, f);
    std::printf("  %-22s %7.1f GB/s  %6.2f ns per element  %3.0f%% of the copy\n", name, rate, streams * 4 / rate,
                100 * rate / copy);
  };
  line("a + b", 3, [&] { elementwise(kernels::binary<"add">().forward[0], y, {a, b}); });
  line("a + row", 2, [&] { elementwise(kernels::binary<"add">().forward[0], y, {a, row}); });
  line("a * 3", 2, [&] {
    elementwise(kernels::binary<"mul">().forward[0], y, {a, detail::Operand(3, DType::float32)});
  });
  line("a + transposed", 3, [&] { elementwise(kernels::binary<"add">().forward[0], y, {a, turned}); });
  line("y += a * b", 4, [&] { elementwise(kernels::binary<"mul">().forward[0], y, {a, b}, {0, 0, true}); });
  line("a / b", 3, [&] { elementwise(kernels::binary<"div">().forward[0], y, {a, b}); });
  line("pow(a, b)", 3, [&] { elementwise(kernels::binary<"pow">().forward[0], y, {a, b}); });
  const auto function = [&](const char* name, const kernels::UnaryKernel& k, double constant = 0) {
    line(name, 2, [&] { elementwise(k.forward[0], y, {a}, {constant, 3}); });
    line("  its derivative", 3, [&] { elementwise(k.backward[0], y, {a, b}, {constant, 3}); });
  };
  function("exp", kernels::unary<"exp">());
  function("log", kernels::unary<"log">());
  function("sin", kernels::unary<"sin">());
  function("relu", kernels::unary<"relu">());
  function("tanh", kernels::unary<"tanh">());
  function("gelu", kernels::unary<"gelu">());
  function("gelu, tanh form", kernels::unary<"gelu_tanh">());
  function("silu", kernels::unary<"silu">());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_threads(std::atoi(argv[1]));
  std::printf("%s, %d threads\n", arch(), threads());
  measure("in cache", 128, 128);
  measure("an activation of nano", 768, 512);
  measure("an activation of baby", 4096, 1536);
}
