#include "examples/support/plot.hpp"

#include <gnuplot-iostream.h>

#include <cmath>
#include <cstdlib>
#include <heed/core/check.hpp>
#include <heed/data/disk.hpp>

namespace heed::examples {
namespace {

const char* const kColours[] = {"#2a6fbb", "#d1632f", "#3b8f5a", "#7b5aa6", "#9a7b1f", "#b03a63", "#4a4a4a"};

// Quotes for gnuplot's single-quoted strings.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

// A gnuplot that writes to `file`; close() waits for it and checks that the picture is there.
class Drawing {
 public:
  Drawing(const std::filesystem::path& file, int width, int height) : file_(file) {
    check_plot(file);
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    gp_ = std::make_unique<Gnuplot>("gnuplot");
    const bool svg = file.extension() == ".svg";
    *gp_ << "set terminal " << (svg ? "svg" : "pngcairo") << " size " << width << "," << height
         << (svg ? " dynamic background rgb 'white'" : "") << " font 'sans-serif,12'\nset output "
         << quoted(file.string()) << "\nset encoding utf8\n";
  }
  Gnuplot& operator*() { return *gp_; }
  void close() {
    *gp_ << "unset output\n";
    gp_.reset();
    require(std::filesystem::exists(file_) && std::filesystem::file_size(file_) > 0, "plot: ", file_.string(),
            " could not be drawn");
  }

 private:
  std::filesystem::path file_;
  std::unique_ptr<Gnuplot> gp_;
};

std::string style_of(const Series& s, std::size_t i) {
  const std::string colour = " lc rgb '" + std::string(kColours[i % std::size(kColours)]) + "'";
  const std::string title = " title " + quoted(s.name) + " noenhanced";
  switch (s.style) {
    case Series::thin_line: return "with lines lw 0.7" + colour + title;
    case Series::points_only: return "with points pt 7 ps 0.5" + colour + title;
    case Series::dashed: return "with lines dt 2 lw 1.5" + colour + title;
    default: return "with lines lw 2" + colour + title;
  }
}

void frame(Gnuplot& gp, const PlotLabels& l) {
  gp << "set title " << quoted(l.title) << " noenhanced\nset xlabel " << quoted(l.x) << " noenhanced\nset ylabel "
     << quoted(l.y) << " noenhanced\n"
     << "set grid lc rgb '#dddddd'\nset key top right\nset border 3\nset tics nomirror\n";
}

}  // namespace

void check_plot(const std::filesystem::path& file) {
  require(file.extension() == ".svg" || file.extension() == ".png", "plot: ", file.string(), " ends with '",
          file.extension().string(), "'; it must end with .svg or .png");
  check_place("plot", file);
  require(std::system("command -v gnuplot > /dev/null 2>&1") == 0,
          "plot: gnuplot is not installed; the pictures are drawn by it (Debian: gnuplot-nox)");
}

void plot(const std::filesystem::path& file, const PlotLabels& labels, const std::vector<Series>& series) {
  Drawing drawing(file, 900, 540);
  Gnuplot& gp = *drawing;
  frame(gp, labels);
  std::string command = "plot ";
  bool any = false;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    command += (any ? ", " : "") + gp.file1d(series[i].points) + style_of(series[i], i);
    any = true;
  }
  require(any, "plot: there is no point to draw");
  gp << command << "\n";
  drawing.close();
}

void plot_boundary(const std::filesystem::path& file, const PlotLabels& labels, const Field& field,
                   const std::vector<Series>& classes) {
  const std::size_t rows = field.values.size(), columns = rows > 0 ? field.values.front().size() : 0;
  require(classes.size() == 2 && rows > 1 && columns > 1, "plot_boundary: ", classes.size(), " classes of points over ",
          rows, " x ", columns, " values; there must be 2 classes and at least 2 x 2 values");
  Drawing drawing(file, 720, 600);
  Gnuplot& gp = *drawing;
  frame(gp, labels);
  gp << "set palette defined (0 '#f3d9c9', 0.5 '#ffffff', 1 '#cfe0f2')\nset cbrange [0:1]\nset cblabel "
     << quoted("probability of " + classes.back().name) << " noenhanced\n"
     << "set xrange [" << field.x_min << ":" << field.x_max << "]\nset yrange [" << field.y_min << ":" << field.y_max
     << "]\n";
  std::vector<std::vector<std::tuple<double, double, double>>> cells(rows);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      cells[r].emplace_back(
          field.x_min + (field.x_max - field.x_min) * static_cast<double>(c) / static_cast<double>(columns - 1),
          field.y_min + (field.y_max - field.y_min) * static_cast<double>(r) / static_cast<double>(rows - 1),
          field.values[r][c]);
  // The 0.5 level first, as a line of its own; then all in two dimensions.
  gp << "set contour base\nset cntrparam levels discrete 0.5\nunset surface\nset table $boundary\nsplot '-' using "
        "1:2:3 notitle\n";
  gp.send2d(cells);
  gp << "unset table\nset surface\nunset contour\nset key outside top center horizontal\n";
  std::string command =
      "plot " + gp.file2d(cells) +
      "using 1:2:3 with image notitle, $boundary using 1:2 with lines lw 2 lc rgb '#333333' title 'boundary'";
  for (std::size_t i = 0; i < classes.size(); ++i)
    command += ", " + gp.file1d(classes[i].points) + "with points pt 7 ps 0.6 lc rgb '" +
               (i == 0 ? "#c0501f" : "#1f5fae") + "' title " + quoted(classes[i].name);
  gp << command << "\n";
  drawing.close();
}

