// Configurations as JSON.
#include <algorithm>
#include <cmath>
#include <heed/layers/model_config.hpp>
#include <nlohmann/json.hpp>

namespace heed {

const Words<FeedForwardKind>& feed_forward_kinds() {
  static const Words<FeedForwardKind> words = {{"relu", FeedForwardKind::relu},
                                               {"geglu", FeedForwardKind::geglu},
                                               {"geglu-tanh", FeedForwardKind::geglu_tanh},
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

const Words<RopeScalingKind>& rope_scaling_kinds() {
  static const Words<RopeScalingKind> words = {
      {"none", RopeScalingKind::none}, {"linear", RopeScalingKind::linear}, {"llama3", RopeScalingKind::llama3}};
  return words;
}

struct OptionFields::Json {
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();
  Mode mode = write;
  std::string source = {};
  std::vector<OptionField> listed = {};

  // Writes or lists the value, or reads a value for which good(JSON) is true.
  template <class T, class Good>
  void move(OptionField field, T& value, const Good& good, const std::string& must_be) {
    const std::string name = field.name;
    if (mode == write) return fields[name] = value, void();
    if (mode == list) return listed.push_back(std::move(field));
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

OptionFields::OptionFields(Mode mode) : json_(std::make_unique<Json>()) { json_->mode = mode; }
OptionFields::OptionFields(const std::string& json, const std::string& source) : OptionFields(read) {
  json_->fields = nlohmann::ordered_json::parse(json, nullptr, false), json_->source = source;
  require(json_->fields.is_object(), source, ": the configuration is not a JSON object");
}
OptionFields::~OptionFields() = default;

void OptionFields::operator()(const FieldName& name, Index& value, Index min) {
  constexpr Index kMaxValue = Index{1} << 24;
  json_->move(
      {name.name, name.text, OptionField::whole, &value, min}, value,
      [=](const auto& j) {
        return j.is_number_integer() && j.template get<Index>() >= min && j.template get<Index>() <= kMaxValue;
      },
      "a whole number from " + std::to_string(min) + " to " + std::to_string(kMaxValue));
}
void OptionFields::operator()(const FieldName& name, double& value, OptionField::Type type) {
  const bool share = type == OptionField::share;
  const auto in_range = [=](double x) { return share ? x >= 0 && x < 1 : x > 0 && std::isfinite(x); };
  json_->move(
      {name.name, name.text, type, &value}, value,
      [=](const auto& j) { return j.is_number() && in_range(j.template get<double>()); },
      share ? "a number of at least 0 and below 1" : "a number above 0");
}
void OptionFields::operator()(const FieldName& name, bool& value) {
  json_->move(
      {name.name, name.text, OptionField::boolean, &value}, value, [](const auto& j) { return j.is_boolean(); },
      "true or false");
}
void OptionFields::operator()(const FieldName& name, std::string& word) {
  json_->move(
      {name.name, name.text, OptionField::word, &word}, word, [](const auto& j) { return j.is_string(); }, "a string");
}
void OptionFields::one_of(const FieldName& name, const OptionField::Word& value,
                          const std::vector<std::string>& words) {
  std::string word = value.get(), all;
  json_->move(
      {name.name, name.text, OptionField::word, value, 0, words}, word, [](const auto& j) { return j.is_string(); },
      "a string");
  for (const std::string& w : words) all += (all.empty() ? "" : w == words.back() ? " or " : ", ") + w;
  ensure(std::find(words.begin(), words.end(), word) != words.end(), name.name, all);
  if (reads()) value.set(word);
}

OptionFields::Mode OptionFields::mode() const { return json_->mode; }
bool OptionFields::has(const std::string& name, bool if_writing) const {
  return reads() ? json_->fields.contains(name) : if_writing;
}
void OptionFields::mark_omitted(bool omitted) { json_->listed.back().omitted = omitted; }
void OptionFields::ensure(bool right, const std::string& name, const std::string& must_be) const {
  if (reads() && !right) json_->refuse(name, must_be);
}
void OptionFields::order(const std::vector<std::string>& names) {
  if (mode() != write) return;
  for (const std::string& name : names) json_->fields[name] = nullptr;
}
std::string OptionFields::json() const {
  nlohmann::ordered_json written = nlohmann::ordered_json::object();
  for (const auto& [name, value] : json_->fields.items())
    if (!value.is_null()) written[name] = value;
  return written.dump();
}
const std::vector<OptionField>& OptionFields::listed() const { return json_->listed; }

std::string detail::summary_of_options(const std::function<void(OptionFields&)>& fields) {
  OptionFields f;
  fields(f);
  const auto json = nlohmann::ordered_json::parse(f.json());
  std::string text;
  for (const auto& [name, value] : json.items())
    text += (text.empty() ? "options: " : ", ") + name + " " +
            (value.is_string() ? value.get<std::string>() : value.dump());
  return text + "\n";
}

void mechanism_fields(OptionFields& f, const std::string& mechanism, MechanismOptions& options,
                      const std::string& prefix) {
  for_each_option(options, [&](const MechanismOption& option, auto& value) {
    std::string name = prefix + option.name;
    std::replace(name.begin(), name.end(), '-', '_');
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Index>) {
      if (option.of(mechanism) && f.has(name, value != 0)) f(name, value, 1);
    } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
      if (option.of(mechanism) && f.has(name, value != 0)) f(name, value, OptionField::positive);
    } else if (option.of(mechanism) && f.has(name, !value.empty())) {
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
  o.value_size = config.options.blocks.attention.value_size;
  o.context = config.options.context;
  o.layers = config.options.blocks.layers;
  return o;
}

MechanismFactory GPTConfig::factory() const { return mechanism_by_name(attention, mechanism_options(*this)); }

void GPTOptions::fields(OptionFields& f) {
  *this = settled();
  f("model", causal, {{"gpt", true}, {"mlm", false}}), f("vocabulary", vocabulary, 1);
  f({"layers", "Blocks"}, blocks.layers), f({"context", "Context length in tokens"}, context, 1);
  f("kv_heads", blocks.attention.kv_heads);
  f({"positions", "Encoding of positions"}, positions, position_kinds());
  blocks.fields(f, positions);
  if (f.has("norm_first", !*blocks.norm_first)) f("norm_first", *blocks.norm_first);
  f("tied", tied);
  f.optional("scaled_embedding", scaled_embedding);
  f.optional("token_types", token_types, 1);
  f.optional("input_norm", input_norm);
  f.optional("output_bias", output_bias);
  f.optional("output_transform", output_transform);
  f.optional({"zero_init_residual", "Initialize weights before residual sums to 0"}, zero_init_residual);
  f.optional({"logit_cap", "Soft cap C of the logits: C tanh(logits / C)"}, logit_cap, OptionField::positive);
}

void GPTConfig::fields(OptionFields& f) {
  // The order of all versions, so that equal options are equal texts.
  f.order({"model",        "vocabulary", "context", "layers",  "heads",
           "kv_heads",     "width",      "hidden",  "dropout", "activation",
           "norm",         "positions",  "bias",    "tied",    "attention",
           "key_size",     "value_size", "rope",    "qk_norm", "zero_init_residual",
           "relative_clip"});
  options.fields(f);
  f("attention", attention);
  // A file stores settled options, so that it does not depend on defaults, except sizes that follow the size of a head.
  mechanism =
      f.reads() ? older_options(attention, options.context) : settled_options(attention, mechanism_options(*this));
  mechanism_fields(f, attention, mechanism);
}

}  // namespace heed
