// Suggestions for a word of the command line that is not a flag.
#pragma once
#include <string>
#include <vector>

namespace heed::examples {

// The flags that a word may mean, best first. Flags that begin with the word are preferred. Without any, the nearest
// flag by edits, at most a third of the word's letters (at least one); a swap of two letters is one edit. Empty if no
// flag is near. Leading dashes and text after = are ignored.
std::vector<std::string> nearest_flags(const std::string& word, const std::vector<std::string>& flags);

// The error message: «there is no flag --stepps; the nearest is --steps».
std::string unknown_flag(const std::string& word, const std::vector<std::string>& flags);

}  // namespace heed::examples
