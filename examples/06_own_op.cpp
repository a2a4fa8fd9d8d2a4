// Tutorial 6: writing an op. One function checks the input, computes, and calls record() with the derivative. Ops of
// the library are written the same way, but elementwise ops share one function and are one row each of
// core/kernels/elementwise/ops.hpp. Nothing has to be registered.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

// Plain loops over numbers, for float and double, forward first:
//   y = x + sin(x)^2 (the «snake» of Ziyin, Hartwig, Ueda 2020, with which a network learns periodic functions)
//   dy/dx = 1 + 2 sin(x) cos(x) = 1 + sin(2 x), so that dx = dy * (1 + sin(2 x)) by the chain rule
template <class T>
void snake_forward(T* y, const T* x, Index n) {
  for (Index i = 0; i < n; ++i) y[i] = x[i] + std::sin(x[i]) * std::sin(x[i]);
}
template <class T>
void snake_backward(T* dx, const T* dy, const T* x, Index n, bool accumulate) {
  for (Index i = 0; i < n; ++i) dx[i] = (accumulate ? dx[i] : 0) + dy[i] * (1 + std::sin(2 * x[i]));
}

// The op: any shape, float32 or float64. Throws Error for another dtype or an undefined tensor.
Tensor snake(In input) {
  const bool fits = input->defined() && (input.dtype() == DType::float32 || input.dtype() == DType::float64);
  check(fits, input.where(), "snake: x is ", input.tensor(), "; it must be float32 or float64");
  const Tensor x = input->dense();  // row-major without gaps, so loops may use pointers
  Tensor y = Tensor::empty_like(x);
  const bool single = x.dtype() == DType::float32;
  if (single)
    snake_forward(y.ptr<float>(), x.ptr<float>(), x.numel());
  else
    snake_forward(y.ptr<double>(), x.ptr<double>(), x.numel());

  // record(name, place, output, inputs, saved tensors, derivative). The closure captures no tensor. It needs saved
  // tensors only, so the tape knows their sizes and detects writes to them before backward.
  record("snake", input.where(), y, {input}, saved(x), [single](Grads& d, const Tensor& dy, const Tensor& kept) {
    if (const Target t = d.dense(0)) {  // memory for the gradient of input 0; false if it is not needed
      if (single)
        snake_backward(t.gradient.ptr<float>(), dy.ptr<float>(), kept.ptr<float>(), dy.numel(), t.accumulate);
      else
        snake_backward(t.gradient.ptr<double>(), dy.ptr<double>(), kept.ptr<double>(), dy.numel(), t.accumulate);
    }
  });
  return y;
}

// The same op with a mistake: the factor 2 of the chain rule is missing. It also shows the short form, add(), for
// derivatives that are computed by ops.
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

  // Difference quotients need many digits, so gradcheck requires float64.
  const Tensor x = Rng(1).normal({3, 4}, 0, 1, DType::float64);
  gradcheck([](const std::vector<Tensor>& in) { return snake(in[0]); }, {x});
  gradcheck([](const std::vector<Tensor>& in) { return snake(in[0].t()); }, {x});  // also of a view
  std::printf("\ngradcheck agrees with snake\n");

  // A wrong derivative does not crash, and the results do not look wrong: the model only learns worse. gradcheck finds
  // it.
  try {
    gradcheck([](const std::vector<Tensor>& in) { return wrong_snake(in[0]); }, {x});
    std::printf("gradcheck missed the wrong derivative\n");
    return 1;
  } catch (const Error& e) {
    std::printf("wrong_snake: %s\n", e.what());
  }

  // For wrong input, check() throws Error with the line of the caller.
  try {
    snake(Tensor::arange(3));
  } catch (const Error& e) {
    std::printf("wrong input: %s\n", e.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 6: your own op with its derivative, checked by gradcheck", argc, argv,
                                lesson);
}
