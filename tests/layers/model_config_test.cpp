// Configurations of models as JSON and back. Invalid files are tested in tests/layers/language_model_test.cpp.
#include <heed/layers/gpt.hpp>
#include <heed/layers/model_config.hpp>

#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using nlohmann::json;
using test::error_of;

namespace {

struct PlainOptions {
  Index layers = 2;
  double dropout = 0.5;
  bool deep = true;
  std::string name = "it";
  NormKind norm = NormKind::rms;
  void fields(OptionFields& f) {
    f("layers", layers, 1), f("dropout", dropout), f("deep", deep), f("name", name), f("norm", norm, norm_kinds());
    f.ensure(layers < 9 || !deep, "layers", "8 or less");
  }
};

}  // namespace

TEST_CASE("model config: user-defined options become JSON in the order of their fields, and are read back") {
  const std::string text = R"({"layers":2,"dropout":0.5,"deep":true,"name":"it","norm":"rms"})";
  CHECK(to_json(PlainOptions{}) == text);
  const PlainOptions other{7, 0.25, false, "other", NormKind::layer};
  CHECK(to_json(from_json<PlainOptions>(to_json(other))) == to_json(other));

  const auto refused = [&](const std::string& name, const json& value) {
    json changed = json::parse(text);
    changed[name] = value;
    return error_of([&] { from_json<PlainOptions>(changed.dump(), "f.json"); });
  };
  CHECK(refused("layers", 0) ==
        "f.json: the configuration has 0 for layers; it must be a whole number from 1 to 16777216");
  CHECK(refused("layers", 2.5) ==
        "f.json: the configuration has 2.5 for layers; it must be a whole number from 1 to 16777216");
  CHECK(refused("layers", 9) == "f.json: the configuration has 9 for layers; it must be 8 or less");
  CHECK(refused("dropout", -0.1) ==
        "f.json: the configuration has -0.1 for dropout; it must be a number of at least 0 and below 1");
  CHECK(refused("norm", "\x7fx") == "f.json: the configuration has \"\\u007fx\" for norm; it must be layer or rms");
  CHECK(refused("name", {1}) == "f.json: the configuration has a list for name; it must be a string");
  CHECK(refused("deep", "true") == "f.json: the configuration has \"true\" for deep; it must be true or false");
  CHECK(error_of([] { from_json<PlainOptions>(R"({"layers": 1})"); }) == "options: the configuration lacks dropout");
  CHECK(error_of([] { from_json<PlainOptions>("7"); }) == "options: the configuration is not a JSON object");
}

TEST_CASE("model config: the fields of options are listed, with the places of their values") {
  PlainOptions plain;
  const std::vector<OptionField> fields = list_fields(plain);
  REQUIRE(fields.size() == 5);
  CHECK(fields[0].name == "layers");
  CHECK(fields[0].type == OptionField::whole);
  CHECK(fields[0].min == 1);
  CHECK(std::get<Index*>(fields[0].value) == &plain.layers);
  CHECK(fields[1].type == OptionField::share);
  CHECK(std::get<bool*>(fields[2].value) == &plain.deep);
  CHECK(fields[4].words == std::vector<std::string>{"layer", "rms"});
  CHECK(std::get<OptionField::Word>(fields[4].value).get() == "rms");
  std::get<OptionField::Word>(fields[4].value).set("layer");
  CHECK(plain.norm == NormKind::layer);

  // Optional fields are listed even if JSON omits them.
  const auto field = [](GPTOptions options, const std::string& name) {
    for (const OptionField& f : list_fields(options))
      if (f.name == name) return f;
    return OptionField();
  };
  CHECK(field({}, "logit_cap").type == OptionField::positive);
  CHECK(field({}, "logit_cap").omitted);
  CHECK(field({}, "logit_cap").text == "Soft cap C of the logits: C tanh(logits / C)");
  CHECK_FALSE(field({.logit_cap = 30}, "logit_cap").omitted);
  CHECK_FALSE(field({}, "heads").omitted);
  GPTOptions relative{.positions = PositionKind::relative};
  list_fields(relative);
  CHECK(relative.blocks.attention.relative_clip == 0);  // still its default
  CHECK(relative.blocks.dropout == 0.0);
  CHECK_FALSE(relative.blocks.attention.dropout.has_value());
}

