// Tutorial 6: an op of your own. One function: check the input, compute, and record() how to take the derivative. This
// is all there is to heed's own ops too, but that its elementwise ones share one function, and are a row each of
// core/kernels/elementwise_ops.hpp. Nothing has to be registered anywhere.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

// Plain loops over numbers, for float and double. Forward and backward stand together:
//   y = x + sin(x)^2 (the «snake» of Ziyin, Hartwig, Ueda 2020, which lets a network learn what repeats)
//   dy/dx = 1 + 2 sin(x) cos(x) = 1 + sin(2 x), so that dx = dy * (1 + sin(2 x)) by the chain rule
template <class T>
void snake_forward(T* y, const T* x, Index n) {
  for (Index i = 0; i < n; ++i) y[i] = x[i] + std::sin(x[i]) * std::sin(x[i]);
}
template <class T>
void snake_backward(T* dx, const T* dy, const T* x, Index n, bool accumulate) {
  for (Index i = 0; i < n; ++i) dx[i] = (accumulate ? dx[i] : 0) + dy[i] * (1 + std::sin(2 * x[i]));
}

// Any shape, float32 or float64.
Tensor snake(In input) {
  const bool fits = input->defined() && (input.dtype() == DType::float32 || input.dtype() == DType::float64);
  check(fits, input.where(), "snake: x is ", input.tensor(), "; it must be float32 or float64");
  const Tensor x = input->dense();  // in row-major order without gaps: loops over pointers may follow
  Tensor y = Tensor::empty_like(x);
  const bool single = x.dtype() == DType::float32;
  if (single)
    snake_forward(y.ptr<float>(), x.ptr<float>(), x.numel());
  else
    snake_forward(y.ptr<double>(), x.ptr<double>(), x.numel());

  // record(name, place, output, inputs, what backward needs, derivative). The closure captures no tensor: what it needs
  // is saved, so that the tape can tell its size and whether somebody wrote to it before backward.
  record("snake", input.where(), y, {input}, saved(x), [single](Grads& d, const Tensor& dy, const Tensor& kept) {
    if (const Target t = d.dense(0)) {  // memory for the gradient of input 0; false if nobody wants it
      if (single)
        snake_backward(t.gradient.ptr<float>(), dy.ptr<float>(), kept.ptr<float>(), dy.numel(), t.accumulate);
      else
        snake_backward(t.gradient.ptr<double>(), dy.ptr<double>(), kept.ptr<double>(), dy.numel(), t.accumulate);
    }
  });
  return y;
}

// The same op with a slip: the factor 2 of the chain rule is lost. It also shows the short form, add(), for derivatives
// that are made of ops.
Tensor wrong_snake(In x) {
  Tensor y = snake(x->detach());
  record("wrong_snake", x.where(), y, {x}, saved(x.tensor()),
         [](Grads& d, const Tensor& dy, const Tensor& kept) { d.add(0, dy * (1.0 + sin(kept))); });
  return y;
}

int lesson() {
  Parameter w(Tensor::from({-1, 0, 0.5, 2}));
  Tape tape;
  const Tensor loss = sum(snake(w));
  tape.backward(loss);
  std::printf("     x    dy/dx   1 + sin(2 x)\n");
  for (Index i = 0; i < w.numel(); ++i)
    std::printf("%6.2f  %7.4f   %7.4f\n", w.at({i}), w.grad().at({i}), 1 + std::sin(2 * w.at({i})));

  // Differences need many digits: gradcheck wants float64.
  const Tensor x = Rng(1).normal({3, 4}, 0, 1, DType::float64);
  gradcheck([](const std::vector<Tensor>& in) { return snake(in[0]); }, {x});
  gradcheck([](const std::vector<Tensor>& in) { return snake(in[0].t()); }, {x});  // of a view, too
  std::printf("\ngradcheck agrees with snake\n");

  // A wrong derivative does not crash and does not even look bad: the model only learns worse. gradcheck tells.
  try {
    gradcheck([](const std::vector<Tensor>& in) { return wrong_snake(in[0]); }, {x});
    std::printf("gradcheck overlooked the wrong derivative\n");
    return 1;
  } catch (const Error& e) {
    std::printf("wrong_snake: %s\n", e.what());
  }

  // And check() above answers wrong input with the line of the caller.
  try {
    snake(Tensor::arange(3));
  } catch (const Error& e) {
    std::printf("wrong input: %s\n", e.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 6: an op of your own, with its derivative, checked", argc, argv, lesson);
}
