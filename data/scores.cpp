// Implements BLEU, chrF and the edit distance.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <heed/core/check.hpp>
#include <heed/data/scores.hpp>
#include <heed/data/text.hpp>
#include <heed/data/unicode.hpp>
#include <map>
#include <numeric>

namespace heed {

using detail::formatted;
namespace {

using Words = std::vector<std::string>;

bool digit(char c) { return c >= '0' && c <= '9'; }

// ASCII punctuation that is always separated: all except ' - , and the full stop.
bool apart(char c) {
  const auto u = static_cast<unsigned char>(c);
  return (u >= 0x20 && u <= 0x26) || (u >= 0x28 && u <= 0x2B) || u == 0x2F || (u >= 0x3A && u <= 0x40) ||
         (u >= 0x5B && u <= 0x60) || (u >= 0x7B && u <= 0x7E);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Replaces each pair of neighbours that matches. As with a regular expression, the search continues after the pair.
template <class Match>
std::string each_pair(const std::string& text, const Match& match) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string pair = i + 1 < text.size() ? match(text[i], text[i + 1]) : std::string();
    if (pair.empty())
      out += text[i];
    else
      out += pair, ++i;
  }
  return out;
}

// The rules of mteval-v13a.pl for Western languages. Works on bytes: no byte of a character beyond ASCII is a digit or
// punctuation.
std::string tokenised_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\""), replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<"), replace_all(text, "&gt;", ">");
  std::string spaced = " ";
  for (const char c : text) spaced += apart(c) ? std::string(" ") + c + " " : std::string(1, c);
  spaced += " ";
  const auto stop = [](char c) { return c == '.' || c == ','; };
  spaced = each_pair(
      spaced, [&](char a, char b) { return !digit(a) && stop(b) ? std::string(1, a) + " " + b + " " : std::string(); });
  spaced = each_pair(
      spaced, [&](char a, char b) { return stop(a) && !digit(b) ? std::string(" ") + a + " " + b : std::string(); });
  return each_pair(
      spaced, [&](char a, char b) { return digit(a) && b == '-' ? std::string(1, a) + " " + b + " " : std::string(); });
}

template <class T>
using Grams = std::map<std::vector<T>, Index>;

// Counts the n-grams for n from 1 to `orders`.
template <class T>
std::vector<Grams<T>> grams_of(const std::vector<T>& all, std::size_t orders) {
  std::vector<Grams<T>> grams(orders);
  for (std::size_t n = 1; n <= orders; ++n)
    for (auto begin = all.begin(); all.end() - begin >= static_cast<std::ptrdiff_t>(n); ++begin)
      ++grams[n - 1][std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(n))];
  return grams;
}

// The number of n-grams, and the number that also occur in the other map, each counted as often as in both.
template <class T>
std::pair<Index, Index> count_matches(const Grams<T>& made, const Grams<T>& other) {
  Index count = 0, matches = 0;
  for (const auto& [gram, times] : made) {
    count += times;
    if (const auto found = other.find(gram); found != other.end()) matches += std::min(times, found->second);
  }
  return {count, matches};
}

using Characters = std::vector<char32_t>;

// Code points, in lower case if requested.
Characters characters_of(std::string_view given, bool lowercase) {
  const std::string text = repair_utf8(given);
  return decode_utf8(lowercase ? lower_case(text) : text);
}

// White space of Unicode.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// The words between white space.
std::vector<Characters> words_of(const Characters& text) {
  std::vector<Characters> words;
  bool inside = false;
  for (const char32_t c : text) {
    if (!is_space(c)) {
      if (!inside) words.emplace_back();
      words.back().push_back(c);
    }
    inside = !is_space(c);
  }
  return words;
}

void check_lists(const char* op, std::size_t texts, const std::vector<std::vector<std::string>>& references) {
  require(texts > 0 && !references.empty(), op, ": there are ", texts, " texts and ", references.size(),
          " lists of references; at least one of each is required");
  for (const auto& list : references)
    require(list.size() == texts, op, ": there are ", texts, " texts and ", list.size(),
            " references; the numbers must be equal");
}

}  // namespace

