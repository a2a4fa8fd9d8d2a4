// Captions of drawn images (Xu et al., "Show, attend and tell: neural image caption generation with visual attention",
// 2015): a convolutional network turns an image into one vector per position of a grid, and an LSTM that attends to the
// positions writes a sentence.
//
//   captioner                                        soft attention: reads a weighted mean of the vectors
//   captioner --attention hard --plot words.svg      hard attention: reads one vector, which it draws at random
//
// Equations are those of the paper: 1 to 7 for the model (section 3.1), 8 to 12 for hard attention (section 4.1), and
// the doubly stochastic regularizer of soft attention (section 4.2.1). The images show one or two shapes.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"
#include "examples/support/drawn_shapes.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kSide = DrawnScene::kSide, kGrid = 6, kPositions = kGrid * kGrid;  // of an image; of its vectors
constexpr Index kMaxWords = DrawnScene::kMaxWords, kVocabulary = DrawnScene::kVocabulary;
constexpr std::int32_t kEnd = DrawnScene::kEnd;

struct Settings : TrainingSettings {
  std::string attention = "soft";
  Index channels = 48, hidden = 128;
  double cover = 0.005, reward = 0.1, entropy = 0.01;
  Settings() { steps = 3000, held_out = 500, lr = 4e-3; }
  void fields(SettingFields& f) {
    f("attention", attention, Kind::model, "Attention: soft or hard [soft]", one_of({"soft", "hard"}, "NAME"));
    f("channels", channels, Kind::model, "Numbers per position of an image [48]", whole(1));
    f("hidden", hidden, Kind::model, "Units of the LSTM [128]", whole(1));
    f("cover", cover, Kind::start, "Soft: weight of the regularizer, lambda in the paper [0.005]", number(0));
    f("reward", reward, Kind::start, "Hard: weight of the score function, lambda_r [0.1]", number(0));
    f("entropy", entropy, Kind::start, "Hard: weight of the entropy, lambda_e [0.01]", number(0));
    TrainingSettings::fields(f, "images");
  }
};

// Image i and its caption are pure functions of the seed and i: inputs [side, side, 3]; words int32 [kMaxWords]; read,
// the same words, each one step later.
struct Captions {
  Index count;
  std::uint64_t seed;

  Index size() const { return count; }
  std::string fingerprint() const {
    return formatted("%lld shapes, seed %llu", static_cast<long long>(count), static_cast<unsigned long long>(seed));
  }
  Sample sample(Index i) const {
    Rng rng(seed, static_cast<std::uint64_t>(i));
    const DrawnScene scene(rng);
    std::vector<std::int32_t> words = scene.words, read = words;
    read.insert(read.begin(), kEnd), read.resize(kMaxWords, kEnd), words.resize(kMaxWords, kIgnoreIndex);
    return {{"inputs", scene.image.tensor()}, {"read", Tensor::from(read)}, {"words", Tensor::from(words)}};
  }
};

// What the decoder does at one word.
struct Word {
  Tensor logits;                    // [B, words]
  Tensor weights;                   // alpha, [B, positions]
  Tensor looks;                     // the weights of what is read: alpha, or 1 at one position
  Tensor log_probability, entropy;  // [B]: hard attention in training
};

class Captioner {
 public:
  Conv2d edges, parts, shapes, wholes;
  Parameter places;              // [positions, channels], added to the vectors
  Linear start;                  // h_0 and c_0 from the mean of the vectors
  Linear keys, query, score;     // f_att, equation 4
  Linear gate;                   // beta, section 4.2.1
  Embedding words;               // E
  RecurrentCell decoder;         // equations 1 to 3
  Linear deep, output;           // L_h and L_z, L_o: equation 7
  MovingBaseline baseline{-40};  // the first is that of words drawn evenly

  Captioner(const Settings& s, Rng& rng)
      : edges(3, 16, 3, rng, {.padding = 1}),
        parts(16, 32, 3, rng, {.stride = 2, .padding = 1}),
        shapes(32, s.channels, 3, rng, {.stride = 2, .padding = 1}),
        wholes(s.channels, s.channels, 3, rng, {.padding = 1}),
        places(rng.normal({kPositions, s.channels}, 0, 0.1)),
        start(s.channels, 2 * s.hidden, rng),
        keys(s.channels, s.hidden, rng),
        query(s.hidden, s.hidden, rng, {.bias = false}),
        score(s.hidden, 1, rng, {.bias = false}),
        gate(s.hidden, 1, rng),
        words(kVocabulary, 32, rng),
        decoder(RecurrentKind::lstm, 32 + s.channels, s.hidden, rng),
        deep(s.hidden + s.channels, 32, rng),
        output(32, kVocabulary, rng),
        settings_(s) {}

