// All optimizers, and making one by its name (for command lines).
#pragma once
#include <heed/optim/adafactor.hpp>
#include <heed/optim/adagrad.hpp>
#include <heed/optim/adam.hpp>
#include <heed/optim/lion.hpp>
#include <heed/optim/rmsprop.hpp>
#include <heed/optim/sgd.hpp>
#include <memory>
#include <string_view>

namespace heed {

// What optimizers have in common; each uses what it has. weight_decay counts for parameters whose group sets none.
struct OptimizerOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double momentum = 0.9;  // sgd (Nesterov's, where not 0), rmsprop
  double weight_decay = 0;
};

// "sgd", "adam", "adamw", "rmsprop", "adagrad", "lion" or "adafactor": the rows of a table in optimizers.cpp. Throws Error
// for another name.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const ParameterGroups& parameters,
                                          const OptimizerOptions& options);
const std::vector<std::string>& optimizer_names();
// Numbers that it keeps for each of a large parameter's, whose own and whose gradient's not counted: 2 for "adamw".
int optimizer_states(std::string_view name, const OptimizerOptions& options);

}  // namespace heed
