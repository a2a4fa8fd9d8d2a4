// The paths of sources and of built programs. Only paths.cpp is compiled with them, so that a compiler cache serves
// every checkout.
#pragma once
#include <string>

namespace heed::test {

std::string in_source(const std::string& path = "");  // in_source("docs/design.md"): its absolute path
std::string in_build(const std::string& path = "");   // in the build folder

std::string compiler();  // the compiler of the tests
std::string emulator();  // precedes a built program in a command: empty, or an emulator of another machine

std::string
fail_io_library();  // tests/tools/fail_io.c, built: makes files of started programs fail (tests/tools/run.hpp)
std::string checkpoint_tool();  // tests/tools/checkpoint_tool.cpp, built
std::string fuzz_checkpoint();  // tests/tools/fuzz_checkpoint.cpp, built

}  // namespace heed::test
