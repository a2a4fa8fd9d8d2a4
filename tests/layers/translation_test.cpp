// Translators of all kinds: training, checkpoints, and translation of many texts and single ones.
#include <cmath>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/data/samples.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/translation.hpp>
#include <heed/optim/optimizers/optimizers.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

Tokenizer words() { return WordTokenizer("one two three four five"); }
Tokenizer numerals() { return CharTokenizer("12345"); }

std::vector<TextPair> all_pairs() {  // words into numerals, all with up to three words
  const std::vector<std::string> names = {"one", "two", "three", "four", "five"};
  std::vector<TextPair> pairs;
  for (int a = 0; a < 5; ++a)
    for (int b = -1; b < 5; ++b) {
      const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(std::max(b, 0));
      pairs.push_back(
          {names[i] + (b < 0 ? "" : " " + names[j]), std::to_string(a + 1) + (b < 0 ? "" : std::to_string(b + 1))});
    }
  return pairs;
}

enum class TranslatorKind { recurrent, transformer, convs2s, bytenet };

TranslationConfig config_of(TranslatorKind kind) {
  const Index source = text_marks(words()).vocabulary, target = text_marks(numerals()).vocabulary;
  if (kind == TranslatorKind::recurrent)
    return Seq2SeqConfig{{.source_vocabulary = source, .target_vocabulary = target, .embedding = 16, .hidden = 32}};
  if (kind == TranslatorKind::convs2s)
    return ConvS2SConfig{{.source_vocabulary = source,
                          .target_vocabulary = target,
                          .width = 32,
                          .hidden = 32,
                          .layers = 2,
                          .dropout = 0}};
  if (kind == TranslatorKind::bytenet)
    return ByteNetConfig{{.source_vocabulary = source,
                          .target_vocabulary = target,
                          .width = 32,
                          .hidden = 32,
                          .layers = 3,
                          .dropout = 0}};
  TransformerSeq2SeqConfig c;
  c.options = {
      .source_vocabulary = source, .target_vocabulary = target, .blocks = {.attention = {.width = 32, .heads = 2}}};
  c.options.blocks.hidden = 64, c.options.blocks.layers = c.options.decoder_layers = 1, c.options.blocks.dropout = 0;
  return c;
}

Translator trained(TranslatorKind kind, Index steps) {
  Rng rng(3);
  Translator t{make_translation_model(config_of(kind), rng), words(), numerals()};
  const TextPairs pairs(all_pairs(), t.source, t.target, {.source_end = true});
  const SampleBatches batches(pairs, {.rows = 15, .padding = TextPairs::padding()});
  std::visit(
      [&](auto& model) {
        Adam adam(named_parameters(model),
                  {.lr = kind == TranslatorKind::transformer || kind == TranslatorKind::convs2s ? 5e-3 : 1e-2});
        for (Index step = 0; step < steps; ++step) {
          adam.zero_grad();
          Tape tape;
          tape.backward(model.loss(batches.batch(1, static_cast<std::uint64_t>(step))));
          adam.step();
        }
      },
      t.model);
  return t;
}

}  // namespace

TEST_CASE("a translator learns, is saved and loaded, and translates texts of any length in their order") {
  for (const TranslatorKind kind :
       {TranslatorKind::recurrent, TranslatorKind::transformer, TranslatorKind::convs2s, TranslatorKind::bytenet}) {
    CAPTURE(static_cast<int>(kind));
    Translator t = trained(kind, kind == TranslatorKind::convs2s ? 300 : 150);
    std::vector<std::string> sources, targets;
    for (const TextPair& p : all_pairs()) sources.push_back(p.source), targets.push_back(p.target);
    sources.insert(sources.begin() + 3, " "), targets.insert(targets.begin() + 3, "");
    Index done = 0;
    CHECK(translate(t, sources, {.on_done = [&](Index n) { done += n; }}) == targets);
    CHECK(done == static_cast<Index>(sources.size()));
    CHECK(translate(t, sources, {.beam = 1, .batch_tokens = 1}) == targets);
    CHECK(translate(t, sources, {.max_per_token = INFINITY}) == targets);

    const TemporaryFolder folder;
    Checkpoint c;
    c.texts = translator_texts(config_of(kind), t.source, t.target);
    std::visit([&](auto& model) { store_model(c, model); }, t.model);
    save_checkpoint(folder.path / "t.h5", c);
    const Translator again = load_translator(folder.path / "t.h5");
    CHECK(translate(again, sources) == targets);

    if (kind == TranslatorKind::bytenet) {
      CHECK(contains(error_of([&] { align(again, "three one", "31"); }), "ByteNet: the model has no attention"));
      continue;
    }
    const Alignment a = align(again, "three one", "31");
    CHECK(a.source.size() == 3);
    CHECK(a.target.size() == 3);
    CHECK(a.weights.shape() == Shape{3, 3});
    for (Index i = 0; i < 3; ++i) CHECK(sum(a.weights[i]).item() == doctest::Approx(1).epsilon(1e-5));
  }
}

TEST_CASE("files without a translator, and texts that cannot be encoded, are errors") {
  const TemporaryFolder folder;
  Rng rng(1);
  Translator t{make_translation_model(config_of(TranslatorKind::recurrent), rng), numerals(), words()};
  Checkpoint c;
  c.texts = translator_texts(config_of(TranslatorKind::recurrent), t.source, t.target);
  std::visit([&](auto& model) { store_model(c, model); }, t.model);
  save_checkpoint(folder.path / "t.h5", c);
  CHECK(contains(error_of([&] { load_translator(folder.path / "t.h5"); }),
                 "t.h5: the tokenizers have 7 and 9 tokens and the model 9 and 7; they must agree"));
  c.texts["config"] = R"({"model":"gpt"})";
  save_checkpoint(folder.path / "t.h5", c);
  CHECK(contains(error_of([&] { load_translator(folder.path / "t.h5"); }),
                 "the model is gpt; a translator requires seq2seq, transformer-seq2seq, convs2s or bytenet"));
  TranslationConfig own = config_of(TranslatorKind::recurrent);
  std::get<Seq2SeqConfig>(own).attention = "my-own";
  CHECK(contains(error_of([&] { translator_texts(own, t.source, t.target); }), "the mechanism is 'my-own'; it must"));
  const std::vector<std::string> texts = {"12", "1x"};
  CHECK(contains(error_of([&] { translate(t, texts); }), "translate: text 2: char tokenizer: the character"));
  const std::vector<std::string> lengths = {"12", "", "1234"};
  CHECK(translate(t, lengths, {.longest = 4}).size() == 3);
  CHECK(contains(error_of([&] { translate(t, lengths, {.longest = 3}); }),
                 "translate: text 3 has 4 tokens, but longest is 3; split it, or increase longest (--longest)"));
  CHECK(contains(error_of([&] { align(t, "", "one"); }), "align: the source has no token"));
}
