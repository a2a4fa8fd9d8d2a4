// Language models from checkpoints that another program made: what they say is checked before a model is built.
#include "examples/support/language_model.hpp"

#include "examples/support/lm_model.hpp"
#include "tests/examples/programs.hpp"

using namespace heed;
using nlohmann::json;
using test::TemporaryFolder;

namespace {

// A small model with its tokenizer, as train_lm keeps it.
Checkpoint small_model(const std::string& kind, PositionKind positions) {
  examples::LmModel model;
  const Tokenizer tokenizer = CharTokenizer("abcd");
  model.kind = kind;
  model.gpt = {.vocabulary = kind == "mlm" ? 5 : 4, .context = 6, .layers = 2, .heads = 2, .width = 8, .hidden = 12};
  model.gpt.positions = positions;
  Rng rng(1);
  Checkpoint c;
  if (kind == "mlm") {
    BERT bert = make_bert(model, rng);
    store_model(c, bert);
  } else {
    GPT gpt = make_gpt(model, rng);
    store_model(c, gpt);
  }
  c.texts = {{"config", examples::to_json(model)}, {"tokenizer", tokenizer.to_json()}};
  return c;
}

// Why a checkpoint is not loaded, without the name of the file.
std::string refusal(const Checkpoint& c) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "lm.h5";
  save_checkpoint(file, c);
  std::string message = test::error_of([&] { examples::load_any_language_model(file); });
  const std::size_t at = message.find(file.string() + ": ");
  return at == 0 ? message.substr(file.string().size() + 2) : message;
}

}  // namespace

TEST_CASE("language model: one of each kind comes back") {
  for (const char* kind : {"gpt", "mlm"})
    for (const PositionKind p : {PositionKind::learned, PositionKind::rope, PositionKind::relative})
      CHECK(refusal(small_model(kind, p)) == "");
}

TEST_CASE("language model: a configuration that no model has, or not this one, is one sentence") {
  const Checkpoint good = small_model("gpt", PositionKind::learned);
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
  CHECK(with("activation", "gelu\x1b") == has("\"gelu\\u001b\" for activation", "one that this version knows"));
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
  c = small_model("gpt", PositionKind::relative);
  json config = test::parse_json(c.text("config"));
  config["relative_clip"] = 1 << 20;
  c.texts["config"] = config.dump();
  CHECK(test::contains(refusal(c), "blocks.0.attention.relative.weight is "));
}
