// A translator: a model that translates, with the tokenizers of its two languages, from the checkpoint that a training
// run left; and texts from it.
//
// A run leaves such a checkpoint where RunOptions::texts has translator_texts(config, source, target) and the data are
// TextPairs with source_end; then load_translator("translate.h5") reads it.
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
#include <heed/layers/seq2seq.hpp>
#include <heed/layers/transformer_seq2seq.hpp>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace heed {

using TranslationModel = std::variant<Seq2Seq, TransformerSeq2Seq>;
using TranslationConfig = std::variant<Seq2SeqConfig, TransformerSeq2SeqConfig>;

TranslationModel make_translation_model(const TranslationConfig& config, Rng& rng);
// With the values of a checkpoint, and no others first: as load_model() takes them.
TranslationModel make_translation_model(const TranslationConfig& config, const Checkpoint& values);

struct Translator {
  TranslationModel model;
  Tokenizer source, target;  // of the model's vocabularies: text_marks()
};

// What a checkpoint says of a translator beside its values: the texts "config", "source_tokenizer", "target_tokenizer".
// Error for an attention without a name that is listed, as of language_model_texts().
std::map<std::string, std::string> translator_texts(const TranslationConfig& config, const Tokenizer& source,
                                                    const Tokenizer& target);
// Of a checkpoint, by its text "config". Error where it is of no translator.
TranslationConfig translation_config(const Checkpoint& checkpoint);
// Error for what is no checkpoint of a translator, or whose vocabularies do not fit its tokenizers. The first is for a
// checkpoint that was changed in between: load_translator(mean_of_last_weights(load_checkpoint(file))).
Translator load_translator(const Checkpoint& checkpoint);
Translator load_translator(const std::filesystem::path& file);

struct TranslateOptions {
  Index beam = 5;  // texts that go on in each search; 1: greedy
  LengthPenalty penalty = LengthPenalty::average;
  double alpha = 1;
  bool unknown = false;                          // "<unk>" may be written
  Index longest = 0;                             // tokens of a text; one with more is an Error. 0: any number
  double most_per_token = 2;                     // a translation has so many tokens at most for each of the source,
  Index most_more = 20;                          // and so many more
  Index batch_tokens = 4096;                     // of sources that are translated at once, padding included
  std::function<void(Index done)> on_done = {};  // texts, as they are finished
  std::string name = "text";                     // of a text in messages, before its number: "a.txt, line"
};

// The likeliest translation of each text that the search finds. One without a token is "". Error, with the number of
// the text, where its tokenizer cannot express it or it is longer than `longest`.
std::vector<std::string> translate(const Translator& translator, std::span<const std::string> texts,
                                   const TranslateOptions& options = {});

// How each token of a target attends to the source's, the last of which ends the text, and so of the target's:
// [targets, sources], the mean over heads, of the decoder's last layer. Error where the model has no weights.
struct Alignment {
  Tokens source = {}, target = {};
  Tensor weights = {};
};
Alignment align(const Translator& translator, const std::string& source, const std::string& target);

}  // namespace heed
