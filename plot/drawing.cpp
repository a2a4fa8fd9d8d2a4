// Runs gnuplot with files in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <heed/data/detail/disk.hpp>
#include <heed/plot/detail/drawing.hpp>
#include <sstream>

namespace heed {
namespace {

std::FILE* file_in_memory() {
  const int fd = ::memfd_create("plot", MFD_CLOEXEC);
  std::FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "w+");
  require(file != nullptr, "plot: cannot create a file in memory: ", std::strerror(errno));
  return file;
}

// The name of the file, which other processes of this user can open.
std::string name_of(std::FILE* file) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(::fileno(file));
}

std::string content_of(std::FILE* file) {
  std::ifstream in(name_of(file), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The last line that gnuplot wrote, which is the error, without the line number of the script.
std::string complaint(const std::string& output, int status) {
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t begin = line.find_first_not_of(" \t\r"); begin != std::string::npos)
      last = line.substr(begin);
  if (const std::size_t colon = last.find(": "); last.find("line ") < colon && colon != std::string::npos)
    last.erase(0, colon + 2);
  if (last.empty()) last = "no output, exit status " + std::to_string(status);
  return last;
}

}  // namespace

Drawing::Drawing(const std::filesystem::path& file, int width, int height)
    : file_(file), svg_(file.extension() == ".svg") {
  check_plot(file);
  script_ = file_in_memory();
  gp_ = std::make_unique<Gnuplot>(script_);
  gp_->imbue(std::locale::classic());
  *gp_ << "set terminal " << (svg_ ? "svg" : "pngcairo") << " size " << width << "," << height
       << (svg_ ? " dynamic background rgb 'white'" : "") << " font 'sans-serif,12'\nset encoding utf8\n";
}

void Drawing::close() {
  gp_->flush();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> picture(file_in_memory(), std::fclose),
      errors(file_in_memory(), std::fclose);
  const int status = std::system(
      ("exec gnuplot < " + name_of(script_) + " > " + name_of(picture.get()) + " 2> " + name_of(errors.get())).c_str());
  std::string bytes = content_of(picture.get());
  gp_.reset();
  require(status == 0 && !bytes.empty(), "plot: ", file_.string(),
          " could not be drawn; gnuplot: ", complaint(content_of(errors.get()), status));
  const std::string image = "<image ", sharp = "<image style='image-rendering:pixelated' ";
  if (svg_)
    for (std::size_t i = bytes.find(image); i != std::string::npos; i = bytes.find(image, i + sharp.size()))
      bytes.replace(i, image.size(), sharp);
  heed::detail::replace_file("plot", file_, bytes);
}

}  // namespace heed
