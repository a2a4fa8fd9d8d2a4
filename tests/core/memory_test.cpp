// The memory limit, and requests that are refused before allocation. The pool has its own test: pool_test.cpp.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/core/memory.hpp>
#include <memory>

#include "tests/support.hpp"

using namespace heed;

namespace {

// The result of f in a child process whose address space is limited to `bytes`.
template <class F>
std::string result_under(rlim_t bytes, F&& f) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    const std::string text = ::setrlimit(RLIMIT_AS, &limit) == 0 ? f() : "no limit";
    const bool written = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text(1000, ' ');
  const ssize_t n = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

}  // namespace

TEST_CASE("memory: the limit is no more than the machine has") {
  const double machine = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  CHECK(memory_limit() > 0);
  CHECK(memory_limit() <= machine);
}

TEST_CASE("memory: a computation that needs more memory than exists is refused with a message") {
  CHECK(test::error_of([] { check_memory("x", 0); }).empty());
  CHECK(test::error_of([] { check_memory("x", memory_limit()); }).empty());
  CHECK(test::error_of([] { check_memory("x", test::kNaN); }).empty());  // an unknown need is not refused
  const std::string message = test::error_of([] { check_memory("generate: a cache of 4 layers", std::ldexp(3, 60)); });
  CHECK(test::contains(message,
                       "generate: a cache of 4 layers takes at least 3 EiB of memory, but this process can "
                       "use at most "));
  CHECK(test::contains(test::error_of([] { check_memory("x", std::ldexp(1.5, 70)); }), "at least 1.54e+03 EiB"));
}

#if !defined(HEED_SANITIZED)  // sanitizers reserve terabytes of addresses
TEST_CASE("memory: ulimit -v lowers the limit") {
  const auto refused = [](double bytes) {
    return [bytes]() -> std::string {
      try {
        check_memory("x", bytes);
        return "fits";
      } catch (const Error& e) {
        return e.what();
      }
    };
  };
  constexpr rlim_t kLimit = rlim_t{3} << 28;  // 768 MiB
  if (memory_limit() < static_cast<double>(kLimit)) return;
  CHECK(result_under(kLimit, refused(static_cast<double>(kLimit))) == "fits");
  CHECK(result_under(kLimit, refused(std::ldexp(1, 30))) ==
        "x takes at least 1 GiB of memory, but this process can use at most 768 MiB");
}
#endif

TEST_CASE("memory: Scratch takes memory from the pool and returns it") {
  const std::size_t before = memory_use().current;
  {
    Scratch<double> scratch(1000);
    CHECK(scratch.size() == 1000);
    CHECK(memory_use().current >= before + 8000);
    for (std::size_t i = 0; i < 1000; ++i) scratch[i] = static_cast<double>(i);
    CHECK(scratch.data()[999] == 999);
  }
  CHECK(memory_use().current == before);
  CHECK(memory_use().cached >= 8000);
  release_cached_memory();
  CHECK(memory_use().cached == 0);
}

TEST_CASE("memory: an object that is allocated by PoolAllocator takes the pool's memory and gives it back") {
  const std::size_t before = memory_use().current;
  std::shared_ptr<std::array<double, 1000>> many =
      std::allocate_shared<std::array<double, 1000>>(PoolAllocator<std::array<double, 1000>>());
  CHECK(memory_use().current >= before + 8000);
  many.reset();
  CHECK(memory_use().current == before);
}
