// Language models from checkpoints of other programs, whose contents are checked before a model is built; and their
// texts, piece by piece.
#include <heed/layers/language_model.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/examples/programs.hpp"
#include "tests/support.hpp"

using namespace heed;
using nlohmann::json;
using test::contains;
using test::TemporaryFolder;

namespace {

GPTConfig small_config(bool causal, PositionKind positions) {
  return {{.vocabulary = causal ? 4 : 5,
           .context = 6,
           .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}, .hidden = 12},
           .positions = positions,
           .causal = causal}};
}

// The checkpoint of a small model with its tokenizer, as a run saves it.
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

// The error of loading a checkpoint, without the file name.
std::string refusal(const Checkpoint& c) {
  const std::string message = test::error_of([&] { loaded(c); });
  const std::size_t end = message.find("lm.h5: ");
  return end == std::string::npos ? message : message.substr(end + 7);
}

// A tokenizer with one token, é, in NFC.
struct Accents {
  Tokens encode(std::string_view text) const { return Tokens(text.size(), 0); }
  std::string decode(std::span<const std::int32_t> ids) const {
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) text += "\u00e9";
    return text;
  }
  Index vocabulary_size() const { return 4; }
  std::string kind() const { return "accents"; }
  std::string state() const { return {}; }
  UnicodeForm unicode() const { return UnicodeForm::nfc; }
};

// A tokenizer with four tokens of three characters each.
struct Syllables {
  std::vector<std::int32_t> encode(std::string_view) const { return {0}; }
  std::string decode(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const std::int32_t id : ids) text += static_cast<char>('a' + id) + std::string("-+");
    return text;
  }
  Index vocabulary_size() const { return 4; }
  std::string kind() const { return "syllables"; }
  std::string state() const { return ""; }
};

}  // namespace

