#include "examples/support/json_log.hpp"

#include <heed/core/check.hpp>
#include <heed/data/disk.hpp>

namespace heed::examples {

JsonLog::JsonLog(const std::string& file) : file_(file) {
  if (file.empty()) return;
  check_place("log", file);
  out_.open(file, std::ios::binary | std::ios::trunc);
  require(out_.is_open(), "log: ", file, " cannot be written");
}

void JsonLog::write(const std::string& line) {
  if (file_.empty()) return;
  out_ << line << "\n" << std::flush;
  require(out_.good(), "log: ", file_, " cannot be written");
}

}  // namespace heed::examples
