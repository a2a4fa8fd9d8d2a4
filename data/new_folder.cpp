// Implements folders that are replaced whole or not at all.
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <heed/core/check.hpp>
#include <heed/data/detail/file_target.hpp>
#include <heed/data/detail/new_folder.hpp>
#include <heed/data/text.hpp>
#include <utility>

namespace heed::detail {
namespace {

namespace fs = std::filesystem;

Descriptor folder_at(const fs::path& path) { return Descriptor(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW); }

// Whether the lock was taken. File systems without locks are accepted.
bool take_lock(const Descriptor& folder) {
  return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool is_at(const Descriptor& folder, const fs::path& path) {
  struct stat a, b;
  return ::fstat(folder.get(), &a) == 0 && ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// The path without a slash at its end, with links followed: "model/" is the folder model.
fs::path folder_path(const fs::path& given) {
  const fs::path path = given.has_filename() ? given : given.parent_path();
  return followed(path.filename() == "." || path.filename() == ".." ? fs::weakly_canonical(path) : path);
}

}  // namespace

NewFolder::NewFolder(const char* op, const fs::path& path, Belongs belongs)
    : op_(op), belongs_(std::move(belongs)), path_(folder_path(path)), temporary_(with_suffix(path_, ".tmp")) {
  check_old();
  std::error_code error;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), error);
  lock();
  empty(temporary_);
}

NewFolder::~NewFolder() {
  if (!placed_ && made_.get() >= 0 && is_at(made_, temporary_)) remove_remains();
}

void NewFolder::remove_remains() const {
  try {
    empty(temporary_);
  } catch (const Error&) {  // the next program that writes the folder empties it
  }
  ::rmdir(temporary_.c_str());
}

// Makes path.tmp, and locks it against other programs that write the same folder.
void NewFolder::lock() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const bool exists = ::mkdir(temporary_.c_str(), 0777) == 0 || errno == EEXIST;
    require(exists, op_, ": the folder ", temporary_.string(), " cannot be made: ", reason(errno));
    made_ = folder_at(temporary_);
    require(made_.get() >= 0, op_, ": ", temporary_.string(), " cannot be used: ", reason(errno), "; writing ",
            path_.filename().string(), " needs a folder of that name");
    require(take_lock(made_), op_, ": another program is writing ", path_.string(), "; only one program may write it");
    if (is_at(made_, temporary_)) return;
  }
  fail(op_, ": ", temporary_.string(), " is replaced again and again by other programs; only one program may write ",
       path_.string());
}

void NewFolder::check_old() const {
  std::error_code ignored;
  if (!fs::exists(path_, ignored)) return;
  require(fs::is_directory(path_, ignored), op_, ": ", path_.string(), " is a file; it must be a folder, or not exist");
  require(!fs::equivalent(path_, fs::current_path(ignored), ignored), op_, ": ", path_.string(),
          " is the current folder, which cannot be replaced; give another folder");
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    require(belongs_(name) && !entry.is_directory(), op_, ": ", path_.string(), " contains ", excerpt(name),
            ", which would be lost: the folder is replaced as a whole; give a new or an empty folder");
  }
}

// Removes the files of a folder: those that belong to it, and remains of killed programs.
void NewFolder::empty(const fs::path& folder) const {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(".tmp")) name.resize(name.size() - 4);
    require(belongs_(name) && ::unlink(entry.path().c_str()) == 0, op_, ": ", folder.string(), " contains ",
            excerpt(name), ", and writing ", path_.filename().string(), " needs an empty folder of that name");
  }
}

// Exchanges the folders, or renames path.tmp if `path` is new or empty.
int NewFolder::exchange() const {
  if (::rename(temporary_.c_str(), path_.c_str()) == 0) return 0;
  if (errno != ENOTEMPTY && errno != EEXIST) return errno;
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EXDEV) return errno;
#endif
  const fs::path old = with_suffix(path_, ".old");
  if (::rename(path_.c_str(), old.c_str()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0 ||
      ::rename(old.c_str(), temporary_.c_str()) != 0)
    return errno;
  return 0;
}

void NewFolder::finish() {
  check_old();
  const Descriptor old = folder_at(path_);  // locked, because it has the name path.tmp until it is removed
  require(old.get() < 0 || take_lock(old), op_, ": another program is writing ", path_.string(),
          "; only one program may write it");
  struct stat status;
  if (old.get() >= 0 && ::fstat(old.get(), &status) == 0) ::fchmod(made_.get(), status.st_mode & 07777);
  const int error = exchange();
  require(error == 0, op_, ": ", path_.string(), " could not be written: ", reason(error),
          "; the previous folder is unchanged");
  placed_ = true;
  const int unsynced = sync_folder_of(path_);
  require(unsynced == 0, op_, ": ", path_.string(),
          " is written, but may be lost in a power cut: its folder could not be synced: ", reason(unsynced));
  if (old.get() >= 0 && is_at(old, temporary_)) remove_remains();
}

}  // namespace heed::detail
