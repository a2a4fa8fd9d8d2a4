// Gnuplot as the sources of plot.hpp use it. Internal.
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

namespace heed {

// A text for gnuplot, in single quotes. What a picture cannot hold, which is control characters and what is not UTF-8,
// is shown as a terminal would.
inline std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : printable(text)) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

// 1, 2 or 5 times a power of ten, so that an axis up to `most` has five steps at most: their numbers stay apart.
double tick_step(double most);

// A gnuplot whose picture takes the place of `file` when close() is called; until then, and where gnuplot fails, `file`
// stays as it was. The script, the picture and what gnuplot complains of are files in memory.
class Drawing {
 public:
  Drawing(const std::filesystem::path& file, int width, int height);
  Gnuplot& operator*() { return *gp_; }
  // Writes points, pairs or triples of numbers, or rows of them, as a block of data for the commands that follow, and
  // gives its name and a space.
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
  // How cells are drawn in `panels` of one file. Viewers smear an image in an .svg, so there they are rectangles,
  // unless that would make a file of many megabytes. Gnuplot makes no image of one row or column.
  const char* cells(std::size_t rows, std::size_t columns, std::size_t panels = 1) const {
    if (rows < 2 || columns < 2)
      return "using 1:2:(0.5):(0.5):3 with boxxyerror fillstyle solid noborder linecolor palette notitle";
    return svg_ && rows * columns * panels <= 100000 ? "using 1:2:3 with image pixels notitle"
                                                     : "using 1:2:3 with image notitle";
  }
  void close();  // throws Error, with gnuplot's own reason

 private:
  std::filesystem::path file_;
  bool svg_;
  std::FILE* script_;  // gp_ closes it
  std::unique_ptr<Gnuplot> gp_;
  int blocks_ = 0;

  template <class Point>
  void write(const Point& point) {
    std::apply([&](auto... x) { ((*gp_ << x << ' '), ...); }, point);
    *gp_ << '\n';
  }
};

}  // namespace heed
