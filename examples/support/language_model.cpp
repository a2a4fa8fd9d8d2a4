#include "examples/support/language_model.hpp"

#include <cstdio>

#include "examples/support/lm_model.hpp"
#include "examples/support/program.hpp"

namespace heed::examples {
namespace {

std::vector<std::int32_t> tokens_without_prompt(const Tokenizer& tokenizer) {
  for (const char* text : {"\n", " "}) {
    try {
      if (const std::vector<std::int32_t> ids = tokenizer.encode(text); !ids.empty()) return ids;
    } catch (const EncodeError&) {  // the next one, then
    }
  }
  return {0};
}

}  // namespace

LanguageModel load_language_model(const std::filesystem::path& file) {
  LanguageModel lm = load_any_language_model(file);
  require(lm.model.options().causal, file.string(),
          ": a masked model does not generate: it fills places in a text of which it "
          "sees both sides; train_lm without --model mlm makes one that does");
  return lm;
}

LanguageModel load_any_language_model(const std::filesystem::path& file) {
  const Checkpoint c = load_checkpoint(file);
  const LmModel model = lm_model_from_json(c.text("config"), c.source);
  const Tokenizer tokenizer = Tokenizer::from_json(c.text("tokenizer"));
  check_model(model, c, tokenizer.vocabulary_size());
  Rng rng;
  LanguageModel lm{model.kind == "gpt" ? make_gpt(model, rng) : std::move(make_bert(model, rng).net),
                   tokenizer};
  load_model(c, lm.model);
  return lm;
}

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  if (prompt.empty()) return tokens_without_prompt(tokenizer);
  std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  require(!ids.empty(), "the prompt makes no token; it must make one or more");
  return ids;
}

void stream_sample(const GPT& model, const Tokenizer& tokenizer, const std::string& prompt, Index count,
                   const SamplingOptions& options, std::uint64_t seed) {
  const std::vector<std::int32_t> ids = prompt_tokens(tokenizer, prompt);
  StreamDecoder decoder(tokenizer);
  std::fputs(prompt.c_str(), stdout);
  Rng rng(seed, 2);
  generate(model, ids, count, options, rng, [&](std::int32_t id) {
    std::fputs(decoder.next(id).c_str(), stdout);
    flush_output();
    return true;
  });
  std::fputs((decoder.finish() + "\n").c_str(), stdout);
}

}  // namespace heed::examples
