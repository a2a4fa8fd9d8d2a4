// Recognizes drawn speech: a spectrogram becomes the labels of its sounds by an encoder and CTC, which needs no
// alignment. Katharopoulos et al., "Transformers are RNNs", 2020, section 4.3, compare softmax attention, linear
// attention and an LSTM on such a task, with phonemes of recorded speech.
//
//   speech                                          softmax attention
//   speech --attention linear --plot speech.svg     draws what the model hears in one utterance
//   speech --attention lstm                         a bidirectional LSTM in place of the Transformer
//
// A sound has a spectrum with two peaks, lasts 2 to 6 frames, and blends into the next. Noise is added.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kBands = 24, kClasses = 21;          // of a spectrum; 20 sounds, and the blank, 0
constexpr Index kMinSounds = 3, kMaxSounds = 10;     // of an utterance
constexpr Index kMinFrames = 2, kMaxFrames = 6;      // of a sound
constexpr Index kContext = kMaxSounds * kMaxFrames;  // of the encoder

struct Settings : TrainingSettings {
  std::string attention = "softmax";
  Index layers = 2, heads = 4, width = 64;
  double noise = 0.4;

  Settings() { held_out = 500; }
  void fields(SettingFields& f) {
    f("attention", attention, Kind::model, "Encoder: softmax or linear attention, or lstm [softmax]",
      one_of({"softmax", "linear", "lstm"}, "NAME"));
    f("layers", layers, Kind::model, "Layers [2]", whole(1));
    f("heads", heads, Kind::model, "Attention heads; must divide the width [4]", whole(1));
    f("width", width, Kind::model, "Size of a frame's vector; even [64]", whole(2));
    f("noise", noise, Kind::start, "Standard deviation of the noise; peaks have height 1 [0.4]", number(0));
    TrainingSettings::fields(f, "utterances");
  }
};

// Utterance i is a pure function of the seed and i: inputs float32 [frames, bands], targets int32 [sounds].
struct Utterances {
  Index count;
  double noise;
  std::uint64_t seed;

  Index size() const { return count; }
  std::string fingerprint() const {
    return formatted("%lld utterances with noise %g, seed %llu", static_cast<long long>(count), noise,
                     static_cast<unsigned long long>(seed));
  }
  Sample sample(Index i) const {
    Rng rng(seed, static_cast<std::uint64_t>(i));
    std::vector<std::int32_t> labels;
    for (Index n = kMinSounds + rng.integer(kMaxSounds - kMinSounds + 1); n > 0; --n)
      labels.push_back(static_cast<std::int32_t>(1 + rng.integer(kClasses - 1)));
    std::vector<float> frames;
    for (std::size_t s = 0; s < labels.size(); ++s) {
      const std::int32_t next = labels[std::min(s + 1, labels.size() - 1)];
      for (Index left = kMinFrames + rng.integer(kMaxFrames - kMinFrames + 1); left > 0; --left)
        for (Index band = 0; band < kBands; ++band) {
          const double blend = left == 1 ? 0.5 : 0;  // the last frame is half the next sound
          frames.push_back(static_cast<float>((1 - blend) * level(labels[s], band) + blend * level(next, band) +
                                              noise * rng.normal()));
        }
    }
    return {{"inputs", Tensor::from(frames, {static_cast<Index>(frames.size()) / kBands, kBands})},
            {"targets", Tensor::from(labels, {static_cast<Index>(labels.size())})}};
  }

 private:
  // The spectrum of a sound: one of 5 low peaks and one of 4 high peaks.
  static double level(std::int32_t sound, Index band) {
    const auto peak = [band](Index at) { return std::max(0., 1 - static_cast<double>(std::abs(band - at)) / 3); };
    return peak(1 + 2 * ((sound - 1) % 5)) + peak(12 + 3 * ((sound - 1) / 5));
  }
};

// Frames to vectors, an encoder, and scores of the classes per frame.
class Recognizer {
 public:
  Linear input;
  std::optional<Transformer> transformer;
  std::optional<LSTM> lstm;
  Linear head;

  Recognizer(const Settings& s, Rng& rng) : input(kBands, s.width, rng), head(s.width, kClasses, rng) {
    if (s.attention == "lstm")
      lstm.emplace(RecurrentOptions{.input = s.width, .hidden = s.width / 2, .layers = s.layers, .bidirectional = true},
                   rng);
    else
      transformer.emplace(
          TransformerOptions{
              .layers = s.layers, .attention = {.width = s.width, .heads = s.heads}, .dropout = 0, .norm_first = true},
          rng, mechanism_by_name(s.attention, {.causal = false, .context = kContext}));
  }

