// BERT (Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers for language
// understanding", 2018): pre-trains a small encoder on the built-in stories by two tasks. It finds hidden words, and
// decides whether the second text of its input follows the first.
//
//   bert --plot heads.svg               pre-trains, and draws where the heads look for a hidden word
//   bert --resume --save stories_bert   writes the model for transformers: BertForPreTraining, with its tokenizer
//
// An input is "[CLS] a [SEP] b [SEP]", where a is the beginning of a story and b its rest or, for half of the inputs,
// the rest of another story. Of the words, 15% are chosen: 80% of these become [MASK], 10% another word, 10% stay.
#include <cmath>
#include <heed/heed.hpp>

#include "examples/experiments/race_questions.hpp"
#include "examples/support/article.hpp"
#include "examples/support/masked_sample.hpp"
#include "examples/support/story_seeds.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings : TrainingSettings {
  Index layers = 4, width = 96, heads = 4;
  double dropout = 0;
  std::string save;

  Settings() { steps = 3000, batch = 32, examples = 100000, held_out = 500, lr = 1e-3; }
  void fields(SettingFields& f) {
    f("layers", layers, Kind::model, "Layers [4]", whole(1));
    f("width", width, Kind::model, "Size of a vector; the heads must divide it [96]", whole(1));
    f("heads", heads, Kind::model, "Attention heads [4]", whole(1));
    f("dropout", dropout, Kind::training, "Share of values that are dropped; 0.1 in the paper [0]", number(0, 0.9));
    f("save", save, Kind::run, "Folder to write after training, for transformers [none]", new_model_name()).stored =
        false;
    TrainingSettings::fields(f, "pairs of texts");
  }
};

// ---- Words ----

const std::vector<std::string> kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
enum : std::int32_t { kPad, kUnknown, kCls, kSep, kMask, kWords };

