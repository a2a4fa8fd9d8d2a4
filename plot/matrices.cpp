// Draws matrices of numbers.
#include <algorithm>
#include <cmath>
#include <heed/plot/detail/drawing.hpp>

namespace heed {
namespace {

std::size_t longest(const std::vector<std::string>& labels) {
  std::size_t longest_label = 0;
  for (const std::string& label : labels) longest_label = std::max(longest_label, label.size());
  return longest_label;
}

// Whether column labels must be turned to fit next to each other. Counts bytes: a visible space has three.
bool turned(const std::vector<std::string>& labels) { return longest(labels) > 4; }

const char* rotation(bool is_turned) { return is_turned ? "rotate by 60 right" : "norotate center"; }

// The text of a number in its cell. All numbers have the same format, with about three digits for the largest.
std::string written(double value, double greatest, bool whole) {
  const bool plain = greatest == 0 || (greatest >= 1e-3 && greatest < 1e6);
  const int decimals = whole || greatest >= 100 ? 0 : greatest >= 10 ? 1 : greatest >= 0.1 ? 2 : 3;
  return plain ? detail::formatted("%.*f", decimals, value) : detail::formatted("%.1e", value);
}

// The texts of the numbers of a matrix, empty if a number is not finite, and the bounds of the numbers.
struct Numbers {
  std::vector<std::vector<std::string>> texts;
  double low = 0, high = 0;  // bounds that include 0
  std::size_t longest = 0;

  explicit Numbers(const std::vector<std::vector<double>>& values) {
    bool whole = true;
    for (const auto& row : values)
      for (const double x : row) {
        if (!std::isfinite(x)) continue;
        low = std::fmin(low, x), high = std::fmax(high, x);
        whole = whole && x == std::round(x);
      }
    for (const auto& row : values) {
      texts.emplace_back();
      for (const double x : row) {
        texts.back().push_back(std::isfinite(x) ? written(x, std::fmax(high, -low), whole) : "");
        longest = std::max(longest, texts.back().back().size());
      }
    }
  }
  bool is_dark(double x) const { return x - low > 0.5 * (high - low); }
};

// The layout of a matrix and its labels, in pixels from the upper left.
struct MatrixPlaces {
  static constexpr double kMaxCells = 1400, kLetter = 8, kTop = 44,
                          kBar = 14;  // pixels: of all cells, of a letter of 12 points
  double cell_width, cell_height, left, bottom, right, columns, rows;
  bool turned;     // whether column labels are turned
  double title;    // width of the title
  int points = 0;  // font size of the numbers; 0: the numbers do not fit