TEST_CASE("model config: a GPT and a BERT of each mechanism are described, and built again") {
  for (const bool causal : {true, false})
    for (const std::string& name : mechanism_names(causal)) {
      INFO(name, causal);
      const GPTConfig config{{.vocabulary = 9,
                              .context = 20,
                              .blocks = {.layers = 1,
                                         .attention = {.width = 8,
                                                       .heads = 2,
                                                       .key_size = causal ? 6 : 0,
                                                       .value_size = causal ? 3 : 0,
                                                       .qk_norm = causal,
                                                       .relative_clip = name == "softmax" ? 3 : 0},
                                         .dropout = 0.1,
                                         .activation = FeedForwardKind::swiglu,
                                         .norm = NormKind::rms,
                                         .reversible = causal},
                              .positions = name == "softmax" ? PositionKind::relative : PositionKind::rope,
                              .tied = false,
                              .logit_cap = causal ? 30.0 : 0.0,
                              .zero_init_residual = causal,
                              .causal = causal},
                             name,
                             {.feature_map = "relu", .top_k = 3, .units = 5}};
      const std::string text = to_json(config);
      const auto same = from_json<GPTConfig>(text);
      CHECK(to_json(same) == text);
      CHECK(test::parse_json(text).at("model") == (causal ? "gpt" : "mlm"));
      CHECK(test::parse_json(text).contains("relative_clip") == (name == "softmax"));
      CHECK(test::parse_json(text).contains("qk_norm") == causal);  // older files lack these fields
      CHECK(test::parse_json(text).contains("zero_init_residual") == causal);
      CHECK(test::parse_json(text).contains("logit_cap") == causal);
      CHECK(test::parse_json(text).contains("reversible") == causal);
      if (causal) CHECK(same.options.logit_cap == 30);
      CHECK(test::parse_json(text).contains("feature_map") == (name == "linear"));
      CHECK(test::parse_json(text).contains("top_k_keys") == (name == "top-k"));
      if (name == "window") CHECK(test::parse_json(text).at("window") == 256);  // settled, not the default 0
      Rng a(1), b(1);
      GPT first(config.options, a, config.factory()), second(same.options, b, same.factory());
      const std::vector<NamedParameter> p = named_parameters(first), q = named_parameters(second);
      REQUIRE(p.size() == q.size());
      for (std::size_t i = 0; i < p.size(); ++i) {
        CHECK(p[i].name == q[i].name);
        CHECK(test::same_bits(*p[i].parameter, *q[i].parameter));
      }
    }
  CHECK(error_of([] { GPTConfig{.attention = "gaze"}.factory(); }).starts_with("attention: the mechanism is 'gaze'"));
  CHECK(error_of([] { GPTConfig{.attention = "linformer"}.factory(); })
            .starts_with("attention: linformer has no causal"));
}

TEST_CASE("model config: window attention with global-every: every n-th layer attends to all keys") {
  Rng rng(1);
  const MechanismFactory make = mechanism_by_name("window", {.window = 4, .global_every = 3});
  std::string names;
  for (Index layer = 0; layer < 7; ++layer) names += make(layer, rng).name() + " ";
  CHECK(names == "window window softmax window window softmax window ");
  const GPTConfig config{.options = {.blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}}},
                         .attention = "window",
                         .mechanism = {.window = 4, .global_every = 2}};
  CHECK(test::parse_json(to_json(config)).at("global_every") == 2);
  const GPT model(config.options, rng, from_json<GPTConfig>(to_json(config)).factory());
  CHECK(model.transformer.blocks[0].attention.mechanism.name() == "window");
  CHECK(model.transformer.blocks[1].attention.mechanism.name() == "softmax");
}