void plot_matrix(const std::filesystem::path& file, const std::string& title,
                 const std::vector<std::vector<double>>& values, const std::vector<std::string>& row_labels,
                 const std::vector<std::string>& column_labels) {
  const std::size_t rows = values.size(), columns = rows > 0 ? values.front().size() : 0;
  require(rows > 0 && columns > 0 && row_labels.size() == rows && column_labels.size() == columns,
          "plot_matrix: ", rows, " x ", columns, " values, ", row_labels.size(), " row and ", column_labels.size(),
          " column labels; they must agree");
  const auto pixels = [](std::size_t n) {
    return std::fmin(1400, std::fmax(26, 56 - static_cast<double>(n)) * static_cast<double>(n));
  };
  Drawing drawing(file, 220 + static_cast<int>(pixels(columns)), 160 + static_cast<int>(pixels(rows)));
  Gnuplot& gp = *drawing;
  const auto tics = [&](const char* axis, const std::vector<std::string>& labels) {
    gp << "set " << axis << "tics (";
    for (std::size_t i = 0; i < labels.size(); ++i) gp << (i ? ", " : "") << quoted(labels[i]) << " " << i;
    gp << ") noenhanced\n";
  };
  gp << "set title " << quoted(title)
     << " noenhanced\nset palette defined (0 '#ffffff', 1 '#1f4e8c')\nset cbrange [0:*]\nset xrange [-0.5:" << columns
     << "-0.5]\nset yrange [" << rows << "-0.5:-0.5]\nset xtics rotate by 60 right\n";
  tics("x", column_labels);
  tics("y", row_labels);
  std::vector<std::tuple<double, double, double>> cells;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      cells.emplace_back(static_cast<double>(c), static_cast<double>(r), values[r][c]);
  gp << "plot " << gp.file1d(cells) << "using 1:2:3 with image notitle\n";
  drawing.close();
}

void plot_lines(const std::filesystem::path& file, const PlotLabels& labels, const std::vector<Series>& series,
                const LineOptions& options) {
  Drawing drawing(file, options.names_outside ? 1040 : 900, 540);
  Gnuplot& gp = *drawing;
  frame(gp, labels);
  if (options.log_x) gp << "set logscale x\n";
  if (options.log_y) gp << "set logscale y\nset format y '%g'\n";
  if (options.percent) gp << "set yrange [0:100]\n";
  if (options.names_outside) gp << "set key outside right top\n";
  std::string command;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    command += (command.empty() ? "plot " : ", ") + gp.file1d(series[i].points) + style_of(series[i], i);
  }
  require(!command.empty(), "plot: there is no point to draw");
  gp << command << "\n";
  drawing.close();
}

void plot_bars(const std::filesystem::path& file, const std::string& title, const std::vector<std::string>& names,
               const std::vector<Bars>& panels) {
  require(!names.empty() && !panels.empty(), "plot_bars: ", names.size(), " names and ", panels.size(),
          " panels; there must be one or more of both");
  Drawing drawing(file, 180 + 300 * static_cast<int>(panels.size()), 120 + 26 * static_cast<int>(names.size()));
  Gnuplot& gp = *drawing;
  gp << "set multiplot layout 1," << panels.size() << " title " << quoted(title)
     << " noenhanced margins char 17, char 3, char 4, char 3 spacing char 4\n"
     << "set style fill solid\nset border 3\nset tics nomirror\nset ytics scale 0\nset grid x lc rgb '#dddddd'\n"
     << "unset key\nset yrange [" << names.size() << "-0.4:-0.6]\nset ytics (";
  for (std::size_t i = 0; i < names.size(); ++i) gp << (i ? ", " : "") << quoted(names[i]) << " " << i;
  gp << ") noenhanced\n";
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const Bars& panel = panels[p];
    require(panel.values.size() == names.size(), "plot_bars: ", names.size(), " names but ", panel.values.size(),
            " values of ", panel.label, "; there must be as many");
    std::vector<std::tuple<double, double, double, double, double, double>> boxes;  // centre, and the box's corners
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto row = static_cast<double>(i);
      boxes.emplace_back(panel.values[i] / 2, row, 0, panel.values[i], row - 0.35, row + 0.35);
    }
    if (p > 0) gp << "unset ytics\n";  // the names stand left of the first
    gp << "set xrange [0:" << (panel.most > 0 ? std::to_string(panel.most) : "*") << "]\nset xlabel "
       << quoted(panel.label) << " noenhanced\nplot " << gp.file1d(boxes)
       << "using 1:2:3:4:5:6 with boxxyerror lc rgb '" << kColours[p % std::size(kColours)] << "'\n";
  }
  gp << "unset multiplot\n";
  drawing.close();
}

}  // namespace heed::examples
