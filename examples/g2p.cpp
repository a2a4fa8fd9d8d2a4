// Converts spellings to phonemes with the model of the Python package g2p-en 2.1.0. The program shows how to use a
// published model that is not one of heed's families: write it from heed's layers, name its parameters as the file
// does, and load it by name. The file is checkpoint20.npz in the package:
//
//   pip download --no-deps g2p-en==2.1.0 && unzip -j g2p_en-2.1.0-*.whl g2p_en/checkpoint20.npz
//   g2p --model checkpoint20.npz heed attention
//   g2p --model checkpoint20.npz < words.txt
#include <algorithm>
#include <heed/core/parallel.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/data/samples.hpp>
#include <heed/data/text.hpp>
#include <heed/io/npz.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/embedding.hpp>
#include <heed/layers/recurrent.hpp>

#include "examples/support/program.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

// ---- Tokens ----

// Letters: <pad>, <unk>, </s>, and a to z.
constexpr Index kLetters = 29;
constexpr std::int32_t kUnknownLetter = 1, kEndOfWord = 2, kLetterA = 3;

// Phonemes of ARPABET; the digit of a vowel is its stress.
constexpr std::string_view kPhonemes =
    "<pad> <unk> <s> </s> AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH EH0 EH1 "
    "EH2 ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R S SH T TH "
    "UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH";
constexpr std::int32_t kBegin = 2, kEnd = 3;
constexpr Index kMaxPhonemes = 20;  // per word, as in the package

// The letters of a word and its end. As in the package, ' and - are unknown letters.
Tokens tokens_of(const std::string& word) {
  constexpr std::size_t kMaxLetters = 100;  // bounds the memory of a batch
  const std::string what = "the word '" + excerpt(word) + "' has ";
  require(word.size() <= kMaxLetters, what, word.size(), " bytes; it may have ", kMaxLetters);
  Tokens tokens;
  for (const char32_t c : decode_utf8(word)) {
    const char32_t lower = c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
    const bool letter = lower >= 'a' && lower <= 'z';
    require(letter || c == '\'' || c == '-', what, show_character(c), "; it may have the letters a to z, ' and -");
    tokens.push_back(letter ? static_cast<std::int32_t>(lower - 'a') + kLetterA : kUnknownLetter);
  }
  require(std::ranges::any_of(tokens, [](std::int32_t t) { return t >= kLetterA; }), what,
          "no letter; it must have at least one");
  tokens.push_back(kEndOfWord);
  return tokens;
}

std::string text_of(const Tokens& phonemes) {
  static const std::vector<std::string_view> names = split_words(kPhonemes);
  std::string text;
  for (const std::int32_t p : phonemes)
    if (p != kEnd) text.append(text.empty() ? "" : " ").append(names[static_cast<std::size_t>(p)]);
  return text;
}

// ---- The model ----

// A GRU reads the letters of a word. Its last state is the first state of another GRU, which writes the phonemes.
struct Pronouncer {
  Embedding letters, phonemes;  // [29, width], [74, width]
  GRU encoder;
  RecurrentCell decoder;
  Linear output;  // [74, hidden]

  Pronouncer(Index width, Index hidden, Rng& rng)
      : letters(kLetters, width, rng),
        phonemes(static_cast<Index>(split_words(kPhonemes).size()), width, rng),
        encoder({.input = width, .hidden = hidden}, rng),
        decoder(RecurrentKind::gru, width, hidden, rng),
        output(hidden, phonemes.weight.dim(0), rng) {}

  // The names of the arrays in the file. The layers store weights as PyTorch does, and so does the file: gates in the
  // order reset, update, new, and one bias for inputs and one for states.
  void members(auto&& visit) {
    visit("enc_emb", letters.weight);
    visit("dec_emb", phonemes.weight);
    const auto cell = [&visit](const std::string& part, RecurrentCell& gru) {
      visit(part + "_w_ih", gru.weight_ih), visit(part + "_w_hh", gru.weight_hh);
      visit(part + "_b_ih", gru.bias_ih), visit(part + "_b_hh", gru.bias_hh);
    };
    cell("enc", encoder.cells[0]), cell("dec", decoder);
    visit("fc_w", output.weight), visit("fc_b", output.bias);
  }
};

