// The parser of flags, and exceptions in programs.
#include "examples/support/command_line.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <thread>

#include "examples/support/program.hpp"
#include "tests/support.hpp"

using heed::examples::CommandLine;

namespace {

std::optional<int> parse(CommandLine& line, std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return line.parse(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

TEST_CASE("flags: in a list with one word per flag, brackets and commas are part of the words") {
  std::vector<std::string> prompts;
  CommandLine line("about", "program");
  line.add("--prompt", prompts, "prompts", {.shown = "TEXT", .one_each = true});
  CHECK(!parse(line, {"--prompt", "[a, b]", "--prompt", "-Who?", "--prompt", "c,d"}));
  CHECK(prompts == std::vector<std::string>{"[a, b]", "-Who?", "c,d"});
}

TEST_CASE("flags: words without a flag, before and after flags") {
  const auto words_of = [](const std::vector<std::string>& given) {
    std::vector<std::string> words, prompts;
    CommandLine line("about", "program");
    line.add("--prompt", prompts, "prompts", {.shown = "TEXT", .one_each = true});
    line.add_words("WORD", words, "words");
    if (parse(line, given)) words = {"refused"};
    return words;
  };
  using Words = std::vector<std::string>;
  CHECK(words_of({"a", "--prompt", "b", "c d", "e,f", ""}) == Words{"a", "c d", "e,f", ""});
  CHECK(words_of({"[a,b]", "c"}) == Words{"a", "b", "c"});
  CHECK(words_of({"--prompt", "b"}).empty());
  CHECK(words_of({"--", "--prompt", "-b"}) == Words{"--prompt", "-b"});
  CHECK(words_of({"a", "--prmpt", "b"}) == Words{"refused"});
  CHECK(words_of({"a", "-b"}) == Words{"refused"});
}

TEST_CASE("flags: a whole number is decimal also where it begins with 0, alone and in a list") {
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
  int threads = 0;
  std::vector<std::int64_t> lengths;
  const auto code = [&](const std::vector<std::string>& words) {
    CommandLine line("about", "program");
    line.add("--steps", steps, "steps", heed::examples::whole(0));
    line.add("--lengths", lengths, "lengths", heed::examples::list_of(heed::examples::whole(1, 5000), "N,N..."));
    line.add("--seed", seed, "seed", heed::examples::seed_number());
    line.add_threads(threads);
    const std::optional<int> exit_code = parse(line, words);
    if (!exit_code && line.given("--threads")) CHECK(line.word("--threads") == std::to_string(threads));
    return exit_code;
  };
  CHECK(!code({"--steps", "0090", "--seed", "010", "--threads", "08", "--lengths", "016,8,0099,00005000"}));
  CHECK(steps == 90);
  CHECK(seed == 10);
  CHECK(threads == 8);
  CHECK(lengths == std::vector<std::int64_t>{16, 8, 99, 5000});
  CHECK(!code({"--seed=0009223372036854775807", "--steps", "000"}));
  CHECK(seed == 9223372036854775807u);
  CHECK(steps == 0);
  for (const char* wrong : {"0x10", "1e3", "08.", "", "0 8", "09223372036854775808"}) {
    INFO(wrong);
    CHECK(code({"--seed", wrong}) == 2);
  }
  CHECK(code({"--threads", "01025"}) == 2);
  CHECK(code({"--lengths", "016,00"}) == 2);
}

TEST_CASE("flags: a number is a finite decimal one, and nothing else is in the word") {
  double lr = 0;
  const auto code = [&](const std::string& word) {
    CommandLine line("about", "program");
    line.add("--lr", lr, "rate", heed::examples::number(0));
    return parse(line, {"--lr", word});
  };
  for (const auto& right : std::vector<std::pair<std::string, double>>{
           {"3e-4", 3e-4}, {"0010", 10}, {".5", 0.5}, {"5.", 5}, {"1E3", 1000}, {"0", 0}, {"1e-300", 1e-300}}) {
    INFO(right.first);
    CHECK(!code(right.first));
    CHECK(lr == right.second);
  }
  for (const char* wrong : {"0x10", "0x1p3", "1e", "1e+", "inf", "-inf", "nan", "infinity", " 3", "3 ", "\t3", "1,5",
                            "1_000", "1e400", "", "3f", "--5"}) {
    INFO(wrong);
    CHECK(code(wrong) == 2);
  }
}

TEST_CASE("flags: an unknown one is named before one that is missing") {
  std::string data;
  CommandLine line("about", "program");
  line.add("--data", data, "data", heed::examples::anything("FILE"), {.required = true});
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  std::FILE* file = std::tmpfile();
  ::dup2(::fileno(file), STDERR_FILENO);
  const std::optional<int> code = parse(line, {"--dta", "x"});
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::rewind(file);
  char text[200] = {};
  CHECK(std::fgets(text, sizeof text, file) != nullptr);
  std::fclose(file);
  CHECK(code == 2);
  CHECK(std::string(text) ==
        "program: there is no flag --dta; the nearest is --data (program --help lists the flags)\n");
}

TEST_CASE("flags: a flag without its value does not take the next flag as its value") {
  std::string checkpoint, prompt;
  bool resume = false;
  const auto code = [&](const std::vector<std::string>& words) {
    CommandLine line("about", "program");
    line.add("--checkpoint", checkpoint, "checkpoint", heed::examples::file_name("FILE", heed::FileRole::checkpoint));
    line.add("--prompt", prompt, "prompt", heed::examples::anything("TEXT"));
    line.add_switch("--resume", resume, "resume");
    return parse(line, words);
  };
  for (const char* flag : {"--checkpoint", "--prompt"})
    for (const char* next : {"--resume", "--prompt", "--prompt=b"}) {
      INFO(flag, " ", next);
      CHECK(code({flag, next, "a"}) == 2);
    }
  CHECK(code({"--checkpoint", "--resmue"}) == 2);
  CHECK(code({"--resume", "--checkpoint"}) == 2);
  CHECK(code({"--checkpoint=--resume"}) == 2);
  CHECK(!code({"--checkpoint", "./--resume", "--prompt", "--hello", "--resume"}));
  CHECK(checkpoint == "./--resume");
  CHECK(prompt == "--hello");
  CHECK(resume);
  CHECK(!code({"--resume", "--prompt=--resume"}));
  CHECK(prompt == "--resume");
}

TEST_CASE("programs: an exception outside the work is one line and exit code 1, never SIGABRT") {
  const auto ended = [](const std::function<void()>& child) {
    std::fflush(nullptr);
    const pid_t id = ::fork();
    if (id == 0) {
      if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(98);
      child();
      ::_exit(99);
    }
    int status = 0;
    ::waitpid(id, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  };
  // An exception while flags are parsed.
  CHECK(ended([] {
          CommandLine line("about", "program");
          std::string value;
          heed::examples::Takes takes = heed::examples::anything("X");
          takes.error = [](const std::string&) -> std::string { throw std::bad_alloc(); };
          line.add("--x", value, "what", takes);
          std::string program = "program", flag = "--x", word = "1";
          char* words[] = {program.data(), flag.data(), word.data()};
          ::_exit(heed::examples::run_program(line, 3, words, [] { return 0; }));
        }) == 1);
  // Exceptions outside run_program(), here on a thread.
  CHECK(ended([] { std::thread([] { throw std::bad_alloc(); }).join(); }) == 1);
  CHECK(ended([] { std::thread([] { throw std::runtime_error("a reason"); }).join(); }) == 1);
}

TEST_CASE("command line: the files that flags name, with their roles") {
  using heed::FileRole;
  CommandLine line("about", "program");
  std::string log, checkpoint = "c.h5", tokenizer = "char", text;
  std::vector<std::string> data;
  line.add("--text", text, "text", heed::examples::anything("TEXT"));
  line.add("--log", log, "log", heed::examples::file_name("FILE", FileRole::log));
  line.add("--data", data, "data", heed::examples::file_name("PATH...", FileRole::input));
  line.add("--tokenizer", tokenizer, "tokenizer", heed::examples::tokenizer_name());
  line.add("--checkpoint", checkpoint, "checkpoint", heed::examples::file_name("FILE", FileRole::checkpoint),
           {.input_with = {"--text"}});
  const auto files = [&](const std::vector<std::string>& words) {
    CHECK_FALSE(parse(line, words));
    std::string shown;
    for (const heed::FileUse& use : line.files())
      if (!use.path.empty())
        shown += use.name + "=" + use.path.string() + ":" + std::to_string(static_cast<int>(use.role)) + " ";
    return shown;
  };
  CHECK(files({}) == "--checkpoint=c.h5:2 ");
  CHECK(files({"--data", "a", "b", "--log", "l"}) == "--log=l:3 --data=a:0 --data=b:0 --checkpoint=c.h5:2 ");
  CHECK(files({"--tokenizer", "x.model", "--text", "t", "--checkpoint", "d"})
            .ends_with("--tokenizer=x.model:0 --checkpoint=d:0 "));
}
