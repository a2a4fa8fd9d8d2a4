// Language models from checkpoints that another program made: what they say is checked before a model is built. Text from
// them, as it comes.
#include <heed/models/language_model.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/examples/programs.hpp"
#include "tests/support.hpp"

using namespace heed;
using nlohmann::json;
using test::TemporaryFolder;

namespace {

GPTConfig small_config(bool causal, PositionKind positions) {
  return {{.vocabulary = causal ? 4 : 5,
           .context = 6,
           .layers = 2,
           .heads = 2,
           .width = 8,
           .hidden = 12,
           .positions = positions,
           .causal = causal}};
}

// A small model with its tokenizer, as a run keeps it.
Checkpoint small_model(bool causal, PositionKind positions) {
  const GPTConfig config = small_config(causal, positions);
  Rng rng(1);
  GPT model(config.options, rng, config.factory());
  Checkpoint c;
  store_model(c, model);
  c.texts = language_model_texts(config, CharTokenizer("abcd"));
  return c;
}

LanguageModel loaded(const Checkpoint& c) {
  const TemporaryFolder folder;
  save_checkpoint(folder.path / "lm.h5", c);
  return load_language_model(folder.path / "lm.h5");
}

// Why a checkpoint is not loaded, without the name of the file.
std::string refusal(const Checkpoint& c) {
  const std::string message = test::error_of([&] { loaded(c); });
  const std::size_t end = message.find("lm.h5: ");
  return end == std::string::npos ? message : message.substr(end + 7);
}

}  // namespace

TEST_CASE("language model: one of each kind comes back, whatever else the file holds") {
  for (const bool causal : {true, false})
    for (const PositionKind p : {PositionKind::learned, PositionKind::rope, PositionKind::relative}) {
      Checkpoint c = small_model(causal, p);
      c.tensors["average/tokens.weight"] = Tensor::zeros({3});
      c.counters["cows"] = 7;
      c.texts["notes"] = "of another program";
      json config = test::parse_json(c.text("config"));
      config["colour"] = "blue";
      c.texts["config"] = config.dump();
      LanguageModel lm = loaded(c);
      CHECK(lm.model.options().causal == causal);
      CHECK(lm.tokenizer.vocabulary_size() == 4);
      for (const NamedParameter& parameter : named_parameters(lm.model))
        CHECK(test::same_bits(*parameter.parameter, c.tensor("model/" + parameter.name)));
    }
}

TEST_CASE("language model: text comes piece by piece, the prompt first, and is what generate() makes") {
  const LanguageModel lm = loaded(small_model(true, PositionKind::learned));
  Rng rng(3), again(3), third(3);
  const SamplingOptions sampling{.temperature = 2};
  std::vector<std::string> pieces;
  const std::string text = generate_text(lm, "abc", 9, sampling, rng, [&](const std::string& s) { pieces.push_back(s); });
  CHECK(text == "abc" + lm.tokenizer.decode(generate(lm.model, lm.tokenizer.encode("abc"), 9, sampling, again)));
  std::string joined;
  for (const std::string& piece : pieces) joined += piece;
  CHECK(joined == text);
  REQUIRE(pieces.size() >= 10);
  CHECK(pieces[0] == "abc");
  CHECK(pieces[1] == text.substr(3, 1));
  CHECK(generate_text(lm, "abc", 9, sampling, third) == text);
}

TEST_CASE("language model: what cannot go on is one sentence, before a piece") {
  const LanguageModel lm = loaded(small_model(true, PositionKind::rope)),
                      masked = loaded(small_model(false, PositionKind::rope));
  Rng rng(1);
  bool came = false;
  const auto text = [&](const LanguageModel& model, const std::string& prompt, const SamplingOptions& sampling) {
    return [&model, prompt, sampling, &rng, &came] {
      generate_text(model, prompt, 3, sampling, rng, [&](const std::string&) { came = true; });
    };
  };
  test::check_errors({{"a masked model does not generate", text(masked, "a", {})},
                      {"U+007A", text(lm, "az", {})},
                      {"temperature is -1", text(lm, "a", {.temperature = -1})}});
  CHECK_FALSE(came);
}

TEST_CASE("language model: a configuration that no model has, or not this one, is one sentence") {
  const Checkpoint good = small_model(true, PositionKind::learned);
  const auto with = [&](const std::string& key, const json& value) {
    Checkpoint c = good;
    json config = test::parse_json(good.text("config"));
    if (value.is_discarded())
      config.erase(key);
    else
      config[key] = value;
    c.texts["config"] = config.dump();
    return refusal(c);
  };
  const auto has = [](const std::string& what, const std::string& right) {
    return "the configuration has " + what + "; it must be " + right;
  };
  const std::string one = "a whole number from 1 to 16777216", none = "a whole number from 0 to 16777216";
  CHECK(with("heads", 0) == has("0 for heads", one));
  CHECK(with("heads", 3) == has("3 for heads", "a divisor of the width, 8"));
  CHECK(with("kv_heads", 3) == has("3 for kv_heads", "a divisor of the heads, 2"));
  CHECK(with("layers", std::uint64_t{1} << 63) == has("9223372036854775808 for layers", none));
  CHECK(with("width", 1e300) == has("1e+300 for width", one));
  CHECK(with("context", -1) == has("-1 for context", one));
  CHECK(with("dropout", 1) == has("1 for dropout", "a number from 0 on and below 1"));
  CHECK(with("bias", "no") == has("\"no\" for bias", "true or false"));
  CHECK(with("attention", 1) == has("1 for attention", "a word"));
  CHECK(with("activation", "gelu\x1b") == has("\"gelu\\u001b\" for activation", "gelu, gelu-tanh, relu, silu or swiglu"));
  CHECK(with("model", "gpt5") == has("\"gpt5\" for model", "gpt or mlm"));
  CHECK(with("tied", json(json::value_t::discarded)) == "the configuration lacks tied");
  CHECK(with("vocabulary", 5) == "the tokenizer has 4 tokens and the model 5; it must have 4");
  CHECK(with("model", "mlm") == "the tokenizer has 4 tokens and the model 4; it must have 5");
  CHECK(with("width", 1 << 20) == "tokens.weight is [4, 8] but [4, 1048576] by the configuration; they must agree");
  CHECK(with("context", 1 << 20) ==
        "positions.weight is [6, 8] but [1048576, 8] by the configuration; they must agree");
  CHECK(with("layers", 1 << 20) == "the file has 2 blocks and the configuration 1048576 layers; they must agree");
  CHECK(with("hidden", 1 << 20) ==
        "blocks.0.mlp.down.weight is [8, 12] but [8, 1048576] by the configuration; they must agree");
  Checkpoint c = good;
  for (const char* text : {"", "{", "[]"}) {
    c.texts["config"] = text;
    CHECK(refusal(c) == "the configuration is not JSON");
  }
  c = good;
  c.texts["tokenizer"] = Tokenizer(CharTokenizer("abcde")).to_json();
  CHECK(refusal(c) == "the tokenizer has 5 tokens and the model 4; it must have 5");
  c = small_model(true, PositionKind::relative);
  json config = test::parse_json(c.text("config"));
  config["relative_clip"] = 1 << 20;
  c.texts["config"] = config.dump();
  CHECK(test::contains(refusal(c), "blocks.0.attention.relative.weight is "));
}
