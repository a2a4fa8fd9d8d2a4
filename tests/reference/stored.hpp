// Reads tensors that the scripts in this folder store as JSON: {"name": {"shape": [...], "values": [...]}}.
#pragma once
#include <heed/core/tensor.hpp>
#include <map>
#include <string>

namespace heed::test {

using Named = std::map<std::string, Tensor>;

Named stored_tensors(const std::string& file);  // in tests/reference

// The contents of a file {"inputs": tensors, "cases": {"title": tensors}}.
struct StoredCases {
  Named inputs;
  std::map<std::string, Named> cases;
};
const StoredCases& stored_cases(const std::string& file);

}  // namespace heed::test