  // The negative log likelihood per word. In training, the regularizer or the terms of hard attention are added.
  Tensor loss(const Batch& b) const {
    const WeightReuse reuse;
    // With probability 1/2, an image is read by its expectation alpha, which reduces the variance (section 4.1).
    const Tensor soft = is_drawn() ? (default_rng().uniform({b.samples(), 1}) < 0.5).to(DType::float32) : Tensor();
    Decoding now = begin(b.inputs, soft);
    const Tensor counted = ne(b.at("words"), kIgnoreIndex).to(DType::float32);
    std::vector<Tensor> logits, weights, log_drawn, entropies;
    for (Index t = 0; t < kMaxWords; ++t) {
      const Word w = next(b.at("read").select(1, t), now);
      logits.push_back(w.logits), weights.push_back(w.weights);
      log_drawn.push_back(w.log_probability), entropies.push_back(w.entropy);
    }
    const auto of_words = [&](const std::vector<Tensor>& x) { return sum(counted * stack(x, 1), {1}); };  // [B]
    const Tensor log_p = -sum(cross_entropy(stack(logits, 1), b.at("words"), {.reduction = Reduction::none}), {1});
    Tensor objective = sum(log_p);
    if (is_training() && !is_hard())
      objective = objective - settings_.cover * sum(square(1 - sum(counted.unsqueeze(2) * stack(weights, 1), {1})));
    if (is_drawn())
      objective =
          objective + settings_.entropy * sum(of_words(entropies)) +
          settings_.reward * sum(score_function((1 - soft.squeeze(1)) * of_words(log_drawn), log_p - baseline(log_p)));
    const double words_read = sum(counted).item();
    return weighted_loss(-objective / words_read, words_read);
  }
  // The most probable word after each word, up to the end; kMaxWords of each image. `looks`, unless null, gets where
  // the decoder looks for each word, [B, positions].
  std::vector<Tokens> captions(const Tensor& images, std::vector<Tensor>* looks = nullptr) const {
    const NoTape no_tape;
    const Evaluation evaluation;
    Decoding now = begin(images, Tensor());
    Tensor word = Tensor::zeros({images.dim(0)}, DType::int32);
    std::vector<Tokens> made(static_cast<std::size_t>(images.dim(0)));
    for (Index t = 0; t < kMaxWords; ++t) {
      const Word w = next(word, now);
      word = argmax(w.logits, -1);
      if (looks != nullptr) looks->push_back(w.looks);
      for (std::size_t i = 0; i < made.size(); ++i)
        if (made[i].empty() || made[i].back() != kEnd) made[i].push_back(word.data<std::int32_t>()[i]);
    }
    return made;
  }

  void members(MemberVisitor& visit) {
    visit("edges", edges), visit("parts", parts), visit("shapes", shapes), visit("wholes", wholes);
    visit("places", places), visit("start", start);
    visit("keys", keys), visit("query", query), visit("score", score), visit("gate", gate);
    visit("words", words), visit("decoder", decoder), visit("deep", deep), visit("output", output);
    visit("baseline", baseline);
  }

 private:
  Settings settings_;

