// Finds flags by their beginning or by edit distance.
#include "examples/support/nearest_flag.hpp"

#include <algorithm>
#include <cstddef>
#include <heed/data/text.hpp>

namespace heed::examples {
namespace {

// The name in a word: steps for --steps=3.
std::string bare(const std::string& word) {
  const std::size_t begin = std::min(word.find_first_not_of('-'), word.size());
  return word.substr(begin, word.find('=', begin) - begin);
}

// The number of letters to insert, drop, change or swap with a neighbour to turn one word into another.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      std::size_t& cell = table[i][j];
      cell = i == 0 || j == 0 ? i + j : table[i - 1][j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      if (i > 0) cell = std::min(cell, table[i - 1][j] + 1);
      if (j > 0) cell = std::min(cell, table[i][j - 1] + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cell = std::min(cell, table[i - 2][j - 2] + 1);
    }
  return table[a.size()][b.size()];
}

}  // namespace

std::vector<std::string> nearest_flags(const std::string& word, const std::vector<std::string>& flags) {
  const std::string typed = bare(word);
  if (typed.empty()) return {};
  std::vector<std::string> longer;
  for (const std::string& flag : flags)
    if (bare(flag).starts_with(typed)) longer.push_back(flag);
  std::stable_sort(longer.begin(), longer.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (!longer.empty()) return longer;
  // Otherwise a single letter would be near every flag of one or two letters.
  const std::size_t max_edits = typed.size() == 1 ? 0 : std::max<std::size_t>(1, typed.size() / 3);
  std::string nearest;
  std::size_t min_edits = max_edits + 1;
  for (const std::string& flag : flags)
    if (const std::size_t n = edits(typed, bare(flag)); n < min_edits) nearest = flag, min_edits = n;
  return nearest.empty() ? std::vector<std::string>() : std::vector{nearest};
}

std::string unknown_flag(const std::string& word, const std::vector<std::string>& flags) {
  const std::vector<std::string> nearest = nearest_flags(word, flags);
  const std::string shown = excerpt(word);
  std::string text =
      word.starts_with("-") ? "there is no flag " + shown : "unexpected argument '" + shown + "'; flags begin with --";
  constexpr std::size_t kShown = 4;
  for (std::size_t i = 0; i < std::min(nearest.size(), kShown); ++i) {
    const bool last = i + 1 == nearest.size();
    text += (i == 0 ? (nearest.size() == 1 ? "; the nearest is " : "; the nearest are ") : last ? " and " : ", ");
    text += nearest[i];
  }
  if (nearest.size() > kShown) text += " and " + std::to_string(nearest.size() - kShown) + " more";
  return text;
}

}  // namespace heed::examples
