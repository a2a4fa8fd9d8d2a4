#include "examples/support/lm_model.hpp"

#include <algorithm>
#include <heed/data/text.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/support/lm_settings.hpp"
#include "examples/support/mechanism_flags.hpp"

namespace heed::examples {

using Json = nlohmann::ordered_json;

const std::map<std::string, FeedForwardKind> kActivations = {{"relu", FeedForwardKind::relu},
                                                             {"gelu", FeedForwardKind::gelu},
                                                             {"gelu-tanh", FeedForwardKind::gelu_tanh},
                                                             {"silu", FeedForwardKind::silu},
                                                             {"swiglu", FeedForwardKind::swiglu}};
const std::map<std::string, NormKind> kNorms = {{"layer", NormKind::layer}, {"rms", NormKind::rms}};
const std::map<std::string, PositionKind> kPositions = {{"none", PositionKind::none},
                                                        {"learned", PositionKind::learned},
                                                        {"sinusoidal", PositionKind::sinusoidal},
                                                        {"rope", PositionKind::rope},
                                                        {"relative", PositionKind::relative}};

namespace {

template <class T>
std::string name_of(const std::map<std::string, T>& map, T value) {
  for (const auto& [name, v] : map)
    if (v == value) return name;
  return {};
}

MechanismOptions options_of(const LmModel& model) {
  MechanismOptions options = model.mechanism;
  options.causal = model.kind != "mlm";
  options.heads = model.gpt.heads;
  if (model.gpt.heads > 0) options.head_size = model.gpt.width / model.gpt.heads;
  options.context = model.gpt.context;
  return settled_options(model.attention, options);
}

}  // namespace

LmModel lm_model(const LmSettings& s, Index vocabulary) {
  const bool masked = s.model == "mlm";
  MechanismOptions mechanism = s.mechanism;
  mechanism.seed = s.seed;
  return {masked ? "mlm" : "gpt",
          {.vocabulary = masked ? vocabulary + 1 : vocabulary,
           .context = s.context,
           .layers = s.layers,
           .heads = s.heads,
           .width = s.width,
           .dropout = s.dropout,
           .activation = kActivations.at(s.activation),
           .norm = kNorms.at(s.norm),
           .positions = kPositions.at(s.positions),
           .bias = s.bias},
          s.attention,
          mechanism};
}

GPT make_gpt(const LmModel& model, Rng& rng) {
  return GPT(model.gpt, rng, mechanism_by_name(model.attention, options_of(model)));
}
BERT make_bert(const LmModel& model, Rng& rng) {
  return BERT(model.gpt, rng, mechanism_by_name(model.attention, options_of(model)));
}

std::string model_error(const std::string& model, const std::string& attention) {
  try {
    mechanism_by_name(attention, {.causal = model == "lm", .heads = 1, .head_size = 1, .context = 1});
  } catch (const Error& e) {
    return std::string(e.what()) + (model == "lm" ? "; --model mlm is one" : "");
  }
  return {};
}

std::string to_json(const LmModel& model) {
  const GPTOptions& o = model.gpt;
  Json json{{"model", model.kind},
            {"vocabulary", o.vocabulary},
            {"context", o.context},
            {"layers", o.layers},
            {"heads", o.heads},
            {"kv_heads", o.kv_heads},
            {"width", o.width},
            {"hidden", o.hidden},
            {"dropout", o.dropout},
            {"activation", name_of(kActivations, o.activation)},
            {"norm", name_of(kNorms, o.norm)},
            {"positions", name_of(kPositions, o.positions)},
            {"bias", o.bias},
            {"tied", o.tied},
            {"attention", model.attention}};
  if (o.positions == PositionKind::relative) json["relative_clip"] = o.relative_clip;
  put_options(json, model.attention, options_of(model), '_');
  return json.dump();
}

namespace {

// What a configuration says. Throws Error where it lacks something or says what no model can be.
class Configuration {
 public:
  Configuration(const std::string& text, const std::string& source)
      : source_(source), json_(Json::parse(text, nullptr, false)) {
    require(json_.is_object(), source, ": the configuration is not JSON");
  }

