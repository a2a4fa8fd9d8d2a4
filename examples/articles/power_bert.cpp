// PoWER-BERT (Goyal, Choudhury, Raje, Chakaravarthy, Sabharwal, Verma, "PoWER-BERT: accelerating BERT inference via
// progressive word-vector elimination", 2020): an encoder that answers questions about the built-in stories, and drops
// the words that receive little attention, layer by layer.
//
//   power_bert                                                     1. trains the encoder with all words
//   power_bert --init power_bert.h5 --search 1 --checkpoint s.h5   2. learns how many words each layer needs
//   power_bert --init power_bert.h5 --keep 20,8,3,1 --checkpoint k.h5 --plot kept.svg   3. trains with these
//   power_bert --pool mean                                         halves the positions after each layer instead
//
// The significance of a word is the attention that it receives, summed over heads and queries. In step 2, the word of
// rank k in layer j is multiplied by r_jk in [0, 1], and the loss is that of the answers + search sum_j j mean_k r_jk.
// Layer j then keeps sum_k r_jk words, rounded up.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>
#include <numeric>

#include "examples/experiments/race_questions.hpp"
#include "examples/support/article.hpp"
#include "examples/support/story_seeds.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kWords = StoryReader::kLength;

struct Settings : TrainingSettings {
  Index layers = 4, width = 64, heads = 4;
  std::vector<std::int64_t> keep;
  std::string pool = "none";
  double search = 0;

  Settings() { steps = 1000, batch = 64; }
  void fields(SettingFields& f) {
    f("layers", layers, Kind::model, "Layers [4]", whole(1));
    f("width", width, Kind::model, "Size of a vector; the heads must divide it [64]", whole(1));
    f("heads", heads, Kind::model, "Attention heads [4]", whole(1));
    f("keep", keep, Kind::training, "Words that each layer keeps, as 20,8,3,1 [all]",
      examples::list_of(whole(1), "N,..."));
    f("search", search, Kind::training, "Weight of the number of words in the loss; 0: no search [0]", number(0));
    f("pool", pool, Kind::training, "mean: the mean of two positions follows each layer [none]",
      one_of({"none", "mean"}));
    TrainingSettings::fields(f, "stories");
  }
};

// Story i, a pure function of the seed and i: the words up to its last question, and the last word of the answer before
// the full stop. The answer is read from the position of the line feed before the story.
struct QuestionSamples {
  std::shared_ptr<const StoryReader> reader;
  Index count;
  std::uint64_t seed;

  Index size() const { return count; }
  std::string fingerprint() const {
    return formatted("%lld questions, seed %llu", static_cast<long long>(count), static_cast<unsigned long long>(seed));
  }
  Sample sample(Index i) const {
    const StoryRows rows = reader->rows(seed, static_cast<std::uint64_t>(i), 1);
    const QuestionAnswer& answer = rows.answers.back();
    Tensor words = rows.tokens[0].clone();
    Index end = answer.end - 1;
    while (reader->word(words[end].item<std::int32_t>()) == ".") --end;
    const Tensor last = words[end].clone();
    words.slice(0, answer.begin, kWords).fill_(static_cast<double>(reader->vocabulary()));  // padding
    return {{"inputs", words}, {"targets", last}};
  }
};

// The rank of each word by its significance, int32 [B, T]: the first position is 0, padding has the largest ranks.
// weights [B, heads, T, T], mask bool8 [B, T].
Tensor ranks_of(const Tensor& weights, const Tensor& mask) {
  const Tensor received = sum(where(mask.unsqueeze(2), sum(weights, {1}), 0.0), {1});
  Tensor ranks = Tensor::empty(mask.shape(), DType::int32);
  std::vector<std::size_t> order(static_cast<std::size_t>(mask.dim(1)));
  for (Index b = 0; b < mask.dim(0); ++b) {
    std::vector<double> value = where(mask[b], received[b], -1.0).to_vector<double>();
    value[0] = INFINITY;
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t j) { return value[j]; });
    for (std::size_t k = 0; k < order.size(); ++k)
      ranks.ptr<std::int32_t>()[b * mask.dim(1) + static_cast<Index>(order[k])] = static_cast<std::int32_t>(k);
  }
  return ranks;
}

