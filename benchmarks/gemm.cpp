// Speed of matrix products: GFLOP/s, and the share of the machine's multiply-add peak in the same run.
//   bench_gemm [threads]
#include <cstdio>
#include <cstdlib>
#include <heed/core/gemm/gemm.hpp>
#include <heed/core/parallel.hpp>
#include <vector>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

struct Case {
  const char* name;
  Index m, n, k;
  bool a_turned, b_turned;  // stored as [k, m], [n, k]
};

// A step of a small language model (width 128, context 64 x 12), larger models, and squares.
constexpr Case kCases[] = {
    {"square 256", 256, 256, 256, false, false},
    {"square 512", 512, 512, 512, false, false},
    {"square 512, b^T", 512, 512, 512, false, true},
    {"square 1024", 1024, 1024, 1024, false, false},
    {"square 2048, b^T", 2048, 2048, 2048, false, true},
    {"nano qkv", 768, 384, 128, false, true},
    {"nano qkv, dx", 768, 128, 384, false, false},
    {"nano qkv, dw", 384, 128, 768, true, false},
    {"nano up", 768, 512, 128, false, true},
    {"nano up, dx", 768, 128, 512, false, false},
    {"nano up, dw", 512, 128, 768, true, false},
    {"nano down", 768, 128, 512, false, true},
    {"nano down, dx", 768, 512, 128, false, false},
    {"nano down, dw", 128, 512, 768, true, false},
    {"nano head", 768, 65, 128, false, true},
    {"nano head, dx", 768, 128, 65, false, false},
    {"nano head, dw", 65, 128, 768, true, false},
    {"base qkv", 4096, 1536, 512, false, true},
    {"base qkv, dx", 4096, 512, 1536, false, false},
    {"base qkv, dw", 1536, 512, 4096, true, false},
    {"scores of a head", 64, 64, 32, false, true},
    {"long scores of a head", 256, 256, 64, false, true},
    {"generation, one row", 1, 1536, 512, false, true},
    {"generation, four rows", 4, 1536, 512, false, true},
};

double flops_of(const Case& c, DType type) {
  const std::size_t size = size_of(type), a_n = static_cast<std::size_t>(c.m * c.k),
                    b_n = static_cast<std::size_t>(c.k * c.n);
  std::vector<char> a(a_n * size), b(b_n * size), out(static_cast<std::size_t>(c.m * c.n) * 8);
  const auto fill = [&](std::vector<char>& x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      const float v = static_cast<float>(i * 7 % 13) / 13 - 0.5f;
      if (type == DType::float32) reinterpret_cast<float*>(x.data())[i] = v;
      if (type == DType::float64) reinterpret_cast<double*>(x.data())[i] = v;
      if (type == DType::bfloat16) reinterpret_cast<bfloat16*>(x.data())[i] = bfloat16(v);
    }
  };
  fill(a, a_n);
  fill(b, b_n);
  Gemm g{.m = c.m, .n = c.n, .k = c.k, .c = out.data(), .ldc = c.n};
  g.a = {a.data(), type, c.a_turned ? 1 : c.k, c.a_turned ? c.m : 1};
  g.b = {b.data(), type, c.b_turned ? 1 : c.n, c.b_turned ? c.k : 1};
  return 2.0 * static_cast<double>(c.m * c.n * c.k) / benchmarks::median_seconds([&] { gemm(g); }, 0.1);
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  for (const DType type : {DType::float32, DType::float64, DType::bfloat16}) {
    // bf16 is compared with the float32 peak if the machine has no bf16 dot product.
    const double peak = benchmarks::peak_flops(type, threads());
    std::printf("%s, %s, %d threads: peak %.0f GFLOP/s\n", arch(), std::string(name_of(type)).c_str(), threads(),
                peak / 1e9);
    for (const Case& c : kCases) {
      const double rate = flops_of(c, type);
      std::printf("  %-24s %5ld x %5ld x %5ld %8.1f GFLOP/s %5.1f%%\n", c.name, long{c.m}, long{c.n}, long{c.k},
                  rate / 1e9, 100 * rate / peak);
    }
  }
}
