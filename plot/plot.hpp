// Pictures, drawn by gnuplot: the library heed::plot, which find_package(heed COMPONENTS plot) finds.
// plot_losses("loss.svg", run(...)) draws a training run.
//
// Example:
//
//   std::vector<std::pair<double, double>> points;
//   for (int i = 0; i <= 60; ++i) points.push_back({i / 10.0, std::sin(i / 10.0)});
//   plot("sine.png", {"A sine", "x", "sin x"}, {{"sin", points}, {"0", {{0, 0}, {6, 0}}, Series::dashed}});
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heed {

struct RunResult;  // optim/run_loop.hpp

struct Series {
  std::string name = {};
  std::vector<std::pair<double, double>> points = {};
  enum Style { line, thin_line, points_only, dashed } style = line;
};

struct PlotLabels {
  std::string title = {}, x = {}, y = {};
};

// Before long work for a picture: throws Error unless its name ends with .svg or .png, it can be written, and gnuplot
// is there. An empty name is no picture.
void check_plot(const std::filesystem::path& file);

struct LineOptions {
  bool log_x = false, log_y = false;  // logarithmic axes: numbers must be positive
  bool percent = false;               // y from 0 to 100
  bool names_outside = false;         // right of the frame: many names
};

// Lines and points in one frame, which no name hides. Throws Error where gnuplot is missing or the file cannot be
// written.
void plot(const std::filesystem::path& file, const PlotLabels& labels, const std::vector<Series>& series,
          const LineOptions& options = {});

// The losses of a run by step, and a floor that no model can be below, if there is one.
void plot_losses(const std::filesystem::path& file, const RunResult& result, std::optional<double> floor = {});

// Two classes of points over a field of values, the probability of the second class: its 0.5 level is the boundary.
// `values` are [rows][columns] over the ranges, the first row at y_min; at least 2 x 2.
struct Field {
  double x_min = {}, x_max = {}, y_min = {}, y_max = {};
  std::vector<std::vector<double>> values = {};
};
void plot_boundary(const std::filesystem::path& file, const PlotLabels& labels, const Field& field,
                   const std::vector<Series>& classes);

// Numbers in cells, the rows and columns labelled: attention weights, confusions. A cell has the colour of its number,
// and the number itself where all have room. NaN: an empty cell.
void plot_matrix(const std::filesystem::path& file, const std::string& title,
                 const std::vector<std::vector<double>>& values, const std::vector<std::string>& row_labels,
                 const std::vector<std::string>& column_labels);

// Frames side by side, three a row, each with a key of its own; with logarithmic axes if `logarithmic`, where all
// numbers must be above 0.
struct Frame {
  PlotLabels labels = {};
  std::vector<Series> series = {};
};
void plot_frames(const std::filesystem::path& file, const std::vector<Frame>& frames, bool logarithmic);

// Numbers from 0 to 1 in cells, as rows of panels of one size: attention weights of many heads. NaN: an empty cell.
// Panels at the left carry the row labels, those at the bottom the column labels, as many as there is room for.
struct MatrixPanel {
  std::string title = {};
  std::vector<std::vector<double>> values = {};  // [row labels][column labels]
};
struct MatrixLabels {
  std::string title = {}, rows_name = {}, columns_name = {};
  std::vector<std::string> rows = {}, columns = {};
};
void plot_matrices(const std::filesystem::path& file, const MatrixLabels& labels,
                   const std::vector<std::vector<MatrixPanel>>& panels);

// A horizontal bar a name, from the top down, in one panel for each list of values.
struct Bars {
  std::string label = {};           // of the axis
  std::vector<double> values = {};  // one a name
  double most = 0;             // the end of the axis; 0: as the values need
};
void plot_bars(const std::filesystem::path& file, const std::string& title, const std::vector<std::string>& names,
               const std::vector<Bars>& panels);

}  // namespace heed
