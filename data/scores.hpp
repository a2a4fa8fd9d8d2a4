// Scores of translations: BLEU and chrF.
//
// Example:
//
//   const std::vector<std::string> made = {"the cat sat on the mat", "hello there !"};
//   const std::vector<std::string> references = {"the cat sat on a mat .", "hello , world !"};
//   const Bleu score = corpus_bleu(made, {references});
//   std::cout << score.text() << '\n' << score.signature() << '\n' << corpus_chrf(made, {references}).text() << '\n';
#pragma once
#include <array>
#include <heed/core/dtype.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// How texts become words: as mteval-v13a.pl does, which splits punctuation off, or at white space alone, Unicode's.
enum class BleuTokens { v13a, none };

struct BleuOptions {
  BleuTokens tokens = BleuTokens::v13a;
  bool lowercase = false;  // as Python's str.lower(), which sacreBLEU calls
};

// Papineni, Roukos, Ward, Zhu, "BLEU: a method for automatic evaluation of machine translation", 2002, with the choices
// of sacreBLEU (Post, "A call for clarity in reporting BLEU scores", 2018), whose numbers it gives: an order without a
// match counts 1 / 2, 1 / 4, ... of one, by how many such orders came before («exp» smoothing), and the closest length
// of several references counts.
struct Bleu {
  double score = 0;                       // 0 to 100
  std::array<double, 4> precisions = {};  // of 1 to 4 words, in percent
  double brevity_penalty = 0;
  Index length = 0, reference_length = 0;  // words
  std::array<Index, 4> matches = {}, counts = {};
  Index references = 1;
  BleuOptions options = {};

  std::string text() const;  // BLEU = 29.33 61.2/35.5/22.4/14.5 (BP = 0.985 ratio = 0.985 hyp_len = .. ref_len = ..)
  std::string signature() const;  // nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp: how it was counted
};

// Of texts, one a line, each list of references with one for each text. Error where their numbers differ, or there are
// none.
Bleu corpus_bleu(std::span<const std::string> texts, const std::vector<std::vector<std::string>>& references,
                 const BleuOptions& options = {});

struct ChrfOptions {
  Index characters = 6;  // the longest row of characters
  Index words = 0;       // of words; 2: chrF++
  double beta = 2;       // recall counts beta times as much as precision
  bool lowercase = false;
};

// Popovic, "chrF: character n-gram F-score for automatic MT evaluation", 2015, and "chrF++: words helping character
// n-grams", 2017, with the choices of sacreBLEU, whose numbers it gives: precision and recall are means over the orders
// that both sides have, and of several references the one with the best score of each text counts.
struct Chrf {
  double score = 0;  // 0 to 100
  Index references = 1;
  ChrfOptions options = {};

  std::string text() const;       // chrF2 = 52.35
  std::string signature() const;  // nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no
};

// As corpus_bleu().
Chrf corpus_chrf(std::span<const std::string> texts, const std::vector<std::vector<std::string>>& references,
                 const ChrfOptions& options = {});

// A text as BLEU counts its words.
std::vector<std::string> bleu_words(std::string_view text, const BleuOptions& options = {});

}  // namespace heed
