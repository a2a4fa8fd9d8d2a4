// The table of optimizers by name.
#include <heed/core/names.hpp>
#include <heed/optim/optimizers/optimizers.hpp>

namespace heed {

namespace {

using Made = std::unique_ptr<Optimizer>;
using Groups = ParameterGroups;
using Options = OptimizerOptions;

// An optimizer by name: numbers of state per number of a large parameter, whether momentum adds one, and a function
// that makes the optimizer.
struct Row {
  const char* name;
  int states;
  bool has_momentum;
  Made (*make)(const Groups& p, const Options& o);
};

const Row kRows[] = {
    {"sgd", 0, true,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<SGD>(
           p,
           SGDOptions{.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay, .nesterov = o.momentum > 0});
     }},
    {"adam", 2, false,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<Adam>(p, AdamOptions{.lr = o.lr, .betas = o.betas, .weight_decay = o.weight_decay});
     }},
    {"adamw", 2, false,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<AdamW>(p, AdamWOptions{.lr = o.lr, .betas = o.betas, .weight_decay = o.weight_decay});
     }},
    {"rmsprop", 1, true,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<RMSprop>(
           p, RMSpropOptions{.lr = o.lr, .weight_decay = o.weight_decay, .momentum = o.momentum});
     }},
    {"adagrad", 1, false,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<Adagrad>(p, AdagradOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"lion", 1, false,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<Lion>(p, LionOptions{.lr = o.lr, .betas = o.betas, .weight_decay = o.weight_decay});
     }},
    {"adafactor", 0, false,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<Adafactor>(p, AdafactorOptions{.lr = o.lr, .weight_decay = o.weight_decay});
     }},
    {"muon", 1, false,
     [](const Groups& p, const Options& o) -> Made {
       return std::make_unique<Muon>(p, MuonOptions{.lr = o.lr,
                                                    .weight_decay = o.weight_decay,
                                                    .momentum = o.momentum,
                                                    .adjust_lr_fn = AdjustLr::match_rms_adamw,
                                                    .betas = o.betas});
     }},
};

const Row& row(std::string_view name) { return detail::row_named(name, "optimizer: the name", kRows, &Row::name); }

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = detail::names_of(kRows, &Row::name);
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const ParameterGroups& parameters,
                                          const OptimizerOptions& options) {
  return row(name).make(parameters, options);
}

int optimizer_states(std::string_view name, const OptimizerOptions& options) {
  const Row& r = row(name);
  return r.states + (r.has_momentum && options.momentum > 0);
}

}  // namespace heed
