// Implements files that are replaced whole or not at all, and logs.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/file_target.hpp>
#include <optional>
#include <system_error>

namespace heed::detail {

std::string reason(int error) { return std::generic_category().message(error); }

namespace {

namespace fs = std::filesystem;

bool is_same_file(int fd, const fs::path& path) {
  struct stat a, b;
  return ::fstat(fd, &a) == 0 && ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Blocks SIGXFSZ (the limit on file sizes) in this thread, so that a write fails with EFBIG instead of ending the
// program.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoSizeSignal() {
    const int error = errno;
    const timespec at_once = {};
    if (sigismember(&before_, SIGXFSZ) == 0) ::sigtimedwait(&signal_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t signal_, before_;
};

// Writes all bytes, at this offset of the file if one is given, and adds the number written to `written`. Returns 0 or
// errno.
int write_all(int fd, const void* bytes, std::size_t count, std::size_t& written, std::optional<off_t> at = {}) {
  constexpr std::size_t kChunk = std::size_t{1} << 30;  // Linux writes at most 2 GiB per call
  const char* from = static_cast<const char*>(bytes);
  const NoSizeSignal no_signal;
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(kChunk, count - done);
    const ssize_t n =
        at ? ::pwrite(fd, from + done, part, *at + static_cast<off_t>(done)) : ::write(fd, from + done, part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    done += static_cast<std::size_t>(n);
    written += static_cast<std::size_t>(n);
  }
  return 0;
}

// Opens path.tmp or path.lock and locks it against other programs that write the same file. The lock ends when the
// descriptor is closed. The file is truncated only under the lock. Another program may rename its finished file between
// our open and lock, so the file is opened again if its name changed. File systems without locks (some network file
// systems) are accepted.
Descriptor open_locked(const char* op, const fs::path& path, const fs::path& lock) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    // Does not wait for the reader of a pipe that may have been created since check_target().
    Descriptor file(lock, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
    require(file.get() >= 0, op, ": ", lock.string(), " cannot be written: ", reason(errno));
    const bool busy = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    require(!busy, op, ": another program is writing ", path.string(), "; only one program may write it");
    if (is_same_file(file.get(), lock)) return file;
  }
  heed::fail(op, ": ", lock.string(), " is replaced again and again by other programs; only one program may write ",
             path.string());
}

void check_target(const char* op, const fs::path& path, FileRole role) {
  const std::string problem = target_problem(path, role);
  if (!problem.empty()) throw FileError(std::string(op) + ": " + problem);
}

// Opens a log. Waits for the reader of a pipe, which may be starting.
Descriptor open_log(const fs::path& path) {
  constexpr int kTries = 500;
  for (int i = 0;; ++i) {
    Descriptor file(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK, 0666);
    const int error = errno;
    if (file.get() >= 0) ::fcntl(file.get(), F_SETFL, O_APPEND);
    if (file.get() >= 0) return file;
    require(error == ENXIO && i < kTries, "log: ", path.string(),
            " cannot be written: ", error == ENXIO ? "it is a pipe without a reader" : reason(error));
    ::usleep(10000);
  }
}

}  // namespace

Descriptor::Descriptor(const fs::path& path, int flags, unsigned mode) {
  do {
    fd_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd_ < 0 && errno == EINTR);
}

Descriptor Descriptor::for_reading(const fs::path& path) { return Descriptor(path, O_RDONLY | O_NONBLOCK); }

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int sync_folder_of(const fs::path& path) {
  const Descriptor folder(path.has_parent_path() ? path.parent_path() : ".", O_RDONLY | O_DIRECTORY);
  if (folder.get() < 0) return errno;
  if (::fsync(folder.get()) == 0 || errno == EINVAL) return 0;  // EINVAL: this file system does not sync folders
  return errno;
}

NewFile::NewFile(const char* op, const fs::path& given, std::size_t size) : op_(op), size_(size) {
  check_target(op, given, FileRole::output);
  path_ = followed(given);
  std::error_code ignored;
  consolation_ = fs::exists(path_, ignored) ? "; the previous file is unchanged" : "";
  temporary_ = with_suffix(path_, ".tmp");
  file_ = open_locked(op, path_, temporary_);
}

NewFile::~NewFile() {
  // Removed before the descriptor is closed, which ends the lock.
  if (file_.get() >= 0 && !placed_ && is_same_file(file_.get(), temporary_)) ::unlink(temporary_.c_str());
}

void NewFile::write(const void* bytes, std::size_t count) {
  if (!cut_ && ::ftruncate(file_.get(), 0) != 0) refuse(errno);
  cut_ = true;
  [[maybe_unused]] const std::size_t begin = written_;
  if (const int error = write_all(file_.get(), bytes, count, written_); error != 0) refuse(error);
#ifdef __linux__
  // Starts writing to disk now instead of in finish(). An error here is reported by finish().
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  if (count >= kLarge)
    ::sync_file_range(file_.get(), static_cast<off_t>(begin), static_cast<off_t>(count), SYNC_FILE_RANGE_WRITE);
#endif
}

void NewFile::overwrite(const void* bytes, std::size_t count) {
  std::size_t overwritten = 0;
  if (const int error = write_all(file_.get(), bytes, count, overwritten, 0); error != 0) refuse(error);
}

void NewFile::refuse(int error) const {
  const std::string of = size_ > 0 ? " of " + std::to_string(size_) : std::string();
  heed::fail(op_, ": ", path_.string(), " could not be written: ", reason(error), " after ", written_, of, " bytes",
             consolation_);
}

void NewFile::finish() {
  write(nullptr, 0);  // truncates an empty file too
  int error = ::fsync(file_.get()) != 0 ? errno : 0;
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  require(error == 0, op_, ": ", path_.string(), " could not be written: ", reason(error), consolation_);
  placed_ = true;
  error = sync_folder_of(path_);
  require(error == 0, op_, ": ", path_.string(),
          " is written, but may be lost in a power cut: its folder could not be synced: ", reason(error));
  file_ = Descriptor();
}

PlaceLock::PlaceLock(const char* op, const fs::path& path) {
  if (path.empty()) return;
  check_target(op, path, FileRole::checkpoint);
  const fs::path file = followed(path);
  lock_ = with_suffix(file, ".lock");
  std::error_code ignored;
  const bool made = !fs::exists(lock_, ignored);
  file_ = open_locked(op, file, lock_);
  struct stat status;
  ours_ = made || (::fstat(file_.get(), &status) == 0 && status.st_size > 0);  // with kLockMark: check_target() checked
  std::size_t written = 0;
  if (made) static_cast<void>(write_all(file_.get(), kLockMark, sizeof kLockMark - 1, written));  // ignores a full disk
}

PlaceLock::~PlaceLock() {
  // Removed before the descriptor is closed, which ends the lock.
  if (file_.get() >= 0 && ours_ && is_same_file(file_.get(), lock_)) ::unlink(lock_.c_str());
}

LogFile::LogFile(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) return;
  check_target("log", path_, FileRole::log);
  stream_ = detail::is_stream(path_);
  Descriptor file = open_log(path_);
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    if (stream_ || !is_same_file(standard, path_)) continue;
    // Truncating and writing by a separate descriptor would destroy the printed text.
    stream_ = true;
    file_ = Descriptor(::fcntl(standard, F_DUPFD_CLOEXEC, 0));
    return;
  }
  const bool busy = !stream_ && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  require(!busy, "log: another program is writing ", path_.string(), "; only one program may write it");
  file_ = std::move(file);
}

