// A limit on the size of the files that this process writes, as a disk that is full: ulimit -f.
#pragma once
#include <sys/resource.h>

namespace heed::test {

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
