#include "tests/examples/programs.hpp"

#include <fstream>
#include <iterator>

namespace heed::test {

std::string program(const std::string& name) { return quoted(HEED_BUILD_DIR "/examples/" + name); }

bool same_losses(const std::string& a, const std::string& b) {
  std::vector<nlohmann::json> x = json_lines(a), y = json_lines(b);
  for (auto* log : {&x, &y})
    for (nlohmann::json& entry : *log) entry.erase("tokens_per_second");
  return x == y;
}

Training::Training() {
  std::ofstream text(file("text.txt"));
  for (int i = 0; i < 12; ++i)
    text << "The quick brown fox jumps over the lazy dog. Pack my box with five dozen jugs, " << i << " of them.\n";
}

std::string Training::arguments(const std::string& flags) const {
  return "env -C " + quoted(folder()) + " " + program("train_lm") +
         " --data text.txt --layers 1 --heads 2 --width 16 --context 16 --batch 4 --sample 0 --checkpoint lm.h5 " +
         flags;
}

}  // namespace heed::test
