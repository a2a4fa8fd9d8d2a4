// The tokenizers that tests/reference/tokenizers_files.py stored.
#pragma once
#include <heed/io/tokenizer_json.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

namespace heed::test {

// By kind: "file", "texts" and more.
inline const nlohmann::json& stored_tokenizers() {
  static const nlohmann::json all = json_file(in_source("tests/reference/tokenizers_files.json"));
  return all;
}

// The tokenizer.json of a kind, with more special tokens.
inline std::string tokenizer_file(const std::string& kind, const std::vector<std::string>& added = {}) {
  const auto text = stored_tokenizers().at(kind).at("file").get<std::string>();
  if (added.empty()) return text;
  auto file = nlohmann::json::parse(text);
  Index id = JsonTokenizer::from_state(text).vocabulary_size();
  for (const std::string& token : added)
    file["added_tokens"].push_back({{"id", id++},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  return file.dump();
}

}  // namespace heed::test
