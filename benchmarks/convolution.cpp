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
#include <vector>

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

// The median times of a convolution and of products of the same sizes.
struct Times {
  double convolution, products;
};

// Runs both in turn, so that other load of the machine affects both alike.
template <class F, class G>
Times in_turn(const F& convolution, const G& products) {
  std::vector<double> mine, theirs;
  convolution(), products();
  for (const double start = benchmarks::seconds(); mine.size() < 5 || benchmarks::seconds() - start < 0.6;) {
    const double a = benchmarks::seconds();
    convolution();
    const double b = benchmarks::seconds();
    products();
    mine.push_back(b - a), theirs.push_back(benchmarks::seconds() - b);
  }
  return {benchmarks::median(mine), benchmarks::median(theirs)};
}

// The products y = x w^T, dx = dy w and dw = dy^T x with x [rows, k] and y [rows, n].
struct Products {
  Tensor x, w, y, dx, dw;

  Products(Index rows, Index n, Index k) {
    Rng rng(1);
    x = rng.normal({rows, k}), w = rng.normal({n, k}), y = rng.normal({rows, n});
    dx = Tensor::empty({rows, k}), dw = Tensor::empty({n, k});
  }
  void forward() const { product(x, w.t(), y); }
  void step() const {
    forward();
    product(y, w, dx);
    product(y.t(), x, dw);
  }

 private:
  static MatrixIn matrix(const Tensor& t) { return {t.raw(), DType::float32, t.strides()[0], t.strides()[1]}; }
  static void product(const Tensor& a, const Tensor& b, const Tensor& c) {
    gemm({.m = a.dim(0), .n = b.dim(1), .k = a.dim(1), .a = matrix(a), .b = matrix(b), .c = c.raw(), .ldc = c.dim(1)});
  }
};

// A causal convolution, forward, and with backward.
struct Convolution {
  Conv1dOptions options;
  Tensor x, dy;
  Parameter w, b;

  Convolution(const Case& c, Index groups) : options{.dilation = c.dilation, .groups = groups, .causal = true} {
    Rng rng(1);
    x = rng.normal({c.batch, c.length, c.channels}), dy = rng.normal({c.batch, c.length, c.filters});
    w = Parameter(rng.normal({c.filters, c.channels / groups, c.kernel})), b = Parameter(rng.normal({c.filters}));
  }
  void forward() const { conv1d(x.t(), w, b, options); }
  void step() {
    Tape tape;
    const Tensor watched = tape.watch(x);
    tape.backward(conv1d(watched.t(), w, b, options).t(), dy);
    w.zero_grad(), b.zero_grad();
  }
};

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  std::printf("%s, float32, %d threads: GFLOP/s of the convolution and of products of the same sizes\n", arch(),
              threads());
  std::printf("  %-24s %28s %28s\n", "", "forward", "forward and backward");
  for (const Case& c : kCases) {
    const Index rows = c.batch * c.length, depth = c.kernel * c.channels;
    const Products products(rows, c.filters, depth);
    Convolution mine(c, 1);
    const Times forward = in_turn([&] { mine.forward(); }, [&] { products.forward(); });
    const Times step = in_turn([&] { mine.step(); }, [&] { products.step(); });
    const double flops = 2e-9 * static_cast<double>(rows * depth * c.filters);
    std::printf("  %-24s %8.1f of %8.1f %7.1f%% %8.1f of %8.1f %7.1f%%\n", c.name, flops / forward.convolution,
                flops / forward.products, 100 * forward.products / forward.convolution, 3 * flops / step.convolution,
                3 * flops / step.products, 100 * step.products / step.convolution);
  }
  const double rate = peak_bandwidth();
  std::printf("depthwise, kernel 4: GB/s of reading x and writing y, and the share of copying\n");
  for (const Index channels : {512, 2048, 8192}) {
    const Convolution mine({"", 1, 4096, channels, channels, 4, 1}, channels);
    const double seconds = benchmarks::median_seconds([&] { mine.forward(); });
    const double bytes = 8e-9 * 4096 * static_cast<double>(channels);
    std::printf("  %5ld channels %8.1f GB/s %7.1f%%\n", long{channels}, bytes / seconds, 1e11 * bytes / seconds / rate);
  }
}
