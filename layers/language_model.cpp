// Text generation, and language models in checkpoints.
#include <algorithm>
#include <heed/layers/language_model.hpp>
#include <set>

namespace heed {

Tokens generate(const GPT& model, std::span<const std::int32_t> prompt, Index count, const SamplingOptions& sampling,
                Rng& rng, const std::function<bool(std::int32_t)>& on_token) {
  require(!prompt.empty(), "generate: the prompt is empty; it must have at least one token");
  const std::vector<Tokens> prompts = {{prompt.begin(), prompt.end()}};
  GenerateOptions options{.count = count, .sampling = sampling};
  if (on_token) options.on_token = [&](Index, std::int32_t token) { return on_token(token); };
  return detail::generate_by(model.make_state(), prompts, options, {&rng, 1})[0];
}

std::vector<Tokens> generate(const GPT& model, std::span<const Tokens> prompts, const GenerateOptions& options) {
  return generate(model.make_state(), prompts, options);
}

std::map<std::string, std::string> language_model_texts(const GPTConfig& config, const Tokenizer& tokenizer) {
  config.factory();  // throws Error if load_language_model() could not build the model
  return {{"config", to_json(config)}, {"tokenizer", tokenizer.to_json()}};
}

LanguageModel load_language_model(const std::filesystem::path& file, DType dtype) {
  return language_model_of(load_checkpoint(file), dtype);
}

void check_whole_model(const Checkpoint& c) {
  if (!c.texts.contains(detail::kBaseHash)) return;
  const auto base = c.texts.find("base");
  const std::string name = base == c.texts.end() ? "BASE" : printable(base->second);
  fail(c.source, " has only the trained part of a model, such as an adapter, and not its base",
       base == c.texts.end() ? "" : ", " + name,
       "; load the base, and add the adapter that finetune wrote: convert --model ", name,
       " --adapter FOLDER --merge --out FILE");
}

LanguageModel language_model_of(const Checkpoint& c, DType dtype) {
  check_whole_model(c);
  const auto config = from_json<GPTConfig>(c.text("config"), c.source);
  const Tokenizer tokenizer = Tokenizer::from_json(c.text("tokenizer"));
  check_language_model(config, c, tokenizer.vocabulary_size());
  Rng rng;
  LanguageModel lm{skip_init<GPT>(config.options, rng, config.factory()), tokenizer};
  load_model(c, lm.model);
  if (dtype != DType::float32) to(lm.model, dtype);
  return lm;
}

void check_language_model(const GPTConfig& config, const Checkpoint& checkpoint, Index vocabulary) {
  const GPTOptions& o = config.options;
  const std::string& source = checkpoint.source;
  const Index expected = o.causal ? vocabulary : vocabulary + 1;  // the last token of a masked model is the mask
  // Published models may have more rows than their tokenizers have tokens.
  require(o.vocabulary == expected || (o.causal && o.vocabulary > expected), source, ": the tokenizer has ", vocabulary,
          " tokens and the model ", o.vocabulary, "; the model must have ", o.causal ? "at least " : "", expected);
  const auto check_shape = [&](const std::string& name, const Shape& shape) {
    const Tensor& x = checkpoint.tensor("model/" + name);
    require(x.shape() == shape, source, ": ", name, " is ", x.shape(), " but the configuration requires ", shape);
  };
  const MultiHeadAttentionOptions& attention = o.blocks.attention;
  check_shape("tokens.weight", {o.vocabulary, attention.width});
  if (o.positions == PositionKind::learned) check_shape("positions.weight", {o.context, attention.width});
  std::set<std::string> blocks;
  for (auto place = checkpoint.tensors.lower_bound("model/blocks."); place != checkpoint.tensors.end(); ++place) {
    const std::string& path = place->first;
    if (!path.starts_with("model/blocks.")) break;
    blocks.insert(path.substr(0, path.find('.', std::string_view("model/blocks.").size())));
  }
  require(static_cast<Index>(blocks.size()) == o.blocks.layers, source, ": the file has ", blocks.size(),
          " blocks and the configuration ", o.blocks.layers, " layers; they must agree");
  if (o.blocks.layers > 0 && o.blocks.hidden > 0)
    check_shape("blocks.0.mlp.down.weight", {attention.width, o.blocks.hidden});
  if (o.blocks.layers > 0 && attention.relative_clip > 0)
    check_shape("blocks.0.attention.relative.weight", {attention.heads, 2 * attention.relative_clip + 1});
}

static Tokens tokens_without_prompt(const Tokenizer& tokenizer) {
  for (const char* text : {"\n", " "}) {
    try {
      if (const Tokens ids = tokenizer.encode(text); !ids.empty()) return ids;
    } catch (const EncodeError&) {  // try the next text
    }
  }
  return {0};
}

Tokens prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  if (prompt.empty()) return tokens_without_prompt(tokenizer);
  Tokens ids = tokenizer.encode(prompt);
  require(!ids.empty(), "the prompt has no tokens; it must have at least one");
  return ids;
}

// One of the generated texts. A stop text may begin in one piece and end in another.
namespace {
struct GrowingText {
  StreamDecoder decoder;
  std::string made = {};
  bool stopped = false;

  // Appends a piece, cut after the first complete stop text. Returns the appended part.
  std::string grow(std::string piece, const std::vector<std::string>& stop) {
    const std::size_t old = made.size();
    made += piece;
    for (const std::string& text : stop)
      if (const std::size_t at = made.find(text, old - std::min(old, text.size() - 1)); at != std::string::npos)
        made.resize(at + text.size()), stopped = true;
    piece.resize(made.size() - old);
    return piece;
  }
};
}  // namespace

std::vector<std::string> generate_text(const LanguageModel& lm, const std::vector<std::string>& prompts,
                                       const TextOptions& o) {
  require(lm.model.options().causal, "generate_text: a masked model cannot generate text: it only fills in masked ",
          "tokens; the model must be causal");
  check_sampling(o.sampling);
  check_vocabulary("generate_text", "stop token", o.stop_tokens, lm.model.options().vocabulary);
  std::vector<std::string> stop;  // in the tokenizer's Unicode form
  for (const std::string& text : o.stop) {
    require(!text.empty(), "generate_text: a stop text is empty; it must have at least one character");
    stop.push_back(normalized(text, lm.tokenizer.unicode()));
  }
  std::vector<Tokens> ids;
  for (const std::string& prompt : prompts) ids.push_back(prompt_tokens(lm.tokenizer, prompt));

  std::vector<GrowingText> texts(prompts.size(), {StreamDecoder(lm.tokenizer)});
  const auto give = [&](std::size_t i, const std::string& piece) {
    if (o.on_text && !piece.empty()) o.on_text(static_cast<Index>(i), piece);
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) give(i, prompts[i]);
  const auto on_token = [&](Index row, std::int32_t id) {
    const auto i = static_cast<std::size_t>(row);
    give(i, texts[i].grow(texts[i].decoder.next(id), stop));
    return !texts[i].stopped;
  };
  generate(lm.model, ids,
           {.count = o.count,
            .sampling = o.sampling,
            .stop_tokens = o.stop_tokens,
            .seed = o.seed,
            .stream = 2,
            .on_token = on_token});
  std::vector<std::string> all;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (!texts[i].stopped) give(i, texts[i].grow(texts[i].decoder.finish(), stop));
    all.push_back(prompts[i] + texts[i].made);
  }
  return all;
}

}  // namespace heed
