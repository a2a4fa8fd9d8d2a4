// Checks the files of a run or a program without opening them for writing, creating or changing them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/file_target.hpp>
#include <heed/data/files.hpp>
#include <heed/data/text.hpp>
#include <optional>
#include <system_error>

namespace heed {
namespace {

namespace fs = std::filesystem;
using detail::followed;
using detail::reason;
using detail::with_suffix;

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// The reason why no file can have this name; empty if a file of this name exists or could be created.
std::string name_problem(const fs::path& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0 || errno == ENOENT) return "";
  return path.string() + " cannot be written: " + reason(errno);
}

// The reason why files cannot be created in the folder of a path; empty if they can.
std::string folder_problem(const fs::path& path, const fs::path& made) {
  const fs::path folder = folder_of(path);
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    const bool missing = !error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    if (missing) return "there is no folder " + path.parent_path().string() + " for " + path.filename().string();
    return made.string() + " cannot be written: " + error.message();
  }
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    return made.string() + " cannot be written: " + reason(errno);
  return "";
}

// The reason why an existing file in a writable folder cannot be replaced by a rename; empty if it can.
std::string replacement_problem(const fs::path& path) {
  struct stat file, folder;
  if (::stat(path.c_str(), &file) != 0 || ::stat(folder_of(path).c_str(), &folder) != 0) return "";
  const uid_t me = ::geteuid();
  if ((folder.st_mode & S_ISVTX) != 0 && me != 0 && file.st_uid != me && folder.st_uid != me)
    return path.string() + " belongs to another user, in a folder where only that user may replace it";
#ifdef STATX_ATTR_MOUNT_ROOT
  struct statx more;
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS, &more) != 0) return "";
  if ((more.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
    return path.string() + " is a mount point, and cannot be replaced by another file";
  if ((more.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0)
    return path.string() + " has an attribute (chattr) that prevents its replacement";
#endif
  return "";
}

// The reason why path.tmp or path.lock cannot be used by heed; empty if it can.
std::string sibling_problem(const fs::path& file, const fs::path& path) {
  if (const std::string problem = name_problem(file); !problem.empty()) return problem;
  std::error_code ignored;
  const fs::file_type type = fs::symlink_status(file, ignored).type();
  if (type == fs::file_type::not_found || type == fs::file_type::regular) return "";
  const std::string kind = type == fs::file_type::symlink ? "a link" : detail::unusual_kind(file);
  return file.string() + " is " + kind + ", but writing " + path.filename().string() +
         " needs a file of that name; remove it, or choose another name";
}

// The reason why an existing lock was not made by heed; empty if it was, if it has no content or if it does not exist.
std::string lock_problem(const fs::path& lock, const fs::path& path) {
  const detail::Descriptor file(lock, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (file.get() < 0) return "";
  char content[sizeof detail::kLockMark];
  const ssize_t count = ::read(file.get(), content, sizeof content);
  if (count <= 0) return "";
  // A killed program or a full disk may leave only the beginning; a power cut may leave zeros in place of a part.
  const std::string_view mark = detail::kLockMark, found(content, static_cast<std::size_t>(count));
  bool ours = found.size() <= mark.size();
  for (std::size_t i = 0; ours && i < found.size(); ++i) ours = found[i] == mark[i] || found[i] == '\0';
  if (ours) return "";
  return lock.string() + " is not a lock of heed, but locking " + path.filename().string() +
         " needs a file of that name; move it, or choose another name";
}

// The reason why `made`, in the folder of `path`, cannot be created; empty if it can. `path` is `given` after following
// all links.
std::string creation_problem(const fs::path& given, const fs::path& path, const fs::path& made) {
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) return given.string() + " is a link that leads to itself; it must be a file";
  if (!path.has_filename()) return "the path «" + given.string() + "» has no file name";
  const std::string problem = folder_problem(path, made);
  return problem.empty() ? name_problem(path) : problem;
}

std::string output_problem(const fs::path& given, FileRole role) {
  const fs::path path = followed(given), temporary = with_suffix(path, ".tmp"), lock = with_suffix(path, ".lock");
  std::error_code ignored;
  std::string problem = creation_problem(given, path, temporary);
  if (problem.empty() && fs::exists(given, ignored) && !fs::exists(path, ignored))
    problem = given.string() + " is an open file without a name";
  if (problem.empty()) problem = replacement_problem(path);
  if (problem.empty()) problem = sibling_problem(temporary, path);
  if (role != FileRole::checkpoint) return problem;
  if (problem.empty()) problem = sibling_problem(lock, path);
  return problem.empty() ? lock_problem(lock, path) : problem;
}

std::string log_problem(const fs::path& given) {
  std::error_code ignored;
  const fs::path path = followed(given);
  if (!fs::exists(given, ignored)) return creation_problem(given, path, path);
  return ::faccessat(AT_FDCWD, given.c_str(), W_OK, AT_EACCESS) == 0
             ? ""
             : given.string() + " cannot be written: " + reason(errno);
}

// Identifies a file: an existing file by its inode, a free name by its folder and name.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string free_name = {};

  bool operator==(const Identity&) const = default;
};

std::optional<Identity> identity_of(const fs::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) return Identity{status.st_dev, status.st_ino};
  const fs::path target = followed(path);
  if (::stat(folder_of(target).c_str(), &status) != 0) return std::nullopt;
  return Identity{status.st_dev, status.st_ino, target.filename().string()};
}

