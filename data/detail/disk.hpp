// Files that are replaced whole or not at all, and logs that grow.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace heed::detail {

// The descriptor of a file, closed with this; below 0 where the file could not be opened, and errno then says why.
class Descriptor {
 public:
  // As open(2), taken up again after a signal, and not inherited by programs that are started.
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

// A file written piece by piece that takes the place of `path` whole, or not at all: path.tmp in the same folder is
// written, synced and renamed, and the folder synced. Until finish(), and whatever fails, `path` stays as it was;
// without finish() path.tmp is removed. A path.tmp left by a killed program is overwritten; one that another program is
// writing is an Error, and so is a `path` that cannot be replaced (a device, a pipe): FileError. Where `path` is a
// symbolic link, its target is written, whether it exists or not. A full disk, and a limit on the size of files, is an
// Error; SIGXFSZ is not raised. Errors begin with `op`.
class NewFile {
 public:
  NewFile(const char* op, const std::filesystem::path& path, std::size_t size = 0);  // size, where known, is for errors
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* bytes, std::size_t count);      // at the end
  void overwrite(const void* bytes, std::size_t count);  // the beginning, which is written already
  void finish();                                         // nothing may follow

 private:
  [[noreturn]] void refuse(int error) const;

  const char* op_;
  std::filesystem::path path_, temporary_;
  const char* consolation_ = "";
  std::size_t size_, written_ = 0;
  Descriptor file_;
  bool cut_ = false, placed_ = false;  // what a killed program left was cut off; the file is in its place
};

// Syncs the folder of `path`, without which a power cut may undo that a file was made or renamed there. 0, or errno.
int sync_folder_of(const std::filesystem::path& path);

// Keeps other programs, and other runs of this one, from writing `path` while it lives: an Error in one of them. The
// lock is on a file path.lock, as `path` itself comes and goes; one that a killed program left is taken over. One that
// heed did not make is a FileError where it has content, and is not removed where it has none.
class PlaceLock {
 public:
  PlaceLock(const char* op, const std::filesystem::path& path);  // an empty path: nothing
  ~PlaceLock();
  PlaceLock(const PlaceLock&) = delete;
  PlaceLock& operator=(const PlaceLock&) = delete;

 private:
  std::filesystem::path lock_;
  Descriptor file_;
  bool ours_ = false;  // made by heed
};

// A log, which grows line by line. A regular file is one program's at a time: an Error in the others. A pipe or a
// character device (a terminal, /dev/null) is written as it is, and so is the file that standard output or error goes
// to; a folder, a socket or a disk is a FileError, and a pipe that nobody opens for reading within 5 seconds an Error.
class LogFile {
 public:
  explicit LogFile(std::filesystem::path path);  // made where it is not there, else unchanged; an empty path: no log

  // Bytes of the old content that stay, 0 unless told. The rest goes with the first write() or sync(): what fails
  // before has cost nothing.
  void keep(std::uintmax_t bytes) { size_ = bytes, cut_ = false; }
  // Appends without its line feed; in the file when this returns. A line of which a part could be written is removed.
  void write(const std::string& line);
  void sync();                                // to disk, with its name
  bool is_open() const { return file_.get() >= 0; }
  bool is_stream() const { return stream_; }  // not a regular file of its own
  // What another program did to the file since the last write: "was deleted", "was replaced by another file" or "was
  // truncated"; empty: nothing.
  std::string damage() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  void cut();

  std::filesystem::path path_;
  Descriptor file_;
  bool stream_ = false, cut_ = false, named_ = false;  // its folder was synced
  std::uintmax_t size_ = 0;                            // of what was kept and written
};

// Makes `path` hold these bytes, by a NewFile.
void replace_file(const char* op, const std::filesystem::path& path, const unsigned char* bytes, std::size_t size);

// An open file that is read; errors begin with `op` and name the file.
class InputFile {
 public:
  InputFile(const char* op, std::filesystem::path path);  // Error unless it is a regular file that can be read

  std::size_t size() const { return size_; }
  // The bytes from a place on; Error when there are fewer. Several threads may read at once.
  void read_at(std::size_t at, unsigned char* to, std::size_t count) const;

 private:
  const char* op_;
  std::filesystem::path path_;
  Descriptor file_;
  std::size_t size_ = 0;
};

}  // namespace heed::detail
