#include <heed/optim/progress.hpp>
//
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

namespace heed {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string duration(double seconds) {
  char text[48];
  const auto s = static_cast<long>(std::lround(std::fmin(seconds, 3.6e8)));
  if (s < 60)
    std::snprintf(text, sizeof text, "%lds", s);
  else if (s < 3600)
    std::snprintf(text, sizeof text, "%ldm%02lds", s / 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%ldh%02ldm", s / 3600, s / 60 % 60);
  return text;
}

std::string count(double n) {
  char text[32];
  if (n < 10000)
    std::snprintf(text, sizeof text, "%.0f", n);
  else if (n < 1e6)
    std::snprintf(text, sizeof text, "%.1fk", n / 1e3);
  else
    std::snprintf(text, sizeof text, "%.2fM", n / 1e6);
  return text;
}

}  // namespace

std::string progress_line(const ProgressState& s) {
  char text[128];
  std::snprintf(text, sizeof text, "step %lld/%lld  loss %.4f", static_cast<long long>(s.step),
                static_cast<long long>(s.steps), s.loss);
  std::string line = text;
  if (s.validation_loss) {
    std::snprintf(text, sizeof text, "  validation %.4f", *s.validation_loss);
    line += text;
  }
  if (s.floor) {
    std::snprintf(text, sizeof text, " (floor %.4f)", *s.floor);
    line += text;
  }
  line += "  " + count(s.tokens_per_second) + " tokens/s";
  if (s.share_of_peak > 0) {
    std::snprintf(text, sizeof text, "  %.0f%% of peak", 100 * s.share_of_peak);
    line += text;
  }
  if (s.step < s.steps) line += "  " + duration(s.seconds_left) + " left";
  return line;
}

Progress::Progress(std::FILE* file, double quiet_seconds)
    : file_(file), terminal_(isatty(fileno(file)) == 1), quiet_seconds_(quiet_seconds) {}
Progress::~Progress() { close(); }

void Progress::draw() {
  winsize size{};
  std::size_t width = 80;
  if (ioctl(fileno(file_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) width = size.ws_col;
  std::string shown = line_.size() < width ? line_ : line_.substr(0, width - 1);  // a wrapped line could not be redrawn
  std::fprintf(file_, "\r%s\x1b[K", shown.c_str());
  std::fflush(file_);
  open_ = true;
}

void Progress::update(const ProgressState& state, bool important) {
  const double t = now();
  if (terminal_) {
    if (!important && t - last_ < 0.1) return;
    line_ = progress_line(state);
    draw();
  } else {
    if (!important && t - last_ < quiet_seconds_) return;
    std::fprintf(file_, "%s\n", progress_line(state).c_str());
    std::fflush(file_);
  }
  last_ = t;
}

void Progress::message(const std::string& text) {
  if (open_) std::fprintf(file_, "\r\x1b[K");
  std::fprintf(file_, "%s\n", text.c_str());
  if (open_) draw();
  std::fflush(file_);
}

void Progress::close() {
  if (open_) std::fprintf(file_, "\n");
  std::fflush(file_);
  open_ = false;
}

}  // namespace heed