std::vector<std::string> bleu_words(std::string_view given, const BleuOptions& o) {
  Characters text = characters_of(given, o.lowercase);
  if (o.tokens == BleuTokens::v13a) text = decode_utf8(tokenised_13a(encode_utf8(text)));
  Words words;
  for (const Characters& word : words_of(text)) words.push_back(encode_utf8(word));
  return words;
}

Bleu corpus_bleu(std::span<const std::string> texts, const std::vector<std::vector<std::string>>& references,
                 const BleuOptions& o) {
  check_lists("corpus_bleu", texts.size(), references);
  Bleu b{.references = static_cast<Index>(references.size()), .options = o};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Words words = bleu_words(texts[i], o);
    const auto length = static_cast<Index>(words.size());
    std::vector<Grams<std::string>> max_counts(4);  // max count of each n-gram in any reference
    Index closest = -1;
    for (const auto& list : references) {
      const Words reference = bleu_words(list[i], o);
      const auto n = static_cast<Index>(reference.size());
      const auto distance = [&](Index m) { return std::pair(std::abs(m - length), m); };  // then the shorter one
      if (closest < 0 || distance(n) < distance(closest)) closest = n;
      const auto grams = grams_of(reference, 4);
      for (std::size_t k = 0; k < 4; ++k)
        for (const auto& [gram, count] : grams[k]) max_counts[k][gram] = std::max(max_counts[k][gram], count);
    }
    b.length += length, b.reference_length += closest;
    const auto grams = grams_of(words, 4);
    for (std::size_t k = 0; k < 4; ++k) {
      const auto [count, matches] = count_matches(grams[k], max_counts[k]);
      b.counts[k] += count, b.matches[k] += matches;
    }
  }
  const auto length = static_cast<double>(b.length), reference = static_cast<double>(b.reference_length);
  b.brevity_penalty = b.length >= b.reference_length ? 1 : b.length > 0 ? std::exp(1 - reference / length) : 0;
  if (std::ranges::all_of(b.matches, [](Index n) { return n == 0; })) return b;
  double half = 1, logs = 0;
  for (std::size_t k = 0; k < 4 && b.counts[k] > 0; ++k) {
    const auto count = static_cast<double>(b.counts[k]);
    if (b.matches[k] == 0) half *= 2;
    b.precisions[k] = 100 * (b.matches[k] == 0 ? 1 / half : static_cast<double>(b.matches[k])) / count;
  }
  for (const double p : b.precisions) logs += p > 0 ? std::log(p) : -detail::kInfinity;
  b.score = b.brevity_penalty * std::exp(logs / 4);
  return b;
}

std::string Bleu::text() const {
  const double ratio = reference_length > 0 ? static_cast<double>(length) / static_cast<double>(reference_length) : 0;
  return formatted("BLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)", score,
                   precisions[0], precisions[1], precisions[2], precisions[3], brevity_penalty, ratio,
                   static_cast<long long>(length), static_cast<long long>(reference_length));
}

std::string Bleu::signature() const {
  return "nrefs:" + std::to_string(references) + "|case:" + (options.lowercase ? "lc" : "mixed") +
         "|eff:no|tok:" + (options.tokens == BleuTokens::v13a ? "13a" : "none") + "|smooth:exp";
}

namespace {

bool is_punctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
}

// The n-grams that chrF compares: of characters without white space, and of words. A punctuation mark at the end of a
// word, or else at its beginning, is a separate word.
struct ChrfGrams {
  std::vector<Grams<char32_t>> characters;
  std::vector<Grams<Characters>> words;

