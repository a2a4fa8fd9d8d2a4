// The names of linear maps for PEFT.
#include <heed/io/pretrained.hpp>
#include <heed/io/pretrained/family.hpp>

namespace heed {

using namespace detail::pretrained;

PeftNames peft_names(const Pretrained& p) {
  const Family* family = family_for(p.config, false);
  require(family != nullptr, "peft_names: no family of published models has the options of this model");
  const std::vector<Weight> weights = family->weights(plain_config(p.config).options);
  PeftNames names;
  names.module = [weights, prefix = std::string(family->prefix)](const std::string& layer,
                                                                 int part) -> std::optional<std::string> {
    for (const Weight& w : weights) {
      const std::size_t number = w.heed.find('#');
      if (number == w.heed.npos || w.part != part) continue;
      const std::string before = w.heed.substr(0, number), after = w.heed.substr(number + 1);
      if (!layer.starts_with(before) || !(layer + ".weight").ends_with(after)) continue;
      const std::string block = layer.substr(number, layer.size() + 7 - before.size() - after.size());
      std::string module = w.hf.substr(0, w.hf.rfind('.'));
      module.replace(module.find('#'), 1, block);
      return prefix + module;
    }
    return std::nullopt;
  };
  names.fan_in_fan_out = std::string(family->name) == "gpt2";
  if (!p.config.options.causal) names.task_type = "FEATURE_EXTRACTION", names.others = {"pooler.dense"};
  return names;
}

}  // namespace heed
