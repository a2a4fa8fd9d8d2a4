// Resident memory of this process, as the operating system counts it.
#pragma once
#include <cstring>
#include <fstream>
#include <string>

namespace heed::benchmarks {

// A line of /proc/self/status, such as VmRSS or VmHWM, in MiB; 0 if there is none.
inline double status_mib(const char* key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) return std::stod(line.substr(std::strlen(key) + 1)) / 1024;
  return 0;
}

// The peak of resident memory minus the resident memory at construction. Construct it before the model, so that
// parameters, optimizer state and memory of the first step are counted. The programs of benchmarks/peers/ measure in
// the same way.
class ResidentGrowth {
 public:
  ResidentGrowth() {
    std::ofstream("/proc/self/clear_refs") << 5;  // resets the high-water mark to the current resident memory
    before_ = status_mib("VmRSS");
  }
  double mib() const { return status_mib("VmHWM") - before_; }

 private:
  double before_;
};

}  // namespace heed::benchmarks
