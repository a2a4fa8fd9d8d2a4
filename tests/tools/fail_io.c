// A library for LD_PRELOAD that makes the file operations of a program fail, or the program die, at a chosen one of
// them.
//
//   HEED_FAIL_PREFIX  only files whose absolute path begins with this count
//   HEED_FAIL_AT      n: the n-th counted call, from 1. Counted are opening for writing, write, ftruncate, fsync,
//   rename,
//                     unlink, in all their forms, and fflush and fclose of a written stream
//   HEED_FAIL_MODE    kill    SIGKILL instead of the call
//                     tear    of a write, the first half happens, then SIGKILL; other calls as kill
//                     enospc  this and every later open, write, ftruncate and fsync fails: the disk stays full
//                     eio, eacces, erofs   only this call fails
//   HEED_FAIL_CHUNK   every counted write transfers at most this many bytes, and every third is interrupted (EINTR)
//   once HEED_FAIL_LOG     a file to which each counted call is appended as a line: number, name, path
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
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum Kind { kOpen, kWrite, kTruncate, kSync, kRename, kUnlink };

static int calls = 0;      // counted so far
static int disk_full = 0;  // mode enospc has begun

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

static int counts(const char* path) {
  const char* prefix = getenv("HEED_FAIL_PREFIX");
  if (!prefix || !path || !path[0]) return 0;
  char absolute[2 * PATH_MAX];
  if (path[0] != '/') {
    char folder[PATH_MAX];
    if (!getcwd(folder, sizeof folder)) return 0;
    snprintf(absolute, sizeof absolute, "%s/%s", folder, path);
    path = absolute;
  }
  return strncmp(path, prefix, strlen(prefix)) == 0;
}

// The path of an open file; empty if it has none, as pipes.
static const char* path_of(int fd, char* buffer) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, buffer, PATH_MAX - 1);
  buffer[n < 0 || buffer[0] != '/' ? 0 : n] = '\0';
  return buffer;
}

// To be called before each operation. Returns the errno to fail with, or 0; may not return.
// *half asks a write to transfer one half, and then to call die().
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

// What one call may transfer; 0: fail with EINTR.
static size_t chunk(const char* path, size_t count) {
  static int writes = 0, interrupted = 0;
  const char* most = getenv("HEED_FAIL_CHUNK");
  if (!most || !counts(path)) return count;
  if (++writes % 3 == 0 && !interrupted) {
    interrupted = 1;
    return 0;
  }
  interrupted = 0;
  const size_t limit = (size_t)atol(most);
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
  if (error) return failed(error);

int open(const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  return NEXT(open)(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  return NEXT(open64)(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  return NEXT(openat)(folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  OPEN_BODY(path, "open")
  return NEXT(openat64)(folder, path, flags, mode);
}

static int stream_for_writing(const char* mode) { return strpbrk(mode, "wa+") != NULL; }

FILE* fopen(const char* path, const char* mode) {
  const int error = stream_for_writing(mode) ? before(kOpen, "fopen", path, NULL) : 0;
  if (error) return failed(error), NULL;
  return NEXT(fopen)(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  const int error = stream_for_writing(mode) ? before(kOpen, "fopen", path, NULL) : 0;
  if (error) return failed(error), NULL;
  return NEXT(fopen64)(path, mode);
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
  const size_t most = chunk(path, count);
  if (most == 0 && count > 0) return failed(EINTR);
  return NEXT(write)(fd, bytes, most);
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
  const size_t most = chunk(path, count);
  if (most == 0 && count > 0) return failed(EINTR);
  return NEXT(pwrite)(fd, bytes, most, offset);
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
  return NEXT(writev)(fd, parts, count);
}

#define FD_CALL(kind, name, declaration, arguments)                 \
  int name declaration {                                            \
    char path[PATH_MAX];                                            \
    const int error = before(kind, #name, path_of(fd, path), NULL); \
    return error ? failed(error) : NEXT(name) arguments;            \
  }

FD_CALL(kTruncate, ftruncate, (int fd, off_t size), (fd, size))
FD_CALL(kTruncate, ftruncate64, (int fd, off64_t size), (fd, size))
FD_CALL(kSync, fsync, (int fd), (fd))
FD_CALL(kSync, fdatasync, (int fd), (fd))

#define PATH_CALL(kind, name, declaration, path, arguments) \
  int name declaration {                                    \
    const int error = before(kind, #name, path, NULL);      \
    return error ? failed(error) : NEXT(name) arguments;    \
  }

PATH_CALL(kTruncate, truncate, (const char* path, off_t size), path, (path, size))
PATH_CALL(kTruncate, truncate64, (const char* path, off64_t size), path, (path, size))
PATH_CALL(kRename, rename, (const char* from, const char* to), to, (from, to))
PATH_CALL(kRename, renameat, (int a, const char* from, int b, const char* to), to, (a, from, b, to))
PATH_CALL(kUnlink, unlink, (const char* path), path, (path))
PATH_CALL(kUnlink, remove, (const char* path), path, (path))

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
