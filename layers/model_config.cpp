// Configurations as JSON.
#include <algorithm>
#include <cmath>
#include <heed/layers/model_config.hpp>
#include <nlohmann/json.hpp>

namespace heed {

const Words<FeedForwardKind>& feed_forward_kinds() {
  static const Words<FeedForwardKind> words = {{"relu", FeedForwardKind::relu},
                                               {"gelu", FeedForwardKind::gelu},
                                               {"gelu-tanh", FeedForwardKind::gelu_tanh},
                                               {"relu-squared", FeedForwardKind::relu_squared},
                                               {"silu", FeedForwardKind::silu},
                                               {"swiglu", FeedForwardKind::swiglu}};
  return words;
}
const Words<NormKind>& norm_kinds() {
  static const Words<NormKind> words = {{"layer", NormKind::layer}, {"rms", NormKind::rms}};
  return words;
}
const Words<PositionKind>& position_kinds() {
  static const Words<PositionKind> words = {{"none", PositionKind::none},
                                            {"learned", PositionKind::learned},
                                            {"sinusoidal", PositionKind::sinusoidal},
                                            {"rope", PositionKind::rope},
                                            {"relative", PositionKind::relative}};
  return words;
}

struct OptionFields::Json {
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();
  std::string source = {};
  bool reads = false;

  // Writes the value, or reads a value for which good(JSON) is true.
  template <class T, class Good>
  void move(const std::string& name, T& value, const Good& good, const std::string& must_be) {
    if (!reads) return fields[name] = value, void();
    require(fields.contains(name), source, ": the configuration lacks ", name);
    if (!good(fields[name])) refuse(name, must_be);
    fields[name].get_to(value);
  }
  [[noreturn]] void refuse(const std::string& name, const std::string& must_be) const {
    // Lists are not printed: a list may be nested so deeply that printing exhausts the stack.
    const nlohmann::ordered_json& given = fields.at(name);
    fail(source, ": the configuration has ", given.is_structured() ? "a list" : given.dump(-1, ' ', true), " for ",
         name, "; it must be ", must_be);
  }
};

OptionFields::OptionFields() : json_(std::make_unique<Json>()) {}
OptionFields::OptionFields(const std::string& json, const std::string& source) : OptionFields() {
  *json_ = {nlohmann::ordered_json::parse(json, nullptr, false), source, true};
  require(json_->fields.is_object(), source, ": the configuration is not a JSON object");
}
OptionFields::~OptionFields() = default;

void OptionFields::operator()(const std::string& name, Index& value, Index min) {
  constexpr Index kMaxValue = Index{1} << 24;
  json_->move(
      name, value,
      [=](const auto& j) {
        return j.is_number_integer() && j.template get<Index>() >= min && j.template get<Index>() <= kMaxValue;
      },
      "a whole number from " + std::to_string(min) + " to " + std::to_string(kMaxValue));
}
void OptionFields::operator()(const std::string& name, double& share) {
  const auto good = [](const auto& j) {
    return j.is_number() && j.template get<double>() >= 0 && j.template get<double>() < 1;
  };
  json_->move(name, share, good, "a number of at least 0 and below 1");
}
void OptionFields::positive(const std::string& name, double& value) {
  const auto good = [](const auto& j) {
    return j.is_number() && j.template get<double>() > 0 && std::isfinite(j.template get<double>());
  };
  json_->move(name, value, good, "a number above 0");
}
void OptionFields::operator()(const std::string& name, bool& value) {
  json_->move(
      name, value, [](const auto& j) { return j.is_boolean(); }, "true or false");
}
void OptionFields::operator()(const std::string& name, std::string& word) {
  json_->move(
      name, word, [](const auto& j) { return j.is_string(); }, "a string");
}

bool OptionFields::reads() const { return json_->reads; }
bool OptionFields::has(const std::string& name, bool if_writing) const {
  return reads() ? json_->fields.contains(name) : if_writing;
}
void OptionFields::ensure(bool right, const std::string& name, const std::string& must_be) const {
  if (reads() && !right) json_->refuse(name, must_be);
}
void OptionFields::order(const std::vector<std::string>& names) {
  if (reads()) return;
  for (const std::string& name : names) json_->fields[name] = nullptr;
}
std::string OptionFields::json() const {
  nlohmann::ordered_json written = nlohmann::ordered_json::object();
  for (const auto& [name, value] : json_->fields.items())
    if (!value.is_null()) written[name] = value;
  return written.dump();
}

void mechanism_fields(OptionFields& f, const std::string& mechanism, MechanismOptions& options,
                      const std::string& prefix) {
  for_each_option(options, [&](const MechanismOption& option, auto& value) {
    std::string name = prefix + option.name;
    std::replace(name.begin(), name.end(), '-', '_');
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Index>) {
      if (option.of(mechanism) && f.has(name, value != 0)) f(name, value, 1);
    } else if (option.of(mechanism) && f.has(name, true)) {
      f(name, value);
    }
  });
}

// The mechanism's options, with the values that follow from the options of the model.
static MechanismOptions mechanism_options(const GPTConfig& config) {
  MechanismOptions o = config.mechanism;
  o.causal = config.options.causal;
  o.heads = config.options.blocks.attention.heads;
  o.head_size = config.options.blocks.attention.head_size();
  o.context = config.options.context;
  return o;
}

MechanismFactory GPTConfig::factory() const { return mechanism_by_name(attention, mechanism_options(*this)); }

void GPTConfig::fields(OptionFields& f) {
  GPTOptions& o = options;
  // The order of all versions, so that equal options are equal texts.
  f.order({"model",        "vocabulary", "context", "layers",  "heads",
           "kv_heads",     "width",      "hidden",  "dropout", "activation",
           "norm",         "positions",  "bias",    "tied",    "attention",
           "key_size",     "value_size", "rope",    "qk_norm", "zero_init_residual",
           "relative_clip"});
  o = o.settled();
  TransformerOptions& blocks = o.blocks;
  f("model", o.causal, {{"gpt", true}, {"mlm", false}});
  f("vocabulary", o.vocabulary, 1), f("context", o.context, 1), f("layers", blocks.layers);
  f("kv_heads", blocks.attention.kv_heads);
  f("positions", o.positions, position_kinds());
  blocks.fields(f, o.positions);
  if (f.has("norm_first", !*blocks.norm_first)) f("norm_first", *blocks.norm_first);
  f("tied", o.tied), f("attention", attention);
  if (f.has("zero_init_residual", o.zero_init_residual)) f("zero_init_residual", o.zero_init_residual);
  if (f.has("logit_cap", o.logit_cap > 0)) f.positive("logit_cap", o.logit_cap);

  // A file stores settled options, so that it does not depend on defaults, except sizes that follow the size of a head.
  mechanism = f.reads() ? older_options(attention, o.context) : settled_options(attention, mechanism_options(*this));
  mechanism_fields(f, attention, mechanism);
}

}  // namespace heed
