// Parses JSON.
#include "tests/tools/json.hpp"

#include <fstream>

namespace heed::test {

nlohmann::json parse_json(const std::string& text) { return nlohmann::json::parse(text); }

nlohmann::json json_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return parse_json({std::istreambuf_iterator<char>(in), {}});
}

std::vector<nlohmann::json> json_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<nlohmann::json> entries;
  for (std::string line; std::getline(in, line);) entries.push_back(parse_json(line));
  return entries;
}

}  // namespace heed::test
