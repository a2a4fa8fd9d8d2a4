// Files that are replaced whole or not at all, and logs that grow line by line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace heed::detail {

std::string reason(int error);  // of errno: "No such file or directory"

// Owns a file descriptor. get() is below 0 if the file could not be opened; errno then has the reason.
class Descriptor {
 public:
  // As open(2), but retried after a signal, and not inherited by child processes.
  Descriptor(const std::filesystem::path& path, int flags, unsigned mode = 0);
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  static Descriptor for_reading(const std::filesystem::path& path);  // does not wait for the writer of a pipe
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }

 private:
  int fd_;
};

// A file that is written piece by piece and then replaces `path` whole, or not at all. path.tmp in the same folder is
// written, synced and renamed, then the folder is synced. Until finish(), and after any error before the rename, `path`
// is unchanged. Without finish(), path.tmp is removed. A path.tmp of a killed program is overwritten. If `path` is a
// symbolic link, its target is written, whether it exists or not.
//
// Throws Error, which begins with `op`, if another program is writing path.tmp, if the disk is full or if a limit on
// file sizes is reached (SIGXFSZ is not raised). Throws FileError if `path` cannot be replaced (a device, a pipe).
class NewFile {
 public:
  NewFile(const char* op, const std::filesystem::path& path, std::size_t size = 0);  // size: for messages, 0: unknown
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* bytes, std::size_t count);      // appends
  void overwrite(const void* bytes, std::size_t count);  // overwrites the beginning, which must be written already
  void finish();                                         // no call may follow

 private:
  [[noreturn]] void refuse(int error) const;

  const char* op_;
  std::filesystem::path path_, temporary_;
  const char* consolation_ = "";
  std::size_t size_, written_ = 0;
  Descriptor file_;
  bool cut_ = false, placed_ = false;  // remains of a killed program were truncated; the file is in its place
};

// Syncs the folder of `path`. Otherwise a power cut may undo the creation or renaming of a file there. Returns 0 or
// errno.
int sync_folder_of(const std::filesystem::path& path);

// Locks `path` during its lifetime: other programs, and other runs of this program, get an Error when they lock it. The
// lock is on the file path.lock, because `path` itself is replaced. A lock of a killed program is taken over. If heed
// did not make the lock file, a file with content is a FileError, and an empty file is used but not removed.
class PlaceLock {
 public:
  PlaceLock(const char* op, const std::filesystem::path& path);  // does nothing for an empty path
  ~PlaceLock();
  PlaceLock(const PlaceLock&) = delete;
  PlaceLock& operator=(const PlaceLock&) = delete;

 private:
  std::filesystem::path lock_;
  Descriptor file_;
  bool ours_ = false;  // made by heed
};

// A log that grows line by line. A regular file may be opened by one program at a time; others get an Error. A pipe, a
// character device (a terminal, /dev/null) or the target of standard output or error is neither locked nor truncated.
// Throws FileError for a folder, a socket or a disk. Throws Error for a pipe without a reader for 5 seconds.
class LogFile {
 public:
  explicit LogFile(std::filesystem::path path);  // creates or keeps the file; empty path: no log

  // Keeps the first `bytes` bytes of the old content (default: 0). The rest is removed by the first write() or sync(),
  // so that an earlier failure loses nothing.
  void keep(std::uintmax_t bytes) { size_ = bytes, cut_ = false; }
  // Appends a line, given without its line feed. The line is in the file when this returns. A partly written line is
  // removed.
  void write(const std::string& line);
  void sync();  // syncs the file and its name to disk
  bool is_open() const { return file_.get() >= 0; }
  bool is_stream() const { return stream_; }  // no separate regular file
  // The change that another program made to the file since the last write: "was deleted", "was replaced by another
  // file" or "was truncated"; empty if there was none.
  std::string damage() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void cut();

  std::filesystem::path path_;
  Descriptor file_;
  bool stream_ = false, cut_ = false, named_ = false;  // named_: the folder was synced
  std::uintmax_t size_ = 0;                            // bytes kept and written
};

// Replaces `path` by a file with these bytes, using NewFile.
void replace_file(const char* op, const std::filesystem::path& path, std::string_view bytes);

// A file open for reading. Errors begin with `op` and name the file.
class InputFile {
 public:
  InputFile(const char* op, std::filesystem::path path);  // throws Error unless it is a readable regular file

  std::size_t size() const { return size_; }
  int descriptor() const { return file_.get(); }  // open during the lifetime of this object
  // Reads `count` bytes from offset `at`. Throws Error if the file has fewer. Several threads may call this at once.
  void read_at(std::size_t at, unsigned char* to, std::size_t count) const;

 private:
  const char* op_;
  std::filesystem::path path_;
  Descriptor file_;
  std::size_t size_ = 0;
};

// The content of a file of at most 16 MiB. Throws Error, which begins with `op`, as InputFile, and for a larger file.
std::string read_small_file(const char* op, const std::filesystem::path& path);

}  // namespace heed::detail