void LogFile::cut() {
  if (!stream_ && !cut_) {
    const int error = ::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0 ? 0 : errno;
    require(error == 0, "log: ", path_.string(), " cannot be truncated: ", reason(error));
  }
  cut_ = true;
}

void LogFile::write(const std::string& line) {
  if (file_.get() < 0) return;
  cut();
  const std::string bytes = line + "\n";
  std::size_t written = 0;
  const int error = write_all(file_.get(), bytes.data(), bytes.size(), written);
  cut_ = error == 0 || written == 0;  // false after a partial line: the next write removes it
  require(error == 0, "log: ", path_.string(), " cannot be written: ", reason(error));
  size_ += written;
}

void LogFile::sync() {
  if (file_.get() < 0) return;
  cut();
  require(::fsync(file_.get()) == 0 || errno == EINVAL || errno == EROFS, "log: ", path_.string(),
          " cannot be written to disk: ", reason(errno));
  if (stream_ || named_) return;
  // If a power cut removed the log's name, the checkpoint would have no log, and a new log would start with a gap.
  const int error = sync_folder_of(followed(path_));
  require(error == 0 || error == EROFS, "log: ", path_.string(),
          " is written, but may be lost in a power cut: its folder could not be synced: ", reason(error));
  named_ = true;
}

std::string LogFile::damage() const {
  if (file_.get() < 0 || stream_ || !cut_) return "";
  struct stat here, there;
  if (::fstat(file_.get(), &here) != 0) return "";
  if (::stat(path_.c_str(), &there) != 0) return errno == ENOENT || errno == ENOTDIR ? "was deleted" : "";
  if (here.st_dev != there.st_dev || here.st_ino != there.st_ino) return "was replaced by another file";
  return static_cast<std::uintmax_t>(here.st_size) < size_ ? "was truncated" : "";
}

void replace_file(const char* op, const fs::path& path, std::string_view bytes) {
  NewFile file(op, path, bytes.size());
  file.write(bytes.data(), bytes.size());
  file.finish();
}

InputFile::InputFile(const char* op, fs::path path)
    : op_(op), path_(std::move(path)), file_(Descriptor::for_reading(path_)) {
  const int error = errno;
  require(file_.get() >= 0 || error != ENOENT, op, ": there is no file ", path_.string());
  require(file_.get() >= 0, op, ": ", path_.string(), " cannot be read: ", reason(error));
  struct stat status;
  const bool known = ::fstat(file_.get(), &status) == 0;
  const bool regular = known && S_ISREG(status.st_mode);
  require(!known || !S_ISDIR(status.st_mode), op, ": ", path_.string(), " is a folder; it must be a file");
  require(regular, op, ": ", path_.string(), " is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
}

void InputFile::read_at(std::size_t at, unsigned char* to, std::size_t count) const {
  constexpr std::size_t kChunk = std::size_t{1} << 30;
  for (std::size_t done = 0; done < count;) {
    const ssize_t n =
        ::pread(file_.get(), to + done, std::min(kChunk, count - done), static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, op_, ": ", path_.string(), " cannot be read: ", reason(errno));
    require(n > 0, op_, ": ", path_.string(), " was truncated while it was read");
    done += static_cast<std::size_t>(n);
  }
}

std::string read_small_file(const char* op, const std::filesystem::path& path) {
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  const InputFile file(op, path);
  require(file.size() <= kMaxBytes, op, ": ", path.native(), " has ", file.size(), " bytes; it must have at most ",
          kMaxBytes);
  std::string text(file.size(), '\0');
  file.read_at(0, reinterpret_cast<unsigned char*>(text.data()), text.size());
  return text;
}

}  // namespace heed::detail

void heed::check_place(const char* op, const std::filesystem::path& path) { detail::NewFile(op, path); }
