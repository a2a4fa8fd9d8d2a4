// Reads the JSON files of tests/reference.
#include "tests/reference/stored.hpp"

#include <vector>

#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

namespace heed::test {

static Named tensors_of(const nlohmann::json& from) {
  Named all;
  for (const auto& [name, x] : from.items()) {
    const auto shape = x["shape"].get<std::vector<Index>>();
    all[name] = Tensor::from(x["values"].get<std::vector<double>>(), Shape(shape.begin(), shape.end()));
  }
  return all;
}

static nlohmann::json stored(const std::string& file) { return json_file(test::in_source("tests/reference/") + file); }

Named stored_tensors(const std::string& file) { return tensors_of(stored(file)); }

const StoredCases& stored_cases(const std::string& file) {
  static std::map<std::string, StoredCases> read;
  if (const auto found = read.find(file); found != read.end()) return found->second;
  const nlohmann::json from = stored(file);
  StoredCases all{tensors_of(from["inputs"]), {}};
  for (const auto& [title, tensors] : from["cases"].items()) all.cases[title] = tensors_of(tensors);
  return read[file] = all;
}

}  // namespace heed::test
