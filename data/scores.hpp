// Scores of translations, BLEU and chrF, and the edit distance of label sequences.
//
// Example:
//
//   const std::vector<std::string> made = {"the cat sat on the mat", "hello there !"};
//   const std::vector<std::string> references = {"the cat sat on a mat .", "hello , world !"};
//   const Bleu score = corpus_bleu(made, {references});
//   std::cout << score.text() << '\n' << score.signature() << '\n' << corpus_chrf(made, {references}).text() << '\n';
#pragma once
#include <array>
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// How a text is split into words: v13a as mteval-v13a.pl, which separates punctuation; none at Unicode white space
// only.
enum class BleuTokens { v13a, none };

// How corpus_bleu() counts.
struct BleuOptions {
  BleuTokens tokens = BleuTokens::v13a;  // how texts are split into words
  bool lowercase = false;  // by Python's str.lower(), as in sacreBLEU
};

// BLEU: Papineni, Roukos, Ward, Zhu, "BLEU: a method for automatic evaluation of machine translation", 2002. Equals the
// scores of sacreBLEU (Post, "A call for clarity in reporting BLEU scores", 2018). The k-th order without a match
// counts as 1 / 2^k matches ("exp" smoothing). With several references, the closest length counts.
struct Bleu {
  double score = 0;                       // 0 to 100
  std::array<double, 4> precisions = {};  // of 1 to 4 words, in percent
  double brevity_penalty = 0;             // factor of the score, below 1 for texts shorter than the references
  Index length = 0, reference_length = 0;  // words
  std::array<Index, 4> matches = {}, counts = {};  // n-grams of 1 to 4 words
  Index references = 1;                            // lists of references
  BleuOptions options = {};                        // those given to corpus_bleu()

  std::string text() const;  // BLEU = 29.33 61.2/35.5/22.4/14.5 (BP = 0.985 ratio = 0.985 hyp_len = .. ref_len = ..)
  std::string signature() const;  // the settings: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp
};

// Scores `texts` against one or more lists of references, each with one reference per text. Throws Error if the numbers
// differ or there are no texts or references.
Bleu corpus_bleu(std::span<const std::string> texts, const std::vector<std::vector<std::string>>& references,
                 const BleuOptions& options = {});

// How corpus_chrf() counts.
struct ChrfOptions {
  Index characters = 6;  // max length of character n-grams
  Index words = 0;       // max length of word n-grams; 2: chrF++
  double beta = 2;       // recall has beta times the weight of precision
  bool lowercase = false;  // by Python's str.lower(), as in sacreBLEU
};

// chrF: Popovic, "chrF: character n-gram F-score for automatic MT evaluation", 2015, and "chrF++: words helping
// character n-grams", 2017. Equals the scores of sacreBLEU. Precision and recall are means over the orders that both
// sides have. With several references, the reference with the best score for each text counts.
struct Chrf {
  double score = 0;  // 0 to 100
  Index references = 1;  // lists of references
  ChrfOptions options = {};  // those given to corpus_chrf()

  std::string text() const;       // chrF2 = 52.35
  std::string signature() const;  // nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no
};

// Arguments and errors as corpus_bleu(). Also throws Error for characters below 1, words below 0 or beta not above 0.
Chrf corpus_chrf(std::span<const std::string> texts, const std::vector<std::vector<std::string>>& references,
                 const ChrfOptions& options = {});

// The minimum number of insertions, deletions and replacements that turn one sequence into the other (Levenshtein
// 1966). Their sum over a data set, divided by the number of reference labels, is the label, character or word error
// rate.
Index edit_distance(std::span<const std::int32_t> made, std::span<const std::int32_t> reference);

// The words of a text as BLEU counts them.
std::vector<std::string> bleu_words(std::string_view text, const BleuOptions& options = {});

}  // namespace heed
