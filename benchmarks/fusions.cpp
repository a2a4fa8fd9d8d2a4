// Gain of fused ops over the same computation in several ops, at the sizes of a step of `nano` and of `gpt2`. Prints
// the time of both passes, and the memory in use after forward (the result and the tensors saved for backward).
//
//   bench_fusions [--threads N] [--dtype f32|bf16]
//
// bf16: products with rounded operands, as set by MatmulPrecision.
#include <cmath>
#include <cstdio>
#include <functional>
#include <heed/heed.hpp>
#include <string>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

struct Cost {
  std::vector<double> seconds;
  double mebibytes = 0;  // of the result and the tensors saved for backward
};

// Runs f and the gradients of all inputs once.
void run(const Function& f, const Tensors& inputs, Cost& cost) {
  const auto before = static_cast<double>(memory_use().current);
  const double start = benchmarks::seconds();
  {
    Tape tape;
    Tensors watched;
    for (const Tensor& x : inputs) watched.push_back(tape.watch(x));
    const Tensor y = f(watched);
    cost.mebibytes = (static_cast<double>(memory_use().current) - before) / 1048576;
    tape.backward(y, Tensor::ones(y.shape()));
  }
  cost.seconds.push_back(benchmarks::seconds() - start);
}

// Alternates both functions for about half a second, after an uncounted run of each.
void compare(const char* what, const Tensors& inputs, const Function& one, const Function& several) {
  Cost fused, apart, warm;
  run(one, inputs, warm), run(several, inputs, warm);
  for (const double start = benchmarks::seconds(); fused.seconds.size() < 5 || benchmarks::seconds() - start < 0.5;)
    run(one, inputs, fused), run(several, inputs, apart);
  const double a = benchmarks::median(fused.seconds), b = benchmarks::median(apart.seconds);
  std::printf("  %-44s%9.3f ms%9.3f ms%7.2fx%9.1f MiB%9.1f MiB\n", what, a * 1e3, b * 1e3, b / a, fused.mebibytes,
              apart.mebibytes);
  std::fflush(stdout);
}

// [B, T, 3 C] -> q, k and v [B, H, T, C / H], views of qkv.
Tensors heads_of(const Tensor& qkv, Index heads) {
  const Index width = qkv.dim(2) / 3;
  Tensors x;
  for (Index i = 0; i < 3; ++i) x.push_back(split_heads(qkv.slice(2, i * width, (i + 1) * width), heads));
  return x;
}

void measure(const char* title, Index batch, Index length, Index width, Index heads, Index vocabulary) {
  std::printf("\n%s: %ld texts of %ld tokens, width %ld, %ld heads, vocabulary %ld\n  %-44s%12s%12s%8s%13s%13s\n",
              title, long{batch}, long{length}, long{width}, long{heads}, long{vocabulary}, "", "one op", "several", "",
              "one op", "several");
  Rng rng(1);
  const auto random = [&](const Shape& shape) { return rng.normal(shape, 0, 0.02); };
  const Tensor x = rng.normal({batch, length, width}), qkv = rng.normal({batch, length, 3 * width});
  const Tensor gain = Tensor::ones({width}), bias = Tensor::zeros({width});

  compare(
      "a product and its bias", {x, random({3 * width, width}), random({3 * width})},
      [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
      [](const Tensors& in) { return linear(in[0], in[1], Tensor()) + in[2]; });
  compare(
      "feed-forward network with GELU",
      {x, random({4 * width, width}), random({4 * width}), random({width, 4 * width}), random({width})},
      [](const Tensors& in) { return feed_forward(in[0], in[1], in[2], in[3], in[4], Activation::gelu); },
      [](const Tensors& in) { return linear(gelu(linear(in[0], in[1], in[2])), in[3], in[4]); });
  compare(
      "attention reads q, k and v in the product", {qkv},
      [&](const Tensors& in) {
        const Tensors h = heads_of(in[0], heads);
        return attention(h[0], h[1], h[2], {.causal = true});
      },
      [&](const Tensors& in) {  // copies of q, k and v with the head axis outside
        const Tensors h = heads_of(in[0], heads);
        return attention(h[0].contiguous(), h[1].contiguous(), h[2].contiguous(), {.causal = true});
      });
  const Tensor future = triu(Tensor::full({length, length}, -1e9), 1);
  compare(
      "causal softmax attention", {qkv},
      [&](const Tensors& in) {
        const Tensors h = heads_of(in[0], heads);
        return attention(h[0], h[1], h[2], {.causal = true});
      },
      [&](const Tensors& in) {
        const Tensors h = heads_of(in[0], heads);
        const double scale = 1 / std::sqrt(static_cast<double>(width / heads));
        return matmul(softmax(matmul(h[0], h[1].transpose(2, 3)) * scale + future, -1), h[2]);
      });
  compare(
      "layer norm", {x, gain, bias}, [](const Tensors& in) { return layer_norm(in[0], in[1], in[2]); },
      [](const Tensors& in) {
        const Tensor centred = in[0] - mean(in[0], {-1}, true);
        return centred / sqrt(mean(centred * centred, {-1}, true) + 1e-5) * in[1] + in[2];
      });
  const Tensor targets = rng.integers({batch, length}, 0, vocabulary);
  compare(
      "logits and their loss", {x, random({vocabulary, width})},
      [&](const Tensors& in) { return linear_cross_entropy(in[0], in[1], Tensor(), targets); },
      [&](const Tensors& in) { return cross_entropy(linear(in[0], in[1], Tensor()), targets); });
}

}  // namespace

int main(int argc, char** argv) {
  DType dtype = DType::float32;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string a = argv[i], value = argv[i + 1];
    if (a == "--threads")
      set_threads(std::stoi(value));
    else if (a == "--dtype" && value == "bf16")
      dtype = DType::bfloat16;
  }
  const MatmulPrecision precision(dtype);
  std::printf("%s, %s products, %d threads: both passes, in turn\n", arch(), std::string(name_of(dtype)).c_str(),
              threads());
  measure("nano", 12, 64, 128, 4, 65);
  measure("gpt2", 4, 64, 768, 12, 50257);
}