// What a layer did with the words of the first row, for the picture: the share that is left of each word.
using Left = std::vector<double>;

struct PowerBert {
  Embedding words, positions;
  std::vector<TransformerBlock> blocks;
  Norm norm;
  Linear output;
  Parameter retention;  // r [layers, words]
  std::vector<Index> keep;
  double search;
  bool pools;

  PowerBert(Index vocabulary, const Settings& s, std::vector<Index> kept, Rng& rng)
      : words(vocabulary + 1, s.width, rng),
        positions(kWords, s.width, rng),
        norm({}, s.width),
        output(s.width, vocabulary, rng),
        retention(Tensor::ones({s.layers, kWords})),
        keep(std::move(kept)),
        search(s.search),
        pools(s.pool == "mean") {
    const TransformerOptions o{.attention = {.width = s.width, .heads = s.heads},
                               .dropout = 0,
                               .activation = FeedForwardKind::gelu,
                               .norm_first = true};
    for (Index i = 0; i < s.layers; ++i) blocks.emplace_back(o, rng);
  }

  Tensor operator()(In x, std::vector<Left>* left = nullptr) const {  // int32 [B, T] -> logits [B, vocabulary]
    Tensor h = words(x) + positions(Tensor::arange(x.dim(1))), mask = ne(x, static_cast<double>(output.weight.dim(0)));
    std::vector<std::int32_t> places(static_cast<std::size_t>(kWords));  // of the first row's words
    std::iota(places.begin(), places.end(), 0);
    for (std::size_t j = 0; j < blocks.size(); ++j) {
      const TransformerBlock& block = blocks[j];
      const Tensor n = block.norm1(h);
      h = h + block.attention(n, {.key_mask = mask});
      if (search > 0 || !keep.empty()) {
        const Tensor ranks = ranks_of(block.attention.weights(n, {.key_mask = mask}), mask);
        if (search > 0)
          h = h * retained(ranks, static_cast<Index>(j), left);
        else
          take(ranks, keep[j], h, mask, places, left);
      }
      h = h + block.mlp(block.norm2(h));
      if (pools && h.dim(1) % 2 == 0) pool(h, mask);
    }
    return output(norm(h.select(1, 0)));
  }
  Tensor loss(const Batch& b) const {
    const Tensor own = cross_entropy((*this)(b.inputs), b.targets);
    if (search == 0) return own;
    const Tensor of_layers = mean(retention, {1}) * (Tensor::arange(retention.dim(0), DType::float32) + 1);
    return weighted_loss(own + sum(of_layers) * search, static_cast<double>(b.counted));
  }
  // Word vectors of a story in the feed-forward part of each layer, padding included.
  std::vector<Index> kept_words() const {
    std::vector<Index> counts;
    Index n = kWords;
    for (std::size_t j = 0; j < blocks.size(); ++j) {
      if (search > 0)
        n = std::clamp<Index>(std::lround(std::ceil(sum(retention[static_cast<Index>(j)]).item() - 1e-3)), 1, n);
      else if (!keep.empty())
        n = std::min(n, keep[j]);
      counts.push_back(n);
      if (pools && n % 2 == 0) n /= 2;
    }
    return counts;
  }

  void members(MemberVisitor& visit) {
    visit("words", words), visit("positions", positions), visit("blocks", blocks), visit("norm", norm);
    visit("output", output), visit("retention", retention);
  }