// The tokenizer of BERT, with the words of the stories as pieces.
JsonTokenizer tokenizer_of_stories() {
  using Json = nlohmann::ordered_json;
  const StoryReader reader;
  Json vocabulary = Json::object(), added = Json::array(), file = Json::object();
  for (const std::string& word : kSpecial) {
    added.push_back({{"id", added.size()}, {"content", word}, {"single_word", false}, {"lstrip", false}});
    added.back().update({{"rstrip", false}, {"normalized", false}, {"special", true}});
    vocabulary[word] = vocabulary.size();
  }
  for (std::int32_t i = 0; i < reader.vocabulary(); ++i)
    if (reader.word(i) != "\n") vocabulary[reader.word(i)] = vocabulary.size();
  file["version"] = "1.0";
  file["added_tokens"] = added;
  file["pre_tokenizer"]["type"] = "BertPreTokenizer";
  file["post_processor"]["type"] = "BertProcessing";
  for (const auto& [name, id] : {std::pair{"sep", kSep}, std::pair{"cls", kCls}}) {
    file["post_processor"][name] = Json::array();
    file["post_processor"][name].push_back(kSpecial[static_cast<std::size_t>(id)]);
    file["post_processor"][name].push_back(static_cast<int>(id));
  }
  file["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  file["model"] = {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"continuing_subword_prefix", "##"}};
  file["model"]["max_input_chars_per_word"] = 100;
  file["model"]["vocab"] = vocabulary;
  return JsonTokenizer::from_state(file.dump());
}

// 0 up to the first [SEP], then 1: int32 [B, T].
Tensor segments(const Tensor& words) {
  Tensor types = Tensor::zeros(words.shape(), DType::int32);
  for (Index row = 0, T = words.dim(1); row < words.dim(0); ++row) {
    const std::int32_t* begin = words.ptr<std::int32_t>() + row * T;
    const Index first = std::find(begin, begin + T, kSep) - begin;
    if (first < T) types[row].slice(0, first + 1, T).fill_(1);
  }
  return types;
}

// ---- Pairs of texts ----

// Pair i, a pure function of the seed and i: the words, and whether the second text is that of another story.
struct Pairs {
  JsonTokenizer tokenizer;
  Index count;
  std::uint64_t seed;
  Stories stories = Stories();

  Index size() const { return count; }
  std::string fingerprint() const {
    return formatted("%lld pairs, seed %llu", static_cast<long long>(count), static_cast<unsigned long long>(seed));
  }
  Sample sample(Index i) const {
    const bool other = i % 2 == 1;
    Tokens words = {kCls};
    for (const std::string& text : {parts(i).first, parts(other ? count + i : i).second}) {
      for (const std::int32_t id : tokenizer.encode(text)) words.push_back(id);
      words.push_back(kSep);
    }
    return {{"inputs", Tensor::from(words, {static_cast<Index>(words.size())})},
            {"other", Tensor::full({}, other ? 1 : 0, DType::int32)}};
  }

 private:
  // A story before and after a random end of a sentence.
  std::pair<std::string, std::string> parts(Index story) const {
    const std::string text = stories.story(seed, static_cast<std::uint64_t>(story)).text;
    Rng rng(seed, ~static_cast<std::uint64_t>(story));  // a stream that no story uses
    std::vector<std::size_t> ends;
    for (std::size_t at = 1; at < text.size(); ++at)
      if (text[at] == ' ' && (text[at - 1] == '.' || text[at - 1] == '?')) ends.push_back(at);
    const std::size_t cut = ends[static_cast<std::size_t>(rng.integer(static_cast<Index>(ends.size())))];
    return {text.substr(0, cut), text.substr(cut + 1)};
  }
};

// ---- Model ----

GPTConfig config_of(const Settings& s, Index vocabulary) {
  return {.options = {.vocabulary = vocabulary,
                      .context = 64,
                      .blocks = {.layers = s.layers,
                                 .attention = {.width = s.width, .heads = s.heads, .norm_eps = 1e-12},
                                 .dropout = s.dropout,
                                 .activation = FeedForwardKind::gelu,
                                 .norm_first = false},
                      .token_types = 2,
                      .input_norm = true,
                      .output_bias = true,
                      .output_transform = true,
                      .causal = false}};
}

struct Pretraining {
  GPT bert;
  NextSentence next;

  Pretraining(const GPTOptions& o, Rng& rng) : bert(o, rng), next(o.blocks.attention.width, rng) {}
  Tensor hidden(const Batch& b) const {  // [B, T, width]
    return bert.hidden(b.inputs, {.key_lengths = b.get("inputs_lengths")}, segments(b.inputs));
  }
  Tensor loss(const Batch& b) const { return loss_of(hidden(b), b); }
  Metrics metrics(const Batch& b) const {
    const Tensor h = hidden(b);
    return {{"loss", loss_of(h, b).item()},
            {"words", classification_accuracy(bert.logits_of(h), b.targets)},
            {"next", classification_accuracy(next(h), b.at("other"))}};
  }
  void members(MemberVisitor& visit) { visit("bert", bert), visit("next", next); }

 private:
  Tensor loss_of(const Tensor& h, const Batch& b) const {
    return weighted_loss(bert.loss_of(h, b.targets) + cross_entropy(next(h), b.at("other")),
                         static_cast<double>(b.counted));
  }
};

// ---- Results ----

// Prints texts whose hidden words the model fills in, and whether it believes that the second follows the first.
void print_filled_in(const Pretraining& model, const Tokenizer& tokenizer, const Tensor& hidden, const Tensor& truth) {
  const Tensor h = model.hidden({.inputs = hidden});
  const Tokens words = hidden.to_vector<std::int32_t>(),
               best = argmax(model.bert.logits_of(h), -1).to_vector<std::int32_t>();
  std::printf("%s\n  the second text follows the first: %.0f%%\n",
              filled_in(tokenizer, words, best, truth.to_vector<std::int32_t>(), kMask, false).c_str(),
              100 * softmax(model.next(h), -1).at({0, 0}));
}

// Draws where each head looks from the hidden word.
void draw(const Pretraining& model, const JsonTokenizer& tokenizer, const Tensor& hidden, Index place,
          const std::string& plot) {
  std::vector<std::string> words, heads;
  for (const std::int32_t id : hidden.to_vector<std::int32_t>()) words.push_back(tokenizer.token(id));
  std::vector<std::vector<double>> shades;
  Index layer = 0;
  for (const Tensor& weights : model.bert.attention_weights(hidden, segments(hidden))) {
    ++layer;
    for (Index head = 0; head < weights.dim(1); ++head) {
      heads.push_back(
          formatted("layer %lld, head %lld", static_cast<long long>(layer), static_cast<long long>(head + 1)));
      shades.push_back(weights[0][head][place].to_vector<double>());
    }
  }
  plot_matrix(plot, "Where each head looks from the hidden word", shades, heads, words);
}

// Prints held-out texts with hidden words filled in, and draws the attention of the last one's hidden word.
void show(const Pretraining& model, const Pairs& held_out, const MaskOptions& masks, const std::string& plot) {
  const NoTape no_tape;
  const Evaluation evaluation;
  const Tokenizer tokenizer = held_out.tokenizer;
  std::printf("held-out texts with hidden words; [right], {wrong|truth}:\n");
  const MaskedEvaluation shown(SampleEvaluation(held_out, {.rows = 1}), masks);
  for (Index i = 0; i < std::min<Index>(2, held_out.size()); ++i)
    print_filled_in(model, tokenizer, shown.batch(i).inputs, held_out.sample(i).at("inputs"));
  std::printf("a story without its last answer:\n");
  const Tensor truth = held_out.sample(0).at("inputs").unsqueeze(0), hidden = truth.clone();
  const Index place = truth.dim(1) - 3;  // before ". [SEP]"
  hidden.ptr<std::int32_t>()[place] = kMask;
  print_filled_in(model, tokenizer, hidden, truth);
  if (!plot.empty()) draw(model, held_out.tokenizer, hidden, place, plot);
}

void train(const Settings& s, Article& article) {
  if (s.width % s.heads != 0) throw UsageError("--width must be a multiple of --heads");
  const JsonTokenizer tokenizer = tokenizer_of_stories();
  const GPTConfig config = config_of(s, tokenizer.vocabulary_size());
  const PaddingByName padding = {{"inputs", {.value = kPad, .lengths = true}}};
  const Pairs pairs{tokenizer, s.examples, training_stories(s.seed)},
      held_out{tokenizer, s.held_out, held_out_stories(s.seed)};
  MaskOptions masks{.vocabulary = tokenizer.vocabulary_size(), .mask = kMask, .special = kWords};
  Rng rng(s.seed);
  Pretraining model(config.options, rng);
  if (!article.train(model, s, "BERT",
                     MaskedBatches(SampleBatches(pairs, {.rows = s.batch, .padding = padding}), masks),
                     MaskedEvaluation(SampleEvaluation(held_out, {.rows = 100, .padding = padding}), masks, s.seed),
                     [&](const Batch& b) { return model.metrics(b); }))
    return;
  const Metrics& metrics = article.result().validation_metrics;
  const auto percent = [&](const char* name) { return metrics.empty() ? NAN : 100 * metrics.at(name); };
  std::printf("hidden words found: %.1f%%\nright about the next text: %.1f%%, 50%% by chance\n", percent("words"),
              percent("next"));
  masks.masked = 1, masks.random = 0;
  show(model, held_out, masks, article.plot());
  if (s.save.empty()) return;
  Pretrained written{.family = "bert", .config = config, .lm = {std::move(model.bert), tokenizer}};
  written.next_sentence = std::move(model.next);
  save_pretrained(s.save, written);
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"bert", "Pre-trains a BERT by hidden words and next sentences of stories",
                                "where the heads look for a hidden word"},
                               argc, argv, train);
}
