// Speed of convolutions: GFLOP/s forward, and forward with backward, and the ratio to matrix products of the same sizes
// in the same run. Depthwise convolutions: the share of the rate of copying memory.
//   bench_convolution [threads]
#include <cstdio>
#include <cstdlib>
#include <heed/autograd/convolution.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/gemm/gemm.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

struct Case {
  const char* name;
  Index batch, length, channels, filters, kernel, dilation;
};

// ConvS2S (Gehring et al. 2017): kernels 3 and 5, and twice the filters for its gates. ByteNet (Kalchbrenner et al.
// 2016): causal, 400 channels, dilations 1 to 16. Each with 1024 positions per batch or more.
constexpr Case kCases[] = {
    {"ConvS2S, 32 positions", 32, 32, 512, 1024, 3, 1},  {"ConvS2S, 128 positions", 8, 128, 512, 1024, 3, 1},
    {"ConvS2S, 512 positions", 2, 512, 512, 1024, 3, 1}, {"ConvS2S, kernel 5", 8, 128, 512, 1024, 5, 1},
    {"ConvS2S, wide", 8, 128, 1024, 2048, 3, 1},         {"ConvS2S, one sentence", 1, 32, 512, 1024, 3, 1},
    {"ByteNet, dilation 1", 4, 512, 400, 400, 3, 1},     {"ByteNet, dilation 2", 4, 512, 400, 400, 3, 2},
    {"ByteNet, dilation 4", 4, 512, 400, 400, 3, 4},     {"ByteNet, dilation 8", 4, 512, 400, 400, 3, 8},
    {"ByteNet, dilation 16", 4, 512, 400, 400, 3, 16},   {"ByteNet, 32 positions", 32, 32, 400, 400, 3, 16},
};

struct Seconds {
  double forward, step;
};

// The time of the products y = x w^T, dx = dy w and dw = dy^T x with x [rows, k] and y [rows, n].
Seconds of_products(Index rows, Index n, Index k) {
  Rng rng(1);
  const Tensor x = rng.normal({rows, k}), w = rng.normal({n, k}), y = rng.normal({rows, n});
  const Tensor dx = Tensor::empty({rows, k}), dw = Tensor::empty({n, k}), out = Tensor::empty({rows, n});
  const auto matrix = [](const Tensor& t) { return MatrixIn{t.raw(), DType::float32, t.strides()[0], t.strides()[1]}; };
  const auto product = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    gemm({.m = a.dim(0), .n = b.dim(1), .k = a.dim(1), .a = matrix(a), .b = matrix(b), .c = c.raw(), .ldc = c.dim(1)});
  };
  const double forward = benchmarks::median_seconds([&] { product(x, w.t(), out); });
  const double backward = benchmarks::median_seconds([&] {
    product(y, w, dx);
    product(y.t(), x, dw);
  });
  return {forward, forward + backward};
}

Seconds of_convolution(const Case& c, Index groups) {
  Rng rng(1);
  const Conv1dOptions options = {.dilation = c.dilation, .groups = groups, .causal = true};
  const Tensor x = rng.normal({c.batch, c.length, c.channels}), dy = rng.normal({c.batch, c.length, c.filters});
  Parameter w(rng.normal({c.filters, c.channels / groups, c.kernel})), b(rng.normal({c.filters}));
  const double forward = benchmarks::median_seconds([&] { conv1d(x.t(), w, b, options); });
  const double step = benchmarks::median_seconds([&] {
    Tape tape;
    const Tensor watched = tape.watch(x);
    tape.backward(conv1d(watched.t(), w, b, options).t(), dy);
    w.zero_grad(), b.zero_grad();
  });
  return {forward, step};
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  std::printf("%s, float32, %d threads: GFLOP/s of the convolution and of products of the same sizes\n", arch(),
              threads());
  std::printf("  %-24s %28s %28s\n", "", "forward", "forward and backward");
  for (const Case& c : kCases) {
    const Index rows = c.batch * c.length, depth = c.kernel * c.channels;
    const Seconds mine = of_convolution(c, 1), products = of_products(rows, c.filters, depth);
    const double flops = 2e-9 * static_cast<double>(rows * depth * c.filters);
    std::printf("  %-24s %8.1f of %8.1f %7.1f%% %8.1f of %8.1f %7.1f%%\n", c.name, flops / mine.forward,
                flops / products.forward, 100 * products.forward / mine.forward, 3 * flops / mine.step,
                3 * flops / products.step, 100 * products.step / mine.step);
  }
  const double rate = peak_bandwidth();
  std::printf("depthwise, kernel 4: GB/s of reading x and writing y, and the share of copying\n");
  for (const Index channels : {512, 2048, 8192}) {
    const Case c = {"", 1, 4096, channels, channels, 4, 1};
    const double bytes = 8e-9 * static_cast<double>(c.length * channels), forward = of_convolution(c, channels).forward;
    std::printf("  %5ld channels %8.1f GB/s %7.1f%%\n", long{channels}, bytes / forward, 1e11 * bytes / forward / rate);
  }
}