  void read(const std::string& key, Index& value, Index least) const {
    const Json& j = at(key);
    constexpr Index kMost = Index{1} << 24;
    value = j.is_number_integer() ? j.get<Index>() : -1;
    if (!j.is_number_integer() || value < least || value > kMost)
      refuse(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(kMost));
  }
  void read(const std::string& key, double& share) const {
    const Json& j = at(key);
    share = j.is_number() ? j.get<double>() : -1;
    if (!(share >= 0 && share < 1)) refuse(key, "a number from 0 on and below 1");
  }
  void read(const std::string& key, bool& value) const {
    if (!at(key).is_boolean()) refuse(key, "true or false");
    at(key).get_to(value);
  }
  void read(const std::string& key, std::string& word) const {
    if (!at(key).is_string()) refuse(key, "a word");
    at(key).get_to(word);
  }
  template <class T>
  void read(const std::string& key, T& kind, const std::map<std::string, T>& kinds) const {
    const Json& j = at(key);
    const auto place = j.is_string() ? kinds.find(j.get<std::string>()) : kinds.end();
    if (place == kinds.end()) refuse(key, "one that this version knows");
    kind = place->second;
  }
  // Of the mechanism, where the file has them: their types and ranges are those of the flags.
  void read_options(LmModel& model) const {
    for_each_option(model.mechanism, [&](const MechanismOption& o, auto& value) {
      std::string key = o.name;
      std::replace(key.begin(), key.end(), '-', '_');
      if (!o.of(model.attention) || !has(key)) return;
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Index>)
        read(key, value, 1);
      else
        read(key, value);
    });
    get_options(json_, model.attention, model.mechanism, '_');
  }
  bool has(const std::string& key) const { return json_.contains(key); }
  [[noreturn]] void refuse(const std::string& key, const std::string& right) const {
    // A list may be so deep that to print it would take all of the stack.
    const std::string given = at(key).is_structured() ? "a list" : at(key).dump();
    fail(source_, ": the configuration has ", printable(given), " for ", key, "; it must be ", right);
  }

 private:
  const std::string& source_;
  Json json_;

  const Json& at(const std::string& key) const {
    require(has(key), source_, ": the configuration lacks ", key);
    return json_[key];
  }
};

}  // namespace

LmModel lm_model_from_json(const std::string& text, const std::string& source) {
  const Configuration c(text, source);
  LmModel model;
  c.read("model", model.kind);
  if (model.kind != "gpt" && model.kind != "mlm") c.refuse("model", "gpt or mlm");
  GPTOptions& o = model.gpt;
  c.read("vocabulary", o.vocabulary, 1), c.read("context", o.context, 1), c.read("layers", o.layers, 0);
  c.read("heads", o.heads, 1), c.read("kv_heads", o.kv_heads, 0), c.read("width", o.width, 1);
  c.read("hidden", o.hidden, 0), c.read("dropout", o.dropout), c.read("bias", o.bias), c.read("tied", o.tied);
  c.read("activation", o.activation, kActivations), c.read("norm", o.norm, kNorms);
  c.read("positions", o.positions, kPositions), c.read("attention", model.attention);
  if (c.has("relative_clip")) c.read("relative_clip", o.relative_clip, 1);
  model.mechanism.context = o.context;
  c.read_options(model);
  if (o.width % o.heads != 0) c.refuse("heads", "a divisor of the width, " + std::to_string(o.width));
  if (o.kv_heads > 0 && o.heads % o.kv_heads != 0)
    c.refuse("kv_heads", "a divisor of the heads, " + std::to_string(o.heads));
  return model;
}

void check_model(const LmModel& model, const Checkpoint& checkpoint, Index vocabulary) {
  const GPTOptions& o = model.gpt;
  const std::string& source = checkpoint.source;
  const Index wanted = model.kind == "mlm" ? vocabulary + 1 : vocabulary;  // the last is the mask
  require(o.vocabulary == wanted, source, ": the tokenizer has ", vocabulary, " tokens and the model ", o.vocabulary,
          "; it must have ", wanted);
  const auto check_shape = [&](const std::string& name, const Shape& shape) {
    const Tensor& x = checkpoint.tensor("model/" + name);
    require(x.shape() == shape, source, ": ", name, " is ", x.shape(), " but ", shape,
            " by the configuration; they must agree");
  };
  check_shape("tokens.weight", {o.vocabulary, o.width});
  if (o.positions == PositionKind::learned) check_shape("positions.weight", {o.context, o.width});
  std::set<std::string> blocks;
  for (auto place = checkpoint.tensors.lower_bound("model/blocks."); place != checkpoint.tensors.end(); ++place) {
    const std::string& path = place->first;
    if (!path.starts_with("model/blocks.")) break;
    blocks.insert(path.substr(0, path.find('.', std::string_view("model/blocks.").size())));
  }
  require(static_cast<Index>(blocks.size()) == o.layers, source, ": the file has ", blocks.size(),
          " blocks and the configuration ", o.layers, " layers; they must agree");
  if (o.layers > 0 && o.hidden > 0) check_shape("blocks.0.mlp.down.weight", {o.width, o.hidden});
  if (o.layers > 0 && o.positions == PositionKind::relative)
    check_shape("blocks.0.attention.relative.weight", {o.heads, 2 * o.relative_clip + 1});
}

}  // namespace heed::examples