  // [B, T, bands] -> log probabilities [B, T, classes]
  Tensor operator()(In frames, const Tensor& lengths) const {
    const Tensor x = input(frames);
    const Tensor y = lstm ? (*lstm)(x, {.lengths = lengths}).y
                          : (*transformer)(x + sinusoidal_positions(x.dim(1), x.dim(2)), {.key_lengths = lengths});
    return log_softmax(head(y), -1);
  }
  Tensor loss(const Batch& b) const {
    const Tensor log_probs = (*this)(b.inputs, b.at("inputs_lengths"));
    return weighted_loss(ctc_loss(log_probs, b.targets, b.at("inputs_lengths"), b.at("targets_lengths")),
                         static_cast<double>(b.samples()));
  }

  void members(MemberVisitor& visit) {
    visit("input", input);
    visit("transformer", transformer);
    visit("lstm", lstm);
    visit("head", head);
  }
};

std::span<const std::int32_t> labels_in(const Batch& b, Index row) {
  return {b.targets.ptr<std::int32_t>() + row * b.targets.dim(1),
          static_cast<std::size_t>(b.at("targets_lengths").at({row}))};
}

// The loss, and the label error rate: edits per label of the batch.
Metrics metrics_of(const Recognizer& model, const Batch& b) {
  const std::vector<Tokens> heard = ctc_greedy(model(b.inputs, b.at("inputs_lengths")), b.at("inputs_lengths"));
  double edits = 0;
  for (Index i = 0; i < b.samples(); ++i)
    edits += static_cast<double>(edit_distance(heard[static_cast<std::size_t>(i)], labels_in(b, i)));
  return {{"loss", model.loss(b).item()}, {"error rate", edits / static_cast<double>(b.counted)}};
}

// Prints the sounds of an utterance and those heard, and draws the probability of each class per frame.
void show(const Recognizer& model, const SampleEvaluation& held_out, const std::string& plot) {
  const NoTape no_tape;
  const Evaluation evaluation;
  const Batch b = held_out.batch(0);
  const Tensor lengths = b.at("inputs_lengths"), log_probs = model(b.inputs, lengths);
  const std::vector<Tokens> heard = ctc_greedy(log_probs, lengths);
  const auto print = [](const char* what, std::span<const std::int32_t> labels) {
    std::printf("%s", what);
    for (const std::int32_t label : labels) std::printf(" %d", label);
    std::printf("\n");
  };
  for (Index i = 0; i < std::min<Index>(3, b.samples()); ++i)
    print("said ", labels_in(b, i)), print("heard", heard[static_cast<std::size_t>(i)]);
  if (plot.empty()) return;
  MatrixLabels labels{.title = "Probability of each class in the frames of an utterance",
                      .rows_name = "class",
                      .columns_name = "frame"};
  MatrixPanel panel{.title = "classes"};
  const auto frames = static_cast<Index>(lengths.at({0}));
  for (Index t = 0; t < frames; ++t) labels.columns.push_back(std::to_string(t));
  const Tensor shown = exp(log_probs[0].slice(0, 0, frames)).t();
  for (Index c = 0; c < kClasses; ++c) {
    labels.rows.push_back(c == 0 ? "blank" : std::to_string(c));
    panel.values.push_back(shown[c].to_vector<double>());
  }
  plot_matrices(plot, labels, {{panel}});
  std::fprintf(stderr, "drawn: %s\n", printable(plot).c_str());
}

void train(const Settings& s, Article& article) {
  if (s.width % s.heads != 0 || s.width % 2 != 0)
    throw UsageError("the width is " + std::to_string(s.width) + " and there are " + std::to_string(s.heads) +
                     " heads; the width must be even, and a multiple of the heads");
  const PaddingByName padding = {{"inputs", {.lengths = true}}, {"targets", {.lengths = true}}};
  const SampleBatches training(Utterances{s.examples, s.noise, 2 * s.seed}, {.rows = s.batch, .padding = padding});
  const SampleEvaluation held_out(Utterances{s.held_out, s.noise, 2 * s.seed + 1}, {.rows = 100, .padding = padding});
  Rng rng(s.seed);
  Recognizer model(s, rng);
  if (!article.train(model, s, s.attention + ", " + std::to_string(s.layers) + " layers", training, held_out,
                     [&](const Batch& b) { return metrics_of(model, b); }))
    return;
  if (article.result().validation_metrics.contains("error rate"))
    std::printf("error rate of labels: %.1f%%\n", 100 * article.result().validation_metrics.at("error rate"));
  show(model, held_out, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"speech", "Recognizes drawn speech by CTC and an encoder", "what the model hears"},
                               argc, argv, train);
}
