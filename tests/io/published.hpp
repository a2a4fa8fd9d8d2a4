// Tiny models of transformers (tests/reference/pretrained_models.py), for the tests of published models.
#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <heed/io/json.hpp>
#include <heed/io/pretrained.hpp>
#include <heed/io/safetensors.hpp>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

namespace heed::test::published {

namespace fs = std::filesystem;

// The folder of a model, with reference.safetensors.
inline fs::path reference(const std::string& name) { return fs::path(in_source("tests/reference/pretrained")) / name; }

// Compares relative to the largest number.
inline bool close_to_largest(const Tensor& a, const Tensor& b, double tolerance) {
  double largest = 0, difference = 0;
  const auto x = a.to(DType::float64).to_vector<double>(), y = b.to(DType::float64).to_vector<double>();
  if (a.shape() != b.shape()) return false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(y[i]));
    difference = std::max(difference, std::abs(x[i] - y[i]));
  }
  if (difference > tolerance * largest) MESSAGE("the difference is ", difference, " of ", largest);
  return difference <= tolerance * largest;
}

inline detail::JsonValue config_json_of(const fs::path& folder) {
  std::ifstream in(folder / "config.json");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  return detail::parse_json_object(text, "config.json");
}

// A copy of a model's folder in which config.json has other fields. An empty value removes a field.
using Fields = std::vector<std::pair<std::string, std::string>>;

inline fs::path with_fields(const fs::path& parent, const std::string& name, const Fields& fields) {
  const fs::path folder = parent / "changed";
  fs::remove_all(folder);
  fs::copy(reference(name), folder, fs::copy_options::recursive);
  detail::JsonValue json = config_json_of(folder);
  for (const auto& [key, value] : fields) {
    const auto parsed = detail::parse_json_object("{\"x\": " + (value.empty() ? "null" : value) + "}", "test");
    json.set(key, parsed.items[0]);
  }
  std::ofstream(folder / "config.json") << detail::json_text(json);
  return folder;
}

inline std::string load_error(const fs::path& path) {
  return error_of([&] { load_pretrained(path); });
}

// Compares the gradients of a model with those in `expected`, by the names that files have for the parameters. Replaces
// the weights.
inline void check_gradients(Pretrained& p, const TensorsByName& expected, double tolerance) {
  for (const NamedParameter& q : named_parameters(p.lm.model)) q.parameter->copy_(q.parameter->grad());
  if (p.next_sentence)
    for (const NamedParameter& q : named_parameters(*p.next_sentence)) q.parameter->copy_(q.parameter->grad());
  const TemporaryFolder temporary;
  save_pretrained(temporary.path / "gradients", p);
  const TensorsByName found = load_safetensors(temporary.path / "gradients/model.safetensors");
  int compared = 0;
  for (const auto& gradient : expected) {
    const std::string& key = gradient.first;
    if (!key.starts_with("grad/")) continue;
    CAPTURE(key);
    const Tensor& own = found.at(key.substr(5));
    if (key.ends_with("self.key.bias"))  // a number added to all scores of a query has no effect
      CHECK(close(own, Tensor::zeros(own.shape()), 0, 1e-6));
    else
      CHECK(close_to_largest(own, gradient.second, tolerance));
    ++compared;
  }
  CHECK(compared == static_cast<int>(found.size()));
}

}  // namespace heed::test::published
