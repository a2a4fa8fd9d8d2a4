// UTF-8, and texts read from files. Pieces of a file are cut where UTF-8 lets them.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/core/memory.hpp>
#include <heed/data/text.hpp>
#include <memory>
#include <span>

namespace heed {
namespace {

namespace fs = std::filesystem;

unsigned byte_at(std::string_view s, std::size_t i) { return static_cast<unsigned char>(s[i]); }

// What may follow a first byte: the number of bytes in all, and the range of the second one. Unicode 15, table 3-7.
struct Form {
  std::size_t length = 0;  // 0: no code point begins with it
  unsigned low = 0x80, high = 0xBF;
};

Form form_of(unsigned first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {};
  if (first < 0xE0) return {2};
  if (first < 0xF0) return {3, first == 0xE0 ? 0xA0u : 0x80u, first == 0xED ? 0x9Fu : 0xBFu};
  if (first < 0xF5) return {4, first == 0xF0 ? 0x90u : 0x80u, first == 0xF4 ? 0x8Fu : 0xBFu};
  return {};
}

// How many bytes from i on fit the form of the code point that begins there; `whole` tells if it is finished.
std::size_t fitting(std::string_view s, std::size_t i, bool& whole) {
  const Form form = form_of(byte_at(s, i));
  whole = form.length == 1;
  if (form.length <= 1) return form.length;
  std::size_t n = 1;
  for (; n < form.length && i + n < s.size(); ++n) {
    const unsigned b = byte_at(s, i + n);
    if (n == 1 ? b < form.low || b > form.high : (b & 0xC0) != 0x80) break;
  }
  whole = n == form.length;
  return n;
}

char32_t code_point_at(std::string_view s, std::size_t i, std::size_t length) {
  if (length == 1) return byte_at(s, i);
  char32_t c = byte_at(s, i) & (0x7Fu >> length);
  for (std::size_t n = 1; n < length; ++n) c = c << 6 | (byte_at(s, i + n) & 0x3Fu);
  return c;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    if (byte_at(bytes, i) < 0x80) {
      ++i;
      continue;
    }
    bool whole;
    const std::size_t n = fitting(bytes, i, whole);
    if (!whole) return i;
    i += n;
  }
  return std::nullopt;
}

std::size_t unfinished_utf8(std::string_view bytes) {
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const std::size_t i = bytes.size() - back;
    if ((byte_at(bytes, i) & 0xC0) == 0x80) continue;  // not a first byte
    bool whole;
    return fitting(bytes, i, whole) == back && !whole ? back : 0;
  }
  return 0;
}

std::string repair_utf8(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    bool whole;
    const std::size_t n = fitting(bytes, i, whole);
    if (whole)
      text += bytes.substr(i, n);
    else
      append_utf8(text, 0xFFFD);
    i += std::max<std::size_t>(n, 1);
  }
  return text;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(kWhiteSpace); begin != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kWhiteSpace, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kWhiteSpace, end);
  }
  return words;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().remove_suffix(1);
    begin = end + 1;
  }
  return lines;
}

std::vector<char32_t> decode_utf8(std::string_view text) {
  std::vector<char32_t> code_points;
  code_points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    bool whole;
    const std::size_t n = fitting(text, i, whole);
    require(whole, "decode_utf8: the byte at offset ", i, " does not belong to UTF-8 text");
    code_points.push_back(code_point_at(text, i, n));
    i += n;
  }
  return code_points;
}

void append_utf8(std::string& text, char32_t c) {
  require(c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF), "encode_utf8: ", static_cast<unsigned long>(c),
          " is not a code point");
  const auto put = [&](char32_t b) { text += static_cast<char>(static_cast<unsigned char>(b)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000)
      put(0xE0 | c >> 12);
    else
      put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string encode_utf8(const std::vector<char32_t>& code_points) {
  std::string text;
  text.reserve(code_points.size());
  for (char32_t c : code_points) append_utf8(text, c);
  return text;
}

std::string show_character(char32_t c) {
  char number[16];
  std::snprintf(number, sizeof number, "U+%04lX", static_cast<unsigned long>(c));
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return number;
  std::string shown = "'";
  append_utf8(shown, c);
  return shown + "' (" + number + ")";
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    bool whole;
    const std::size_t n = std::max<std::size_t>(fitting(bytes, i, whole), 1);
    const char32_t c = whole ? code_point_at(bytes, i, n) : 0;
    if (whole && c >= 0x20 && (c < 0x7F || c >= 0xA0)) {
      text += bytes.substr(i, n);
    } else if (c == '\n' || c == '\t') {
      text += c == '\n' ? "\\n" : "\\t";
    } else {
      for (std::size_t k = i; k < i + n; ++k) {
        char hex[8];
        std::snprintf(hex, sizeof hex, "\\x%02X", byte_at(bytes, k));
        text += hex;
      }
    }
    i += n;
  }
  return text;
}

