// Parses JSON.
#include "tests/tools/json.hpp"

#include <fstream>

#include "tests/data/temporary_folder.hpp"

namespace heed::test {

nlohmann::json parse_json(const std::string& text) { return nlohmann::json::parse(text); }

nlohmann::json json_file(const std::filesystem::path& file) { return parse_json(bytes_of(file)); }

std::vector<nlohmann::json> json_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<nlohmann::json> entries;
  for (std::string line; std::getline(in, line);) entries.push_back(parse_json(line));
  return entries;
}

}  // namespace heed::test
