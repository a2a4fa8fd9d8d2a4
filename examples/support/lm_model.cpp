#include "examples/support/lm_model.hpp"

#include <nlohmann/json.hpp>

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

LmModel lm_model_from_json(const std::string& text, const std::string& source) {
  try {
    const Json j = Json::parse(text);
    LmModel model;
    j.at("model").get_to(model.kind);
    require(model.kind == "gpt" || model.kind == "mlm", source, ": the model is ", j.at("model").dump(),
            "; this program reads \"gpt\" and \"mlm\"");
    GPTOptions& o = model.gpt;
    j.at("vocabulary").get_to(o.vocabulary), j.at("context").get_to(o.context), j.at("layers").get_to(o.layers),
        j.at("heads").get_to(o.heads);
    j.at("kv_heads").get_to(o.kv_heads), j.at("width").get_to(o.width), j.at("hidden").get_to(o.hidden),
        j.at("dropout").get_to(o.dropout);
    j.at("bias").get_to(o.bias), j.at("tied").get_to(o.tied);
    o.activation = kActivations.at(j.at("activation").get<std::string>());
    o.norm = kNorms.at(j.at("norm").get<std::string>());
    o.positions = kPositions.at(j.at("positions").get<std::string>());
    j.at("attention").get_to(model.attention);
    if (j.contains("relative_clip")) j.at("relative_clip").get_to(o.relative_clip);
    model.mechanism.context = o.context;
    get_options(j, model.attention, model.mechanism, '_');
    return model;
  } catch (const Json::parse_error&) {
    fail(source, ": the configuration is not JSON");
  } catch (const Json::exception& e) {
    fail(source, ": the configuration lacks something: ", e.what());
  } catch (const std::out_of_range&) {
    fail(source, ": the configuration ", text, " holds a kind that this version does not know");
  }
}

}  // namespace heed::examples
