// The paths that CMake defines for this source only.
#include "tests/tools/paths.hpp"

namespace heed::test {

namespace {
std::string below(const char* folder, const std::string& path) {
  return path.empty() ? folder : std::string(folder) + '/' + path;
}
}  // namespace

std::string in_source(const std::string& path) { return below(HEED_SOURCE_DIR, path); }
std::string in_build(const std::string& path) { return below(HEED_BUILD_DIR, path); }
std::string compiler() { return HEED_COMPILER; }
std::string emulator() { return HEED_EMULATOR; }
std::string fail_io_library() { return HEED_FAIL_IO; }
std::string checkpoint_tool() { return HEED_CHECKPOINT_TOOL; }
std::string fuzz_checkpoint() { return HEED_FUZZ_CHECKPOINT; }

}  // namespace heed::test