TEST_CASE("language model: models of each kind are loaded, with any additional contents in the file") {
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

TEST_CASE("language model: loaded in bfloat16, weights are those of the file at half the size") {
  const TemporaryFolder folder;
  const Checkpoint c = small_model(true, PositionKind::learned);
  save_checkpoint(folder.path / "lm.h5", c);
  LanguageModel lm = load_language_model(folder.path / "lm.h5", DType::bfloat16);
  for (const NamedParameter& parameter : named_parameters(lm.model)) {
    const Tensor& from = c.tensor("model/" + parameter.name);
    const DType type = from.rank() == 2 ? DType::bfloat16 : DType::float32;
    CHECK(test::same_bits(*parameter.parameter, from.to(type)));
  }
  CHECK(generate_text(lm, {"abc"}, {.count = 9})[0].size() == 12);
}

TEST_CASE("language model: texts are passed on piece by piece, the prompt first, and equal those of generate()") {
  const LanguageModel lm = loaded(small_model(true, PositionKind::rope));
  const std::vector<std::string> prompts = {"abc", "d"};
  std::vector<std::vector<std::string>> pieces(2);
  TextOptions options{.count = 9, .sampling = {.temperature = 2}, .seed = 3};
  options.on_text = [&](Index text, const std::string& s) { pieces[static_cast<std::size_t>(text)].push_back(s); };
  const std::vector<std::string> texts = generate_text(lm, prompts, options);
  REQUIRE(texts.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    Rng rng(3, 2 + i);
    const std::vector<std::int32_t> ids = lm.tokenizer.encode(prompts[i]);
    CHECK(texts[i] == prompts[i] + lm.tokenizer.decode(generate(lm.model, ids, 9, options.sampling, rng)));
    std::string joined;
    for (const std::string& piece : pieces[i]) joined += piece;
    CHECK(joined == texts[i]);
    REQUIRE(pieces[i].size() == 10);
    CHECK(pieces[i][0] == prompts[i]);
    CHECK(pieces[i][1] == texts[i].substr(prompts[i].size(), 1));
  }
  CHECK(generate_text(lm, {}, {}).empty());
}

TEST_CASE("language model: a text ends with the first stop text or stop token after the prompt") {
  const LanguageModel lm = loaded(small_model(true, PositionKind::rope));
  const TextOptions plain{.count = 60, .sampling = {.temperature = 2}};
  const std::vector<std::string> prompts = {"abc", "abcd"};
  const std::vector<std::string> all = generate_text(lm, prompts, plain);
  for (const std::vector<std::string>& stop :
       std::vector<std::vector<std::string>>{{"ab"}, {"da", "bc"}, {"bc", "da"}, {"c", "bc"}, {"abcdabcdabcd"}}) {
    TextOptions options = plain;
    options.stop = stop;
    std::string streamed;
    options.on_text = [&](Index text, const std::string& piece) { streamed += text == 0 ? piece : ""; };
    const std::vector<std::string> texts = generate_text(lm, prompts, options);
    CHECK(streamed == texts[0]);
    for (std::size_t i = 0; i < 2; ++i) {
      std::size_t end = all[i].size();
      for (const std::string& s : stop)
        if (const std::size_t at = all[i].find(s, prompts[i].size()); at != std::string::npos)
          end = std::min(end, at + s.size());
      CHECK(texts[i] == all[i].substr(0, end));
      if (stop.front() == "ab") CHECK(end < all[i].size());  // the stop text was generated
    }
  }
  TextOptions options = plain;
  options.stop_tokens = lm.tokenizer.encode("b");
  CHECK(generate_text(lm, prompts, options)[0] == all[0].substr(0, all[0].find('b', 3) + 1));
  // If a stop text ends within a token of several characters, the text ends with the stop text.
  LanguageModel wide = loaded(small_model(true, PositionKind::rope));
  wide.tokenizer = Syllables{};
  std::string streamed;
  options = plain;
  options.stop = {"-"};
  options.on_text = [&](Index, const std::string& piece) { streamed += piece; };
  const std::string made = generate_text(wide, {"x"}, options)[0];
  CHECK(made.size() == 3);
  CHECK(made.ends_with("-"));
  CHECK(streamed == made);
  // Stop texts are normalized as the tokenizer writes text.
  wide.tokenizer = Accents{};
  options.stop = {"e\u0301"};
  options.on_text = {};
  CHECK(generate_text(wide, {"x"}, options)[0] == "x\u00e9");
}

TEST_CASE("language model: calls that cannot generate are refused with one sentence, before any text") {
  const LanguageModel lm = loaded(small_model(true, PositionKind::rope)),
                      masked = loaded(small_model(false, PositionKind::rope));
  bool called = false;
  const auto text = [&](const LanguageModel& model, const std::string& prompt, TextOptions options) {
    options.on_text = [&called](Index, const std::string&) { called = true; };
    return [&model, prompt, options] { generate_text(model, {"a", prompt}, options); };
  };
  test::check_errors(
      {{"a masked model cannot generate text", text(masked, "a", {})},
       {"U+007A", text(lm, "az", {})},
       {"generate_text: stop token 4 is not in the vocabulary of 4 tokens", text(lm, "a", {.stop_tokens = {4}})},
       {"a stop text is empty; it must have at least one character", text(lm, "a", {.stop = {"b", ""}})},
       {"temperature is -1", text(lm, "a", {.sampling = {.temperature = -1}})}});
  CHECK_FALSE(called);
}

TEST_CASE("language model: a configuration that cannot be loaded is refused before it is saved") {
  GPTConfig config = small_config(true, PositionKind::learned);
  config.attention = "my-own";
  CHECK(contains(test::error_of([&] { language_model_texts(config, CharTokenizer("abcd")); }),
                 "attention: the mechanism is 'my-own'; it must be one of"));
}

TEST_CASE("language model: an invalid configuration, or one of another model, is refused with one sentence") {
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
  CHECK(with("dropout", 1) == has("1 for dropout", "a number of at least 0 and below 1"));
  CHECK(with("bias", "no") == has("\"no\" for bias", "true or false"));
  CHECK(with("attention", 1) == has("1 for attention", "a string"));
  CHECK(
      with("activation", "gelu\x1b") ==
      has("\"gelu\\u001b\" for activation", "geglu, geglu-tanh, gelu, gelu-tanh, relu, relu-squared, silu or swiglu"));
  CHECK(with("model", "gpt5") == has("\"gpt5\" for model", "gpt or mlm"));
  CHECK(with("tied", json(json::value_t::discarded)) == "the configuration lacks tied");
  CHECK(with("vocabulary", 3) == "the tokenizer has 4 tokens and the model 3; the model must have at least 4");
  CHECK(with("vocabulary", 5) == "tokens.weight is [4, 8] but the configuration requires [5, 8]");
  CHECK(with("model", "mlm") == "the tokenizer has 4 tokens and the model 4; the model must have 5");
  CHECK(with("width", 1 << 20) == "tokens.weight is [4, 8] but the configuration requires [4, 1048576]");
  CHECK(with("context", 1 << 20) == "positions.weight is [6, 8] but the configuration requires [1048576, 8]");
  CHECK(with("layers", 1 << 20) == "the file has 2 blocks and the configuration 1048576 layers; they must agree");
  CHECK(with("hidden", 1 << 20) == "blocks.0.mlp.down.weight is [8, 12] but the configuration requires [8, 1048576]");
  Checkpoint c = good;
  for (const char* text : {"", "{", "[]"}) {
    c.texts["config"] = text;
    CHECK(refusal(c) == "the configuration is not a JSON object");
  }
  c = good;
  c.texts["tokenizer"] = Tokenizer(CharTokenizer("abcde")).to_json();
  CHECK(refusal(c) == "the tokenizer has 5 tokens and the model 4; the model must have at least 5");
  c = small_model(true, PositionKind::relative);
  json config = test::parse_json(c.text("config"));
  config["relative_clip"] = 1 << 20;
  c.texts["config"] = config.dump();
  CHECK(test::contains(refusal(c), "blocks.0.attention.relative.weight is "));
}
