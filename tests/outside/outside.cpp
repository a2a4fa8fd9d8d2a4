// Trains one linear layer with the installed headers and library only.
#include <heed/core/array.hpp>
#include <heed/heed.hpp>
#include <iostream>

int main() {
  using namespace heed;
  Rng rng(1);
  Linear layer(3, 1, rng);
  AdamW optimizer(named_parameters(layer), {.lr = 0.05, .weight_decay = 0});
  const Tensor x = rng.normal({64, 3}), y = matmul(x, Tensor::from({1, -2, 3}, {3, 1}));
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    Tape tape;
    const Tensor l = mse_loss(layer(x), y);
    loss = l.item();
    tape.backward(l);
    optimizer.step();
    optimizer.zero_grad();
  }
  std::cout << "loss " << loss << ", weight " << layer.weight << ", sum " << xt::sum(layer.weight.array<float>())()
            << "\n";
  return loss < 1e-3 ? 0 : 1;
}