  MatrixPlaces(const std::string& title_text, const Numbers& numbers, const std::vector<std::string>& row_labels,
               const std::vector<std::string>& column_labels)
      : columns(static_cast<double>(column_labels.size())), rows(static_cast<double>(row_labels.size())) {
    const auto side = [](double n) { return std::fmin(kMaxCells / n, std::fmax(26, 56 - n)); };
    const auto letters = [](std::size_t n) { return static_cast<double>(n); };
    cell_width = std::fmax(side(columns), std::fmin(kMaxCells / columns, kLetter * letters(numbers.longest) + 8));
    cell_height = side(rows);
    for (const int p : {11, 10, 9, 8, 7})
      if (points == 0 && 0.8 * p * letters(numbers.longest) + 4 <= cell_width && 1.6 * p <= cell_height) points = p;
    const double below = kLetter * letters(std::min<std::size_t>(longest(column_labels), 40));
    turned = below + 4 > cell_width;
    bottom = turned ? 36 + 0.87 * below : 34;
    left = std::fmax(24 + kLetter * letters(std::min<std::size_t>(longest(row_labels), 40)), turned ? below / 2 : 0);
    right = 60 + kLetter * letters(std::max<std::size_t>(numbers.longest, 5));
    title = kLetter * letters(title_text.size()) + 30;
  }
  double width() const { return std::fmax(title, left + columns * cell_width + right); }
  double height() const { return kTop + rows * cell_height + bottom; }
  void place(Gnuplot& gp) const {
    const double end = left + columns * cell_width;
    gp << "set lmargin at screen " << left / width() << "\nset rmargin at screen " << end / width()
       << "\nset tmargin at screen " << 1 - kTop / height() << "\nset bmargin at screen " << bottom / height()
       << "\nset colorbox user origin " << (end + kBar) / width() << "," << bottom / height() << " size "
       << kBar / width() << "," << rows * cell_height / height() << "\n";
  }
};

// The step of a colour bar of this many pixels, such that its numbers do not overlap.
double bar_step(const Numbers& numbers, double pixels) {
  const double steps = std::fmax(1, std::fmin(5, std::floor(pixels / 30)));
  return tick_step((numbers.high - numbers.low) * 5 / steps);
}

// The numbers in the form that gnuplot draws: column, row, text, colour.
std::vector<std::tuple<double, double, std::string, int>> drawn(const Numbers& numbers,
                                                                const std::vector<std::vector<double>>& values) {
  std::vector<std::tuple<double, double, std::string, int>> texts;
  for (std::size_t r = 0; r < values.size(); ++r)
    for (std::size_t c = 0; c < values[r].size(); ++c)
      if (!numbers.texts[r][c].empty())
        texts.emplace_back(static_cast<double>(c), static_cast<double>(r), numbers.texts[r][c],
                           numbers.is_dark(values[r][c]) ? 0xffffff : 0);
  return texts;
}

// The values in the form that gnuplot draws: column, row, value.
std::vector<std::tuple<double, double, double>> cells_of(const std::vector<std::vector<double>>& values) {
  std::vector<std::tuple<double, double, double>> cells;
  for (std::size_t r = 0; r < values.size(); ++r)
    for (std::size_t c = 0; c < values[r].size(); ++c)
      cells.emplace_back(static_cast<double>(c), static_cast<double>(r), values[r][c]);
  return cells;
}

}  // namespace

void plot_matrix(const std::filesystem::path& file, const std::string& title,
                 const std::vector<std::vector<double>>& values, const std::vector<std::string>& row_labels,
                 const std::vector<std::string>& column_labels) {
  const std::size_t rows = values.size(), columns = rows > 0 ? values.front().size() : 0;
  require(rows > 0 && columns > 0 && row_labels.size() == rows && column_labels.size() == columns,
          "plot_matrix: ", rows, " x ", columns, " values, ", row_labels.size(), " row and ", column_labels.size(),
          " column labels; there must be one label per row and column");
  for (const auto& row : values)
    require(row.size() == columns, "plot_matrix: a row has ", row.size(), " values but the first has ", columns,
            "; all rows must have the same number");
  const Numbers numbers(values);
  const MatrixPlaces places(title, numbers, row_labels, column_labels);
  Drawing drawing(file, static_cast<int>(std::ceil(places.width())), static_cast<int>(std::ceil(places.height())));
  Gnuplot& gp = *drawing;
  places.place(gp);
  const double high = numbers.high > numbers.low ? numbers.high : numbers.low + 1;
  gp << "set label 1 " << quoted(title) << " at screen 0.5, screen " << 1 - 20 / places.height()
     << " center noenhanced\nset palette defined (0 '#ffffff', 1 '#1f4e8c')\nset cbrange [" << numbers.low << ":"
     << high << "]\nset cbtics " << bar_step(numbers, places.rows * places.cell_height)
     << "\nset xrange [-0.5:" << columns << "-0.5]\nset yrange [" << rows << "-0.5:-0.5]\nset xtics "
     << rotation(places.turned) << "\nset xtics " << label_tics(column_labels) << " noenhanced scale 0\nset ytics "
     << label_tics(row_labels) << " noenhanced scale 0\n";
  const auto texts = drawn(numbers, values);
  const bool numbered = places.points > 0 && !texts.empty();
  const std::string block = drawing.block(cells_of(values)), labels = numbered ? drawing.block(texts) : "";
  gp << "plot " << block << drawing.cells(rows, columns);
  if (numbered)
    gp << ", " << labels << "using 1:2:3:4 with labels font '," << places.points
       << "' textcolor rgb variable notitle";
  gp << "\n";
  drawing.close();
}

namespace {

// The layout of the panels of plot_matrices, in pixels from the upper left.
struct Grid {
  std::size_t rows, columns;
  double side, left, bottom;  // side of a panel; space for labels
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

// Pixels from one label of the columns to the next: those of the longest, unless labels are turned.
double column_room(const std::vector<std::string>& labels) {
  return turned(labels) ? 14 : std::fmax(14, 4 + 7 * static_cast<double>(longest(labels)));
}

// Labels every `step`-th position, so that labels do not overlap. Nothing is drawn for empty labels.
void label_axis(Gnuplot& gp, const std::string& axis, const std::vector<std::string>& labels, double pixels) {
  const double room = (axis == "x" ? column_room(labels) : 14) - 2;
  const auto count = static_cast<double>(labels.size());
  const auto step = static_cast<std::size_t>(std::fmax(1, std::ceil(room * count / pixels)));
  gp << "set " << axis << "tics " << label_tics(labels, step)
     << " noenhanced scale 0.3 nomirror font ',9' textcolor rgb '#000000'\n";
}

void check_panels(const MatrixLabels& labels, const std::vector<std::vector<MatrixPanel>>& panels) {
  const std::size_t rows = labels.rows.size(), columns = labels.columns.size(),
                    across = panels.empty() ? 0 : panels.front().size();
  bool agree = rows > 0 && columns > 0 && across > 0;
  for (const auto& line : panels) {
    const bool last = &line == &panels.back();
    agree = agree && (line.size() == across || (last && !line.empty() && line.size() < across));
    for (const MatrixPanel& p : line) {
      agree = agree && p.values.size() == rows;
      for (const auto& row : p.values) agree = agree && row.size() == columns;
    }
  }
  require(agree, "plot_matrices: the panels differ in size, or from the ", rows, " row and ", columns,
          " column labels; there must be one or more panels, with one label per row and column");
}

// All labels fit, unless the picture would be too large.
Grid grid_of(const MatrixLabels& labels, std::size_t down, std::size_t across) {
  const double max_side = 6000 / static_cast<double>(std::max(across, down));
  const double preferred_side = std::fmax(14 * static_cast<double>(labels.rows.size()),
                                          column_room(labels.columns) * static_cast<double>(labels.columns.size()));
  const auto room = [](const std::vector<std::string>& of) {
    return static_cast<double>(std::min<std::size_t>(longest(of), 16));
  };
  return {down, across, std::fmin(std::fmax(150, preferred_side), std::fmax(110, max_side)), 40 + 7 * room(labels.rows),
          58 + (turned(labels.columns) ? 6 * room(labels.columns) : 0)};
}

}  // namespace

void plot_matrices(const std::filesystem::path& file, const MatrixLabels& labels,
                   const std::vector<std::vector<MatrixPanel>>& panels) {
  check_panels(labels, panels);
  const std::size_t rows = labels.rows.size(), columns = labels.columns.size(), across = panels.front().size();
  const Grid grid = grid_of(labels, panels.size(), across);
  Drawing drawing(file, static_cast<int>(grid.width()), static_cast<int>(grid.height()));
  Gnuplot& gp = *drawing;
  gp << "set multiplot\nset label 1 " << quoted(labels.title) << " at screen 0.5, screen " << 1 - 18 / grid.height()
     << " center noenhanced font ',13'\n"
     << "set palette defined (0 '#ffffff', 0.05 '#dbe7f4', 0.2 '#9cc1e3', 0.5 '#3d7fc0', 1 '#0b2f63')\n"
     << "set cbrange [0:1]\nset xrange [-0.5:" << columns << "-0.5]\nset yrange [" << rows << "-0.5:-0.5]\n"
     << "set object 1 rectangle from graph 0,0 to graph 1,1 behind fillcolor rgb '#e8e6e1' fillstyle solid noborder\n"
     << "set border lw 0.5 lc rgb '#888888'\nset tics textcolor rgb '#000000'\n";
  for (std::size_t r = 0; r < panels.size(); ++r) {
    for (std::size_t c = 0; c < panels[r].size(); ++c) {
      const bool last_row = r + 1 == panels.size(), last = last_row && c + 1 == panels[r].size();
      const bool left = c == 0, bottom = last_row || (r + 2 == panels.size() && c >= panels.back().size());
      grid.place(gp, r, c);
      gp << "set title " << quoted(panels[r][c].title) << " noenhanced font ',10' offset 0,-0.7\nunset xtics\nunset "
         << "ytics\nunset xlabel\nunset ylabel\nunset colorbox\n";
      if (left) {
        label_axis(gp, "y", labels.rows, grid.side);
        gp << "set ylabel " << quoted(labels.rows_name) << " noenhanced font ',10'\n";
      }
      if (bottom) {
        label_axis(gp, "x", labels.columns, grid.side);
        gp << "set xtics " << rotation(turned(labels.columns)) << "\nset xlabel " << quoted(labels.columns_name)
           << " noenhanced font ',10'\n";
      }
      if (last)
        gp << "set colorbox user origin " << 1 - 66 / grid.width() << "," << grid.bottom / grid.height() << " size "
           << 14 / grid.width() << "," << std::fmin(300, grid.side) / grid.height() << "\nset cbtics 0.25 font ',9'\n";
      const std::string block = drawing.block(cells_of(panels[r][c].values));
      gp << "plot " << block << drawing.cells(rows, columns, panels.size() * across) << "\nunset label 1\n";
    }
  }
  gp << "unset multiplot\n";
  drawing.close();
}

}  // namespace heed
