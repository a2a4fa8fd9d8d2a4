// Runs heed's own programs on small inputs.
#pragma once
#include <string>
#include <vector>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/run.hpp"

namespace heed::test {

// Its path, quoted. The folder is one of the build's.
std::string program(const std::string& name, const std::string& folder = "examples");

// For a shell: begins the command and names it pid. It hears Ctrl-C, which a shell without job control has what runs in
// the background ignore.
std::string in_background(const std::string& command);

std::vector<std::string> lines_of(const std::string& text);
std::size_t count_of(const std::string& part, const std::string& text);  // how often it stands there

// The flags of a training with --overwrite, unless they say how it begins: so that tests may train several times.
std::string starting(const std::string& flags);

// What was refused ended with this code and one line, which holds the sentence, behind the program's name once.
void check_refused(const Ran& ran, int exit_code, const std::string& sentence);

// Two logs tell the same but for the clock: no step missing, doubled or different.
bool same_losses(const std::string& a, const std::string& b);

// A folder with a small text, and train_lm on it with a tiny model.
class Training {
 public:
  explicit Training(const std::string& programs = "examples");  // the folder of train_lm
  std::string folder() const { return folder_.path.string(); }
  std::string file(const std::string& name) const { return (folder_.path / name).string(); }
  // Runs in the folder, so that runs in different folders leave the same checkpoint.
  std::string arguments(const std::string& flags) const;
  // The same on the built-in stories, with a model of the default size.
  std::string on_stories(const std::string& flags) const;
  std::string command(const std::string& flags) const { return "exec " + arguments(flags); }
  Ran run(const std::string& flags) const { return test::run(command(flags)); }
  // The same, killed when its n-th checkpoint, from 1, would take the place of the one before, which stays. The same
  // run in another folder tells when that is: files that both need must be named from their folder.
  Ran killed_at_save(const std::string& flags, int n) const;

 private:
  const std::string programs_;
  TemporaryFolder folder_;
};

}  // namespace heed::test
