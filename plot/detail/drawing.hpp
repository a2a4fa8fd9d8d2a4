// The interface to gnuplot for the sources of plot.hpp. Internal.
#pragma once
#include <gnuplot-iostream.h>

#include <cstdio>
#include <filesystem>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/plot/plot.hpp>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace heed {

// A text for gnuplot, in single quotes. Control characters and invalid UTF-8 are shown as in a terminal.
inline std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : printable(text)) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

// The ticks of an axis whose position i has label i, as a list for gnuplot: every `step`-th label.
inline std::string label_tics(const std::vector<std::string>& labels, std::size_t step = 1) {
  std::string list;
  for (std::size_t i = 0; i < labels.size(); i += step)
    list += (i > 0 ? ", " : "") + quoted(labels[i]) + " " + std::to_string(i);
  return "(" + list + ")";
}

// 1, 2 or 5 times a power of ten, such that an axis up to `max` has at most five steps and its numbers do not overlap.
double tick_step(double max);

// A gnuplot process whose picture replaces `file` when close() is called. Until then, and if gnuplot fails, `file` is
// unchanged. The script, the picture and gnuplot's error output are files in memory.
class Drawing {
 public:
  Drawing(const std::filesystem::path& file, int width, int height);
  Gnuplot& operator*() { return *gp_; }
  // Writes points (pairs or triples of numbers) or rows of points as a data block for later commands. Returns the name
  // of the block and a space.
  template <class Points>
  std::string block(const Points& points) {
    const std::string name = "$block" + std::to_string(blocks_++);
    *gp_ << name << " << END\n";
    for (const auto& x : points) {
      if constexpr (requires { x.begin(); })
        for (const auto& point : x) write(point);
      else
        write(x);
      if constexpr (requires { x.begin(); }) *gp_ << '\n';
    }
    *gp_ << "END\n";
    return name + " ";
  }
  // The gnuplot style for the cells of `panels` matrices in one file. Viewers blur an image in an .svg, so cells of an
  // .svg are drawn as rectangles unless the file would take many megabytes. Gnuplot cannot draw an image of one row or
  // column.
  const char* cells(std::size_t rows, std::size_t columns, std::size_t panels = 1) const {
    if (rows < 2 || columns < 2)
      return "using 1:2:(0.5):(0.5):3 with boxxyerror fillstyle solid noborder linecolor palette notitle";
    return svg_ && rows * columns * panels <= 100000 ? "using 1:2:3 with image pixels notitle"
                                                     : "using 1:2:3 with image notitle";
  }
  void close();  // throws Error with gnuplot's message

 private:
  std::filesystem::path file_;
  bool svg_;
  std::FILE* script_;  // closed by gp_
  std::unique_ptr<Gnuplot> gp_;
  int blocks_ = 0;

  template <class Point>
  void write(const Point& point) {
    std::apply([&](auto... x) { ((*gp_ << x << ' '), ...); }, point);
    *gp_ << '\n';
  }
};

}  // namespace heed
