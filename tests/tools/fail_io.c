// A library for LD_PRELOAD that makes a chosen file operation of a program fail, or kills the program there, or records
// the operations.
//
//   HEED_FAIL_PREFIX  only calls on files whose absolute path begins with this are counted
//   HEED_FAIL_AT      n: the n-th counted call, from 1. Counted are open for writing, write, ftruncate, fsync, rename
//                     and unlink, in all their forms, and fflush and fclose of a written stream
//   HEED_FAIL_MODE    kill    SIGKILL instead of the call
//                     tear    a write transfers its first half, then SIGKILL; other calls as kill
//                     enospc  this and every later open, write, ftruncate and fsync fail: the disk stays full
//                     eio, eacces, erofs   only this call fails
//   HEED_FAIL_CHUNK   each counted write transfers at most this many bytes; every third is interrupted once (EINTR)
//   HEED_FAIL_LOG     a file to which each counted call is appended as a line: number, name, path
//   HEED_FAIL_RECORD  a file to which each successful counted call is appended with its bytes: crash_states.hpp
//
// Under AddressSanitizer add ASAN_OPTIONS=verify_asan_link_order=0. tests/tools/run.hpp does all this.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum Kind { kOpen, kWrite, kTruncate, kSync, kRename, kUnlink };

static int calls = 0;      // counted calls so far
static int disk_full = 0;  // mode enospc has started

static void write_log(int call, const char* name, const char* path) {
  const char* log = getenv("HEED_FAIL_LOG");
  if (!log) return;
  char line[PATH_MAX + 64];
  const int n = snprintf(line, sizeof line, "%d %s %s\n", call, name, path);
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (fd < 0) return;
  syscall(SYS_write, fd, line, (size_t)n);
  syscall(SYS_close, fd);
}

// The absolute path; a relative one is completed in the buffer. Null if there is none.
static const char* absolute(const char* path, char buffer[2 * PATH_MAX]) {
  char folder[PATH_MAX];
  if (!path || !path[0] || path[0] == '/') return path;
  if (!getcwd(folder, sizeof folder)) return NULL;
  snprintf(buffer, 2 * PATH_MAX, "%s/%s", folder, path);
  return buffer;
}

static int counts(const char* path) {
  char buffer[2 * PATH_MAX];
  const char* prefix = getenv("HEED_FAIL_PREFIX");
  path = absolute(path, buffer);
  return prefix && path && path[0] && strncmp(path, prefix, strlen(prefix)) == 0;
}

// Appends a successful call to the record: «NAME A B PATH», followed by the bytes of a write.
static void record(const char* name, long long a, long long b, const char* path, const void* bytes) {
  const char* file = getenv("HEED_FAIL_RECORD");
  if (!file || !counts(path)) return;
  const int error = errno;
  char buffer[2 * PATH_MAX], line[2 * PATH_MAX + 64];
  const int n = snprintf(line, sizeof line, "%s %lld %lld %s\n", name, a, b, absolute(path, buffer));
  const struct iovec parts[2] = {{line, (size_t)n}, {(void*)bytes, bytes ? (size_t)b : 0}};
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (fd >= 0) {
    syscall(SYS_writev, fd, parts, 2);
    syscall(SYS_close, fd);
  }
  errno = error;
}

// Records the effect of opening a file: it was created or truncated.
static void record_open(const char* path, int opened, int was_there, int cut) {
  if (!opened) return;
  if (!was_there) record("create", 0, 0, path, NULL);
  if (was_there && cut) record("truncate", 0, 0, path, NULL);
}

static int is_there(const char* path) {
  struct stat status;
  return stat(path, &status) == 0;
}

// Records a write of n bytes that ended at the present position of the file.
static ssize_t recorded_write(int fd, const char* path, const void* bytes, ssize_t n) {
  if (n > 0 && counts(path)) record("write", (long long)lseek(fd, 0, SEEK_CUR) - n, n, path, bytes);
  return n;
}

// The path of an open file; empty if it has none, as a pipe.
static const char* path_of(int fd, char* buffer) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, buffer, PATH_MAX - 1);
  buffer[n < 0 || buffer[0] != '/' ? 0 : n] = '\0';
  return buffer;
}

