// Tutorial 2: the tape, heed's reverse-mode autodiff. While a Tape exists, every op records how to compute its
// derivative. backward() runs the recorded steps from the last to the first, by the chain rule.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>
#include <iostream>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

// y = sum over i of x_i sin(w_i^2). By hand, dy/dw_i = x_i cos(w_i^2) * 2 w_i.
Tensor f(In x, In w) { return sum(x * sin(square(w))); }

double derivative_by_hand(double x, double w) { return x * std::cos(w * w) * 2 * w; }

int lesson() {
  // A Parameter is a tensor that is trained; gradients of losses are added up in it. float64, to compare many digits.
  Parameter w(Tensor::from<double>({0.5, 1.0, 1.5}));
  w.set_path("w");  // named_parameters(model) does this for a whole model; error messages and print() show the path
  const Tensor x = Tensor::from<double>({1, -2, 3});  // a constant

  {
    Tape tape;  // this thread records until the tape is destroyed
    const Tensor y = f(x, w);
    std::printf("y = %.10f\n\n", y.item());

    // Prints one line per op. «-» marks a constant: x gets no gradient. Each step keeps what its derivative needs:
    // square its input w (a parameter, which exists anyway), sin its input w^2, mul the factor x, sum nothing.
    tape.print(std::cout);

    // Runs sum, mul, sin, square. Each step turns the gradient of its output into the gradients of its inputs, then is
    // freed.
    tape.backward(y);
  }  // recording ends

  std::printf("\n i   dy/dw by the tape           by hand\n");
  const Tensor gradient = w.grad();
  double worst = 0;
  for (Index i = 0; i < w.numel(); ++i) {
    const double hand = derivative_by_hand(x.at({i}), w.at({i})), taped = gradient.at({i});
    worst = std::max(worst, std::abs(taped - hand));
    std::printf("%2d   %17.12f %17.12f\n", static_cast<int>(i), taped, hand);
  }
  std::printf("they agree to 1e-14: %s\n\n", worst < 1e-14 ? "yes" : "no");

  // A second backward adds to the gradient: gradients of several batches can be summed before a step.
  {
    Tape tape;
    tape.backward(f(x, w));
  }
  std::printf("dy/dw_0 after a second tape: %.6f (twice the first)\n", w.grad().at({0}));
  w.zero_grad();
  std::printf("after zero_grad() there is a gradient: %s\n\n", w.grad().defined() ? "yes" : "no");

  // watch() requests the gradient of a tensor that is not a parameter, here of an intermediate result.
  {
    Tape tape;
    const Tensor squares = tape.watch(square(w));
    tape.backward(sum(x * sin(squares)));
    std::cout << "dy/d(w^2) = x cos(w^2) = " << tape.grad(squares) << "\n\n";
  }

  // gradcheck compares the gradients of the tape with difference quotients (f(w + h) - f(w - h)) / 2h, and throws Error
  // where they differ. It needs no formula by hand: test every function that you differentiate with it.
  gradcheck([&](const std::vector<Tensor>& in) { return f(in[0], in[1]); }, {x, w.detach()});
  std::printf("gradcheck agrees, for x and for w\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 2: record a function on a tape, print the tape, compute the derivative", argc,
                                argv, lesson);
}
