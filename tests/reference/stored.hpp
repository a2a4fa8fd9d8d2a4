// Tensors that scripts of this folder stored as JSON: {"name": {"shape": [...], "values": [...]}}.
#pragma once
#include <fstream>
#include <heed/core/tensor.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace heed::test {

using Named = std::map<std::string, Tensor>;

inline Named stored_tensors(const nlohmann::json& from) {
  Named all;
  for (const auto& [name, x] : from.items()) {
    const auto shape = x["shape"].get<std::vector<Index>>();
    all[name] = Tensor::from(x["values"].get<std::vector<double>>(), Shape(shape.begin(), shape.end()));
  }
  return all;
}

inline nlohmann::json stored_file(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(HEED_SOURCE_DIR "/tests/reference/" + name));
}

}  // namespace heed::test
