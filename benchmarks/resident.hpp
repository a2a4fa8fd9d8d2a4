// Resident memory of this process, as the kernel of the system counts it.
#pragma once
#include <cstring>
#include <fstream>
#include <string>

namespace heed::benchmarks {

// A line of /proc/self/status, as VmRSS or VmHWM, in MiB; 0 where there is none.
inline double status_mib(const char* key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) return std::stod(line.substr(std::strlen(key) + 1)) / 1024;
  return 0;
}

// By how much the most that was ever resident passes what is resident where this is made: before the model is built, so
// that its parameters, the optimizer's state and whatever the first step makes are counted. The programs of
// benchmarks/peers/ measure in the same way.
class ResidentGrowth {
 public:
  ResidentGrowth() {
    std::ofstream("/proc/self/clear_refs") << 5;  // the high-water mark falls to what is resident now
    before_ = status_mib("VmRSS");
  }
  double mib() const { return status_mib("VmHWM") - before_; }

 private:
  double before_;
};

}  // namespace heed::benchmarks
