// A tiny published model for tests of programs.
#pragma once
#include <filesystem>
#include <heed/io/pretrained.hpp>

#include "tests/io/stored_tokenizers.hpp"

namespace heed::test {

// Writes a folder (or FILE.gguf) with a model of the class of Llama, random weights, and a tokenizer and a chat
// template of SmolLM2's form. Special tokens are never the likeliest, so that texts at temperature 0 do not end.
inline void write_tiny_model(const std::filesystem::path& path, Index context = 256) {
  const JsonTokenizer tokenizer = JsonTokenizer::from_state(tokenizer_file("smollm"));
  const GPTConfig config{.options = {.vocabulary = tokenizer.vocabulary_size(),
                                     .context = context,
                                     .blocks = {.layers = 2,
                                                .attention = {.width = 32, .heads = 4, .kv_heads = 2, .bias = false},
                                                .activation = FeedForwardKind::swiglu,
                                                .norm = NormKind::rms},
                                     .positions = PositionKind::rope,
                                     .tied = false}};
  Rng rng(1);
  Pretrained p{.family = "llama", .config = config, .lm = {GPT(config.options, rng, config.factory()), tokenizer}};
  GPT& model = p.lm.model;
  for (const NamedParameter& q : named_parameters(model))
    if (q.parameter->rank() == 2) q.parameter->copy_(*q.parameter * 10.0);  // all tokens then affect the next one
  for (const char* special : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})
    for (const std::int32_t id : tokenizer.encode(special)) model.output[id].fill_(0);
  p.end_tokens = tokenizer.encode("<|im_end|>");
  p.card.chat_template =
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
      "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  save_pretrained(path, p);
}

}  // namespace heed::test
