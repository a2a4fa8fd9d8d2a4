// Reads texts from files: lists of files, line ends, byte order marks and invalid UTF-8.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <heed/core/memory.hpp>
#include <heed/core/names.hpp>
#include <heed/data/detail/text_reader.hpp>
#include <heed/data/unicode.hpp>
#include <memory>

namespace heed {

namespace fs = std::filesystem;

namespace {

bool is_standard_input(const fs::path& path) { return path.native() == "-"; }

}  // namespace

std::string shown_file(const fs::path& file) { return is_standard_input(file) ? "standard input" : file.native(); }

std::vector<fs::path> text_files(const std::vector<fs::path>& files_and_folders) {
  std::vector<fs::path> files;
  const auto hidden = [](const fs::path& p) { return p.filename().native().starts_with('.'); };
  for (const fs::path& path : files_and_folders) {
    if (is_standard_input(path)) {
      files.push_back(path);
      continue;
    }
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    require(status.type() != fs::file_type::not_found, "text: ", path.native(), " does not exist");
    require(fs::exists(status), "text: ", path.native(), " cannot be read: ", error.message());
    if (!fs::is_directory(status)) {
      files.push_back(path);
      continue;
    }
    std::vector<fs::path> below;
    fs::recursive_directory_iterator it(path, error), end;
    for (; !error && it != end; it.increment(error)) {
      if (hidden(it->path()))
        it.disable_recursion_pending();
      else if (it->is_regular_file(error))
        below.push_back(it->path());
    }
    require(!error, "text: the folder ", path.native(), " cannot be read: ", error.message());
    require(!below.empty(), "text: the folder ", path.native(), " has no files (hidden files do not count)");
    std::sort(below.begin(), below.end());
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

std::string TextReport::text() const {
  const auto described = [&](std::size_t n, const std::string& what, const char* done) {
    return std::to_string(n) + " " + what + (n == 1 ? " was " : "s were ") + done + ", because " +
           (n == 1 ? "it is" : "they are") + " not UTF-8 (the first: " + first + ")";
  };
  if (skipped > 0) return described(skipped, "line", "skipped");
  if (replaced > 0) return described(replaced, "part", "replaced by U+FFFD");
  return {};
}

namespace {

// Detects UTF-16 and UTF-32 without a byte order mark: in ASCII text, half or three quarters of the bytes are zero.
detail::ForeignFormat wide_format(std::string_view b) {
  const std::size_t groups = std::min<std::size_t>(b.size(), 4096) / 4;
  double zero[4] = {};  // share of zero bytes per offset modulo 4
  for (std::size_t i = 0; i < 4 * groups; ++i) zero[i % 4] += b[i] == 0 ? 1.0 / static_cast<double>(groups) : 0;
  if (groups == 0) return {};
  const auto all = [&](std::size_t i) { return zero[i] >= 0.9; };
  const auto many = [&](std::size_t i) { return zero[i] >= 0.5; };
  const auto few = [&](std::size_t i) { return zero[i] <= 0.1; };
  if (few(0) && all(2) && all(3)) return {"UTF-32 (little-endian)", "iconv -f UTF-32LE -t UTF-8"};
  if (all(0) && all(1) && few(3)) return {"UTF-32 (big-endian)", "iconv -f UTF-32BE -t UTF-8"};
  if (few(0) && many(1) && few(2) && many(3)) return {"UTF-16 (little-endian)", "iconv -f UTF-16LE -t UTF-8"};
  if (many(0) && few(1) && many(2) && few(3)) return {"UTF-16 (big-endian)", "iconv -f UTF-16BE -t UTF-8"};
  return {};
}

}  // namespace

detail::ForeignFormat detail::foreign_format(std::string_view begin) {
  using namespace std::string_view_literals;
  static constexpr std::pair<std::string_view, ForeignFormat> kFormats[] = {
      {"\x1F\x8B"sv, {"a gzip file", "gunzip"}},
      {"\x28\xB5\x2F\xFD"sv, {"a zstd file", "unzstd"}},
      {"\xFD\x37zXZ\0"sv, {"an xz file", "unxz"}},
      {"BZh91AY&SY"sv, {"a bzip2 file", "bunzip2"}},
      {"PK\x03\x04"sv, {"a zip file", "unzip"}},
      {"\xFF\xFE\0\0"sv, {"UTF-32 (little-endian)", "iconv -f UTF-32 -t UTF-8"}},
      {"\0\0\xFE\xFF"sv, {"UTF-32 (big-endian)", "iconv -f UTF-32 -t UTF-8"}},
      {"\xFF\xFE"sv, {"UTF-16 (little-endian)", "iconv -f UTF-16 -t UTF-8"}},
      {"\xFE\xFF"sv, {"UTF-16 (big-endian)", "iconv -f UTF-16 -t UTF-8"}},
  };
  for (const auto& [magic, format] : kFormats)
    if (begin.starts_with(magic)) return format;
  return wide_format(begin);
}

namespace {

// Reads files in order and passes their text to `use`.
class TextReader {
 public:
  // unchecked: passes on invalid UTF-8.
  TextReader(const std::function<void(const TextPiece&)>& use, std::size_t bytes, const ReadTextOptions& options,
             bool unchecked = false)
      : use_(use), bytes_(std::max<std::size_t>(bytes, 8)), options_(options), unchecked_(unchecked) {}

  void read(const fs::path& path) {
    const std::unique_ptr<std::FILE, void (*)(std::FILE*)> file = open(path);
    if (total_ > 0 && !ended_by_line_feed_) hand_on("\n", last_end_);
    path_ = path, lines_ = 0;
    std::string buffer;
    std::size_t offset = 0;  // position of the buffer in the file
    for (bool more = true; more;) {
      const std::size_t kept = buffer.size();
      buffer.resize(kept + bytes_);
      const std::size_t n = read_bytes(file.get(), buffer.data() + kept);
      require(!std::ferror(file.get()), "text: ", shown_file(path), " cannot be read: ", std::strerror(errno));
      buffer.resize(kept + n);
      more = n > 0;
      if (offset == 0) check_format(buffer);
      const std::string_view whole = std::string_view(buffer).substr(0, more ? end_of_whole(buffer) : buffer.size());
      const std::size_t mark = offset == 0 && whole.starts_with("\xEF\xBB\xBF") ? 3 : 0;
      convert(whole.substr(mark), offset + mark);
      lines_ += static_cast<std::size_t>(std::count(whole.begin(), whole.end(), '\n'));
      offset += whole.size();
      buffer.erase(0, whole.size());
    }
    last_end_ = offset;
  }

  std::size_t total() const { return total_; }

 private:
  std::unique_ptr<std::FILE, void (*)(std::FILE*)> open(const fs::path& path) {
    const auto close = [](std::FILE* file) {
      if (file != stdin) std::fclose(file);
    };
    std::unique_ptr<std::FILE, void (*)(std::FILE*)> file(
        is_standard_input(path) ? stdin : std::fopen(path.c_str(), "rb"), close);
    require(file != nullptr, "text: ", path.native(), " cannot be opened: ", std::strerror(errno));
    if (is_standard_input(path)) return file;
    // Ctrl-D ends input from a terminal. Other devices, such as /dev/zero, are endless or do not contain text.
    struct stat status = {};
    const bool device = ::fstat(::fileno(file.get()), &status) == 0 &&
                        (S_ISBLK(status.st_mode) || (S_ISCHR(status.st_mode) && ::isatty(::fileno(file.get())) == 0));
    require(!device, "text: ", path.native(), " is a device, not a regular file; it must be a file or a pipe");
    return file;
  }

  // Continues after a signal, which may arrive while reading waits for a pipe.
  std::size_t read_bytes(std::FILE* file, char* to) const {
    std::size_t n = 0;
    do {
      std::clearerr(file);
      n += std::fread(to + n, 1, bytes_ - n, file);
    } while (std::ferror(file) && errno == EINTR);
    return n;
  }

  // The size of the part of the buffer that can be passed on before more is read: whole lines, or whole code points if
  // lines need not be whole. A carriage return at the end is kept back, since its line feed may follow.
  std::size_t end_of_whole(std::string_view buffer) const {
    std::string_view whole = buffer.substr(0, buffer.size() - unfinished_utf8(buffer));
    if (whole.ends_with('\r')) whole.remove_suffix(1);
    const std::size_t line = whole.find_last_of(line_ends());
    if (line == std::string_view::npos) return skips() ? 0 : whole.size();
    return line + 1;
  }

  const char* line_ends() const { return options_.line_ends == LineEnds::any ? "\r\n" : "\n"; }
  bool skips() const { return options_.invalid == InvalidUtf8::skip && !unchecked_; }

  void check_format(std::string_view begin) const {
    const detail::ForeignFormat foreign = detail::foreign_format(begin);
    require(foreign.name.empty(), "text: ", shown_file(path_), " is ", foreign.name, ", not UTF-8 text; convert it (",
            foreign.cure, ")");
  }

  std::string line_of(std::string_view text, std::size_t at) const {
    const auto before = std::ranges::count(text.substr(0, at), '\n');
    return "line " + std::to_string(lines_ + 1 + static_cast<std::size_t>(before));
  }
  std::string place(std::string_view text, std::size_t at) const {
    return line_of(text, at) + " of " + shown_file(path_);
  }

  [[noreturn]] void not_utf8(std::string_view text, std::size_t at, std::size_t offset) const {
    constexpr std::size_t kSeen = 1 << 15;
    const std::string guess = guess_encoding(text.substr(at - std::min(at, kSeen)));
    fail("text: ", shown_file(path_), " is not UTF-8: the byte ", show_byte(text[at]), " at offset ", offset + at,
         " is invalid (", line_of(text, at), ")", guess.empty() ? "" : "; it looks like " + guess,
         guess.empty() ? "" : ", which iconv -f " + guess + " -t UTF-8 converts",
         "; or read it with InvalidUtf8::replace or skip (--invalid-utf8)");
  }

  [[noreturn]] void lone_carriage_return(std::string_view text, std::size_t at, std::size_t offset) const {
    const std::string_view before = text.substr(0, at);
    const bool first = lines_ == 0 && before.find('\n') == before.npos;
    fail("text: ", first ? "the first line" : line_of(text, at), " of ", shown_file(path_),
         first ? " ends with a carriage return (offset " : " has a carriage return without a line feed (offset ",
         offset + at,
         "), but lines must end with a line feed; LineEnds::any (--line-ends any) reads such line ends, LineEnds::keep "
         "(--line-ends keep) keeps them");
  }

  // Passes on whole lines or whole code points. `offset` is the position of the first byte in the file.
  void convert(std::string_view text, std::size_t offset) {
    if (!skips()) return convert_line(text, text, offset);
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = std::min(text.find_first_of(line_ends(), begin), text.size() - 1) + 1;
      if (text[end - 1] == '\r' && text.substr(end).starts_with('\n')) ++end;
      const std::string_view line = text.substr(begin, end - begin);
      if (!find_invalid_utf8(line))
        convert_line(line, text, offset + begin);
      else if (options_.report != nullptr)
        options_.report->count(options_.report->skipped, place(text, begin));
      begin = end;
    }
  }

  // Converts line ends and invalid UTF-8 in a part of `all`.
  void convert_line(std::string_view text, std::string_view all, std::size_t offset) {
    const auto start = static_cast<std::size_t>(text.data() - all.data());
    std::size_t begin = 0;
    const auto hand_on_to = [&](std::size_t end, std::string_view instead, std::size_t bytes) {
      if (end > begin) hand_on(text.substr(begin, end - begin), offset + begin);
      if (!instead.empty()) hand_on(instead, offset + end);
      begin = end + bytes;
    };
    const auto invalid_from = [&](std::size_t i) {
      const auto bad = unchecked_ ? std::nullopt : find_invalid_utf8(text.substr(i));
      return bad ? i + *bad : text.npos;
    };
    const auto return_from = [&](std::size_t i) {
      return options_.line_ends == LineEnds::keep ? text.npos : text.find('\r', i);
    };
    std::size_t bad = invalid_from(0), back = return_from(0);
    while (std::min(bad, back) < text.size()) {
      if (bad < back) {
        if (options_.invalid == InvalidUtf8::refuse) not_utf8(all, start + bad, offset - start);
        if (options_.report != nullptr) options_.report->count(options_.report->replaced, place(all, start + bad));
        hand_on_to(bad, "\xEF\xBF\xBD", detail::invalid_utf8_size(text.substr(bad)));
        bad = invalid_from(begin);
      } else {
        const bool alone = !text.substr(back + 1).starts_with('\n');
        if (alone && options_.line_ends == LineEnds::lf) lone_carriage_return(all, start + back, offset - start);
        hand_on_to(back, alone ? "\n" : "", 1);
        back = return_from(begin);
      }
    }
    hand_on_to(text.size(), "", 0);
  }

  void hand_on(std::string_view text, std::size_t offset) {
    total_ += text.size();
    ended_by_line_feed_ = text.back() == '\n';
    use_({text, path_, offset});
  }

  const std::function<void(const TextPiece&)>& use_;
  std::size_t bytes_, total_ = 0;
  ReadTextOptions options_;
  bool unchecked_, ended_by_line_feed_ = false;
  fs::path path_;             // the file being read, or the last one read
  std::size_t lines_ = 0;     // lines before the buffer
  std::size_t last_end_ = 0;  // size of the last file read
};

void read_files(const std::vector<fs::path>& files_and_folders, const std::function<void(const TextPiece&)>& use,
                const ReadTextOptions& o, std::size_t piece_bytes, bool unchecked) {
  TextReader reader(use, piece_bytes, o, unchecked);
  for (const fs::path& file : text_files(files_and_folders)) reader.read(file);
  require(reader.total() > 0 || o.may_be_empty, "text: there is no text in ",
          files_and_folders.empty() ? "an empty list of files" : detail::joined(files_and_folders, shown_file));
}

std::string read_whole(const std::vector<fs::path>& files_and_folders, const ReadTextOptions& o, bool unchecked) {
  std::string text;
  const auto use = [&](const TextPiece& piece) {
    text += piece.text;
    // A pipe may be endless. Memory is checked for the text and its tokens, 4 bytes per byte token.
    if ((text.size() >> 20) != ((text.size() - piece.text.size()) >> 20))
      check_memory("text: the text read so far, with its tokens,", 2 * static_cast<double>(text.size()));
  };
  read_files(files_and_folders, use, o, std::size_t{1} << 20, unchecked);
  return text;
}

}  // namespace

void read_text_pieces(const std::vector<fs::path>& files_and_folders, const std::function<void(const TextPiece&)>& use,
                      const ReadTextOptions& o, std::size_t piece_bytes) {
  read_files(files_and_folders, use, o, piece_bytes, false);
}

std::string read_text(const std::vector<fs::path>& files_and_folders, const ReadTextOptions& o) {
  return read_whole(files_and_folders, o, false);
}

std::string read_text(const fs::path& file_or_folder, const ReadTextOptions& o) {
  return read_text(std::vector<fs::path>{file_or_folder}, o);
}

std::string detail::read_rows(const fs::path& file, const ReadTextOptions& o) {
  return read_whole({file}, o, o.invalid == InvalidUtf8::skip);
}

}  // namespace heed
