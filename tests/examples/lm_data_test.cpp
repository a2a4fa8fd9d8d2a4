// The batches on which train_lm trains.
#include "examples/support/lm_data.hpp"

#include <algorithm>
#include <heed/data/tasks.hpp>

#include "tests/support.hpp"

using namespace heed;

namespace {

// The texts of some training batches, one per row.
std::vector<std::string> rows_of(const examples::LmSettings& s) {
  const examples::LmData data = examples::load_data(s, nullptr);
  std::vector<std::string> rows;
  for (std::uint64_t step = 0; step < 20; ++step) {
    const Batch b = data.training.batch(s.seed, step);
    const std::vector<std::int32_t> ids = b.inputs.to_vector<std::int32_t>();
    for (Index r = 0; r < s.batch; ++r)
      rows.push_back(data.tokenizer.decode(std::span(ids).subspan(static_cast<std::size_t>(r * s.gpt.context),
                                                                  static_cast<std::size_t>(s.gpt.context))));
  }
  return rows;
}

}  // namespace

RELEASE_TEST_CASE("lm_data: a context shorter than the stories sees all parts of them, a longer one whole stories") {
  examples::LmSettings s;
  s.batch = 24;
  const std::string whole = Stories().text(0, 200000);
  for (const Index context : {16, 64}) {
    s.gpt.context = context;
    const std::vector<std::string> rows = rows_of(s);
    std::string all;
    for (const std::string& row : rows) all += row;
    for (const char c : {'?', '\n', '.', 'h'}) {
      const auto share = [c](const std::string& text) {
        return static_cast<double>(std::count(text.begin(), text.end(), c)) / static_cast<double>(text.size());
      };
      INFO(context << ": " << c);
      CHECK(share(all) == doctest::Approx(share(whole)).scale(0).epsilon(0.2));
    }
    CHECK(rows_of(s) == rows);
  }
  s.gpt.context = static_cast<Index>(kLongestStory);
  for (const std::string& row : rows_of(s)) CHECK(row.starts_with("\n"));
}