// Call this before each operation. Returns the errno to fail with, or 0; may kill the process. If *half is set, the
// write must transfer its first half and then call die().
static int before(enum Kind kind, const char* name, const char* path, int* half) {
  if (half) *half = 0;
  if (!counts(path)) return 0;
  const char* at = getenv("HEED_FAIL_AT");
  const char* mode = getenv("HEED_FAIL_MODE");
  const int call = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  write_log(call, name, path);
  if (!at || !mode) return 0;
  if (call == atoi(at)) {
    if (strcmp(mode, "tear") == 0 && kind == kWrite && half) {
      *half = 1;
      return 0;
    }
    if (strcmp(mode, "kill") == 0 || strcmp(mode, "tear") == 0) kill(getpid(), SIGKILL);
    if (strcmp(mode, "eio") == 0) return EIO;
    if (strcmp(mode, "eacces") == 0) return EACCES;
    if (strcmp(mode, "erofs") == 0) return EROFS;
    if (strcmp(mode, "enospc") == 0) disk_full = 1;
  }
  return disk_full && kind != kUnlink && kind != kRename ? ENOSPC : 0;
}

static int failed(int error) {
  errno = error;
  return -1;
}

static void die(void) { kill(getpid(), SIGKILL); }

// The number of bytes that one call may transfer; 0: fail with EINTR.
static size_t chunk(const char* path, size_t count) {
  static int writes = 0, interrupted = 0;
  const char* text = getenv("HEED_FAIL_CHUNK");
  if (!text || !counts(path)) return count;
  if (++writes % 3 == 0 && !interrupted) {
    interrupted = 1;
    return 0;
  }
  interrupted = 0;
  const size_t limit = (size_t)atol(text);
  return count < limit ? count : limit;
}

static int for_writing(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0; }

#define OPEN_BODY(path, call_name)                                                 \
  mode_t mode = 0;                                                                 \
  if (flags & O_CREAT) {                                                           \
    va_list list;                                                                  \
    va_start(list, flags);                                                         \
    mode = va_arg(list, mode_t);                                                   \
    va_end(list);                                                                  \
  }                                                                                \
  const int error = for_writing(flags) ? before(kOpen, call_name, path, NULL) : 0; \
  if (error) return failed(error);                                                 \
  const int was_there = is_there(path);

#define OPEN_END(path, call)                                                             \
  const int fd = call;                                                                   \
  if (for_writing(flags)) record_open(path, fd >= 0, was_there, (flags & O_TRUNC) != 0); \
  return fd;

int open(const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  OPEN_END(path, NEXT(open)(path, flags, mode))
}

int open64(const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  OPEN_END(path, NEXT(open64)(path, flags, mode))
}

int openat(int folder, const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  OPEN_END(path, NEXT(openat)(folder, path, flags, mode))
}

int openat64(int folder, const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  OPEN_END(path, NEXT(openat64)(folder, path, flags, mode))
}

static int stream_for_writing(const char* mode) { return strpbrk(mode, "wa+") != NULL; }

FILE* fopen(const char* path, const char* mode) {
  const int error = stream_for_writing(mode) ? before(kOpen, "fopen", path, NULL) : 0;
  if (error) return failed(error), NULL;
  const int was_there = is_there(path);
  FILE* stream = NEXT(fopen)(path, mode);
  if (stream_for_writing(mode)) record_open(path, stream != NULL, was_there, mode[0] == 'w');
  return stream;
}

FILE* fopen64(const char* path, const char* mode) {
  const int error = stream_for_writing(mode) ? before(kOpen, "fopen", path, NULL) : 0;
  if (error) return failed(error), NULL;
  const int was_there = is_there(path);
  FILE* stream = NEXT(fopen64)(path, mode);
  if (stream_for_writing(mode)) record_open(path, stream != NULL, was_there, mode[0] == 'w');
  return stream;
}

ssize_t write(int fd, const void* bytes, size_t count) {
  char path[PATH_MAX];
  int half;
  const int error = before(kWrite, "write", path_of(fd, path), &half);
  if (error) return failed(error);
  if (half) {
    NEXT(write)(fd, bytes, count / 2);
    die();
  }
  const size_t size = chunk(path, count);
  if (size == 0 && count > 0) return failed(EINTR);
  return recorded_write(fd, path, bytes, NEXT(write)(fd, bytes, size));
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  char path[PATH_MAX];
  int half;
  const int error = before(kWrite, "pwrite", path_of(fd, path), &half);
  if (error) return failed(error);
  if (half) {
    NEXT(pwrite)(fd, bytes, count / 2, offset);
    die();
  }
  const size_t size = chunk(path, count);
  if (size == 0 && count > 0) return failed(EINTR);
  const ssize_t n = NEXT(pwrite)(fd, bytes, size, offset);
  if (n > 0) record("write", offset, n, path, bytes);
  return n;
}

ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) { return pwrite(fd, bytes, count, offset); }

