// The Python example of docs/token_files.md. Skipped, with a message, where Python or NumPy is missing.
#include <heed/data/token_file.hpp>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed;
using heed::test::bytes_of, heed::test::python_with, heed::test::quoted, heed::test::run;
using test::contains;
using test::TemporaryFolder;
namespace fs = std::filesystem;

static const fs::path kScript = test::in_source("docs/python/read_tokens.py");

TEST_CASE("token files: the page shows the script that is run here") {
  const std::string page = bytes_of(test::in_source("docs/token_files.md"));
  CHECK(contains(page, "```python\n" + bytes_of(kScript) + "```\n"));
}

TEST_CASE("token files: NumPy reads them") {
  const std::string python = python_with("numpy");
  if (python.empty()) return;
  const TemporaryFolder folder;
  const fs::path file = folder.path / "x.tokens";
  const auto told = [&] { return run("exec " + python + " -B " + quoted(kScript) + " " + quoted(file)).output; };
  write_tokens(file, {folder.write("x.txt", "cäb€")}, CharTokenizer("äbc€"));
  CHECK(told() == "4 tokens, vocabulary 4 by char tokenizer: [1, 2, 0, 3] ...\n");
  TokenWriter writer(file, Index{100000});
  writer.append(std::vector<std::int32_t>{99999, 0});
  writer.finish();
  CHECK(told() == "2 tokens, vocabulary 100000 by no tokenizer: [99999, 0] ...\n");
}