  ChrfGrams(const std::string& text, const ChrfOptions& o) {
    Characters all;
    std::vector<Characters> split;
    for (const Characters& word : words_of(characters_of(text, o.lowercase))) {
      all.insert(all.end(), word.begin(), word.end());
      const auto cut = word.size() < 2                ? word.end()
                       : is_punctuation(word.back())  ? word.end() - 1
                       : is_punctuation(word.front()) ? word.begin() + 1
                                                      : word.end();
      if (cut != word.begin()) split.emplace_back(word.begin(), cut);
      if (cut != word.end()) split.emplace_back(cut, word.end());
    }
    characters = grams_of(all, static_cast<std::size_t>(o.characters));
    words = grams_of(split, static_cast<std::size_t>(o.words));
  }
};

// Counts of one order: in the text, in the reference, in both.
struct ChrfCounts {
  Index made = 0, reference = 0, matches = 0;
};

template <class T>
void add_counts(std::vector<ChrfCounts>& counts, const std::vector<Grams<T>>& made,
                const std::vector<Grams<T>>& reference) {
  for (std::size_t n = 0; n < made.size(); ++n) {
    const auto [count, matches] = count_matches(made[n], reference[n]);
    counts.push_back({reference[n].empty() ? 0 : count, count_matches(reference[n], made[n]).first, matches});
  }
}

double chrf_score(const std::vector<ChrfCounts>& counts, double beta) {
  double precision = 0, recall = 0, orders = 0;
  for (const ChrfCounts& c : counts) {
    if (c.made == 0 || c.reference == 0) continue;
    precision += static_cast<double>(c.matches) / static_cast<double>(c.made);
    recall += static_cast<double>(c.matches) / static_cast<double>(c.reference);
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders, recall /= orders;
  // Rounded as in sacreBLEU: the last bit decides between references with equal scores.
  return 100 * ((1 + beta * beta) * precision * recall / (beta * beta * precision + recall));
}

}  // namespace

Chrf corpus_chrf(std::span<const std::string> texts, const std::vector<std::vector<std::string>>& references,
                 const ChrfOptions& o) {
  check_lists("corpus_chrf", texts.size(), references);
  require(o.characters >= 1 && o.words >= 0 && o.beta > 0, "corpus_chrf: characters is ", o.characters, ", words is ",
          o.words, " and beta is ", o.beta, "; they must be 1 or more, 0 or more and above 0");
  std::vector<ChrfCounts> all(static_cast<std::size_t>(o.characters + o.words));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const ChrfGrams made(texts[i], o);
    std::vector<ChrfCounts> best;
    for (const auto& list : references) {
      const ChrfGrams reference(list[i], o);
      std::vector<ChrfCounts> counts;
      add_counts(counts, made.characters, reference.characters);
      add_counts(counts, made.words, reference.words);
      if (best.empty() || chrf_score(counts, o.beta) > chrf_score(best, o.beta)) best = counts;
    }
    for (std::size_t n = 0; n < all.size(); ++n) {
      all[n].made += best[n].made, all[n].reference += best[n].reference;
      all[n].matches += best[n].matches;
    }
  }
  return {chrf_score(all, o.beta), static_cast<Index>(references.size()), o};
}

std::string Chrf::text() const {
  return formatted("chrF%g%s = %.2f", options.beta, std::string(static_cast<std::size_t>(options.words), '+').c_str(),
                   score);
}

std::string Chrf::signature() const {
  return formatted("nrefs:%lld|case:%s|eff:yes|nc:%lld|nw:%lld|space:no", static_cast<long long>(references),
                   options.lowercase ? "lc" : "mixed", static_cast<long long>(options.characters),
                   static_cast<long long>(options.words));
}

Index edit_distance(std::span<const std::int32_t> made, std::span<const std::int32_t> reference) {
  std::vector<Index> row(reference.size() + 1);  // distances of the beginnings of `reference` to one of `made`
  std::iota(row.begin(), row.end(), Index{0});
  for (const std::int32_t label : made) {
    Index diagonal = row[0]++;
    for (std::size_t j = 1; j < row.size(); ++j) {
      const Index replaced = diagonal + (label == reference[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace heed
