// What to say of a word of the command line that is no flag.
#pragma once
#include <string>
#include <vector>

namespace heed::examples {

// The names of flags that a word may have meant, best first. Flags that begin with the word are nearer than any typing
// distance; without one, the flag whose name is at most a third of the word's letters away, at least one. Letters that
// changed places count once. Empty where no flag is near. Dashes before a word do not count, nor does what follows =.
std::vector<std::string> nearest_flags(const std::string& word, const std::vector<std::string>& flags);

// «there is no flag --stepps; the nearest is --steps»
std::string unknown_flag(const std::string& word, const std::vector<std::string>& flags);

}  // namespace heed::examples