 private:
  // r of each word by its rank: [B, T, 1].
  Tensor retained(const Tensor& ranks, Index layer, std::vector<Left>* left) const {
    const Tensor r = index_select(retention[layer], 0, ranks.view({-1})).view({ranks.dim(0), kWords, 1});
    if (left != nullptr) left->push_back(r[0].to_vector<double>());
    return r;
  }
  // Keeps the `count` words of the lowest ranks, at their places.
  static void take(const Tensor& ranks, Index count, Tensor& h, Tensor& mask, std::vector<std::int32_t>& places,
                   std::vector<Left>* left) {
    const Index rows = h.dim(0), n = h.dim(1), kept = std::min(count, n);
    std::vector<std::int32_t> chosen;
    for (Index i = 0; i < rows * n; ++i)
      if (ranks.ptr<std::int32_t>()[i] < kept) chosen.push_back(static_cast<std::int32_t>(i % n));
    const Tensor index = Tensor::from(chosen, {rows, kept});
    h = gather(h, 1, index.unsqueeze(2).expand({rows, kept, h.dim(2)}));
    mask = gather(mask, 1, index);
    std::vector<std::int32_t> still;
    for (Index k = 0; k < kept; ++k)
      still.push_back(places[static_cast<std::size_t>(chosen[static_cast<std::size_t>(k)])]);
    places = still;
    if (left == nullptr) return;
    left->emplace_back(static_cast<std::size_t>(kWords), NAN);
    for (const std::int32_t place : places) left->back()[static_cast<std::size_t>(place)] = 1;
  }
  // The mean of each two positions, of which padding is no part.
  static void pool(Tensor& h, Tensor& mask) {
    const Tensor share = mask.to(DType::float32).unsqueeze(2), of_pair = avg_pool1d(share.t(), 2).t();
    h = avg_pool1d((h * share).t(), 2).t() / maximum(of_pair, 0.5);
    mask = of_pair.squeeze(2) > 0;
  }
};

std::string with_commas(const std::vector<Index>& numbers) {
  std::string text;
  for (const Index n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

void draw(const PowerBert& model, const StoryReader& reader, const Tensor& story, const std::string& plot) {
  const NoTape no_tape;
  const Evaluation evaluation;
  std::vector<Left> left;
  model(story.unsqueeze(0), &left);
  std::vector<std::string> layers, words;
  for (const std::int32_t token : story.to_vector<std::int32_t>())
    if (token < reader.vocabulary()) words.push_back(reader.word(token) == "\n" ? "(begin)" : reader.word(token));
  for (Left& row : left) row.resize(words.size()), layers.push_back("layer " + std::to_string(layers.size() + 1));
  plot_matrix(plot, "What is left of the words after each layer", left, layers, words);
}

void train(const Settings& s, Article& article) {
  if (s.width % s.heads != 0) throw UsageError("--width must be a multiple of --heads");
  const std::vector<Index> keep(s.keep.begin(), s.keep.end());
  if (!keep.empty() && static_cast<Index>(keep.size()) != s.layers)
    throw UsageError("--keep is " + with_commas(keep) + "; it must be a number for each layer");
  if ((keep.empty() ? 0 : 1) + (s.search > 0 ? 1 : 0) + (s.pool == "mean" ? 1 : 0) > 1)
    throw UsageError("only one of --keep, --search and --pool mean may be given");
  if (!article.plot().empty() && keep.empty() && s.search == 0) throw UsageError("--plot needs --keep or --search");
  const auto reader = std::make_shared<const StoryReader>();
  const QuestionSamples held_out{reader, s.held_out, held_out_stories(s.seed)};
  Rng rng(s.seed);
  PowerBert model(reader->vocabulary(), s, keep, rng);
  if (s.search > 0)
    article.after_step = [&](RunStep&) { model.retention.copy_(clamp(model.retention.detach(), 0, 1)); };
  if (!article.train(model, s, "PoWER-BERT",
                     SampleBatches(QuestionSamples{reader, s.examples, training_stories(s.seed)}, {.rows = s.batch}),
                     SampleEvaluation(held_out, {.rows = 100}),
                     [&](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); }))
    return;
  const std::vector<Index> counts = model.kept_words();
  const Metrics& metrics = article.result().validation_metrics;
  std::printf("right answers: %.1f%%; word vectors per layer: %s, %.0f%% of all\n",
              metrics.empty() ? NAN : 100 * metrics.at("accuracy"), with_commas(counts).c_str(),
              100.0 * static_cast<double>(std::accumulate(counts.begin(), counts.end(), Index{0})) /
                  static_cast<double>(s.layers * kWords));
  if (s.search > 0) std::printf("train with --keep %s\n", with_commas(counts).c_str());
  if (!article.plot().empty()) draw(model, *reader, held_out.sample(0).at("inputs"), article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"power_bert", "Trains an encoder that drops the words that receive little attention",
                                "which words are left after each layer"},
                               argc, argv, train);
}
