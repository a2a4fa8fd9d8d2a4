// The table of optimizers by name.
#include <heed/core/names.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <type_traits>

namespace heed {

namespace {

using Made = std::unique_ptr<Optimizer>;

// An optimizer by name: numbers of state per number of a large parameter, whether momentum adds one, and a function
// that makes the optimizer.
struct Row {
  const char* name;
  int states;
  bool has_momentum;
  Made (*make)(const ParameterGroups& parameters, const OptimizerOptions& options);
};

// Makes an optimizer of type T, whose options of type Own get those values of `o` that they have a member for.
template <class T, class Own>
Made make(const ParameterGroups& parameters, const OptimizerOptions& o) {
  Own own{.lr = o.lr, .weight_decay = o.weight_decay};
  if constexpr (requires { own.betas; }) own.betas = o.betas;
  if constexpr (requires { own.momentum; }) own.momentum = o.momentum;
  if constexpr (std::is_same_v<T, SGD>) own.nesterov = o.momentum > 0;
  if constexpr (std::is_same_v<T, Muon>) own.adjust_lr_fn = AdjustLr::match_rms_adamw;
  return std::make_unique<T>(parameters, own);
}

const Row kRows[] = {
    {"sgd", 0, true, make<SGD, SGDOptions>},
    {"adam", 2, false, make<Adam, AdamOptions>},
    {"adamw", 2, false, make<AdamW, AdamWOptions>},
    {"rmsprop", 1, true, make<RMSprop, RMSpropOptions>},
    {"adagrad", 1, false, make<Adagrad, AdagradOptions>},
    {"lion", 1, false, make<Lion, LionOptions>},
    {"adafactor", 0, false, make<Adafactor, AdafactorOptions>},
    {"muon", 1, false, make<Muon, MuonOptions>},
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
