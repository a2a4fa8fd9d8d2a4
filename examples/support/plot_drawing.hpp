// Gnuplot as the sources of plot.hpp use it.
#pragma once
#include <gnuplot-iostream.h>

#include <filesystem>
#include <fstream>
#include <heed/core/check.hpp>
#include <memory>
#include <string>

#include "examples/support/plot.hpp"

namespace heed::examples {

// Quotes for gnuplot's single-quoted strings.
inline std::string quoted(const std::string& text) {
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

}  // namespace heed::examples
