// ctc_greedy(): merged labels, blanks, lengths, errors.
#include <heed/layers/decoding.hpp>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("ctc_greedy merges equal neighbours, then removes blanks") {
  const auto best = Tensor::from<std::int32_t>({1, 1, 0, 1, 2, 2, 0, 0, 2, 1, 1, 2}, {2, 6});
  const Tensor scores = one_hot(best, 3);
  CHECK(ctc_greedy(scores) == std::vector<Tokens>{{1, 1, 2}, {2, 1, 2}});
  CHECK(ctc_greedy(scores, Tensor::from<std::int32_t>({3, 0})) == std::vector<Tokens>{{1}, {}});
  CHECK(ctc_greedy(scores, {}, 2) == std::vector<Tokens>{{1, 0, 1}, {0, 1}});
  CHECK(ctc_greedy(Tensor::zeros({0, 4, 3})).empty());
}

TEST_CASE("ctc_greedy: errors") {
  const Tensor scores = Tensor::zeros({2, 4, 3});
  test::check_errors({
      {"ctc_greedy: scores are [4, 3] float32; they must be [N, T, C]", [&] { ctc_greedy(scores[0]); }},
      {"ctc_greedy: blank is 3; it must be one of the 3 classes", [&] { ctc_greedy(scores, {}, 3); }},
      {"ctc_greedy: lengths are [1] int32; they must be [2] int32",
       [&] { ctc_greedy(scores, Tensor::from<std::int32_t>({4})); }},
      {"ctc_greedy: lengths[1] is 5; it must be in [0, 4]",
       [&] { ctc_greedy(scores, Tensor::from<std::int32_t>({4, 5})); }},
  });
}
