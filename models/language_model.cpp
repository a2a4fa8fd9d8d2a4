#include <heed/models/language_model.hpp>
#include <set>

namespace heed {

std::map<std::string, std::string> language_model_texts(const GPTConfig& config, const Tokenizer& tokenizer) {
  return {{"config", to_json(config)}, {"tokenizer", tokenizer.to_json()}};
}

LanguageModel load_language_model(const std::filesystem::path& file) {
  const Checkpoint c = load_checkpoint(file);
  const auto config = from_json<GPTConfig>(c.text("config"), c.source);
  const Tokenizer tokenizer = Tokenizer::from_json(c.text("tokenizer"));
  check_language_model(config, c, tokenizer.vocabulary_size());
  Rng rng;
  LanguageModel lm{GPT(config.options, rng, config.factory()), tokenizer};
  load_model(c, lm.model);
  return lm;
}

void check_language_model(const GPTConfig& config, const Checkpoint& checkpoint, Index vocabulary) {
  const GPTOptions& o = config.options;
  const std::string& source = checkpoint.source;
  const Index wanted = o.causal ? vocabulary : vocabulary + 1;  // the last is the mask
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

static std::vector<std::int32_t> tokens_without_prompt(const Tokenizer& tokenizer) {
  for (const char* text : {"\n", " "}) {
    try {
      if (const std::vector<std::int32_t> ids = tokenizer.encode(text); !ids.empty()) return ids;
    } catch (const EncodeError&) {  // the next one, then
    }
  }
  return {0};
}

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  if (prompt.empty()) return tokens_without_prompt(tokenizer);
  std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  require(!ids.empty(), "the prompt makes no token; it must make one or more");
  return ids;
}

std::string generate_text(const LanguageModel& lm, const std::string& prompt, Index count, const SamplingOptions& options,
                          Rng& rng, const std::function<void(const std::string&)>& on_text) {
  require(lm.model.options().causal, "generate_text: a masked model does not generate: it fills places in a text of which "
          "it sees both sides; the model must be causal");
  const std::vector<std::int32_t> ids = prompt_tokens(lm.tokenizer, prompt);
  check_sampling(options);
  StreamDecoder decoder(lm.tokenizer);
  std::string text;
  const auto give = [&](const std::string& piece) {
    text += piece;
    if (on_text) on_text(piece);
  };
  give(prompt);
  generate(lm.model, ids, count, options, rng, [&](std::int32_t id) {
    give(decoder.next(id));
    return true;
  });
  give(decoder.finish());
  return text;
}

}  // namespace heed
