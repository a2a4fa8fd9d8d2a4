#include "examples/support/plot.hpp"

#include <gnuplot-iostream.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/data/disk.hpp>

namespace heed::examples {
namespace {

const char* const kColours[] = {"#2a6fbb", "#d1632f", "#3b8f5a", "#7b5aa6", "#9a7b1f",
                                "#b03a63", "#4a4a4a", "#38a3b8", "#e39ac0"};

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
  // The same for cells: viewers of .svg would smear them into each other.
  void close_cells() {
    close();
    if (file_.extension() != ".svg") return;
    std::ifstream in(file_);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string image = "<image ", sharp = "<image style='image-rendering:pixelated' ";
    for (std::size_t i = text.find(image); i != std::string::npos; i = text.find(image, i + sharp.size()))
      text.replace(i, image.size(), sharp);
    std::ofstream(file_) << text;
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
  drawing.close_cells();
}

void plot_frames(const std::filesystem::path& file, const std::vector<Frame>& frames, bool logarithmic) {
  require(!frames.empty(), "plot_frames: there is no frame; there must be one or more");
  Drawing drawing(file, 640 * static_cast<int>(frames.size()), 600);
  Gnuplot& gp = *drawing;
  gp << "set multiplot layout 1," << frames.size() << "\n";
  if (logarithmic) gp << "set logscale x 2\nset logscale y 10\nset format y '10^{%L}'\nset autoscale xfix\n";
  for (const Frame& f : frames) {
    gp << "set key default\n";
    frame(gp, f.labels);
    gp << "set grid xtics ytics lt 1 lc rgb '#dddddd'\nset key default\nset key below horizontal Left reverse samplen "
          "2 width 2 font ',10'\nset bmargin 7\n";
    std::string command;
    for (std::size_t i = 0; i < f.series.size(); ++i) {
      for (const auto& [x, y] : f.series[i].points)
        require(!logarithmic || (x > 0 && y > 0), "plot_frames: ", f.series[i].name, " has the point (", x, ", ", y,
                "); logarithmic axes need numbers above 0");
      if (!f.series[i].points.empty())
        command += (command.empty() ? "plot " : ", ") + gp.file1d(f.series[i].points) + style_of(f.series[i], i);
    }
    require(!command.empty(), "plot_frames: a frame has no point to draw");
    gp << command << "\n";
  }
  gp << "unset multiplot\n";
  drawing.close();
}

namespace {

std::size_t longest(const std::vector<std::string>& labels) {
  std::size_t most = 0;
  for (const std::string& label : labels) most = std::max(most, label.size());
  return most;
}

// Where the panels of plot_matrices stand: pixels, from the upper left.
struct Grid {
  std::size_t rows, columns;
  double side, left, bottom;  // of a panel; room for labels
  static constexpr double kGap = 14, kTitle = 24, kTop = 44, kRight = 90;

