// A Funnel-Transformer (Dai, Lai, Yang, Le, "Funnel-Transformer: filtering out sequential redundancy for efficient
// language processing", 2020), which fills in hidden words of the built-in stories. Between blocks, each two positions
// become one; a decoder brings the result back to all positions.
//
//   funnel --plot funnel.svg      stories of 80, 40 and 20 positions; draws what the first pooled positions attend to
//   funnel --blocks 1             a Transformer of the same layers, all of full length
#include <cmath>
#include <heed/heed.hpp>

#include "examples/experiments/race_questions.hpp"
#include "examples/support/article.hpp"
#include "examples/support/story_seeds.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings : TrainingSettings {
  Index blocks = 3, layers = 2, decoder_layers = 2, width = 64, heads = 4, stories = 2;
  std::string pool = "mean";

  void fields(SettingFields& f) {
    f.counted("blocks", blocks, Kind::model, "Blocks of the encoder, each of half the positions of the one before",
              whole(1, 4));
    f.counted("layers", layers, Kind::model, "Layers per block");
    f.counted("decoder-layers", decoder_layers, Kind::model, "Layers of the decoder, which see all positions");
    f.counted("width", width, Kind::model, "Size of a vector; the heads must divide it");
    f.counted("heads", heads, Kind::model, "Attention heads");
    f.counted("stories", stories, Kind::model, "Stories per row, of 40 positions each", whole(1, 100));
    f("pool", pool, Kind::model, "How two positions become one [mean]", one_of({"mean", "max"}));
    TrainingSettings::fields(f, "rows of stories");
  }
  Index length() const { return stories * StoryReader::kLength; }
};

// Row i, a pure function of the seed and i: words, of which a seventh is hidden, and the hidden words as targets.
struct HiddenWords {
  std::shared_ptr<const StoryReader> reader;
  Index count, stories;
  std::uint64_t seed;

  Index size() const { return count; }
  std::string fingerprint() const {
    return formatted("%lld rows of %lld stories, seed %llu", static_cast<long long>(count),
                     static_cast<long long>(stories), static_cast<unsigned long long>(seed));
  }
  Sample sample(Index i) const {
    const StoryRows rows = reader->rows(seed, static_cast<std::uint64_t>(i * stories), stories);
    const Index length = StoryReader::kLength;
    Tensor words = rows.tokens.clone(), hidden = Tensor::full(words.shape(), kIgnoreIndex, DType::int32);
    Rng rng(seed, static_cast<std::uint64_t>(i));
    for (Index row = 0; row < stories; ++row)
      for (Index n = 0; n < rows.lengths[static_cast<std::size_t>(row)] / 7; ++n) {
        const Index at = row * length + rng.integers({1}, 1, rows.lengths[static_cast<std::size_t>(row)]).item<Index>();
        hidden.ptr<std::int32_t>()[at] = rows.tokens.ptr<std::int32_t>()[at];
        words.ptr<std::int32_t>()[at] = static_cast<std::int32_t>(reader->vocabulary());
      }
    return {{"inputs", words.view({stories * length})}, {"targets", hidden.view({stories * length})}};
  }
};

// A layer whose queries may be fewer than the positions that they attend to.
struct FunnelLayer {
  Norm norm1, norm2;
  MultiHeadAttention attention;
  FeedForward mlp;

  FunnelLayer(const Settings& s, Rng& rng)
      : norm1({}, s.width),
        norm2({}, s.width),
        attention({.width = s.width, .heads = s.heads, .memory_width = s.width}, rng),
        mlp(s.width, rng) {}
  Tensor operator()(In queries, In x) const {  // [B, T', width], [B, T, width] -> [B, T', width]
    const Tensor h = queries + attention(norm1(queries), norm1(x));
    return h + mlp(norm2(h));
  }
  Tensor weights(In queries, In x) const {  // [B, heads, T', T]
    return attention.weights(norm1(queries), attention.project(norm1(x)));
  }
  void members(MemberVisitor& visit) {
    visit("norm1", norm1), visit("norm2", norm2), visit("attention", attention), visit("mlp", mlp);
  }
};

struct Funnel {
  Embedding words, positions;        // [vocabulary, width], [length, width]
  std::vector<FunnelLayer> encoder;  // the layers of all blocks
  std::vector<FunnelLayer> decoder;
  Norm norm;
  Linear output;  // [vocabulary, width]
  Index blocks, layers;
  bool takes_mean;

  Funnel(Index vocabulary, const Settings& s, Rng& rng)
      : words(vocabulary + 1, s.width, rng),
        positions(s.length(), s.width, rng),
        norm({}, s.width),
        output(s.width, vocabulary, rng),
        blocks(s.blocks),
        layers(s.layers),
        takes_mean(s.pool == "mean") {
    for (Index i = 0; i < blocks * layers; ++i) encoder.emplace_back(s, rng);
    for (Index i = 0; i < s.decoder_layers; ++i) decoder.emplace_back(s, rng);
  }

