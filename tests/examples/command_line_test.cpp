// The flags of programs, as a shell gives them.
#include "examples/support/command_line.hpp"

#include "tests/support.hpp"

using heed::examples::CommandLine;

TEST_CASE("flags: of a list with one word each time brackets and commas are its words' own") {
  std::vector<std::string> prompts;
  CommandLine line("about", "program");
  line.add("--prompt", prompts, "prompts", {.shown = "TEXT", .one_each = true});
  std::string words[] = {"program", "--prompt", "[a, b]", "--prompt", "-Who?", "--prompt", "c,d"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  CHECK(!line.parse(static_cast<int>(argv.size()), argv.data()));
  CHECK(prompts == std::vector<std::string>{"[a, b]", "-Who?", "c,d"});
}

TEST_CASE("flags: a whole number is decimal also where it begins with 0, alone and in a list") {
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
  int threads = 0;
  std::vector<std::int64_t> lengths;
  const auto parse = [&](std::vector<std::string> words) {
    CommandLine line("about", "program");
    line.add("--steps", steps, "steps", heed::examples::whole(0));
    line.add("--lengths", lengths, "lengths", heed::examples::list_of(heed::examples::whole(1, 5000), "N,N..."));
    line.add_seed(seed, "seed");
    line.add_threads(threads);
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    const std::optional<int> code = line.parse(static_cast<int>(argv.size()), argv.data());
    if (!code && line.given("--threads")) CHECK(line.word("--threads") == std::to_string(threads));
    return code;
  };
  CHECK(!parse({"--steps", "0090", "--seed", "010", "--threads", "08", "--lengths", "016,8,0099,00005000"}));
  CHECK(steps == 90);
  CHECK(seed == 10);
  CHECK(threads == 8);
  CHECK(lengths == std::vector<std::int64_t>{16, 8, 99, 5000});
  CHECK(!parse({"--seed=0009223372036854775807", "--steps", "000"}));
  CHECK(seed == 9223372036854775807u);
  CHECK(steps == 0);
  for (const char* wrong : {"0x10", "1e3", "08.", "", "0 8", "09223372036854775808"}) {
    INFO(wrong);
    CHECK(parse({"--seed", wrong}) == 2);
  }
  CHECK(parse({"--threads", "01025"}) == 2);
  CHECK(parse({"--lengths", "016,00"}) == 2);
}

TEST_CASE("flags: one whose value was forgotten does not take the next flag for it") {
  std::string checkpoint, prompt;
  bool resume = false;
  const auto parse = [&](std::vector<std::string> words) {
    CommandLine line("about", "program");
    line.add("--checkpoint", checkpoint, "checkpoint", heed::examples::file_name("FILE"));
    line.add("--prompt", prompt, "prompt", heed::examples::anything("TEXT"));
    line.add_switch("--resume", resume, "resume");
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return line.parse(static_cast<int>(argv.size()), argv.data());
  };
  for (const char* flag : {"--checkpoint", "--prompt"})
    for (const char* next : {"--resume", "--prompt", "--prompt=b"}) {
      INFO(flag, " ", next);
      CHECK(parse({flag, next, "a"}) == 2);
    }
  CHECK(parse({"--checkpoint", "--resmue"}) == 2);
  CHECK(parse({"--checkpoint=--resume"}) == 2);
  CHECK(!parse({"--checkpoint", "./--resume", "--prompt", "--hello", "--resume"}));
  CHECK(checkpoint == "./--resume");
  CHECK(prompt == "--hello");
  CHECK(resume);
  CHECK(!parse({"--resume", "--prompt=--resume"}));
  CHECK(prompt == "--resume");
}
