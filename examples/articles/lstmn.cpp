// A language model of an LSTM that attends to its own past (Cheng, Dong, Lapata, "Long short-term memory-networks for
// machine reading", 2016), on the built-in stories. The program tells a story word by word, and draws which earlier
// words each word of a story attends to, as figure 1 of the paper.
//
//   lstmn --plot lstmn.svg             attends to all earlier words
//   lstmn --span 8 --plot lstmn.svg    attends to the last 8 words
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/experiments/race_questions.hpp"
#include "examples/support/article.hpp"
#include "examples/support/story_seeds.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings : TrainingSettings {
  Index hidden = 128, span = 0;

  Settings() { steps = 800, lr = 3e-3; }
  void fields(SettingFields& f) {
    f("hidden", hidden, Kind::model, "Size of the state and of embedded words [128]", whole(1));
    f("span", span, Kind::model, "Max earlier words that a step attends to; 0: all [0]", whole(0));
    TrainingSettings::fields(f, "stories");
  }
};

// Story i is a pure function of the seed and i: inputs and targets int32 [words].
struct StorySamples {
  std::shared_ptr<const StoryReader> reader;
  Index count;
  std::uint64_t seed;

  Index size() const { return count; }
  std::string fingerprint() const {
    return formatted("%lld stories, seed %llu", static_cast<long long>(count), static_cast<unsigned long long>(seed));
  }
  Sample sample(Index i) const {
    const Batch one = next_words(reader->rows(seed, static_cast<std::uint64_t>(i), 1));
    return {{"inputs", one.inputs[0].clone()}, {"targets", one.targets[0].clone()}};
  }
};

// Reads words and predicts the next one.
struct ReadingModel {
  Embedding words;  // [vocabulary, hidden]
  LSTMN reader;
  Linear output;  // [vocabulary, hidden]

  ReadingModel(Index vocabulary, const Settings& s, Rng& rng)
      : words(vocabulary, s.hidden, rng),
        reader({.input = s.hidden, .hidden = s.hidden, .span = s.span}, rng),
        output(s.hidden, vocabulary, rng) {}

  Tensor loss(const Batch& batch) const {
    return linear_cross_entropy(reader(words(batch.inputs)).y, output.weight, output.bias, batch.targets);
  }

  void members(auto&& visit) {
    visit("words", words);
    visit("reader", reader);
    visit("output", output);
  }
};

// Decoding, word by word. Rows have the same number of words.
struct ReadingState {
  const ReadingModel* model;
  LSTMNState memory = {};

  Tensor read(const Tensor& tokens, const Tensor& lengths) {
    require(!lengths.defined(), "lstmn: rows differ in length; all must have the same length");
    Tensor h;
    for (Index t = 0; t < tokens.dim(1); ++t) h = model->reader.step(model->words(tokens.select(1, t)), memory);
    return model->output(h);
  }
  void members(MemberVisitor& visit) { memory.members(visit); }
};

// A story by the model, after the line feed that begins each story.
std::string told_story(const ReadingModel& model, const StoryReader& reader, std::uint64_t seed) {
  const Tokens begin = {static_cast<std::int32_t>(reader.rows(0, 0, 1).tokens.at({0, 0}))};
  const std::vector<Tokens> prompts = {begin};
  const GenerateOptions options{.count = StoryReader::kLength, .stop_tokens = begin, .seed = seed};
  std::string text;
  const std::vector<Tokens> told = generate(ReadingState{&model}, prompts, options);
  for (const std::int32_t token : told[0]) {
    const std::string& word = reader.word(token);
    text += (text.empty() || word == "." || word == "?" || word == "\n" ? "" : " ") + word;
  }
  return text;
}

// Prints the word to which each word of a held-out story attends most, and draws all weights.
void show_attention(const ReadingModel& model, const StoryReader& reader, std::uint64_t seed, const std::string& plot) {
  const StoryRows rows = reader.rows(held_out_stories(seed), 0, 1);
  const Tensor story = rows.tokens.slice(1, 0, rows.lengths[0] - 1);
  const Tensor weights = model.reader.attention_weights(model.words(story));
  std::vector<std::string> words;
  for (const std::int32_t token : story.to_vector<std::int32_t>())
    words.push_back(reader.word(token) == "\n" ? "(begin)" : reader.word(token));
  std::vector<std::vector<double>> shades;
  std::printf("word being read, and the earlier word with the largest weight:\n");
  for (Index t = 0; t < story.dim(1); ++t) {
    std::vector<double>& row = shades.emplace_back(weights[0][t].to_vector<double>());
    std::fill(row.begin() + t, row.end(), NAN);
    if (t == 0) continue;
    const auto most = std::max_element(row.begin(), row.begin() + t);
    std::printf("%12s  %-12s %5.2f\n", words[static_cast<std::size_t>(t)].c_str(),
                words[static_cast<std::size_t>(most - row.begin())].c_str(), *most);
  }
  if (!plot.empty()) plot_matrix(plot, "The word being read (row) attends to earlier words", shades, words, words);
}

void train(const Settings& s, Article& article) {
  const auto reader = std::make_shared<const StoryReader>();
  const SampleBatches training(StorySamples{reader, s.examples, training_stories(s.seed)}, {.rows = s.batch});
  const SampleEvaluation held_out(StorySamples{reader, s.held_out, held_out_stories(s.seed)}, {.rows = 100});
  Rng rng(s.seed);
  ReadingModel model(reader->vocabulary(), s, rng);
  if (!article.train(model, s, "LSTMN", training, held_out)) return;
  std::printf("held-out loss per word: %.4f nats\na story by the model: %s\n",
              article.result().validation_loss.value_or(NAN), told_story(model, *reader, s.seed).c_str());
  show_attention(model, *reader, s.seed, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"lstmn", "Trains a language model of an LSTM that attends to its own past",
                                "the earlier words that each word attends to"},
                               argc, argv, train);
}
