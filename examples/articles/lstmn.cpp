// A language model of an LSTM that attends to its own past (Cheng, Dong, Lapata, "Long short-term memory-networks for
// machine reading", 2016), on the built-in stories. It prints the loss, lets the model tell a story word by word, and
// draws which earlier words each word of a story attends to, as figure 1 of the paper.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/experiments/race_questions.hpp"
#include "examples/support/program.hpp"
#include "examples/support/story_seeds.hpp"

using namespace heed;
using namespace heed::examples;

namespace {

struct Flags {
  Index steps = 600, hidden = 128, span = 0;
  double lr = 3e-3;
  std::string plot;
  std::uint64_t seed = 1;
  int threads = 0;
};

// Reads words and predicts the next one.
struct ReadingModel {
  Embedding words;  // [vocabulary, hidden]
  LSTMN reader;
  Linear output;  // [vocabulary, hidden]

  ReadingModel(Index vocabulary, const Flags& f, Rng& rng)
      : words(vocabulary, f.hidden, rng),
        reader({.input = f.hidden, .hidden = f.hidden, .span = f.span}, rng),
        output(f.hidden, vocabulary, rng) {}

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

constexpr Index kRows = 32, kHeldOutBatches = 8;

struct StoryWords {  // training batches
  std::shared_ptr<const StoryReader> reader;

  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    return next_words(reader->rows(training_stories(seed), step * static_cast<std::uint64_t>(kRows), kRows));
  }
};

struct StoryLoss {
  double model = 0, floor = 0;
};

// The loss per word of held-out stories, and the lowest that any model can have in the mean.
StoryLoss held_out_loss(const ReadingModel& model, const StoryReader& reader, std::uint64_t seed) {
  const NoTape off;
  const Evaluation evaluation;
  StoryLoss sums;
  double counted = 0;
  for (Index i = 0; i < kHeldOutBatches; ++i) {
    const StoryRows rows = reader.rows(held_out_stories(seed), static_cast<std::uint64_t>(i * kRows), kRows);
    const Batch b = next_words(rows);
    const auto n = static_cast<double>(b.counted);
    sums.model += model.loss(b).item() * n, sums.floor += rows.nats, counted += n;
  }
  return {sums.model / counted, sums.floor / counted};
}

std::string text_of(const StoryReader& reader, const Tokens& tokens) {
  std::string text;
  for (const std::int32_t token : tokens) {
    const std::string& word = reader.word(token);
    text += (text.empty() || word == "." || word == "?" || word == "\n" ? "" : " ") + word;
  }
  return text;
}

// Draws the weights of a held-out story, and prints the word to which each word attends most.
void show_attention(const ReadingModel& model, const StoryReader& reader, const Flags& f) {
  const StoryRows rows = reader.rows(held_out_stories(f.seed), 0, 1);
  const Index length = rows.lengths[0] - 1;
  const Tensor story = rows.tokens.slice(1, 0, length);
  const Tensor weights = model.reader.attention_weights(model.words(story));
  std::vector<std::string> words;
  for (const std::int32_t token : story.to_vector<std::int32_t>())
    words.push_back(reader.word(token) == "\n" ? "(begin)" : reader.word(token));
  std::vector<std::vector<double>> shades;
  std::printf("word being read, and the earlier word with the largest weight:\n");
  for (Index t = 0; t < length; ++t) {
    std::vector<double>& row = shades.emplace_back(weights[0][t].to_vector<double>());
    std::fill(row.begin() + t, row.end(), NAN);
    if (t == 0) continue;
    const auto most = std::max_element(row.begin(), row.begin() + t);
    std::printf("%12s  %-12s %5.2f\n", words[static_cast<std::size_t>(t)].c_str(),
                words[static_cast<std::size_t>(most - row.begin())].c_str(), *most);
  }
  if (!f.plot.empty()) plot_matrix(f.plot, "LSTMN: the word being read (rows) attends to earlier words", shades, words, words);
}

int train_and_show(const Flags& f) {
  set_threads(f.threads);
  check_plot(f.plot);
  const auto reader = std::make_shared<const StoryReader>();
  Rng rng(f.seed);
  ReadingModel model(reader->vocabulary(), f, rng);
  Adam adam(named_parameters(model), {.lr = f.lr});
  Schedule schedule("linear", {.lr = f.lr, .warmup = std::min<Index>(50, f.steps / 5), .steps = f.steps});
  run(model, adam, schedule, StoryWords{reader}, {}, {.steps = f.steps, .seed = f.seed, .output = {.progress = stderr}});
  const StoryLoss loss = held_out_loss(model, *reader, f.seed);
  std::printf("held-out loss per word %.4f nats; the stories' own entropy is %.4f\n", loss.model, loss.floor);
  const Tokens begin = {reader->rows(0, 0, 1).tokens[0][0].item<std::int32_t>()};
  const Tokens story = generate(ReadingState{&model}, std::vector<Tokens>{begin},
                                {.count = StoryReader::kLength, .stop_tokens = begin, .seed = f.seed})[0];
  std::printf("a story by the model: %s\n", text_of(*reader, story).c_str());
  show_attention(model, *reader, f);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Trains a language model of an LSTM that attends to its own past, and shows where it looks", "lstmn");
  Flags f;
  line.add("--steps", f.steps, "Training steps of 32 stories [600]", whole(1));
  line.add("--hidden", f.hidden, "Size of the state and of embedded words [128]", whole(1, 1 << 16));
  line.add("--span", f.span, "Max earlier words that a step attends to [all]", whole(1));
  line.add("--lr", f.lr, "Peak learning rate [3e-3]", positive_number());
  line.add("--plot", f.plot, "Picture of the weights over a story, .svg or .png",
           file_name("FILE.svg|png", FileRole::output));
  line.add("--seed", f.seed, "Seed of weights, stories and the sample [1]", seed_number());
  line.add_threads(f.threads);
  return run_program(line, argc, argv, [&] { return train_and_show(f); });
}
