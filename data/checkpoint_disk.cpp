#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <heed/core/check.hpp>
#include <heed/data/checkpoint_disk.hpp>
#include <system_error>
#include <utility>

namespace heed::detail {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

// Closes on destruction, for the paths that throw.
struct Descriptor {
  int fd;
  explicit Descriptor(int f) : fd(f) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Removes the temporary file unless it was renamed.
struct Temporary {
  const fs::path& path;
  bool armed = true;
  ~Temporary() {
    if (armed) ::unlink(path.c_str());
  }
};

int open_again(const char* path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

bool is_same_file(int fd, const fs::path& path) {
  struct stat a, b;
  return ::fstat(fd, &a) == 0 && ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Opens path.tmp and locks it against other programs that save the same file; the lock goes with the descriptor. It is
// cut only under the lock. Another program may rename the file between open and lock: then it is that program's
// finished file. File systems without locks (some network ones) are taken as they are.
int open_temporary(const char* op, const fs::path& path, const fs::path& temporary) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    Descriptor file(open_again(temporary.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW, 0666));
    const int error = errno;
    if (file.fd < 0 && !fs::is_directory(path.has_parent_path() ? path.parent_path() : ".")) {
      heed::fail(op, ": there is no folder ", path.parent_path().string(), " for ", path.filename().string());
    }
    require(file.fd >= 0, op, ": ", temporary.string(), " cannot be written: ", reason(error));
    const bool busy = ::flock(file.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    require(!busy, op, ": another program is writing ", path.string(), " right now; only one may");
    if (is_same_file(file.fd, temporary)) return std::exchange(file.fd, -1);
  }
  heed::fail(op, ": ", temporary.string(), " is replaced by other programs all the time; only one may write ",
             path.string());
}

// errno of the first failure, or 0.
int write_all(int fd, const unsigned char* bytes, std::size_t size, std::size_t& written) {
  constexpr std::size_t kChunk = std::size_t{1} << 30;  // Linux writes at most 2 GiB a call
  while (written < size) {
    const ssize_t n = ::write(fd, bytes + written, std::min(kChunk, size - written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    written += static_cast<std::size_t>(n);
  }
  return 0;
}

// 0 or errno.
int sync_folder(const fs::path& folder) {
  Descriptor file(open_again(folder.c_str(), O_RDONLY | O_DIRECTORY));
  if (file.fd < 0) return errno;
  if (::fsync(file.fd) == 0 || errno == EINVAL) return 0;  // EINVAL: this file system does not sync folders
  return errno;
}

}  // namespace

void replace_file(const char* op, const fs::path& given, const unsigned char* bytes, std::size_t size) {
  std::error_code ignored;
  const fs::path path = fs::is_symlink(given, ignored) ? fs::weakly_canonical(given, ignored) : given;
  require(path.has_filename(), op, ": the path «", path.string(), "» has no file name");
  require(!fs::is_directory(path, ignored), op, ": ", path.string(), " is a folder; it must be a file");
  const bool replaces = fs::exists(path, ignored);
  const char* consolation = replaces ? "; the previous file is unchanged" : "";
  fs::path temporary = path;
  temporary += ".tmp";

  const Descriptor file(open_temporary(op, path, temporary));
  Temporary cleanup{temporary};  // is removed before the lock goes with the descriptor
  std::size_t written = 0;
  int error = ::ftruncate(file.fd, 0) != 0 ? errno : write_all(file.fd, bytes, size, written);
  require(error == 0, op, ": ", path.string(), " could not be written: ", reason(error), " after ", written, " of ",
          size, " bytes", consolation);
  error = ::fsync(file.fd) != 0 ? errno : 0;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  require(error == 0, op, ": ", path.string(), " could not be written: ", reason(error), consolation);
  cleanup.armed = false;
  error = sync_folder(path.has_parent_path() ? path.parent_path() : ".");
  require(error == 0, op, ": ", path.string(),
          " is written, but a power cut may undo it: its folder could not be synced: ", reason(error));
}

InputFile::InputFile(const char* op, fs::path path) : op_(op), path_(std::move(path)) {
  fd_ = open_again(path_.c_str(), O_RDONLY | O_NONBLOCK);  // a pipe without a writer must not hang
  const int error = errno;
  require(fd_ >= 0 || error != ENOENT, op, ": there is no file ", path_.string());
  require(fd_ >= 0, op, ": ", path_.string(), " cannot be read: ", reason(error));
  struct stat status;
  const bool known = ::fstat(fd_, &status) == 0;
  const bool regular = known && S_ISREG(status.st_mode);
  if (!regular) ::close(fd_);  // the destructor of an object that throws while being made does not run
  require(!known || !S_ISDIR(status.st_mode), op, ": ", path_.string(), " is a folder; it must be a file");
  require(regular, op, ": ", path_.string(), " is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(unsigned char* to, std::size_t count) {
  constexpr std::size_t kChunk = std::size_t{1} << 30;
  for (std::size_t done = 0; done < count;) {
    const ssize_t n = ::read(fd_, to + done, std::min(kChunk, count - done));
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, op_, ": ", path_.string(), " cannot be read: ", reason(errno));
    require(n > 0, op_, ": ", path_.string(), " became shorter while it was read");
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace heed::detail
