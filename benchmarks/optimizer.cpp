// Speed of the optimizers on 10.7 million float32 parameters (the baby preset), compared with a copy of the same
// memory.
#include <algorithm>
#include <cstdio>
#include <heed/core/parallel.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <vector>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

constexpr Index kParameters = 10'700'000;

// The shapes of 6 transformer blocks, including many small vectors.
std::vector<Parameter> baby() {
  std::vector<Parameter> list;
  Index left = kParameters;
  const auto add = [&](const Shape& shape) {
    list.emplace_back(Tensor::full(shape, 0.02));
    left -= shape.numel();
  };
  for (int block = 0; block < 6; ++block)
    for (const Shape& s :
         std::vector<Shape>{{384}, {384}, {1152, 384}, {384, 384}, {384}, {384}, {1536, 384}, {384, 1536}})
      add(s);
  add({left / 384, 384});
  for (Parameter& p : list) {
    detail::ParameterInfo& info = *p.storage()->parameter;
    info.gradient = Tensor::full(p.shape(), 1e-3);
    info.has_gradient = true;
  }
  return list;
}

void row(const char* what, double time, double bytes, double copy_rate) {
  std::printf("| %-28s | %7.2f | %6.1f | %5.2f |\n", what, time * 1e3, bytes / time / 1e9,
              bytes / time / 1e9 / copy_rate);
}

void measure(int thread_count) {
  set_threads(thread_count);
  std::vector<Parameter> model = baby();
  std::vector<Parameter*> list;
  for (Parameter& p : model) list.push_back(&p);
  Index items = 0;
  for (const Parameter& p : model) items += p.numel();
  const double n = static_cast<double>(items);

  const Tensor from = Tensor::full({items}, 1);
  Tensor to = Tensor::zeros({items});
  const double copy_time = benchmarks::median_seconds([&] {
    parallel_for(items, 1 << 16, [&](Index b, Index e) {
      std::copy(from.ptr<float>() + b, from.ptr<float>() + e, to.ptr<float>() + b);
    });
  });
  const double copy_rate = 8 * n / copy_time / 1e9;
  std::printf(
      "\n%s, %d threads, %.1f million float32 parameters in %zu tensors\n\n| pass | ms | GB/s | share of copy "
      "|\n|---|---|---|---|\n",
      arch(), thread_count, n / 1e6, model.size());
  row("copy", copy_time, 8 * n, copy_rate);
  // Bytes per item: each array is read once, and written once if it changes.
  const auto optimizer_row = [&](const char* name, const char* what, double bytes) {
    const auto optimizer = make_optimizer(name, list, {.lr = 1e-5});
    row(what, benchmarks::median_seconds([&] { optimizer->step(); }), bytes * n, copy_rate);
  };
  optimizer_row("adamw", "AdamW (7 streams)", 28);
  optimizer_row("sgd", "SGD, momentum (5)", 20);
  optimizer_row("lion", "Lion (5)", 20);
  optimizer_row("adafactor", "Adafactor (3)", 12);
  AdamW optimizer(list, {.lr = 1e-5});
  row("norm of the gradients (1)", benchmarks::median_seconds([&] { optimizer.grad_norm(); }), 4 * n, copy_rate);
  row("AdamW, clipped (8)", benchmarks::median_seconds([&] { optimizer.clipped_step(1.0); }), 32 * n, copy_rate);
}

}  // namespace

int main() {
  std::printf("Times are medians; measure on an idle machine.\n");
  measure(1);
  if (available_threads() > 1) measure(available_threads());
}