// A used file and the names that belong to it while it is written.
struct Used {
  const FileUse& use;
  std::vector<fs::path> places;
  std::vector<std::optional<Identity>> identities = {};

  Used(const FileUse& u, std::vector<fs::path> p) : use(u), places(std::move(p)) {
    for (const fs::path& place : places) identities.push_back(identity_of(place));
  }
};

std::vector<fs::path> places_of(const FileUse& use) {
  std::vector<fs::path> places = {use.path};
  if (use.role == FileRole::output || use.role == FileRole::checkpoint)
    for (const char* ending : {".tmp", ".lock"}) places.push_back(with_suffix(followed(use.path), ending));
  return places;
}

// Several names of a device may be written at the same time.
bool is_device(const FileUse& use) {
  std::error_code ignored;
  return use.role == FileRole::log && fs::is_character_file(use.path, ignored);
}

[[noreturn]] void refuse(const std::string& op, const std::string& what) {
  throw FileError(op.empty() ? what : op + ": " + what);
}

void check_pair(const std::string& op, const Used& a, const Used& b) {
  for (std::size_t i = 0; i < a.places.size(); ++i)
    for (std::size_t j = 0; j < b.places.size(); ++j)
      if (a.identities[i] && a.identities[i] == b.identities[j])
        refuse(op, a.use.name + " is " + a.use.path.string() + " and " + b.use.name + " " + b.use.path.string() +
                       (i == 0 && j == 0 ? ", the same file" : ", both of which need " + a.places[i].string()) +
                       "; they must be different files");
}

// Checks the targets of standard output and error. Printed text would be lost in a file that is replaced, and would be
// read as part of an input. A log may be the same file.
void check_standard_streams(const std::string& op, const Used& used) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat status;
    if (::fstat(stream, &status) != 0 || !S_ISREG(status.st_mode)) continue;
    for (std::size_t i = 0; i < used.places.size(); ++i)
      if (used.identities[i] == Identity{status.st_dev, status.st_ino})
        refuse(op, used.use.name + " is " + used.use.path.string() + ", and standard " +
                       (stream == STDOUT_FILENO ? "output" : "error") + " goes to " + used.places[i].string() +
                       "; they must be different files");
  }
}

std::vector<Used> inputs_of(const std::vector<FileUse>& files) {
  std::vector<Used> inputs;
  for (const FileUse& use : files) {
    if (use.role != FileRole::input || use.path.empty()) continue;
    std::vector<fs::path> paths = {use.path};
    std::error_code ignored;
    try {
      if (fs::is_directory(use.path, ignored)) paths = text_files({use.path});
    } catch (const Error&) {  // the reader reports the error
    }
    for (const fs::path& path : paths) inputs.emplace_back(use, std::vector{path});
  }
  return inputs;
}

}  // namespace

void check_files(const std::string& op, const std::vector<FileUse>& files) {
  std::vector<Used> written;
  for (const FileUse& use : files) {
    if (use.role == FileRole::input || use.path.empty()) continue;
    if (const std::string problem = detail::target_problem(use.path, use.role); !problem.empty())
      refuse(op, use.name + ": " + problem);
    if (!is_device(use)) written.emplace_back(use, places_of(use));
  }
  const std::vector<Used> inputs = inputs_of(files);
  for (std::size_t i = 0; i < written.size(); ++i) {
    for (const Used& input : inputs) check_pair(op, written[i], input);
    for (std::size_t j = i + 1; j < written.size(); ++j) check_pair(op, written[i], written[j]);
    if (written[i].use.role != FileRole::log) check_standard_streams(op, written[i]);
  }
  for (const Used& input : inputs) check_standard_streams(op, input);
}

}  // namespace heed

namespace heed::detail {

fs::path followed(fs::path path) {
  std::error_code error;
  for (int links = 0; fs::is_symlink(path, error) && links < 40; ++links) {
    const fs::path target = fs::read_symlink(path, error);
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

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

bool is_stream(const fs::path& path) {
  const std::string kind = unusual_kind(path);
  return kind == "a pipe" || kind == "a device";
}

fs::path with_suffix(fs::path path, const char* ending) { return path += ending; }

std::string target_problem(const fs::path& path, FileRole role) {
  const bool log = role == FileRole::log;
  if (!log && !path.has_filename()) return "the path «" + path.string() + "» has no file name";
  const std::string kind = unusual_kind(path);
  if (!kind.empty() && !(log && is_stream(path)))
    return path.string() + " is " + kind + "; it must be a file" + (log ? ", a pipe or a terminal" : "");
  return log ? log_problem(path) : output_problem(path, role);
}

}  // namespace heed::detail
