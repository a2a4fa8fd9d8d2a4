// Measures how much a vector of fixed length loses as sentences grow (Cho et al. 2014; Bahdanau et al. 2015, figure 2).
// The same encoder-decoder, with and without attention, with one or two directions of the encoder, translates lists of
// numbers from words into numerals:
//
//   four hundred and seven , twelve , ninety-one        407 12 91
//
// The share of right numbers is printed by the length of the list. The longest lists are longer than any in training.
#include <algorithm>
#include <cstdio>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/program.hpp"
#include "examples/support/run_report.hpp"

using namespace heed;
using namespace heed::examples;

namespace {

const std::vector<std::string> kOnes = {
    "zero", "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
    "ten",  "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
const std::vector<std::string> kTens = {"",      "",      "twenty",  "thirty", "forty",
                                        "fifty", "sixty", "seventy", "eighty", "ninety"};

std::string in_words(Index n) {  // 0 to 999
  const auto at = [](const std::vector<std::string>& list, Index i) { return list[static_cast<std::size_t>(i)]; };
  if (n < 20) return at(kOnes, n);
  if (n < 100) return at(kTens, n / 10) + (n % 10 > 0 ? " " + at(kOnes, n % 10) : "");
  return at(kOnes, n / 100) + " hundred" + (n % 100 > 0 ? " and " + in_words(n % 100) : "");
}

// List i of a seed, with `count` numbers.
TextPair number_list(std::uint64_t seed, std::uint64_t i, Index count) {
  const Tensor numbers = Rng(seed, i).integers({count}, 0, 1000);
  TextPair pair;
  for (Index n = 0; n < count; ++n) {
    const Index number = numbers[n].item<Index>();
    pair.source += (n > 0 ? " , " : "") + in_words(number);
    pair.target += (n > 0 ? " " : "") + std::to_string(number);
  }
  return pair;
}

struct Flags {
  Index steps = 1500, longest = 10, hidden = 128, lists = 200;
  std::string plot;
  std::uint64_t seed = 1;
  int threads = 0;
};

struct Variant {
  const char* name;
  DecoderAttention attention;
  bool bidirectional;
  std::vector<double> right = {};  // by the length of the list, from 1
  double seconds = 0;
};

// The share of expected numbers that are at their places in the translations.
double share_right(const std::vector<std::string>& made, const std::vector<std::string>& expected) {
  double right = 0, all = 0;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto a = split_words(made[i]), b = split_words(expected[i]);
    for (std::size_t n = 0; n < b.size(); ++n) right += n < a.size() && a[n] == b[n] ? 1 : 0;
    all += static_cast<double>(b.size());
  }
  return right / all;
}

void train_and_measure(Variant& v, const Flags& f) {
  std::vector<TextPair> pairs;
  for (std::uint64_t i = 0; i < 40000; ++i)
    pairs.push_back(number_list(f.seed, i, 1 + static_cast<Index>(i) % f.longest));
  std::string words = ", hundred and";
  for (const auto* list : {&kOnes, &kTens})
    for (const std::string& word : *list) words += " " + word;
  const Tokenizer source = WordTokenizer(words), target = CharTokenizer("0123456789 ");
  const TextPairs samples(pairs, source, target, {.source_end = true});
  const SampleBatches batches(samples, {.tokens = 2048, .padding = TextPairs::padding()});

  Rng rng(f.seed);
  Translator t{make_translation_model(Seq2SeqConfig{{.source_vocabulary = samples.source_vocabulary(),
                                                     .target_vocabulary = samples.target_vocabulary(),
                                                     .embedding = 64,
                                                     .hidden = f.hidden,
                                                     .bidirectional = v.bidirectional,
                                                     .attention = v.attention}},
                                      rng),
               source, target};
  Seq2Seq& model = std::get<Seq2Seq>(t.model);
  Adam adam(named_parameters(model), {.lr = 3e-3});
  Schedule schedule("linear", {.lr = 3e-3, .warmup = std::min<Index>(50, f.steps / 5), .steps = f.steps});
  std::fprintf(stderr, "%s\n", v.name);
  run(model, adam, schedule, batches, {}, {.steps = f.steps, .seed = f.seed, .output = {.progress = stderr}});
  for (Index count = 1; count <= f.longest * 3 / 2; ++count) {
    std::vector<std::string> sources, expected;
    for (Index i = 0; i < f.lists; ++i) {
      const TextPair p = number_list(f.seed + 1, static_cast<std::uint64_t>(count * f.lists + i), count);
      sources.push_back(p.source), expected.push_back(p.target);
    }
    v.right.push_back(share_right(translate(t, sources, {.beam = 1}), expected));
  }
}

int measure(const Flags& f) {
  set_threads(f.threads);
  check_plot(f.plot);
  std::vector<Variant> variants = {{"one vector, one direction", DecoderAttention::none, false},
                                   {"one vector, both directions", DecoderAttention::none, true},
                                   {"attention, one direction", DecoderAttention::bahdanau, false},
                                   {"attention, both directions", DecoderAttention::bahdanau, true}};
  for (Variant& v : variants) train_and_measure(v, f);
  std::printf("correct numbers in percent; the models were trained on lists of at most %lld\n%8s",
              static_cast<long long>(f.longest), "numbers");
  for (const Variant& v : variants) std::printf("%30s", v.name);
  for (std::size_t n = 0; n < variants[0].right.size(); ++n) {
    std::printf("\n%8zu", n + 1);
    for (const Variant& v : variants) std::printf("%30.1f", 100 * v.right[n]);
  }
  std::printf("\n");
  if (f.plot.empty()) return 0;
  std::vector<Series> lines;
  for (const Variant& v : variants) {
    lines.push_back({v.name, {}});
    for (std::size_t n = 0; n < v.right.size(); ++n)
      lines.back().points.emplace_back(static_cast<double>(n + 1), 100 * v.right[n]);
  }
  plot(f.plot, {"Accuracy with and without attention", "numbers in a list", "correct numbers, %"}, lines,
       {.percent = true, .names_outside = true});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Translates lists of numbers with and without attention, and prints the accuracy per list length",
                   "attention_lengths");
  Flags f;
  line.add("--steps", f.steps, "Training steps of each of the four models [1500]", whole(1));
  line.add("--longest", f.longest, "Max numbers per list in training [10]", whole(2, 100));
  line.add("--hidden", f.hidden, "Size of the hidden state [128]", whole(2));
  line.add("--lists", f.lists, "Test lists per length [200]", whole(1));
  line.add("--plot", f.plot, "Picture of the table, .svg or .png", file_name("FILE.svg|png", FileRole::output));
  line.add("--seed", f.seed, "Seed of weights and lists [1]", seed_number());
  line.add_threads(f.threads);
  return run_program(line, argc, argv, [&] { return measure(f); });
}
