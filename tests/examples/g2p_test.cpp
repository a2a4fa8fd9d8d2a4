// Runs g2p with small models of random values, whose phonemes tests/reference/g2p_model.py computed.
#include <algorithm>
#include <fstream>

#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::contains;
using test::quoted;
using test::Ran;

namespace {

std::string model(const std::string& name = "tiny") {
  return " --model " + quoted(test::in_source("tests/reference/g2p_" + name + ".npz")) + " ";
}

std::string command() { return "exec " + test::program("g2p"); }

// The words and their phonemes.
std::vector<std::pair<std::string, std::string>> reference() {
  std::vector<std::pair<std::string, std::string>> all;
  const nlohmann::json stored = test::json_file(test::in_source("tests/reference/g2p_tiny.json"));
  for (const auto& [word, phonemes] : stored.items()) all.emplace_back(word, phonemes.get<std::string>());
  return all;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

TEST_CASE("g2p: words as arguments and in standard input, alone and in batches, at 1 and 3 threads") {
  std::string arguments, lines, expected;
  for (const auto& [word, phonemes] : reference()) {
    arguments += quoted(word) + " ";
    lines += word + "\n";
    expected += word + "\t" + phonemes + "\n";
    CHECK(test::run(command() + model() + quoted(word)).output == word + "\t" + phonemes + "\n");
  }
  for (const char* threads : {"--threads 1 ", "--threads 3 "}) {
    const Ran ran = test::run(command() + model() + threads + arguments);
    CHECK(ran.exit_code == 0);
    CHECK(ran.output == expected);
  }
  // More words than a batch has, between any white space.
  const test::TemporaryFolder folder;
  std::string text, all;
  for (int i = 0; i < 40; ++i) text += replaced(lines, "\n", i % 2 == 0 ? "\n" : " \t"), all += expected;
  const auto read = [&](const std::string& contents) {
    return test::run(command() + model() + "< " + quoted(folder.write("words.txt", contents).string()));
  };
  CHECK(read(text).output == all);
  const Ran none = read(" \n");
  CHECK(none.exit_code == 0);
  CHECK(none.output.empty());
  CHECK(read("").exit_code == 0);
}

TEST_CASE("g2p: words that the model cannot read are refused before anything is printed") {
  const auto refused = [](const std::string& words, const std::string& sentence) {
    test::check_refused(test::run(command() + model() + words), 1, sentence);
  };
  refused("heed naïve", "the word 'naïve' has 'ï' (U+00EF); it may have the letters a to z, ' and -");
  refused("heed 4th", "the word '4th' has '4' (U+0034); it may have the letters a to z, ' and -");
  refused("'heed '", "the word 'heed ' has ' ' (U+0020); it may have");
  refused("\"'-\"", "the word ''-' has no letter; it must have at least one");
  refused("''", "the word '' has no letter; it must have at least one");
  refused(std::string(101, 'a'), "aaa...' has 101 bytes; it may have 100");
  refused("\"$(printf '\\377')\"", "the byte at offset 0 is not valid UTF-8");
}

TEST_CASE("g2p: files that are not the model") {
  const test::TemporaryFolder folder;
  const std::string bytes = test::bytes_of(test::in_source("tests/reference/g2p_tiny.npz"));
  const auto refused = [&](const std::string& contents, const std::string& sentence) {
    const std::string file = quoted(folder.write("x.npz", contents).string());
    test::check_refused(test::run(command() + " heed --model " + file), 1, sentence);
  };
  // The names of the arrays have no checksum.
  refused(replaced(bytes, "fc_b.npy", "fc_x.npy"), "x.npz lacks fc_b, which the model needs");
  refused(replaced(bytes, "enc_emb.npy", "enc_tab.npy"), "x.npz has no tensor model/enc_emb");
  refused("PK", "is not a .npz file, or is truncated");
  test::check_refused(test::run(command() + model("rows") + "heed"), 1,
                      "enc_emb is [30, 5] float32 in " + test::in_source("tests/reference/g2p_rows.npz") +
                          " but [29, 5] float32 in the model; they must agree");
  test::check_refused(test::run(command() + model("shapes") + "heed"), 1,
                      "enc_emb is [29, 5] float32 and enc_w_hh is [17, 6] float32; they must be [29, width] and "
                      "[3 hidden, hidden]");
  test::check_refused(test::run(command() + " --model none.npz heed"), 1, "load_npz: there is no file none.npz");
}

TEST_CASE("g2p: flags and --help") {
  const auto refused = [](const std::string& flags, const std::string& sentence) {
    test::check_refused(test::run(command() + " " + flags), 2, sentence);
  };
  refused("heed", "--model is required");
  refused(model() + "--word heed", "there is no flag --word");
  refused(model() + "heed --threads few", "--threads: it is 'few'; it must be a whole number");
  const Ran help = test::run(test::program("g2p") + " --help");
  CHECK(help.exit_code == 0);
  for (const char* part : {"g2p [OPTIONS] [WORD...]", "--model FILE.npz", "--threads"})
    CHECK(contains(help.output, part));
  for (const std::string& line : test::lines_of(help.output)) CHECK(line.size() <= 80);
}
