// Progress lines of a running training.
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <heed/optim/run/progress.hpp>

#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"

using namespace heed;

namespace {

ProgressState full() {
  return {.step = 12345,
          .steps = 100000,
          .loss = 12.34567,
          .validation_loss = 11.25,
          .floor = 10.125,
          .tokens_per_second = 123456,
          .share_of_peak = 0.584,
          .seconds_left = 3 * 3600 + 125};
}

// A terminal with this number of columns (0: unknown) that stores the output.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    REQUIRE(master_ >= 0);
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    const int side = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    REQUIRE(side >= 0);
    termios plain{};
    REQUIRE(::tcgetattr(side, &plain) == 0);
    plain.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // keeps line feeds
    REQUIRE(::tcsetattr(side, TCSANOW, &plain) == 0);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::ioctl(side, TIOCSWINSZ, &size) == 0);
    file_ = ::fdopen(side, "w");
    REQUIRE(file_ != nullptr);
  }
  ~Terminal() {
    std::fclose(file_);
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::FILE* file() const { return file_; }

  // The output since the last call.
  std::string written() const {
    std::string all;
    pollfd waiting{.fd = master_, .events = POLLIN, .revents = 0};
    while (::poll(&waiting, 1, all.empty() ? 20 : 0) == 1) {
      char part[512];
      const ssize_t n = ::read(master_, part, sizeof part);
      REQUIRE(n > 0);
      all.append(part, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  int master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
  std::FILE* file_ = nullptr;
};

}  // namespace

TEST_CASE("progress: a terminal's line is redrawn in place, shorter than the terminal is wide") {
  ProgressState s = full();
  const std::string brief = "12345/100000 loss 12.3457 val 11.2500 floor 10.1250 123.5k tok/s 58% peak 3h02m left";
  const std::string small = "step 3/4  loss 1.0000  0 tokens/s  0s left";
  struct Case {
    unsigned short columns;
    std::string full, small;  // expected output
  };
  for (const Case& c :
       {Case{200, progress_line(s), small}, Case{85, brief, small}, Case{80, brief.substr(0, 79), small},
        Case{42, brief.substr(0, 41), "3/4 loss 1.0000 0 tok/s 0s left"},
        Case{40, brief.substr(0, 39), "3/4 loss 1.0000 0 tok/s 0s left"}, Case{0, brief.substr(0, 79), small}}) {
    CAPTURE(c.columns);
    const Terminal terminal(c.columns);
    const std::size_t width = c.columns == 0 ? 80 : c.columns;
    CHECK(std::max(c.full.size(), c.small.size()) < width);
    {
      Progress progress(terminal.file(), 1000);
      progress.message("resumed at step 2");  // no line is open
      CHECK(terminal.written() == "resumed at step 2\n");
      progress.update(s, true);
      CHECK(terminal.written() == "\r" + c.full + "\x1b[K");
      progress.update({.step = 3, .steps = 4, .loss = 1}, true);
      CHECK(terminal.written() == "\r" + c.small + "\x1b[K");
      progress.message("a sentence");  // replaces the line, which is redrawn below
      CHECK(terminal.written() == "\r\x1b[Ka sentence\n\r" + c.small + "\x1b[K");
      progress.close();
      CHECK(terminal.written() == "\n");
    }
    CHECK(terminal.written().empty());  // close() is final
  }
}

TEST_CASE("progress: a terminal's line is redrawn at most ten times per second, except for important updates") {
  const Terminal terminal(80);
  {
    Progress progress(terminal.file(), 1000);
    for (Index step = 1; step <= 100; ++step) progress.update({.step = step, .steps = 100, .loss = 1}, step == 100);
  }
  const std::string text = terminal.written();
  CHECK(text.starts_with("\rstep 1/100  loss 1.0000  0 tokens/s  0s left\x1b[K\r"));
  CHECK(text.ends_with("\rstep 100/100  loss 1.0000  0 tokens/s\x1b[K\n"));
  CHECK(std::count(text.begin(), text.end(), '\r') < 20);  // 2, unless the machine was busy for seconds
}

TEST_CASE("progress: the line, and its brief form for 80 columns") {
  CHECK(
      progress_line(full()) ==
      "step 12345/100000  loss 12.3457  validation 11.2500 (floor 10.1250)  123.5k tokens/s  58% of peak  3h02m left");
  CHECK(progress_line(full(), true) ==
        "12345/100000 loss 12.3457 val 11.2500 floor 10.1250 123.5k tok/s 58% peak 3h02m left");
  ProgressState small{.step = 1, .steps = 30, .loss = 3.5, .tokens_per_second = 950, .seconds_left = 59.4};
  CHECK(progress_line(small) == "step 1/30  loss 3.5000  950 tokens/s  59s left");
  small.other_losses = {{"generator", 0.75}};
  CHECK(progress_line(small) == "step 1/30  loss 3.5000  generator 0.7500  950 tokens/s  59s left");
  CHECK(progress_line(small, true) == "1/30 loss 3.5000 generator 0.7500 950 tok/s 59s left");
  small.other_losses = {};
  ProgressState rows = small;  // no tokens
  rows.tokens_per_second = 0, rows.samples_per_second = 12345;
  CHECK(progress_line(rows) == "step 1/30  loss 3.5000  12.3k samples/s  59s left");
  CHECK(progress_line(rows, true) == "1/30 loss 3.5000 12.3k/s 59s left");
  rows.tokens_per_second = 950;
  CHECK(progress_line(rows) == "step 1/30  loss 3.5000  950 tokens/s  59s left");
  small.step = 30;  // nothing is left
  CHECK(progress_line(small) == "step 30/30  loss 3.5000  950 tokens/s");
  ProgressState usual = full();
  usual.step = 2999, usual.steps = 3000, usual.loss = 0.9, usual.validation_loss = 0.91, usual.floor = 0.89;
  usual.seconds_left = 125;
  CHECK(progress_line(usual, true).size() < 80);
}

TEST_CASE("progress: metrics of an evaluation are shown after its loss") {
  ProgressState s = full();
  s.floor = {};
  s.step = 2999, s.steps = 3000, s.loss = 0.9, s.seconds_left = 125;
  s.validation_metrics = {{"accuracy", 0.61249}, {"precision", 1}};
  CHECK(
      progress_line(s) ==
      "step 2999/3000  loss 0.9000  validation 11.2500  accuracy 0.612  precision 1.000  123.5k tokens/s  58% of peak  "
      "2m05s left");
  s.validation_metrics.erase("precision");
  CHECK(progress_line(s, true) == "2999/3000 loss 0.9000 val 11.2500 accuracy 0.61 123.5k tok/s 58% peak 2m05s left");
  s.validation_loss = 0.91;
  CHECK(progress_line(s, true).size() < 80);
}

TEST_CASE("progress: a pipe gets plain lines, at the first step, at evaluations, and after a while") {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 1000);
    ProgressState s{.step = 1, .steps = 4, .loss = 1};
    progress.update(s, true);
    s.step = 2;
    progress.update(s, false);  // too early
    s.step = 3;
    s.validation_loss = 0.5;
    progress.update(s, true);
    progress.message("resumed at step 3");
  }
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  CHECK(text ==
        "step 1/4  loss 1.0000  0 tokens/s  0s left\nstep 3/4  loss 1.0000  validation 0.5000  0 tokens/s  0s left\n"
        "resumed at step 3\n");
}

RELEASE_TEST_CASE("progress: the line is the same in every locale") {
  test::check_in_every_locale([] { return progress_line(full()) + progress_line(full(), true); });
}
