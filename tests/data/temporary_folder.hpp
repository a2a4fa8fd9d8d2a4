// A folder for the files of one test, removed at its end.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

struct TemporaryFolder {
  std::filesystem::path path;

  TemporaryFolder() {
    static std::atomic<int> count{0};
    path = std::filesystem::temp_directory_path() /
           ("heed_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path file = path / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }
};

// Inside the scope root has no more rights than others, so that files may be closed to tests, too.
struct Unprivileged {
  bool root = ::geteuid() == 0;
  Unprivileged() {
    if (root && ::seteuid(65534) != 0) throw std::runtime_error("root cannot give up its rights");
  }
  ~Unprivileged() {
    if (root && ::seteuid(0) != 0) std::abort();
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
};

// The message of the heed::Error that f throws, or «no error».
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "no error";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
