// The fields of rotary positions.
#include <algorithm>
#include <cmath>
#include <heed/io/pretrained/family.hpp>
#include <numbers>

namespace heed::detail::pretrained {
namespace {

// The members of rope_scaling, or of rope_parameters, which have rope_theta, too.
void read_scaling(const JsonView& json, MultiHeadAttentionOptions& a) {
  const char* type = json.has("rope_type") ? "rope_type" : "type";
  if (json.has("rope_theta")) a.rope_base = json.at("rope_theta").number();
  RopeScaling& s = a.rope_scaling;
  s = {};
  const std::size_t kind = json.has(type) ? json.at(type).one_of({"default", "linear", "llama3"}) : 0;
  if (kind == 0) return json.only({type, "rope_theta"});
  s.factor = json.at("factor").number();
  if (kind == 1) {
    s.kind = RopeScalingKind::linear;
    return json.only({type, "rope_theta", "factor"});
  }
  s.kind = RopeScalingKind::llama3;
  s.low_turns = json.at("low_freq_factor").number(), s.high_turns = json.at("high_freq_factor").number();
  s.original_context = json.at("original_max_position_embeddings").integer(1, Index{1} << 24);
  json.only({type, "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
}

JsonValue scaling_json(const RopeScaling& s) {
  JsonValue json = JsonValue::object();
  if (s.kind == RopeScalingKind::none) return {};
  json.set("rope_type", JsonValue::of(std::string(s.kind == RopeScalingKind::linear ? "linear" : "llama3")));
  json.set("factor", JsonValue::of(s.factor));
  if (s.kind == RopeScalingKind::linear) return json;
  json.set("low_freq_factor", JsonValue::of(s.low_turns));
  json.set("high_freq_factor", JsonValue::of(s.high_turns));
  json.set("original_max_position_embeddings", JsonValue::of_integer(s.original_context));
  return json;
}

void read_json(ModelFields& f, MultiHeadAttentionOptions& a) {
  const JsonView& config = *f.json();
  for (const char* name : {"rope_scaling", "rope_parameters", "rope_local_base_freq"}) f.mark_used(name);
  if (config.has("rope_scaling")) read_scaling(config.at("rope_scaling"), a);
  if (!config.has("rope_parameters")) return;
  const JsonView parameters = config.at("rope_parameters");
  if (!parameters.has("full_attention")) return read_scaling(parameters, a);
  parameters.only({"full_attention", "sliding_attention"});  // Gemma 3: one entry per type of layer
  if (parameters.has("sliding_attention")) {
    MultiHeadAttentionOptions local;
    read_scaling(parameters.at("sliding_attention"), local);
    if (local.rope_scaling.kind != RopeScalingKind::none)
      parameters.at("sliding_attention").refuse("scales rope; heed scales it in layers without a window only");
    if (local.rope_base > 0) a.window_rope_base = local.rope_base;
  }
  read_scaling(parameters.at("full_attention"), a);
}

void gguf_scaling(ModelFields& f, RopeScaling& s) {
  std::string type = s.kind == RopeScalingKind::linear ? "linear" : "none";
  if (f.reads() || s.kind == RopeScalingKind::linear) {
    f.or_else<std::string>({"", "rope.scaling.type"}, type, "none");
    if (type == "linear") f({"", "rope.scaling.factor"}, s.factor), s.kind = RopeScalingKind::linear;
  }
  if (type != "linear" && type != "none")
    f.fail_at({"", "rope.scaling.type"}, "is ", type, "; heed supports linear and none");
}

}  // namespace

void rope_fields(ModelFields& f, MultiHeadAttentionOptions& a, double base) {
  a.rope = true;
  f.or_else<double>({"rope_theta", "rope.freq_base"}, a.rope_base, base);
  if (f.json() != nullptr) read_json(f, a);
  if (JsonValue* json = f.json_to_write(); json != nullptr) json->set("rope_scaling", scaling_json(a.rope_scaling));
  if (f.gguf()) gguf_scaling(f, a.rope_scaling);
}

std::vector<float> divisors_of(const RopeScaling& s, double base, Index head_size) {
  std::vector<float> divisors;
  for (Index i = 0; i < head_size / 2; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
    const double turns = static_cast<double>(s.original_context) * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - s.low_turns) / (s.high_turns - s.low_turns), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - kept) / s.factor + kept)));
  }
  return divisors;
}

RopeScaling scaling_of(const std::vector<float>& divisors, double base) {
  // Models of Llama 3 have low_turns 1 and high_turns 4. The factor is the largest divisor, and the context follows
  // from a divisor between 1 and the factor.
  RopeScaling s{.kind = RopeScalingKind::llama3};
  for (const float x : divisors) s.factor = std::max(s.factor, static_cast<double>(x));
  const auto size = static_cast<double>(divisors.size());
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double x = static_cast<double>(divisors[i]);
    if (!(x > 1 && x < s.factor)) continue;
    const double kept = (1 / x - 1 / s.factor) / (1 - 1 / s.factor);
    const double turns = s.low_turns + kept * (s.high_turns - s.low_turns);
    const double frequency = std::pow(base, -static_cast<double>(i) / size);
    s.original_context = std::llround(turns * 2 * std::numbers::pi / frequency);
    break;
  }
  const std::vector<float> expected = divisors_of(s, base, 2 * static_cast<Index>(divisors.size()));
  for (std::size_t i = 0; i < divisors.size(); ++i)
    require(std::abs(divisors[i] - expected[i]) <= 1e-3F * expected[i], "rope_freqs.weight has ", divisors[i], " at ",
            i, "; heed supports the scaling of Llama 3, which has ", expected[i], " there");
  return s;
}

}  // namespace heed::detail::pretrained
