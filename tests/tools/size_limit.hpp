// Limits the size of files that this process writes, as ulimit -f does: writes beyond the limit fail as on a full disk.
#pragma once
#include <sys/resource.h>

namespace heed::test {

// set() sets the limit; lift() and the destructor restore the one before.
class SizeLimit {
 public:
  SizeLimit() { ::getrlimit(RLIMIT_FSIZE, &before_); }
  ~SizeLimit() { lift(); }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  void set(rlim_t bytes) const {
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  void lift() const { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

}  // namespace heed::test
