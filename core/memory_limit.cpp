// The memory that the machine, cgroups and ulimit leave to this process.
#include <heed/core/memory.hpp>
//
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <heed/core/check.hpp>
#include <string>

namespace heed {
namespace {

// The number in a file of a cgroup; infinity if the file does not exist or holds "max".
double limit_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  in.imbue(std::locale::classic());
  double bytes = 0;
  return in >> bytes ? bytes : detail::kInfinity;
}

// The lowest limit of this process's cgroup and the cgroups above it. In a container, the root is its own cgroup.
double cgroup_memory() {
  const std::filesystem::path root = "/sys/fs/cgroup";
  double min_bytes = std::fmin(limit_in(root / "memory.max"), limit_in(root / "memory/memory.limit_in_bytes"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::filesystem::path group = line.substr(4); !group.empty(); group = group.parent_path())
      min_bytes = std::fmin(min_bytes, limit_in(root / group / "memory.max"));
  }
  return min_bytes;
}

std::string amount(double bytes) {
  static const char* const kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  return detail::formatted("%.3g %s", bytes, kUnits[unit]);
}

}  // namespace

double memory_limit() {
  double min_bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  min_bytes = std::fmin(min_bytes, cgroup_memory());
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    min_bytes = std::fmin(min_bytes, static_cast<double>(limit.rlim_cur));
  return min_bytes;
}

void check_memory(const std::string& what, double bytes) {
  const double all = memory_limit();
  require(!(bytes > all), what, " takes at least ", amount(bytes), " of memory, but this process can use at most ",
          amount(all));
}

}  // namespace heed
