// A file of JSON lines.
#pragma once
#include <fstream>
#include <string>

namespace heed::examples {

// Each line is in the file when write() returns. An empty name is no log.
class JsonLog {
 public:
  explicit JsonLog(const std::string& file);  // begins it anew; throws Error where it cannot be written
  void write(const std::string& line);        // without its line feed; throws Error where the disk takes no more

 private:
  std::string file_;
  std::ofstream out_;
};

}  // namespace heed::examples