// The state of the decoder, which generate() calls with the last phoneme of each word.
struct Pronunciation {
  const Pronouncer* model;
  Tensor hidden;  // [words, hidden]

  Tensor read(const Tensor& last, const Tensor&) {  // int32 [words, 1] -> logits [words, 74] of the next phoneme
    hidden = model->decoder(model->phonemes(last.select(1, 0)), hidden);
    return model->output(hidden);
  }
  void members(auto&& visit) { visit.buffer("hidden", hidden); }  // words that have ended leave the batch
};

// The phonemes of several words, which the model processes together.
std::vector<Tokens> pronounce(const Pronouncer& model, const std::vector<Tokens>& words) {
  std::vector<Sample> samples;
  for (const Tokens& word : words) samples.push_back({{"letters", Tensor::from(word)}});
  const Batch batch = collate(samples, {{"letters", {.lengths = true}}});  // [words, max length], padded
  const RecurrentOutput read = model.encoder(model.letters(batch["letters"]), {.lengths = batch["letters_lengths"]});
  return generate(Pronunciation{&model, read.states[0]}, std::vector<Tokens>(words.size(), {kBegin}),
                  {.count = kMaxPhonemes, .sampling = {.temperature = 0}, .stop_tokens = {kEnd}});
}

// Loads the arrays of the file into a model of their sizes. load_model() checks all names, shapes and dtypes.
Pronouncer load_pronouncer(const std::string& file) {
  Checkpoint arrays;
  arrays.source = file;
  for (const auto& [name, array] : load_npz(file)) arrays.tensors["model/" + name] = array;
  const Tensor& table = arrays.tensor("model/enc_emb");
  const Tensor& weight = arrays.tensor("model/enc_w_hh");
  require(table.rank() == 2 && weight.rank() == 2 && weight.dim(0) == 3 * weight.dim(1), file, ": enc_emb is ", table,
          " and enc_w_hh is ", weight, "; they must be [", kLetters, ", width] and [3 hidden, hidden]");
  Rng rng;
  Pronouncer model = skip_init<Pronouncer>(table.dim(1), weight.dim(1), rng);
  load_model(arrays, model);
  return model;
}

void print_phonemes(const Pronouncer& model, const std::vector<std::string>& words) {
  constexpr std::size_t kBatch = 256;  // bounds the memory
  std::vector<Tokens> letters;
  for (const std::string& word : words) letters.push_back(tokens_of(word));
  for (std::size_t first = 0; first < words.size(); first += kBatch) {
    const std::size_t last = std::min(words.size(), first + kBatch);
    const auto at = [&](std::size_t i) { return letters.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::vector<Tokens> phonemes = pronounce(model, {at(first), at(last)});
    for (std::size_t i = first; i < last; ++i) print_text(words[i] + "\t" + text_of(phonemes[i - first]) + "\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Converts spellings to phonemes with the model of g2p-en, a published GRU encoder-decoder", "g2p");
  std::string model;
  std::vector<std::string> words;
  int thread_count = 0;
  line.add("--model", model, "checkpoint20.npz of the Python package g2p-en 2.1.0",
           file_name("FILE.npz", FileRole::input), {.required = true});
  line.add_words("WORD", words, "English words [those of standard input, between white space]");
  line.add_threads(thread_count);
  return run_program(line, argc, argv, [&] {
    set_threads(thread_count);
    const Pronouncer pronouncer = load_pronouncer(model);
    if (words.empty()) {
      const std::string text = read_text("-", {.may_be_empty = true});
      for (const std::string_view word : split_words(text)) words.emplace_back(word);
    }
    print_phonemes(pronouncer, words);
    return 0;
  });
}
