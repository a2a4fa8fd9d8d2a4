// JSON files that tests read. Parsing is compiled once, in json.cpp: it is most of what including nlohmann/json costs.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace heed::test {

nlohmann::json parse_json(const std::string& text);
nlohmann::json json_file(const std::filesystem::path& file);
std::vector<nlohmann::json> json_lines(const std::filesystem::path& file);  // an object a line; none without the file

}  // namespace heed::test
