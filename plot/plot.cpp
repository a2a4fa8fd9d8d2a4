// Draws lines, boundaries, frames and bars.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <heed/data/files.hpp>
#include <heed/optim/run/result.hpp>
#include <heed/plot/detail/drawing.hpp>

namespace heed {
namespace {

const char* const kColours[] = {"#2a6fbb", "#d1632f", "#3b8f5a", "#7b5aa6", "#9a7b1f",
                                "#b03a63", "#4a4a4a", "#38a3b8", "#e39ac0"};

// After all colours are used, they repeat with other dashes and markers.
std::string style_of(const Series& s, std::size_t i) {
  constexpr const char* kDashes[] = {"", " dt (16,5)", " dt (5,4)"};
  constexpr const char* kMarkers[] = {" pt 7", " pt 5", " pt 9"};
  const std::size_t round = std::min(i / std::size(kColours), std::size(kDashes) - 1);
  const std::string colour = " lc rgb '" + std::string(kColours[i % std::size(kColours)]) + "'";
  const std::string title = " title " + quoted(s.name) + " noenhanced", dash = kDashes[round], marker = kMarkers[round];
  if (s.points.size() == 1) return "with points ps 0.8" + marker + colour + title;  // a line needs two points
  switch (s.style) {
    case Series::thin_line: return "with lines lw 0.7" + dash + colour + title;
    case Series::points_only: return "with points ps 0.5" + marker + colour + title;
    case Series::dashed: return "with lines dt 2 lw 1.5" + colour + title;
    default: return "with lines lw 2" + dash + colour + title;
  }
}

void frame(Gnuplot& gp, const PlotLabels& l) {
  gp << "set title " << quoted(l.title) << " noenhanced\nset xlabel " << quoted(l.x) << " noenhanced\nset ylabel "
     << quoted(l.y) << " noenhanced\n"
     << "set grid lt 1 lc rgb '#dddddd'\nset border 3\nset tics nomirror\n";
}

// The gnuplot command that draws all series with points.
std::string plot_command(Drawing& drawing, const std::vector<Series>& series) {
  std::string command;
  for (std::size_t i = 0; i < series.size(); ++i)
    if (!series[i].points.empty())
      command += (command.empty() ? "plot " : ", ") + drawing.block(series[i].points) + style_of(series[i], i);
  require(!command.empty(), "plot: there are no points to draw");
  return command + "\n";
}

}  // namespace

void check_plot(const std::filesystem::path& file) {
  if (file.empty()) return;
  if (file.extension() != ".svg" && file.extension() != ".png")
    throw FileError("plot: " + file.string() + " ends with '" + file.extension().string() +
                    "'; it must end with .svg or .png");
  check_place("plot", file);
  require(std::system("command -v gnuplot > /dev/null 2>&1") == 0,
          "plot: gnuplot is not installed; plots require it (Debian: gnuplot-nox)");
}

void plot(const std::filesystem::path& file, const PlotLabels& labels, const std::vector<Series>& series,
          const LineOptions& options) {
  Drawing drawing(file, options.names_outside ? 1040 : 900, 540);
  Gnuplot& gp = *drawing;
  frame(gp, labels);
  if (options.log_x) gp << "set logscale x\nset autoscale xfix\n";
  if (options.log_y) gp << "set logscale y\nset format y '%g'\n";
  if (options.percent) gp << "set yrange [0:100]\n";
  gp << (options.names_outside ? "set key outside right top\n" : "set key below horizontal Left reverse height 1\n")
     << plot_command(drawing, series);
  drawing.close();
}

void plot_losses(const std::filesystem::path& file, const RunResult& result, std::optional<double> floor) {
  Series training{"training", {}, Series::thin_line}, validation{"validation", {}, Series::line},
      minimum{"floor: minimum possible loss", {}, Series::dashed};
  for (std::size_t i = 0; i < result.history.losses.size(); ++i)
    training.points.emplace_back(static_cast<double>(i + 1), result.history.losses[i]);
  for (const auto& [step, loss] : result.history.validation_losses)
    validation.points.emplace_back(static_cast<double>(step), loss);
  if (floor) minimum.points = {{1, *floor}, {static_cast<double>(result.steps), *floor}};
  const std::string unit = result.loss_unit.empty() ? "" : ", " + result.loss_unit;
  plot(file, {"Loss by step", "step", "loss" + unit}, {training, validation, minimum});
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
  // First the 0.5 level as a separate line, then everything in two dimensions.
  const std::string block = drawing.block(cells);
  gp << "set contour base\nset cntrparam levels discrete 0.5\nunset surface\nset table $boundary\nsplot " << block
     << "using 1:2:3 notitle\nunset table\nset surface\nunset contour\n"
     << "set key outside top center horizontal Left reverse\n";
  std::string command = "plot " + block + drawing.cells(rows, columns) +
                        ", $boundary using 1:2 with lines lw 2 lc rgb '#333333' title 'boundary'";
  for (std::size_t i = 0; i < classes.size(); ++i)
    command += ", " + drawing.block(classes[i].points) + "with points pt 7 ps 0.6 lc rgb '" +
               (i == 0 ? "#c0501f" : "#1f5fae") + "' title " + quoted(classes[i].name);
  gp << command << "\n";
  drawing.close();
}

// The number of lines in which gnuplot writes the names of series below a frame of this width: in columns, all as wide
// as the longest name.
static int name_lines(const std::vector<Series>& series, int pixels) {
  std::size_t longest = 0;
  for (const Series& s : series) longest = std::max(longest, s.name.size());
  const int across = std::max(1, (pixels - 60) / (60 + 8 * static_cast<int>(longest)));
  return (static_cast<int>(series.size()) + across - 1) / across;
}

void plot_frames(const std::filesystem::path& file, const std::vector<Frame>& frames, bool logarithmic) {
  require(!frames.empty(), "plot_frames: there is no frame; there must be one or more");
  const int columns = std::min(3, static_cast<int>(frames.size())),
            rows = (static_cast<int>(frames.size()) + columns - 1) / columns;
  Drawing drawing(file, 640 * columns, 600 * rows);
  Gnuplot& gp = *drawing;
  int below = 0;
  for (const Frame& f : frames) below = std::max(below, 6 + name_lines(f.series, 640));
  gp << "set multiplot layout " << rows << "," << columns << "\n";
  if (logarithmic) gp << "set logscale x 2\nset logscale y 10\nset format y '10^{%L}'\nset autoscale xfix\n";
  for (const Frame& f : frames) {
    gp << "set key default\n";
    frame(gp, f.labels);
    gp << "set grid xtics ytics lt 1 lc rgb '#dddddd'\nset key default\nset key below horizontal Left reverse samplen "
          "2 width 2 height 1 font ',10'\nset bmargin "
       << below << "\n";
    for (const Series& s : f.series)
      for (const auto& [x, y] : s.points)
        require(!logarithmic || (x > 0 && y > 0), "plot_frames: ", s.name, " has the point (", x, ", ", y,
                "); logarithmic axes need numbers above 0");
    gp << plot_command(drawing, f.series);
  }
  gp << "unset multiplot\n";
  drawing.close();
}

double tick_step(double max) {
  if (!(max > 0) || !std::isfinite(max)) return 1;
  const double power = std::pow(10, std::floor(std::log10(max / 5)));
  for (const double times : {1, 2, 5})
    if (max <= 5 * times * power) return times * power;
  return 10 * power;
}

// The ticks of an axis from 0 to at least `max`, as a list for gnuplot, and the end of the axis. Thousands and
// millions are written as 200k and 5M, since longer numbers would overlap.
static std::pair<std::string, double> ticks_to(double max) {
  const double step = tick_step(max), unit = max >= 1e7 ? 1e6 : max >= 1e4 ? 1e3 : 1;
  const char* letter = unit == 1e6 ? "M" : unit == 1e3 ? "k" : "";
  const double count = std::isfinite(max) && max > 0 ? std::ceil(max / step - 1e-9) : 1;
  std::string list;
  for (double i = 0; i <= count; ++i) {
    const std::string number = detail::formatted("%g", i * step / unit) + (i > 0 ? letter : "");
    list += (i > 0 ? ", " : "") + quoted(number) + detail::formatted(" %.17g", i * step);
  }
  return {"(" + list + ")", count * step};
}

void plot_bars(const std::filesystem::path& file, const std::string& title, const std::vector<std::string>& names,
               const std::vector<Bars>& panels) {
  require(!names.empty() && !panels.empty(), "plot_bars: ", names.size(), " names and ", panels.size(),
          " panels; there must be one or more of each");
  Drawing drawing(file, 180 + 300 * static_cast<int>(panels.size()), 120 + 26 * static_cast<int>(names.size()));
  Gnuplot& gp = *drawing;
  gp << "set multiplot layout 1," << panels.size() << " title " << quoted(title)
     << " noenhanced margins char 17, char 3, char 4, char 3 spacing char 4\n"
     << "set style fill solid\nset border 3\nset tics nomirror\nset ytics scale 0\nset grid x lc rgb '#dddddd'\n"
     << "unset key\nset yrange [" << names.size() << "-0.4:-0.6]\nset ytics " << label_tics(names) << " noenhanced\n";
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const Bars& panel = panels[p];
    require(panel.values.size() == names.size(), "plot_bars: ", names.size(), " names but ", panel.values.size(),
            " values of ", panel.label, "; there must be one value per name");
    std::vector<std::tuple<double, double, double, double, double, double>> boxes;  // centre and corners of the box
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto row = static_cast<double>(i);
      boxes.emplace_back(panel.values[i] / 2, row, 0, panel.values[i], row - 0.35, row + 0.35);
    }
    if (p > 0) gp << "unset ytics\n";  // the names are left of the first panel
    const double x_max = panel.x_max > 0 ? panel.x_max : *std::max_element(panel.values.begin(), panel.values.end());
    const auto [ticks, end] = ticks_to(x_max);
    gp << "set xrange [0:" << detail::formatted("%.17g", panel.x_max > 0 ? panel.x_max : end) << "]\nset xtics "
       << ticks << "\nset xlabel " << quoted(panel.label) << " noenhanced\nplot " << gp.file1d(boxes)
       << "using 1:2:3:4:5:6 with boxxyerror lc rgb '" << kColours[p % std::size(kColours)] << "'\n";
  }
  gp << "unset multiplot\n";
  drawing.close();
}

}  // namespace heed