  double width() const { return left + static_cast<double>(columns) * (side + kGap) + kRight; }
  double height() const { return kTop + static_cast<double>(rows) * (side + kTitle) + bottom; }
  void place(Gnuplot& gp, std::size_t r, std::size_t c) const {
    const double x = left + static_cast<double>(c) * (side + kGap),
                 y = kTop + static_cast<double>(r) * (side + kTitle) + kTitle;
    gp << "set lmargin at screen " << x / width() << "\nset rmargin at screen " << (x + side) / width()
       << "\nset tmargin at screen " << 1 - y / height() << "\nset bmargin at screen " << 1 - (y + side) / height()
       << "\n";
  }
};

// One label in `step`, so that neighbours do not touch; none for empty labels.
void label_axis(Gnuplot& gp, const std::string& axis, const std::vector<std::string>& labels, double pixels) {
  constexpr double kRoom = 12;
  const auto count = static_cast<double>(labels.size());
  const auto step = static_cast<std::size_t>(std::fmax(1, std::ceil(kRoom * count / pixels)));
  gp << "set " << axis << "tics (";
  for (std::size_t i = 0; i < labels.size(); i += step) gp << (i ? ", " : "") << quoted(labels[i]) << " " << i;
  gp << ") noenhanced scale 0.3 nomirror font ',9' textcolor rgb '#000000'\n";
}

}  // namespace

void plot_matrices(const std::filesystem::path& file, const MatrixLabels& labels,
                   const std::vector<std::vector<MatrixPanel>>& panels) {
  const std::size_t rows = labels.rows.size(), columns = labels.columns.size(),
                    across = panels.empty() ? 0 : panels.front().size();
  bool agree = rows > 0 && columns > 0 && across > 0;
  for (const auto& line : panels) {
    agree = agree && line.size() == across;
    for (const MatrixPanel& p : line) {
      agree = agree && p.values.size() == rows;
      for (const auto& row : p.values) agree = agree && row.size() == columns;
    }
  }
  require(agree, "plot_matrices: the panels differ in size, or from the ", rows, " row and ", columns,
          " column labels; they must agree, and there must be one or more");
  const double most = 2000 / static_cast<double>(std::max(across, panels.size()));
  const double wanted = 14 * static_cast<double>(std::max(rows, columns));
  const bool turned = longest(labels.columns) > 4;  // bytes: a visible space has three
  const Grid grid{panels.size(), across, std::fmin(std::fmax(150, wanted), std::fmax(110, std::fmin(most, 560))),
                  40 + 7.0 * static_cast<double>(std::min<std::size_t>(longest(labels.rows), 16)),
                  58 + (turned ? 6.0 * static_cast<double>(std::min<std::size_t>(longest(labels.columns), 16)) : 0)};
  Drawing drawing(file, static_cast<int>(grid.width()), static_cast<int>(grid.height()));
  Gnuplot& gp = *drawing;
  gp << "set multiplot\nset label 1 " << quoted(labels.title) << " at screen 0.5, screen " << 1 - 18 / grid.height()
     << " center noenhanced font ',13'\n"
     << "set palette defined (0 '#ffffff', 0.05 '#dbe7f4', 0.2 '#9cc1e3', 0.5 '#3d7fc0', 1 '#0b2f63')\n"
     << "set cbrange [0:1]\nset xrange [-0.5:" << columns << "-0.5]\nset yrange [" << rows << "-0.5:-0.5]\n"
     << "set object 1 rectangle from graph 0,0 to graph 1,1 behind fillcolor rgb '#e8e6e1' fillstyle solid noborder\n"
     << "set border lw 0.5 lc rgb '#888888'\nset tics textcolor rgb '#000000'\n";
  for (std::size_t r = 0; r < panels.size(); ++r) {
    for (std::size_t c = 0; c < across; ++c) {
      const bool left = c == 0, bottom = r + 1 == panels.size(), last = bottom && c + 1 == across;
      grid.place(gp, r, c);
      gp << "set title " << quoted(panels[r][c].title) << " noenhanced font ',10' offset 0,-0.7\nunset xtics\nunset "
         << "ytics\nunset xlabel\nunset ylabel\nunset colorbox\n";
      if (left) {
        label_axis(gp, "y", labels.rows, grid.side);
        gp << "set ylabel " << quoted(labels.rows_name) << " noenhanced font ',10'\n";
      }
      if (bottom) {
        label_axis(gp, "x", labels.columns, grid.side);
        gp << "set xtics " << (turned ? "rotate by 60 right" : "norotate center") << "\nset xlabel "
           << quoted(labels.columns_name) << " noenhanced font ',10'\n";
      }
      if (last)
        gp << "set colorbox user origin " << 1 - 66 / grid.width() << "," << grid.bottom / grid.height() << " size "
           << 14 / grid.width() << "," << std::fmin(300, grid.side) / grid.height() << "\nset cbtics 0.25 font ',9'\n";
      std::vector<std::tuple<double, double, double>> cells;
      for (std::size_t y = 0; y < rows; ++y)
        for (std::size_t x = 0; x < columns; ++x)
          cells.emplace_back(static_cast<double>(x), static_cast<double>(y), panels[r][c].values[y][x]);
      gp << "plot " << gp.file1d(cells) << "using 1:2:3 with image notitle\nunset label 1\n";
    }
  }
  gp << "unset multiplot\n";
  drawing.close_cells();
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
