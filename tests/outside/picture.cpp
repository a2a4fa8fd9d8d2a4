// Draws the losses of a run with the installed component only.
#include <heed/optim/run/result.hpp>
#include <heed/plot/plot.hpp>

int main(int, char** argv) {
  heed::RunResult result;
  result.steps = 3;
  result.history.losses = {3, 2, 1.5};
  result.history.validation_losses = {{2, 2.2}, {3, 1.7}};
  heed::plot_losses(argv[1], result, 1.2);
}
