// The inputs that fuzzing found (tests/jobs/fuzz): each parser accepts or refuses each of them, in little time.
#include <ctime>
#include <heed/io/npz.hpp>

#include "tests/support.hpp"
#include "tests/tools/fuzz/parsers.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;

namespace fuzz_test {  // several sources of tests are compiled as one
namespace {

// The stored inputs of a format: all bytes, the size of each input, and whether it is accepted.
struct StoredInputs {
  std::string bytes;
  std::vector<std::int32_t> sizes, accepted;

  explicit StoredInputs(const std::string& format) {
    const auto arrays = load_npz(test::in_source("tests/reference/fuzz/" + format + ".npz"));
    for (const std::int32_t byte : test::ids_of(arrays.at("bytes"))) bytes += static_cast<char>(byte);
    sizes = test::ids_of(arrays.at("sizes"));
    accepted = test::ids_of(arrays.at("accepted"));
  }
};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Parses all inputs, and requires the stored outcome of each. The outcome of up to `other` inputs may differ.
void check_inputs(const std::string& format, void (*parse)(std::string_view), std::size_t other = 0) {
  const StoredInputs inputs(format);
  const std::size_t count = inputs.sizes.size();
  REQUIRE(inputs.accepted.size() == count);
  std::size_t begin = 0, accepted = 0, refused = 0, differing = 0;
  double slowest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::size_t>(inputs.sizes[i]);
    REQUIRE(size <= inputs.bytes.size() - begin);
    const double start = processor_seconds();
    const auto outcome = test::fuzz::outcome_of(parse, std::string_view(inputs.bytes).substr(begin, size));
    slowest = std::max(slowest, processor_seconds() - start);
    ++(outcome.accepted ? accepted : refused);
    if (outcome.accepted != (inputs.accepted[i] != 0)) {
      ++differing;
      MESSAGE(format, ": input ", i, " is ", outcome.accepted ? "accepted" : "refused: " + outcome.error);
    }
    begin += size;
  }
  CHECK(begin == inputs.bytes.size());
  CHECK(differing <= other);
  CHECK(accepted >= count / 20);
  CHECK(refused >= count / 20);
  CHECK(count >= 100);
  CHECK(slowest < 1);
}

}  // namespace

TEST_CASE("fuzz: the stored npz files are read or refused") { check_inputs("npz", test::fuzz::npz); }

TEST_CASE("fuzz: the stored safetensors files and indices are read or refused") {
  check_inputs("safetensors", test::fuzz::safetensors);
}

TEST_CASE("fuzz: the stored tokenizer.json files are read or refused") {
  check_inputs("tokenizer", test::fuzz::tokenizer);
}

TEST_CASE("fuzz: the stored GGUF files are read or refused") { check_inputs("gguf", test::fuzz::gguf); }

}  // namespace fuzz_test
