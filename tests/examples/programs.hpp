// Runs heed's own programs on small inputs.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/run.hpp"

namespace heed::test {

inline std::string program(const std::string& name) {
  return quoted(std::string(HEED_BUILD_DIR) + "/examples/" + name);
}

inline std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Two logs tell the same but for the clock: no step missing, doubled or different.
inline bool same_losses(const std::string& a, const std::string& b) {
  std::vector<nlohmann::json> x = json_lines(a), y = json_lines(b);
  for (auto* log : {&x, &y})
    for (nlohmann::json& entry : *log) entry.erase("tokens_per_second");
  return x == y;
}

// A folder with a small text, and train_lm on it with a tiny model.
class Training {
 public:
  Training() {
    std::ofstream text(file("text.txt"));
    for (int i = 0; i < 12; ++i)
      text << "The quick brown fox jumps over the lazy dog. Pack my box with five dozen jugs, " << i << " of them.\n";
  }
  std::string folder() const { return folder_.path.string(); }
  std::string file(const std::string& name) const { return (folder_.path / name).string(); }
  // Runs in the folder, so that runs in different folders leave the same checkpoint.
  std::string arguments(const std::string& flags) const {
    return "env -C " + quoted(folder()) + " " + program("train_lm") +
           " --data text.txt --layers 1 --heads 2 --width 16 --context 16 --batch 4 --sample 0 --checkpoint lm.h5 " +
           flags;
  }
  std::string command(const std::string& flags) const { return "exec " + arguments(flags); }
  Ran run(const std::string& flags) const { return test::run(command(flags)); }

 private:
  TemporaryFolder folder_;
};

}  // namespace heed::test