  bool is_hard() const { return settings_.attention == "hard"; }
  bool is_drawn() const { return is_hard() && is_training(); }
  struct Decoding {
    Tensor vectors, keys, state, soft;  // [B, positions, channels], [B, positions, hidden], [B, 2 hidden], [B, 1]
  };
  Decoding begin(const Tensor& images, const Tensor& soft) const {
    const Tensor x = relu(shapes(relu(parts(relu(edges(images.permute({0, 3, 1, 2})))))));
    const Tensor a = relu(wholes(x)).permute({0, 2, 3, 1}).reshape({images.dim(0), kPositions, x.dim(1)}) + places;
    return {a, keys(a), tanh(start(mean(a, {1}))), soft};
  }
  // Reads a word, int32 [B], and predicts the next one.
  Word next(const Tensor& word, Decoding& now) const {
    const Tensor before = decoder.h(now.state), e = words(word);
    const Tensor scores = score(tanh(now.keys + query(before).unsqueeze(1))).squeeze(2);
    Word w;
    w.weights = w.looks = softmax(scores, -1);
    if (is_drawn()) {
      const DrawnPositions s = draw_positions(scores, default_rng());
      w.looks = now.soft * w.weights + (1 - now.soft) * one_hot(s.index, kPositions);
      w.log_probability = s.log_probability, w.entropy = s.entropy;
    } else if (is_hard()) {
      w.looks = one_hot(argmax(scores, -1), kPositions);
    }
    const Tensor z = sigmoid(gate(before)) * matmul(w.looks.unsqueeze(1), now.vectors).squeeze(1);
    now.state = decoder(concatenate({e, z}, 1), now.state);
    w.logits = output(e + deep(concatenate({decoder.h(now.state), z}, 1)));
    return w;
  }
};

Tokens caption_of(const Batch& b, Index row) {
  Tokens words = b.at("words")[row].to_vector<std::int32_t>();
  words.erase(std::find(words.begin(), words.end(), kIgnoreIndex), words.end());
  return words;
}

// The loss, and the share of captions that are right in every word.
Metrics metrics_of(const Captioner& model, const Batch& b) {
  const std::vector<Tokens> made = model.captions(b.inputs);
  double right = 0;
  for (Index i = 0; i < b.samples(); ++i) right += made[static_cast<std::size_t>(i)] == caption_of(b, i) ? 1 : 0;
  return {{"loss", model.loss(b).item()}, {"right", right / static_cast<double>(b.samples())}};
}

// Prints captions, and draws where the model looks for each word of the first image with two shapes.
void show(const Captioner& model, const Batch& b, const std::string& plot) {
  std::vector<Tensor> looks;
  const std::vector<Tokens> made = model.captions(b.inputs, &looks);
  std::size_t drawn = 0;
  for (std::size_t i = 0; i < 4 && i < made.size(); ++i) {
    if (made[i].size() > made[drawn].size()) drawn = i;
    for (const std::int32_t word : made[i]) std::printf("%s ", DrawnScene::word(word));
    std::printf("%s\n", made[i] == caption_of(b, static_cast<Index>(i)) ? "" : "(wrong)");
  }
  if (plot.empty()) return;
  MatrixLabels labels{.title = "Where the decoder looks for each word"};
  labels.rows.resize(kSide), labels.columns.resize(kSide);
  const Tensor image = b.inputs[static_cast<Index>(drawn)];
  std::vector<std::vector<MatrixPanel>> panels;
  for (std::size_t t = 0; t < made[drawn].size(); ++t) {
    if (t % 5 == 0) panels.emplace_back();
    MatrixPanel& panel = panels.back().emplace_back();
    panel.title = DrawnScene::word(made[drawn][t]);
    const Tensor look = looks[t][static_cast<Index>(drawn)] / max(looks[t][static_cast<Index>(drawn)]).item();
    for (Index y = 0; y < kSide; ++y) {
      panel.values.emplace_back();
      for (Index x = 0; x < kSide; ++x)
        panel.values.back().push_back(0.7 * look.at({y / 4 * kGrid + x / 4}) +
                                      (max(image[y][x]).item() > 0.5 ? 0.3 : 0));
    }
  }
  plot_matrices(plot, labels, panels);
  std::fprintf(stderr, "drawn: %s\n", printable(plot).c_str());
}

void train(const Settings& s, Article& article) {
  Rng rng(s.seed);
  Captioner model(s, rng);
  const SampleBatches training(Captions{s.examples, 2 * s.seed}, {.rows = s.batch});
  const SampleEvaluation held_out(Captions{s.held_out, 2 * s.seed + 1}, {.rows = 100});
  if (!article.train(model, s, s.attention + " attention", training, held_out,
                     [&](const Batch& b) { return metrics_of(model, b); }))
    return;
  const RunResult& result = article.result();
  if (result.validation_loss && result.validation_metrics.contains("right"))
    std::printf("nats per word: %.3f\ncaptions without an error: %.1f%%\n", *result.validation_loss,
                100 * result.validation_metrics.at("right"));
  show(model, held_out.batch(0), article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>(
      {"captioner", "Writes captions of drawn images, by an LSTM that attends to them", "where it looks for each word"},
      argc, argv, train);
}