ssize_t writev(int fd, const struct iovec* parts, int count) {
  char path[PATH_MAX];
  int half;
  const int error = before(kWrite, "writev", path_of(fd, path), &half);
  if (error) return failed(error);
  if (half) {
    if (count > 0) NEXT(write)(fd, parts[0].iov_base, (parts[0].iov_len + 1) / 2);
    die();
  }
  ssize_t done = 0;
  if (!getenv("HEED_FAIL_RECORD") || !counts(path)) return NEXT(writev)(fd, parts, count);
  for (int i = 0; i < count; ++i) {
    const ssize_t n = recorded_write(fd, path, parts[i].iov_base, NEXT(write)(fd, parts[i].iov_base, parts[i].iov_len));
    if (n < 0) return done > 0 ? done : n;
    done += n;
    if ((size_t)n < parts[i].iov_len) break;
  }
  return done;
}

#define FD_CALL(kind, name, declaration, arguments, noted, size)     \
  int name declaration {                                             \
    char path[PATH_MAX];                                             \
    const int error = before(kind, #name, path_of(fd, path), NULL);  \
    const int result = error ? failed(error) : NEXT(name) arguments; \
    if (result == 0) record(noted, size, 0, path, NULL);             \
    return result;                                                   \
  }

FD_CALL(kTruncate, ftruncate, (int fd, off_t size), (fd, size), "truncate", size)
FD_CALL(kTruncate, ftruncate64, (int fd, off64_t size), (fd, size), "truncate", size)
FD_CALL(kSync, fsync, (int fd), (fd), "sync", 0)
FD_CALL(kSync, fdatasync, (int fd), (fd), "sync", 0)

#define PATH_CALL(kind, name, declaration, path, arguments, noting)  \
  int name declaration {                                             \
    const int error = before(kind, #name, path, NULL);               \
    const int result = error ? failed(error) : NEXT(name) arguments; \
    if (result == 0) noting;                                         \
    return result;                                                   \
  }

// A rename is recorded as two lines: «rename 0 0 TO» and «from 0 0 FROM».
#define NOTE_RENAME record("rename", 0, 0, to, NULL), record("from", 0, 0, from, NULL)
#define NOTE_UNLINK record("unlink", 0, 0, path, NULL)

PATH_CALL(kTruncate, truncate, (const char* path, off_t size), path, (path, size),
          record("truncate", size, 0, path, NULL))
PATH_CALL(kTruncate, truncate64, (const char* path, off64_t size), path, (path, size),
          record("truncate", size, 0, path, NULL))
PATH_CALL(kRename, rename, (const char* from, const char* to), to, (from, to), NOTE_RENAME)
PATH_CALL(kRename, renameat, (int a, const char* from, int b, const char* to), to, (a, from, b, to), NOTE_RENAME)
// An exchange of two folders is not recorded, since crash_states.hpp knows no folders.
PATH_CALL(kRename, renameat2, (int a, const char* from, int b, const char* to, unsigned flags), to,
          (a, from, b, to, flags), (void)0)
PATH_CALL(kUnlink, unlink, (const char* path), path, (path), NOTE_UNLINK)
PATH_CALL(kUnlink, remove, (const char* path), path, (path), NOTE_UNLINK)

static int is_written(FILE* stream) {
  const int flags = fcntl(fileno(stream), F_GETFL);
  return flags >= 0 && (flags & (O_WRONLY | O_RDWR)) != 0;
}

int fflush(FILE* stream) {
  char path[PATH_MAX];
  if (stream && is_written(stream)) {
    const int error = before(kWrite, "fflush", path_of(fileno(stream), path), NULL);
    if (error) return failed(error), EOF;
  }
  return NEXT(fflush)(stream);
}

int fclose(FILE* stream) {
  char path[PATH_MAX];
  const int error = is_written(stream) ? before(kWrite, "fclose", path_of(fileno(stream), path), NULL) : 0;
  const int result = NEXT(fclose)(stream);
  return error ? (failed(error), EOF) : result;
}
