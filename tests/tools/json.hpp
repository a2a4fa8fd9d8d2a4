// Reads JSON in tests. Parsing is compiled once, in json.cpp, because it compiles slowly.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace heed::test {

// These functions throw if the text is not JSON.
nlohmann::json parse_json(const std::string& text);
nlohmann::json json_file(const std::filesystem::path& file);
std::vector<nlohmann::json> json_lines(const std::filesystem::path& file);  // one object per line; empty without a file

}  // namespace heed::test
