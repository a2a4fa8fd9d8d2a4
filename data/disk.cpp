#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <system_error>
#include <utility>

namespace heed::detail {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

bool is_same_file(int fd, const fs::path& path) {
  struct stat a, b;
  return ::fstat(fd, &a) == 0 && ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The file that a name leads to, which need not be there: a link's target, and so on.
fs::path followed(fs::path path) {
  std::error_code error;
  for (int links = 0; fs::is_symlink(path, error) && links < 40; ++links) {
    const fs::path target = fs::read_symlink(path, error);
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

// What a file is that is not a regular one; empty where it is, or is not there.
const char* unusual_kind(const fs::path& path) {
  std::error_code ignored;
  switch (fs::status(path, ignored).type()) {
    case fs::file_type::directory: return "a folder";
    case fs::file_type::fifo: return "a pipe";
    case fs::file_type::socket: return "a socket";
    case fs::file_type::character: return "a device";
    case fs::file_type::block: return "a disk";
    default: return "";
  }
}

// Whether it is written as it goes, and neither cut nor synced.
bool is_stream(const fs::path& path) {
  const std::string kind = unusual_kind(path);
  return kind == "a pipe" || kind == "a device";
}

// Writes all of it; adds to `written` what was. 0 or errno.
int write_all(int fd, const void* bytes, std::size_t count, std::size_t& written) {
  constexpr std::size_t kChunk = std::size_t{1} << 30;  // Linux writes at most 2 GiB a call
  const char* from = static_cast<const char*>(bytes);
  for (std::size_t done = 0; done < count;) {
    const ssize_t n = ::write(fd, from + done, std::min(kChunk, count - done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    done += static_cast<std::size_t>(n);
    written += static_cast<std::size_t>(n);
  }
  return 0;
}

// Opens a file beside `path`, path.tmp or path.lock, and locks it against other programs that write the same file; the
// lock goes with the descriptor. It is cut only under the lock. Another program may rename the file between open and
// lock: then it is that program's finished file. File systems without locks (some network ones) are taken as they are.
Descriptor open_locked(const char* op, const fs::path& path, const fs::path& temporary) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_NOFOLLOW, 0666);
    const int error = errno;
    if (file.get() < 0 && !fs::is_directory(path.has_parent_path() ? path.parent_path() : ".")) {
      heed::fail(op, ": there is no folder ", path.parent_path().string(), " for ", path.filename().string());
    }
    require(file.get() >= 0, op, ": ", temporary.string(), " cannot be written: ", reason(error));
    const bool busy = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    require(!busy, op, ": another program is writing ", path.string(), " right now; only one may");
    if (is_same_file(file.get(), temporary)) return file;
  }
  heed::fail(op, ": ", temporary.string(), " is replaced by other programs all the time; only one may write ",
             path.string());
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
  std::error_code ignored;
  const std::string unusual = unusual_kind(given);
  require(given.has_filename(), op, ": the path «", given.string(), "» has no file name");
  require(unusual.empty(), op, ": ", given.string(), " is ", unusual, "; it must be a file");
  path_ = followed(given);
  require(!fs::is_symlink(path_, ignored), op, ": ", given.string(),
          " is a link that leads to itself; it must be a file");
  consolation_ = fs::exists(path_, ignored) ? "; the previous file is unchanged" : "";
  temporary_ = path_;
  temporary_ += ".tmp";
  file_ = open_locked(op, path_, temporary_);
}

NewFile::~NewFile() {
  if (file_.get() >= 0 && !placed_) ::unlink(temporary_.c_str());  // before the lock goes with the descriptor
}

void NewFile::write(const void* bytes, std::size_t count) {
  if (!cut_ && ::ftruncate(file_.get(), 0) != 0) refuse(errno);
  cut_ = true;
  [[maybe_unused]] const std::size_t begin = written_;
  if (const int error = write_all(file_.get(), bytes, count, written_); error != 0) refuse(error);
#ifdef __linux__
  // The disk begins now, not when finish() waits for it. What fails here fails there.
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  if (count >= kLarge)
    ::sync_file_range(file_.get(), static_cast<off_t>(begin), static_cast<off_t>(count), SYNC_FILE_RANGE_WRITE);
#endif
}

void NewFile::overwrite(const void* bytes, std::size_t count) {
  const char* from = static_cast<const char*>(bytes);
  for (std::size_t done = 0; done < count;) {
    const ssize_t n = ::pwrite(file_.get(), from + done, count - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(n < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(n);
  }
}

void NewFile::refuse(int error) const {
  const std::string of = size_ > 0 ? " of " + std::to_string(size_) : std::string();
  heed::fail(op_, ": ", path_.string(), " could not be written: ", reason(error), " after ", written_, of, " bytes",
             consolation_);
}

void NewFile::finish() {
  write(nullptr, 0);  // an empty file is cut as well
  int error = ::fsync(file_.get()) != 0 ? errno : 0;
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  require(error == 0, op_, ": ", path_.string(), " could not be written: ", reason(error), consolation_);
  placed_ = true;
  error = sync_folder_of(path_);
  require(error == 0, op_, ": ", path_.string(),
          " is written, but a power cut may undo it: its folder could not be synced: ", reason(error));
  file_ = Descriptor();
}

PlaceLock::PlaceLock(const char* op, const fs::path& path) {
  if (path.empty()) return;
  const fs::path file = followed(path);
  lock_ = file;
  lock_ += ".lock";
  file_ = open_locked(op, file, lock_);
}

PlaceLock::~PlaceLock() {
  if (file_.get() >= 0) ::unlink(lock_.c_str());  // before the lock goes with the descriptor
}

LogFile::LogFile(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const std::string kind = unusual_kind(path_);
  stream_ = detail::is_stream(path_);
  require(kind.empty() || stream_, "log: ", path_.string(), " is ", kind, "; it must be a file, a pipe or a terminal");
  Descriptor file(path_, O_WRONLY | O_CREAT | O_APPEND, 0666);
  require(file.get() >= 0, "log: ", path_.string(), " cannot be written: ", reason(errno));
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    if (stream_ || !is_same_file(standard, path_)) continue;
    // Cut and written by its own descriptor, the file would lose what the program prints.
    stream_ = true;
    file_ = Descriptor(::fcntl(standard, F_DUPFD_CLOEXEC, 0));
    return;
  }
  const bool busy = !stream_ && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  require(!busy, "log: another program is writing ", path_.string(), " right now; only one may");
  file_ = std::move(file);
}

void LogFile::cut() {
  if (!stream_ && !cut_) {
    const int error = ::ftruncate(file_.get(), static_cast<off_t>(kept_)) == 0 ? 0 : errno;
    require(error == 0, "log: ", path_.string(), " cannot be cut: ", reason(error));
  }
  cut_ = true;
}

void LogFile::write(const std::string& line) {
  if (file_.get() < 0) return;
  cut();
  const std::string bytes = line + "\n";
  std::size_t written = 0;
  const int error = write_all(file_.get(), bytes.data(), bytes.size(), written);
  require(error == 0, "log: ", path_.string(), " cannot be written: ", reason(error));
}

void LogFile::sync() {
  if (file_.get() < 0) return;
  cut();
  require(::fsync(file_.get()) == 0 || errno == EINVAL || errno == EROFS, "log: ", path_.string(),
          " cannot be written to disk: ", reason(errno));
  if (stream_ || std::exchange(named_, true)) return;
  // A log that a power cut takes the name from would be missing beside the checkpoint, and be begun anew behind a gap.
  const int error = sync_folder_of(followed(path_));
  require(error == 0 || error == EROFS, "log: ", path_.string(),
          " is written, but a power cut may undo it: its folder could not be synced: ", reason(error));
}

void replace_file(const char* op, const fs::path& path, const unsigned char* bytes, std::size_t size) {
  NewFile file(op, path, size);
  file.write(bytes, size);
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
    require(n > 0, op_, ": ", path_.string(), " became shorter while it was read");
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace heed::detail

void heed::check_place(const char* op, const std::filesystem::path& path) { detail::NewFile(op, path); }

void heed::check_log(const std::filesystem::path& path) {
  if (detail::is_stream(path)) return;
  std::error_code error;
  if (std::filesystem::exists(path, error))
    detail::LogFile{path};
  else
    check_place("log", path);
}

bool heed::same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  const auto whole = [&error](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(detail::followed(path), error), error);
  };
  return whole(a) == whole(b);
}
