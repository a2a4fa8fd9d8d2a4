// Pictures drawn by gnuplot: the library heed::plot, found by find_package(heed COMPONENTS plot).
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

struct RunResult;  // optim/run/result.hpp

// Named points and the style in which they are drawn.
struct Series {
  std::string name = {};                               // in the key
  std::vector<std::pair<double, double>> points = {};  // (x, y), in drawing order
  // line and thin_line connect the points; points_only draws them; dashed is a broken line.
  enum Style { line, thin_line, points_only, dashed } style = line;
};

// The title of a frame and the names of its axes.
struct PlotLabels {
  std::string title = {}, x = {}, y = {};  // empty: none
};

// Throws Error unless the name ends with .svg or .png, the file can be written, and gnuplot is installed. Does nothing
// for an empty name. Call it before a long computation for a picture.
void check_plot(const std::filesystem::path& file);

// Options of plot().
struct LineOptions {
  bool log_x = false, log_y = false;  // logarithmic axes; their numbers must be positive
  bool percent = false;               // y from 0 to 100
  bool names_outside = false;         // names right of the frame, for many series
};

// Draws lines and points in one frame. Names are outside of the frame and hide nothing. Throws Error if there is no
// point. Throws Error if gnuplot is missing or the file cannot be written, as all functions below.
void plot(const std::filesystem::path& file, const PlotLabels& labels, const std::vector<Series>& series,
          const LineOptions& options = {});

// Draws the losses of a run by step. `floor`: a lower bound of the loss of any model, if known.
void plot_losses(const std::filesystem::path& file, const RunResult& result, std::optional<double> floor = {});

// Values over a rectangle, evenly spaced. The first row is at y_min. At least 2 x 2.
struct Field {
  double x_min = {}, x_max = {}, y_min = {}, y_max = {};  // the rectangle
  std::vector<std::vector<double>> values = {};  // [rows][columns]
};
// Draws two classes of points over a field with the probability of the second class, whose level 0.5 is the boundary.
// Throws Error unless there are two classes and at least 2 x 2 values.
void plot_boundary(const std::filesystem::path& file, const PlotLabels& labels, const Field& field,
                   const std::vector<Series>& classes);

// Draws a matrix with labelled rows and columns, such as attention weights or confusions. The colour of a cell shows
// its number. The numbers are printed too if all of them fit. NaN: an empty cell.
void plot_matrix(const std::filesystem::path& file, const std::string& title,
                 const std::vector<std::vector<double>>& values, const std::vector<std::string>& row_labels,
                 const std::vector<std::string>& column_labels);

// One frame of a picture.
struct Frame {
  PlotLabels labels = {};           // of this frame
  std::vector<Series> series = {};  // drawn in this order
};
// Draws several frames, three per row, each with its own key. With `logarithmic`, both axes are logarithmic, and a
// number that is not above 0 is an Error.
void plot_frames(const std::filesystem::path& file, const std::vector<Frame>& frames, bool logarithmic);

// One matrix of plot_matrices().
struct MatrixPanel {
  std::string title = {};                        // above the matrix
  std::vector<std::vector<double>> values = {};  // [row labels][column labels]
};
// The labels shared by all panels of plot_matrices().
struct MatrixLabels {
  std::string title = {}, rows_name = {}, columns_name = {};  // of the picture and of both axes
  std::vector<std::string> rows = {}, columns = {};           // one per row, one per column
};
// Draws rows of panels of equal size with numbers from 0 to 1 in cells, such as the attention weights of many heads.
// NaN: an empty cell. The last row may have fewer panels. The leftmost panels have row labels, and the lowest panels
// have column labels, as many as fit.
// Throws Error if the sizes of panels and labels differ.
void plot_matrices(const std::filesystem::path& file, const MatrixLabels& labels,
                   const std::vector<std::vector<MatrixPanel>>& panels);

// One panel of plot_bars().
struct Bars {
  std::string label = {};           // of the axis
  std::vector<double> values = {};  // one per name
  double x_max = 0;                 // end of the axis; 0: from the values
};
// Draws one horizontal bar per name, from top to bottom, in one panel per list of values. Throws Error if a list does
// not have one value per name.
void plot_bars(const std::filesystem::path& file, const std::string& title, const std::vector<std::string>& names,
               const std::vector<Bars>& panels);

}  // namespace heed
