// Runs the programs of heed on small inputs.
#pragma once
#include <string>
#include <vector>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/run.hpp"

namespace heed::test {

// The path of a program, quoted for a shell. `folder` is a folder of the build.
std::string program(const std::string& name, const std::string& folder = "examples");

// Whether the build has the program: the address sanitizer leaves out tutorials and experiments.
bool has_program(const std::string& name);

// Shell text that starts a command in the background and sets $pid. The command receives SIGINT, which a shell without
// job control makes background commands ignore.
std::string in_background(const std::string& command);

// The lines of a text, without line feeds.
std::vector<std::string> lines_of(const std::string& text);
std::size_t count_of(const std::string& part, const std::string& text);  // occurrences of `part` in `text`

// The flags of a training with --overwrite, unless they say how it starts. So tests may train several times in a
// folder.
std::string starting(const std::string& flags);

// Checks that a program was refused: with this exit code and one line, which contains the sentence and begins with the
// program's name, once.
void check_refused(const Ran& ran, int exit_code, const std::string& sentence);

// Whether two logs are equal except for speeds: no step is missing, repeated or different.
bool same_losses(const std::string& a, const std::string& b);

// A folder with a small text, and train_lm on it with a tiny model.
class Training {
 public:
  explicit Training(const std::string& programs = "examples");  // the build folder of train_lm
  std::string folder() const { return folder_.path.string(); }
  std::string file(const std::string& name) const { return (folder_.path / name).string(); }
  // The command of a training. It runs in the folder, so runs in different folders leave the same checkpoint.
  std::string arguments(const std::string& flags) const;
  // The same on the built-in stories, with a model of default size.
  std::string on_stories(const std::string& flags) const;
  std::string command(const std::string& flags) const { return "exec " + arguments(flags); }
  Ran run(const std::string& flags) const { return test::run(command(flags)); }
  // The same training, killed when its n-th checkpoint, from 1, is about to replace the one before. The moment is found
  // by the same run in another folder, so files that both use must have relative names.
  Ran killed_at_save(const std::string& flags, int n) const;

 private:
  const std::string programs_;
  TemporaryFolder folder_;
};

}  // namespace heed::test
