// Talks with a tiny model by chat, through pipes and on a terminal.
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/examples/programs.hpp"
#include "tests/tools/tiny_model.hpp"

using heed::test::contains;
using heed::test::quoted;
using heed::test::Ran;

namespace {

struct Talk {
  heed::test::TemporaryFolder folder;
  std::string flags;

  explicit Talk(heed::Index context, const std::string& more) {
    const std::filesystem::path model = folder.path / "model.gguf";
    heed::test::write_tiny_model(model, context);
    flags = " --temperature 0 --model " + quoted(model.string()) + " " + more;
  }
  // The output for these lines of input.
  Ran with(const std::string& lines) const {
    std::ofstream(folder.path / "lines", std::ios::binary) << lines;
    return heed::test::run("exec " + heed::test::program("chat") + flags + " < " +
                           quoted((folder.path / "lines").string()));
  }
};

// A program on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const std::string& command) {
    winsize size{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr), ::_exit(127);
  }
  ~Terminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(terminal_);
  }
  void type(const std::string& keys) {
    REQUIRE(::write(terminal_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  // What the program prints next; empty at its end, and if it prints nothing for a minute.
  std::string output() {
    pollfd event{.fd = terminal_, .events = POLLIN, .revents = 0};
    char bytes[4096];
    const ssize_t count = ::poll(&event, 1, 60000) > 0 ? ::read(terminal_, bytes, sizeof bytes) : 0;
    return {bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }
  // The same, until it has printed a text.
  std::string output_until(const std::string& text) {
    std::string all;
    while (!contains(all, text)) {
      const std::string next = output();
      if (next.empty()) break;
      all += next;
    }
    return all;
  }
  int exit_code() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  int terminal_ = -1;
};

}  // namespace

TEST_CASE("chat: lines of a pipe are answered, /reset starts a new conversation, and /quit ends") {
  const Talk talk(256, "--tokens 12");
  const Ran one = talk.with("hello\n"), twice = talk.with("hello\r\n/reset\n\nhello\n/quit\nhello\n");
  INFO(twice.output);
  CHECK(one.exit_code == 0);
  CHECK(one.output.size() > 1);
  CHECK(twice.exit_code == 0);
  CHECK(twice.output == one.output + "New conversation.\n" + one.output);
  const Ran history = talk.with("hello\nhello\n");
  CHECK(history.output.starts_with(one.output));
  CHECK(history.output != one.output + one.output);
}

TEST_CASE("chat: a message without an answer is reported, and the conversation continues as before") {
  const Talk talk(128, "--tokens 12");
  std::string words;
  for (int i = 0; i < 200; ++i) words += "word ";
  const Ran plain = talk.with("hello\nhello\n"), ran = talk.with("hello\n" + words + "\n\xff\nhello\n");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "chat: the message has "));
  CHECK(contains(ran.output, "of which 12 are for the answer; shorten it, or give a smaller --tokens\n"));
  CHECK(contains(ran.output, "UTF-8"));
  const std::string answers = talk.with("hello\n").output;
  CHECK(ran.output.ends_with(plain.output.substr(answers.size())));
}

TEST_CASE("chat: the oldest turns leave a conversation that is longer than the context") {
  const Talk talk(100, "--system brief");  // up to 50 tokens per answer
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "hello " + std::to_string(i) + "\n";
  const Ran ran = talk.with(lines);
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK_FALSE(contains(ran.output, "chat: "));
}

TEST_CASE("chat: Ctrl-C on a terminal ends an answer, or discards a line, and Ctrl-D ends the program") {
  const Talk talk(1 << 20, "--tokens 1000000");
  Terminal terminal("exec " + heed::test::program("chat") + talk.flags);
  CHECK(terminal.output_until("> ") == "> ");
  terminal.type("hello\r");
  CHECK(contains(terminal.output_until("hello\r\n"), "hello\r\n"));
  CHECK(terminal.output() != "");  // the answer has begun
  terminal.type("\x03");
  std::string output = terminal.output_until("\r\n> ");
  INFO(output.substr(output.size() - std::min<std::size_t>(output.size(), 200)));
  CHECK(contains(output, "^C"));
  CHECK(output.ends_with("\r\n> "));
  terminal.type("not this\x03");
  output = terminal.output_until("\r\n> ");
  CHECK(contains(output, "Ctrl-D or /quit ends the program.\r\n> "));
  terminal.type("/reset\r");
  CHECK(contains(terminal.output_until("\r\n> "), "New conversation.\r\n> "));
  terminal.type("\x04");
  terminal.output_until("no such text");
  CHECK(terminal.exit_code() == 0);
}
