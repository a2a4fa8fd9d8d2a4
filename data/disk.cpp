#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <heed/core/check.hpp>
#include <heed/data/disk.hpp>
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

// Opens path.tmp and locks it against other programs that save the same file; the lock goes with the descriptor. It is
// cut only under the lock. Another program may rename the file between open and lock: then it is that program's
// finished file. File systems without locks (some network ones) are taken as they are.
int open_temporary(const char* op, const fs::path& path, const fs::path& temporary) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_NOFOLLOW, 0666);
    const int error = errno;
    if (file.get() < 0 && !fs::is_directory(path.has_parent_path() ? path.parent_path() : ".")) {
      heed::fail(op, ": there is no folder ", path.parent_path().string(), " for ", path.filename().string());
    }
    require(file.get() >= 0, op, ": ", temporary.string(), " cannot be written: ", reason(error));
    const bool busy = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    require(!busy, op, ": another program is writing ", path.string(), " right now; only one may");
    if (is_same_file(file.get(), temporary)) return file.release();
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
  path_ = fs::is_symlink(given, ignored) ? fs::weakly_canonical(given, ignored) : given;
  require(path_.has_filename(), op, ": the path «", path_.string(), "» has no file name");
  require(!fs::is_directory(path_, ignored), op, ": ", path_.string(), " is a folder; it must be a file");
  consolation_ = fs::exists(path_, ignored) ? "; the previous file is unchanged" : "";
  temporary_ = path_;
  temporary_ += ".tmp";
  fd_ = open_temporary(op, path_, temporary_);
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  if (!placed_) ::unlink(temporary_.c_str());  // before the lock goes with the descriptor
  ::close(fd_);
}

void NewFile::write(const void* bytes, std::size_t count) {
  constexpr std::size_t kChunk = std::size_t{1} << 30;  // Linux writes at most 2 GiB a call
  if (!cut_ && ::ftruncate(fd_, 0) != 0) refuse(errno);
  cut_ = true;
  const char* from = static_cast<const char*>(bytes);
  for (std::size_t done = 0; done < count;) {
    const ssize_t n = ::write(fd_, from + done, std::min(kChunk, count - done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(n < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(n);
    written_ += static_cast<std::size_t>(n);
  }
}

void NewFile::overwrite(const void* bytes, std::size_t count) {
  const char* from = static_cast<const char*>(bytes);
  for (std::size_t done = 0; done < count;) {
    const ssize_t n = ::pwrite(fd_, from + done, count - done, static_cast<off_t>(done));
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
  int error = ::fsync(fd_) != 0 ? errno : 0;
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  require(error == 0, op_, ": ", path_.string(), " could not be written: ", reason(error), consolation_);
  placed_ = true;
  error = sync_folder_of(path_);
  require(error == 0, op_, ": ", path_.string(),
          " is written, but a power cut may undo it: its folder could not be synced: ", reason(error));
  ::close(std::exchange(fd_, -1));
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

void InputFile::read(unsigned char* to, std::size_t count) {
  constexpr std::size_t kChunk = std::size_t{1} << 30;
  for (std::size_t done = 0; done < count;) {
    const ssize_t n = ::read(file_.get(), to + done, std::min(kChunk, count - done));
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, op_, ": ", path_.string(), " cannot be read: ", reason(errno));
    require(n > 0, op_, ": ", path_.string(), " became shorter while it was read");
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace heed::detail

void heed::check_place(const char* op, const std::filesystem::path& path) { detail::NewFile(op, path); }