std::vector<fs::path> text_files(const std::vector<fs::path>& files_and_folders) {
  std::vector<fs::path> files;
  const auto hidden = [](const fs::path& p) { return p.filename().native().starts_with('.'); };
  for (const fs::path& path : files_and_folders) {
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
    require(!below.empty(), "text: the folder ", path.native(), " has no files (hidden ones do not count)");
    std::sort(below.begin(), below.end());
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

namespace {

// Reads one file through `use` in pieces cut after a line feed or a code point; returns whether it ends with a line
// feed.
class Pieces {
 public:
  Pieces(const std::function<void(const TextPiece&)>& use, std::size_t bytes)
      : use_(use), bytes_(std::max<std::size_t>(bytes, 8)) {}

  void read(const fs::path& path) {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    require(file != nullptr, "text: ", path.native(), " cannot be opened: ", std::strerror(errno));
    // A terminal ends by Ctrl-D. Others, as /dev/zero, have no end, or none that is of text.
    struct stat status = {};
    const bool device = ::fstat(::fileno(file.get()), &status) == 0 &&
                        (S_ISBLK(status.st_mode) || (S_ISCHR(status.st_mode) && ::isatty(::fileno(file.get())) == 0));
    require(!device, "text: ", path.native(), " is a device, not a regular file; it must be a file or a pipe");
    if (total_ > 0 && !ended_by_line_feed_) hand_on({"\n", last_, last_end_});
    std::string buffer;
    std::size_t offset = 0;  // of the buffer in the file
    for (bool more = true; more;) {
      const std::size_t kept = buffer.size();
      buffer.resize(kept + bytes_);
      const std::size_t n = read_bytes(file.get(), buffer.data() + kept);
      require(!std::ferror(file.get()), "text: ", path.native(), " cannot be read: ", std::strerror(errno));
      buffer.resize(kept + n);
      more = n > 0;
      const std::size_t end = more ? buffer.size() - unfinished_utf8(buffer) : buffer.size();
      const std::string_view whole = std::string_view(buffer).substr(0, end);
      if (const auto bad = find_invalid_utf8(whole)) not_utf8(path, byte_at(whole, *bad), offset + *bad);
      std::size_t cut = end;
      if (const std::size_t line = whole.rfind('\n'); more && line != std::string_view::npos) cut = line + 1;
      const std::size_t mark = offset == 0 && whole.starts_with("\xEF\xBB\xBF") ? 3 : 0;
      if (cut > mark) hand_on({whole.substr(mark, cut - mark), path, offset + mark});
      buffer.erase(0, cut);
      offset += cut;
    }
    last_ = path;
    last_end_ = offset;
  }

  std::size_t total() const { return total_; }

 private:
  // Reading goes on after a signal: a pipe may be waited for when one comes.
  std::size_t read_bytes(std::FILE* file, char* to) const {
    std::size_t n = 0;
    do {
      std::clearerr(file);
      n += std::fread(to + n, 1, bytes_ - n, file);
    } while (std::ferror(file) && errno == EINTR);
    return n;
  }

  [[noreturn]] static void not_utf8(const fs::path& path, unsigned byte, std::size_t offset) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02X", byte);
    fail("text: ", path.native(), " is not UTF-8: the byte ", hex, " at offset ", offset, " cannot stand there");
  }

  void hand_on(const TextPiece& piece) {
    total_ += piece.text.size();
    ended_by_line_feed_ = piece.text.back() == '\n';
    use_(piece);
  }

  const std::function<void(const TextPiece&)>& use_;
  std::size_t bytes_, total_ = 0;
  bool ended_by_line_feed_ = false;
  fs::path last_;             // the file read last
  std::size_t last_end_ = 0;  // its size
};

}  // namespace

void read_text_pieces(const std::vector<fs::path>& files_and_folders, const std::function<void(const TextPiece&)>& use,
                      std::size_t piece_bytes) {
  Pieces pieces(use, piece_bytes);
  for (const fs::path& file : text_files(files_and_folders)) pieces.read(file);
  std::string names;
  for (const fs::path& p : files_and_folders) names += (names.empty() ? "" : ", ") + p.native();
  require(pieces.total() > 0, "text: there is no text in ", names.empty() ? "an empty list of files" : names);
}

std::string read_text(const std::vector<fs::path>& files_and_folders) {
  std::string text;
  read_text_pieces(files_and_folders, [&](const TextPiece& piece) {
    text += piece.text;
    // A pipe may have no end. A token of one byte takes four.
    if ((text.size() >> 20) != ((text.size() - piece.text.size()) >> 20))
      check_memory("text: what was read so far, with its tokens,", 2 * static_cast<double>(text.size()));
  });
  return text;
}

std::string read_text(const fs::path& file_or_folder) { return read_text(std::vector<fs::path>{file_or_folder}); }

std::size_t cut_text(std::string_view text, std::size_t least, std::size_t most) {
  const std::size_t line = text.substr(0, most).find('\n', least);
  if (line != std::string_view::npos) return line + 1;
  if (text.size() <= most) return 0;
  for (std::size_t i = most; i > std::max<std::size_t>(least, 1); --i)
    if (text[i] == ' ' && text[i - 1] != ' ') return i;
  std::size_t i = most;
  while (i > 1 && (byte_at(text, i) & 0xC0) == 0x80) --i;
  return i;
}

}  // namespace heed
