// The tokenizers inside GGUF files. The metadata of the file become the text of a tokenizer.json, so that the stages
// and the stored state are those of io/tokenizer_json.hpp.
//
// The keys are those of ggml's docs/gguf.md. The rules that GGUF leaves to the reader are llama.cpp's
// (src/llama-vocab.cpp): the pattern that a name in tokenizer.ggml.pre stands for, and the defaults of missing keys.
// io/tokenizer/README.md lists what is read.
//
// Example:
//
//   const std::vector<std::string> tokens = {"a", "b", "ab"}, merges = {"a b"};
//   save_gguf("model.gguf", {{"general.architecture", "llama"}, {"tokenizer.ggml.model", "gpt2"},
//                            {"tokenizer.ggml.pre", "smollm"}, {"tokenizer.ggml.tokens", GgufArray(tokens)},
//                            {"tokenizer.ggml.merges", GgufArray(merges)}}, {});
//   const JsonTokenizer tokenizer = tokenizer_of(GgufFile("model.gguf"));
//   std::cout << tokenizer.encode("abba").size() << '\n';  // 3
//   GgufMetadata metadata = tokenizer_metadata(tokenizer);
//   metadata["general.architecture"] = "llama";
//   save_gguf("copy.gguf", metadata, {});
#pragma once
#include <heed/data/text.hpp>
#include <heed/io/gguf.hpp>
#include <heed/io/tokenizer_json.hpp>
#include <optional>
#include <span>

namespace heed {

// The tokenizer that the keys tokenizer.ggml.* describe. tokenizer.ggml.model is one of
// - gpt2: byte-level BPE. tokenizer.ggml.pre names the pattern by which a text is divided;
// - llama: the BPE of SentencePiece, in which the scores of tokens decide which pair is merged, with byte fallback;
// - t5: the unigram model of SentencePiece;
// - bert: WordPiece;
// - rwkv: the longest token at each place of a text, if all tokens are single bytes or all are single characters.
// Tokens of the types "control", "unknown" and "user defined" are added tokens. The first two are special.
// Throws Error, which names the file and the key, for another model, an unknown name in tokenizer.ggml.pre, and values
// that are missing or contradict each other.
JsonTokenizer tokenizer_of(const GgufFile& file);

// The tokens that end a text or an answer, without repeats: those of tokenizer.ggml.eos_token_id, eot_token_id and
// eom_token_id that the file has. Throws Error if an id is not below the number of tokens.
Tokens end_tokens_of(const GgufFile& file);

// The token that begins a text, tokenizer.ggml.bos_token_id; nullopt if the file has none. Throws Error as
// end_tokens_of().
std::optional<std::int32_t> begin_token_of(const GgufFile& file);

// The keys tokenizer.ggml.* that describe a tokenizer, for save_gguf(). `begin_token` becomes the token that begins a
// text, unless the tokenizer adds another one. The first three of `end_tokens` become the tokens that end a text, a
// turn and a message. A model whose vocabulary is larger than the tokenizer's needs a token for each row of its
// embedding: unused tokens [PAD32000], ... are added up to `vocabulary`. Byte-level BPE is written as "gpt2", BPE with
// byte fallback as "llama", with scores in the order of the merges, Unigram as "t5", WordPiece as "bert", and
// tokenizers whose tokens are single bytes or characters as "rwkv".
//
// Two differences remain. Engines do not normalize texts to NFC. They have no byte fallback in "t5": a character that
// is neither ASCII nor a piece is the unknown token. Throws Error, which names the part of the tokenizer.json, if GGUF
// cannot describe the tokenizer: other models, and stages for which tokenizer.ggml.pre has no name.
GgufMetadata tokenizer_metadata(const JsonTokenizer& tokenizer, std::optional<std::int32_t> begin_token = {},
                                std::span<const std::int32_t> end_tokens = {}, Index vocabulary = 0);

}  // namespace heed
