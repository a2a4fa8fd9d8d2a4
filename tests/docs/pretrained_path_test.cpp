// Runs the commands of docs/pretrained.md that lead from a folder to llama.cpp, with a tiny model and a script in place
// of llama.cpp.
#include <fstream>

#include "tests/docs/pages.hpp"
#include "tests/support.hpp"
#include "tests/tools/run.hpp"
#include "tests/tools/tiny_model.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

TEST_CASE("pages: the lines from a folder to llama.cpp run") {
  const TemporaryFolder folder;
  const Page page = read_page(kRoot, "docs/pretrained.md");
  REQUIRE(!page.blocks.empty());
  const Block& block = page.blocks.front();
  CHECK(block.language == "sh");
  CHECK(lines_of(block.text).size() <= 10);
  write_tiny_model(folder.path / "SmolLM2");
  fs::create_directories(folder.path / "build/release");
  fs::create_directory_symlink(in_build("examples"), folder.path / "build/release/examples");
  const fs::path llama = folder.write("llama-cli", "#!/bin/sh\ntest -s \"$2\" && echo \"llama.cpp reads $2\"\n");
  fs::permissions(llama, fs::perms::owner_all);
  std::ofstream(folder.path / "lines.sh") << block.text;
  std::ofstream(folder.path / "questions") << "Who are you?\n";
  const Ran ran = run("cd " + quoted(folder.path.string()) + " && PATH=$PWD:$PATH exec sh -e lines.sh < questions");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "adapter: adapter\n"));
  CHECK(contains(ran.output, "Wrote tuned.gguf, a model of the family llama.\n"));
  CHECK(ran.output.ends_with("llama.cpp reads tuned.gguf\n"));
  CHECK(fs::exists(folder.path / "adapter/adapter_config.json"));
  CHECK(contains(bytes_of(folder.path / "loss.svg"), "<svg"));
}
