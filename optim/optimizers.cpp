#include <heed/optim/optimizers.hpp>

namespace heed {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lion"};
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const ParameterGroups& p, const OptimizerOptions& o) {
  if (name == "sgd")
    return std::make_unique<SGD>(
        p, SGDOptions{.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay, .nesterov = o.momentum > 0});
  if (name == "adam")
    return std::make_unique<Adam>(p, AdamOptions{.lr = o.lr, .betas = o.betas, .weight_decay = o.weight_decay});
  if (name == "adamw")
    return std::make_unique<AdamW>(p, AdamWOptions{.lr = o.lr, .betas = o.betas, .weight_decay = o.weight_decay});
  if (name == "rmsprop")
    return std::make_unique<RMSprop>(
        p, RMSpropOptions{.lr = o.lr, .weight_decay = o.weight_decay, .momentum = o.momentum});
  if (name == "adagrad")
    return std::make_unique<Adagrad>(p, AdagradOptions{.lr = o.lr, .weight_decay = o.weight_decay});
  if (name == "lion")
    return std::make_unique<Lion>(p, LionOptions{.lr = o.lr, .betas = o.betas, .weight_decay = o.weight_decay});
  std::string all;
  for (const std::string& n : optimizer_names()) all += (all.empty() ? "" : ", ") + n;
  fail("optimizer: the name is '", std::string(name), "'; it must be one of ", all);
}

}  // namespace heed
