// A folder for the files of one test, removed at its end.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

struct TemporaryFolder {
  std::filesystem::path path;

  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  std::filesystem::path write(const std::string& name, const std::string& bytes) const;
};

// Inside the scope root has no more rights than others, so that files may be closed to tests, too.
struct Unprivileged {
  bool root = ::geteuid() == 0;
  Unprivileged();
  ~Unprivileged();
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
