// Translation of texts: a translation model with the tokenizers of its two languages, loaded from the checkpoint of a
// training run.
//
// For checkpoints of your own runs, set CheckpointOptions::texts to translator_texts(config, source, target), and train
// on TextPairs with source_end. Then load_translator("translate.h5") reads them.
//
// Example:
//
//   Rng rng(1);
//   const Tokenizer words = WordTokenizer("a red cat and a blue dog");
//   const Index vocabulary = text_marks(words).vocabulary;
//   const Seq2SeqConfig config{{.source_vocabulary = vocabulary, .target_vocabulary = vocabulary, .hidden = 8}};
//   const Translator translator{make_translation_model(config, rng), words, words};
//   const std::vector<std::string> texts = {"a red dog", "blue"};
//   std::cout << translate(translator, texts, {.beam = 2})[0] << '\n';
#pragma once
#include <filesystem>
#include <functional>
#include <heed/data/checkpoint.hpp>
#include <heed/data/tokenizer.hpp>
#include <heed/layers/conv_seq2seq.hpp>
#include <heed/layers/seq2seq.hpp>
#include <heed/layers/transformer_seq2seq.hpp>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace heed {

// A translation model, and its configuration.
using TranslationModel = std::variant<Seq2Seq, TransformerSeq2Seq, ConvS2S, ByteNet>;
using TranslationConfig = std::variant<Seq2SeqConfig, TransformerSeq2SeqConfig, ConvS2SConfig, ByteNetConfig>;

// Builds a model with initial values.
TranslationModel make_translation_model(const TranslationConfig& config, Rng& rng);
// Builds a model with the values of a checkpoint and draws no initial values. Throws Error as load_model().
TranslationModel make_translation_model(const TranslationConfig& config, const Checkpoint& values);

// A model and its tokenizers.
struct Translator {
  TranslationModel model;    // recurrent, Transformer or convolutional
  Tokenizer source, target;  // have the model's vocabularies: text_marks()
};

// The texts "config", "source_tokenizer" and "target_tokenizer" that describe a translator in a checkpoint. Throws
// Error for an attention that is not in the list of names, as language_model_texts().
std::map<std::string, std::string> translator_texts(const TranslationConfig& config, const Tokenizer& source,
                                                    const Tokenizer& target);
// The configuration in the text "config" of a checkpoint. Throws Error if the checkpoint is not of a translator.
TranslationConfig translation_config(const Checkpoint& checkpoint);
// Throw Error if the checkpoint is not of a translator, or its vocabularies do not fit its tokenizers. The first
// function is for a checkpoint that was modified: load_translator(mean_of_last_weights(load_checkpoint(file))).
Translator load_translator(const Checkpoint& checkpoint);
Translator load_translator(const std::filesystem::path& file);

// Options of translate().
struct TranslateOptions {
  Index beam = 5;                                  // width of the search; 1: greedy
  LengthPenalty penalty = LengthPenalty::average;  // of scores: see LengthPenalty
  double alpha = 1;                                // exponent of the length penalty: see LengthPenalty
  bool unknown = false;                          // whether a translation may contain "<unk>"
  Index longest = 0;                             // maximum number of tokens per text, otherwise Error; 0: no limit
  // A translation has at most max_per_token tokens per source token, plus max_extra_tokens, and at most the context of
  // a model with learned positions.
  double max_per_token = 2;
  Index max_extra_tokens = 20;
  Index batch_tokens = 4096;                     // source tokens translated in one batch, including padding
  std::function<void(Index done)> on_done = {};  // called with the number of texts that were finished
  std::string name = "text";                     // name of a text in messages, before its number: "a.txt, line"
};

// The likeliest translation of each text that the search finds; "" for a text without tokens. Throws Error with the
// number of the text if the tokenizer cannot encode a text, or if a text is longer than `longest`.
std::vector<std::string> translate(const Translator& translator, std::span<const std::string> texts,
                                   const TranslateOptions& options = {});

// How each token of a target attends to each token of the source, as the mean over heads in the decoder's last layer.
// Both end with the end token.
struct Alignment {
  Tokens source = {}, target = {};  // tokens of the two texts
  Tensor weights = {};  // [targets, sources]
};
// Throws Error for a source without tokens, and if the model has no weights.
Alignment align(const Translator& translator, const std::string& source, const std::string& target);

}  // namespace heed
