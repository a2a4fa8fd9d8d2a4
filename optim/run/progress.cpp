// The progress line: its text, and its output to a terminal, a file or a pipe.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <heed/core/clock.hpp>
#include <heed/optim/run/options.hpp>
#include <heed/optim/run/progress.hpp>

namespace heed {
namespace {

std::string duration(double seconds) {
  const auto s = static_cast<long>(std::lround(std::fmin(seconds, 3.6e8)));
  if (s < 60) return detail::formatted("%lds", s);
  if (s < 3600) return detail::formatted("%ldm%02lds", s / 60, s % 60);
  return detail::formatted("%ldh%02ldm", s / 3600, s / 60 % 60);
}

std::string count(double n) {
  if (n < 10000) return detail::formatted("%.0f", n);
  return n < 1e6 ? detail::formatted("%.1fk", n / 1e3) : detail::formatted("%.2fM", n / 1e6);
}

}  // namespace

std::string progress_line(const ProgressState& s, bool brief) {
  std::string line;
  const auto append = [&](const char* how, auto... values) { line += detail::formatted(how, values...); };
  append(brief ? "%lld" : "step %lld", static_cast<long long>(s.step));
  if (s.steps < kUntilStopped) append("/%lld", static_cast<long long>(s.steps));
  append(brief ? " loss %.4f" : "  loss %.4f", s.loss);
  for (const auto& [name, value] : s.other_losses) append(brief ? " %s %.4f" : "  %s %.4f", name.c_str(), value);
  if (s.validation_loss) append(brief ? " val %.4f" : "  validation %.4f", *s.validation_loss);
  if (s.floor) append(brief ? " floor %.4f" : " (floor %.4f)", *s.floor);
  for (const auto& [name, value] : s.validation_metrics) append(brief ? " %s %.2f" : "  %s %.3f", name.c_str(), value);
  if (s.samples_per_second > 0 && s.tokens_per_second == 0)
    append(brief ? " %s/s" : "  %s samples/s", count(s.samples_per_second).c_str());
  else
    append(brief ? " %s tok/s" : "  %s tokens/s", count(s.tokens_per_second).c_str());
  if (s.share_of_peak > 0) append(brief ? " %.0f%% peak" : "  %.0f%% of peak", 100 * s.share_of_peak);
  if (s.step < s.steps) append(brief ? " %s left" : "  %s left", duration(s.seconds_left).c_str());
  return line;
}

Progress::Progress(std::FILE* file, double quiet_seconds)
    : file_(file), terminal_(isatty(fileno(file)) == 1), quiet_seconds_(quiet_seconds) {}
Progress::~Progress() { close(); }

// stderr has no buffer, so the error may be of an earlier print.
void Progress::flush() {
  broken_ = broken_ || ((std::fflush(file_) != 0 || std::ferror(file_) != 0) && errno == EPIPE);
}

void Progress::draw() {
  winsize size{};
  std::size_t width = 80;
  if (ioctl(fileno(file_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) width = size.ws_col;
  std::string line = progress_line(state_);
  if (line.size() >= width) line = progress_line(state_, true);
  if (line.size() >= width) line.resize(width - 1);  // a wrapped line could not be redrawn
  std::fprintf(file_, "\r%s\x1b[K", line.c_str());
  flush();
  open_ = true;
}

void Progress::update(const ProgressState& state, bool important) {
  const double t = detail::seconds_now();
  if (!important && t - last_ < (terminal_ ? 0.1 : quiet_seconds_)) return;
  if (terminal_) {
    state_ = state;
    draw();
  } else {
    std::fprintf(file_, "%s\n", progress_line(state).c_str());
    flush();
  }
  last_ = t;
}

void Progress::message(const std::string& text) {
  if (open_) std::fprintf(file_, "\r\x1b[K");
  std::fprintf(file_, "%s\n", text.c_str());
  if (open_) draw();
  flush();
}

void Progress::close() {
  if (open_) std::fprintf(file_, "\n");
  flush();
  open_ = false;
}

}  // namespace heed
