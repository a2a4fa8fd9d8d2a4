// Draws the attention weights of a language model that train_lm trained, masked or not, over a prompt.
#include <cmath>
#include <heed/core/parallel.hpp>
#include <heed/data/text.hpp>
#include <heed/layers/language_model.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/masked_sample.hpp"
#include "examples/support/program.hpp"
#include "examples/support/token_labels.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Flags {
  std::string checkpoint = "lm.h5", prompt, plot;
  Index layer = -1, head = -1;  // -1: all
  int threads = 0;
};

// The layers or heads to draw: all, or the one that a flag names. Throws UsageError if the model does not have it.
std::vector<Index> chosen(const char* flag, Index given, Index count) {
  if (given >= count)
    throw UsageError("--" + std::string(flag) + " is " + std::to_string(given) + "; it must be from 0 to " +
                     std::to_string(count - 1));
  std::vector<Index> all;
  for (Index i = given < 0 ? 0 : given; i < (given < 0 ? count : given + 1); ++i) all.push_back(i);
  return all;
}

// The tokens of the prompt. For a masked model, [MASK] is one token, whose number is the size of the vocabulary.
Tokens tokens_of(const LanguageModel& lm, const std::string& prompt) {
  if (lm.model.options().causal || prompt.find("[MASK]") == std::string::npos) return lm.tokenizer.encode(prompt);
  const auto mask = static_cast<std::int32_t>(lm.tokenizer.vocabulary_size());
  return masked_tokens(lm.tokenizer, prompt, mask, lm.model.options().context);
}

// The weights [T, T] of one head; NaN where the causal mask forbids attention.
std::vector<std::vector<double>> rows_of(const Tensor& weights, bool causal) {
  std::vector<std::vector<double>> rows;
  for (Index t = 0; t < weights.dim(0); ++t) {
    rows.push_back(weights[t].to_vector<double>());
    for (Index j = t + 1; causal && j < weights.dim(1); ++j) rows.back()[static_cast<std::size_t>(j)] = NAN;
  }
  return rows;
}

// Prints where the last token attends: the earlier token with the largest weight, and the weight of the token itself.
void print_last(Index layer, Index head, const std::vector<double>& row, const std::vector<std::string>& labels) {
  const std::size_t last = row.size() - 1;
  std::size_t best = 0;
  for (std::size_t j = 0; j < last; ++j)
    if (row[j] > row[best]) best = j;
  if (last == 0)
    std::printf("%5lld %5lld  none: it is the first  %33.3f\n", static_cast<long long>(layer),
                static_cast<long long>(head), row[last]);
  else
    std::printf("%5lld %5lld  %s %10zu %10.3f %10.3f\n", static_cast<long long>(layer), static_cast<long long>(head),
                padded("'" + labels[best] + "'", 20).c_str(), best, row[best], row[last]);
}

int draw(const Flags& flags) {
  set_threads(flags.threads);
  check_plot(flags.plot);
  const LanguageModel lm = load_language_model(flags.checkpoint);
  const GPTOptions& o = lm.model.options();
  const std::vector<Index> layers = chosen("layer", flags.layer, o.blocks.layers),
                           heads = chosen("head", flags.head, o.blocks.attention.heads);
  require(o.blocks.layers > 0, "the model has 0 layers; it must have at least one");
  require(!flags.prompt.empty(), "the prompt is empty; it must have at least one token");
  const Tokens ids = tokens_of(lm, flags.prompt);
  const auto length = static_cast<Index>(ids.size());
  require(length <= o.context, "the prompt has ", length, " tokens, but the context is ", o.context);
  const std::vector<Tensor> weights = lm.model.attention_weights(Tensor::from_values(ids.data(), length, {1, length}));

  const std::vector<std::string> labels = token_labels(lm.tokenizer, ids);
  std::printf("%lld tokens; attention of the last, '%s', to earlier tokens:\n%5s %5s  %s %10s %10s %10s\n",
              static_cast<long long>(length), labels.back().c_str(), "layer", "head", padded("most to", 20).c_str(),
              "position", "weight", "to itself");
  std::vector<std::vector<MatrixPanel>> panels;
  for (Index layer : layers) {
    std::vector<MatrixPanel>& line = panels.emplace_back();
    for (Index head : heads) {
      line.push_back({"layer " + std::to_string(layer) + ", head " + std::to_string(head),
                      rows_of(weights[static_cast<std::size_t>(layer)][0][head], o.causal)});
      print_last(layer, head, line.back().values.back(), labels);
    }
  }
  if (flags.plot.empty()) return 0;
  plot_matrices(flags.plot,
                {lm.model.transformer.blocks.front().attention.mechanism.name() + " attention", "token", "attends to",
                 labels, labels},
                panels);
  std::printf("drawn: %s\n", printable(flags.plot).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CommandLine line("Plots the attention weights of a model that train_lm trained, over a prompt", "attention_maps");
  line.add("--checkpoint", flags.checkpoint, "File that train_lm wrote [lm.h5]", file_name("FILE", FileRole::input));
  line.add("--prompt", flags.prompt,
           "Prompt, at most as long as the context. A masked model reads [MASK] as a hidden token", anything("TEXT"),
           {.required = true});
  line.add("--plot", flags.plot, "Picture, .svg or .png; without it, only the table is printed",
           file_name("FILE.svg|png", FileRole::output));
  line.add("--layer", flags.layer, "Layer to show, from 0 [all]", whole(0));
  line.add("--head", flags.head, "Head to show, from 0 [all]", whole(0));
  line.add_threads(flags.threads);
  return run_program(line, argc, argv, [&] { return draw(flags); });
}
