// Speed of linear() with quantized weights, beside float32 and bfloat16: bytes of the weight read per second for one
// row (decoding), and GFLOP/s for many rows (prompts, training).
//   bench_quantized [threads]
#include <cstdio>
#include <cstdlib>
#include <heed/autograd/matmul.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <vector>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

// The blocks of q4_0 and q4_1 are zeros: their values do not affect the time.
Tensor weight_of(Index out, Index in, DType type, Rng& rng) {
  const bool rounds = !is_quantized(type) || type == DType::q8_0;
  return rounds ? rng.normal({out, in}).to(type) : Tensor::zeros({out, in}, type);
}

// Seconds of a product with each of several weights, which together exceed the caches.
double seconds_of(Index rows, Index out, Index in, DType type, Index bytes) {
  Rng rng(1);
  const Tensor x = rng.normal({rows, in});
  std::vector<Tensor> weights;
  const auto size = static_cast<Index>(bytes_of(type, out * in));
  for (Index i = 0; i < std::max<Index>(1, bytes / size); ++i) weights.push_back(weight_of(out, in, type, rng));
  return benchmarks::median_seconds([&] {
           for (const Tensor& w : weights) linear(x, w, Tensor());
         }) /
         static_cast<double>(weights.size());
}

void measure(Index out, Index in) {
  for (const DType type : {DType::float32, DType::bfloat16, DType::q8_0, DType::q4_0, DType::q4_1}) {
    const auto numbers = static_cast<double>(out * in), bytes = static_cast<double>(bytes_of(type, out * in));
    const double one = seconds_of(1, out, in, type, Index{200} << 20),
                 four = seconds_of(4, out, in, type, Index{200} << 20), many = seconds_of(512, out, in, type, 1);
    std::printf("[%lld, %lld] %-8s 1 row %6.1f GB/s %6.1f G weights/s; 4 rows %6.1f; 512 rows %6.0f GFLOP/s\n",
                static_cast<long long>(out), static_cast<long long>(in), std::string(name_of(type)).c_str(),
                bytes / one / 1e9, numbers / one / 1e9, numbers / four / 1e9, 2 * 512 * numbers / many / 1e9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_threads(std::atoi(argv[1]));
  const AwakeThreads awake;
  std::printf("%d threads, %s; memory %.1f GB/s\n", threads(), arch(), benchmarks::read_bandwidth(threads()) / 1e9);
  measure(1536, 576);
  measure(4096, 4096);
}
