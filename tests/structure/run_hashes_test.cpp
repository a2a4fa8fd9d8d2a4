// tests/jobs/run_hashes: its reader of checkpoints, and what it prints when runs differ from an earlier output.
#include <fstream>
#include <heed/data/checkpoint.hpp>
#include <sstream>

#include "tests/data/temporary_folder.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed::test;
namespace fs = std::filesystem;

namespace {

// A stored checkpoint, written again: groups of the stored file may have fractal heaps, which the reader does not read.
std::string checkpoint(const TemporaryFolder& folder, const std::string& name) {
  const fs::path path = folder.path / (name + ".h5");
  heed::save_checkpoint(path, heed::load_checkpoint(in_source("tests/reference/checkpoints/" + name + ".h5")));
  return path.string();
}

std::string hex(const void* bytes, std::size_t count) {
  std::string text;
  const auto* p = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) text += "0123456789abcdef"[p[i] >> 4], text += "0123456789abcdef"[p[i] & 15];
  return text;
}

// The entries of a checkpoint, one per line, as heed reads them.
std::string read_by_heed(const std::string& path) {
  const heed::Checkpoint c = heed::load_checkpoint(path);
  std::map<std::string, std::string> entries;
  for (const auto& [name, x] : c.tensors) {
    std::string& line = entries[name];
    for (const heed::Index size : x.shape()) line += std::to_string(size) + " ";
    const heed::Tensor values = x.dense();
    line += hex(values.raw(), static_cast<std::size_t>(values.numel()) * size_of(values.dtype()));
  }
  for (const auto& [name, value] : c.counters) entries[name] = hex(&value, sizeof value);
  for (const auto& [name, text] : c.texts) entries[name] = hex(text.data(), text.size());
  std::string lines;
  for (const auto& [name, line] : entries) lines += name + ": " + line + "\n";
  return lines;
}

// A build folder whose train_lm writes a stored checkpoint.
struct Build {
  TemporaryFolder folder;
  std::string python;

  void train_lm(const std::string& script) const {
    const fs::path program = folder.write("examples/train_lm", "#!/bin/sh\n" + script + "\n");
    fs::permissions(program, fs::perms::owner_all);
  }
  Ran hashes(const std::string& flags) const {
    return run("exec " + python + " " + quoted(in_source("tests/jobs/run_hashes")) + " --build " +
               quoted(folder.path.string()) + " --only '^lm-(softmax|sgd)$' " + flags + " 2>&1");
  }
  std::string earlier(const std::string& text) const { return quoted(folder.write("before", text).string()); }
};

}  // namespace

TEST_CASE("run_hashes: its reader of checkpoints reads the same entries as heed") {
  const std::string python = python_with("struct, dataclasses, pathlib");
  if (python.empty()) return;
  const TemporaryFolder folder;
  const std::string program =
      "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1])\n"
      "from checkpoint_file import read\n"
      "for path, e in sorted(read(sys.argv[2]).items()):\n"
      "    print(path + ': ' + ''.join(f'{n} ' for n in e.shape) + e.bytes.hex())\n";
  for (const char* name : {"lm", "translate_transformer", "shared_heads"}) {
    CAPTURE(name);
    const std::string path = checkpoint(folder, name);
    const Ran ran =
        run("exec " + python + " -c " + quoted(program) + " " + quoted(in_source("tests/jobs")) + " " + quoted(path));
    CHECK(ran.exit_code == 0);
    CHECK((ran.output == read_by_heed(path)));
  }
}

TEST_CASE("run_hashes: --compare prints the runs that differ from an earlier output, and in which part") {
  const Build build{{}, python_with("argparse, dataclasses, hashlib")};
  if (build.python.empty()) return;
  build.train_lm("cp " + quoted(checkpoint(build.folder, "lm")) + " run.h5");
  const Ran first = build.hashes("");
  INFO(first.output);
  REQUIRE(first.exit_code == 0);
  const std::string line = first.output.substr(0, first.output.find('\n') + 1);
  REQUIRE(line.find("lm-softmax weights=") == 0);

  const Ran same = build.hashes("--compare " + build.earlier(first.output));
  CHECK(same.exit_code == 0);
  CHECK(same.output == "All 2 runs are equal.\n");
  const Ran lacking = build.hashes("--compare " + build.earlier(line));
  CHECK(lacking.exit_code == 1);
  CHECK(lacking.output == "lm-sgd: the earlier output lacks this run.\n1 of 2 runs are equal.\n");
  std::string other = first.output;
  char& digit = other[other.find("state=") + 6];
  digit = digit == '0' ? '1' : '0';
  const Ran differing = build.hashes("--compare " + build.earlier(other));
  CHECK(differing.exit_code == 1);
  CHECK(differing.output ==
        "lm-softmax: the state of the run differs (optimizer, schedule, history).\n1 of 2 runs are equal.\n");

  build.train_lm("cp " + quoted(checkpoint(build.folder, "lm_linear")) + " run.h5");
  const Ran changed = build.hashes("--compare " + build.earlier(first.output));
  CHECK(changed.exit_code == 1);
  CHECK(changed.output.find("lm-sgd: the weights differ.\n") != std::string::npos);
  CHECK(changed.output.find("lm-sgd: the stored texts differ (options, tokenizers).\n0 of 2") != std::string::npos);
  build.train_lm("echo no memory >&2; exit 3");
  const Ran failing = build.hashes("");
  CHECK(failing.exit_code == 2);
  CHECK(failing.output.find("lm-softmax failed: train_lm --data text ") == 0);
  CHECK(failing.output.find(": exit code 3: no memory\n") != std::string::npos);
}
