// How GGUF files describe tokenizers: keys and names of patterns. Types of tokens are PieceType.
#pragma once
#include <cstdint>
#include <string_view>

namespace heed::detail::gguf {

inline constexpr char kModelKey[] = "tokenizer.ggml.model", kPreNameKey[] = "tokenizer.ggml.pre",
                      kTokensKey[] = "tokenizer.ggml.tokens", kTypesKey[] = "tokenizer.ggml.token_type",
                      kScoresKey[] = "tokenizer.ggml.scores", kMergesKey[] = "tokenizer.ggml.merges",
                      kBeginKey[] = "tokenizer.ggml.bos_token_id", kEndKey[] = "tokenizer.ggml.eos_token_id",
                      kUnknownKey[] = "tokenizer.ggml.unknown_token_id",
                      kPaddingKey[] = "tokenizer.ggml.padding_token_id", kClassKey[] = "tokenizer.ggml.cls_token_id",
                      kTurnEndKey[] = "tokenizer.ggml.eot_token_id", kMessageEndKey[] = "tokenizer.ggml.eom_token_id",
                      kSpacePrefixKey[] = "tokenizer.ggml.add_space_prefix",
                      kTrimKey[] = "tokenizer.ggml.remove_extra_whitespaces",
                      kCharsMapKey[] = "tokenizer.ggml.precompiled_charsmap",
                      kEscapeKey[] = "tokenizer.ggml.escape_whitespaces",
                      kSpaceSuffixKey[] = "tokenizer.ggml.treat_whitespace_as_suffix",
                      kLowercaseKey[] = "tokenizer.ggml.normalizer.lowercase",
                      kAddBegin[] = "tokenizer.ggml.add_bos_token", kAddEnd[] = "tokenizer.ggml.add_eos_token",
                      kStripAccentsKey[] = "tokenizer.ggml.normalizer.strip_accents",
                      kSeparatorKey[] = "tokenizer.ggml.seperator_token_id";  // misspelt in the format

// Patterns of pre-tokenizers, as regular expressions.
inline constexpr char kLlama3[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                                  R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr char kQwen2[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                                 R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// How the byte-level tokenizers of one name in tokenizer.ggml.pre divide a text.
struct Pre {
  std::string_view name;
  const char* pattern;         // null: GPT-2's
  bool digits = false;         // each digit is a piece
  bool nfc = false;            // texts are normalized, which the published tokenizer does and llama.cpp does not
  bool ignore_merges = false;  // a piece in the vocabulary is one token
  bool begin = false;          // the default of tokenizer.ggml.add_bos_token
};

inline constexpr Pre kPre[] = {
    {"gpt-2", nullptr},
    {"phi-2", nullptr},
    {"mpt", nullptr, false, true},
    {"olmo", nullptr, false, true},
    {"exaone4", nullptr},
    {"smollm", nullptr, true},
    {"starcoder", nullptr, true},
    {"refact", nullptr, true},
    {"command-r", nullptr, true},
    {"codeshell", nullptr, true},
    {"exaone", nullptr, true},
    {"llama-bpe", kLlama3, false, false, true, true},
    {"llama3", kLlama3, false, false, true, true},
    {"llama-v3", kLlama3, false, false, true, true},
    {"falcon3", kLlama3, false, false, true, true},
    {"lfm2", kLlama3, false, false, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"qwen2", kQwen2, false, true},
    {"deepseek-r1-qwen", kQwen2},
    {"megrez", kQwen2},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
};

}  // namespace heed::detail::gguf