  Tensor embedded(In x) const { return words(x) + positions(Tensor::arange(x.dim(1))); }
  // Half as many positions: [B, T, width] -> [B, T / 2, width].
  Tensor pooled(In x) const { return takes_mean ? avg_pool1d(x->t(), 2).t() : max_pool1d(x->t(), 2).t(); }
  // The first block, and the last one: [B, T, width] and [B, T / 2^(blocks - 1), width]. Only the queries of a block's
  // first layer are pooled, so that they choose what they take from the positions before.
  std::pair<Tensor, Tensor> encoded(In x) const {
    Tensor h = embedded(x), first;
    for (std::size_t i = 0; i < encoder.size(); ++i) {
      const bool pools = i > 0 && static_cast<Index>(i) % layers == 0;
      h = encoder[i](pools ? pooled(h) : h, h);
      if (static_cast<Index>(i) + 1 == layers) first = h;
    }
    return {first, h};
  }
  Tensor operator()(In x) const {  // int32 [B, T] -> logits [B, T, vocabulary]
    const auto [first, last] = encoded(x);
    const Index repeats = first.dim(1) / last.dim(1);
    Tensor h = first;
    if (repeats > 1)  // each vector of the last block for all its positions
      h = h + last.unsqueeze(2).expand({h.dim(0), last.dim(1), repeats, h.dim(2)}).reshape(h.shape());
    for (const FunnelLayer& layer : decoder) h = layer(h, h);
    return output(norm(h));
  }
  Tensor loss(const Batch& b) const { return cross_entropy((*this)(b.inputs), b.targets); }
  // Positions that all layers compute, as a share of those of layers of full length.
  double share_of_positions() const {
    double own = static_cast<double>(decoder.size()), all = own + static_cast<double>(encoder.size());
    for (std::size_t i = 0; i < encoder.size(); ++i)
      own += std::exp2(-static_cast<double>(static_cast<Index>(i) / layers));
    return own / all;
  }

  void members(MemberVisitor& visit) {
    visit("words", words), visit("positions", positions), visit("encoder", encoder), visit("decoder", decoder);
    visit("norm", norm), visit("output", output);
  }
};

// Draws which words the first pooled positions of a story attend to.
void draw(const Funnel& model, const StoryReader& reader, const Tensor& inputs, const std::string& plot) {
  const NoTape no_tape;
  const Evaluation evaluation;
  const auto first = static_cast<std::size_t>(model.layers);
  Tensor h = model.embedded(inputs);
  for (std::size_t i = 0; i < first; ++i) h = model.encoder[i](h, h);
  const Tensor weights = mean(model.encoder[first].weights(model.pooled(h), h), {1})[0];  // [T / 2, T]
  std::vector<std::string> words, pairs;
  for (const std::int32_t token : inputs[0].slice(0, 0, StoryReader::kLength / 2).to_vector<std::int32_t>())
    words.push_back(token == reader.vocabulary() ? "[hidden]"
                    : reader.word(token) == "\n" ? "(begin)"
                                                 : reader.word(token));
  std::vector<std::vector<double>> shades;
  for (std::size_t i = 0; i < words.size() / 2; ++i) {
    pairs.push_back(words[2 * i] + " " + words[2 * i + 1]);
    shades.push_back(weights[static_cast<Index>(i)].slice(0, 0, static_cast<Index>(words.size())).to_vector<double>());
  }
  plot_matrix(plot, "A pooled position (row) attends to the words before pooling", shades, pairs, words);
}

void train(const Settings& s, Article& article) {
  if (s.width % s.heads != 0) throw UsageError("--width must be a multiple of --heads");
  if (!article.plot().empty() && s.blocks < 2) throw UsageError("--plot needs --blocks 2 or more");
  const auto reader = std::make_shared<const StoryReader>();
  const HiddenWords held_out{reader, s.held_out, s.stories, held_out_stories(s.seed)};
  Rng rng(s.seed);
  Funnel model(reader->vocabulary(), s, rng);
  if (!article.train(
          model, s, formatted("%lld blocks", static_cast<long long>(s.blocks)),
          SampleBatches(HiddenWords{reader, s.examples, s.stories, training_stories(s.seed)}, {.rows = s.batch}),
          SampleEvaluation(held_out, {.rows = 100}),
          [&](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); }))
    return;
  const Metrics& metrics = article.result().validation_metrics;
  std::printf("the layers compute %.0f%% of the positions of layers of full length\nhidden words found: %.1f%%\n",
              100 * model.share_of_positions(), metrics.empty() ? NAN : 100 * metrics.at("accuracy"));
  if (!article.plot().empty()) draw(model, *reader, held_out.sample(0).at("inputs").unsqueeze(0), article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"funnel", "Trains a Funnel-Transformer to fill in hidden words of stories",
                                "the words that pooled positions attend to"},
                               argc, argv, train);
}
