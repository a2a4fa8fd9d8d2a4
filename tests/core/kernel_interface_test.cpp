// Types that kernels and the templates of public headers share.
#include <heed/core/kernel_interface.hpp>
#include <type_traits>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("kernel_interface: OpNames of up to fifteen letters are equal if their letters are") {
  constexpr OpName sine = "sin";
  CHECK(sine == OpName("sin"));
  CHECK_FALSE(sine == OpName("sinh"));
  CHECK_FALSE(sine == OpName("si"));
  CHECK_FALSE(sine == OpName("Sin"));
  CHECK(std::string(OpName("fifteen_letters").text) == "fifteen_letters");
  static_assert(OpName("a") == OpName("a") && !(OpName("a") == OpName("b")));  // valid template arguments
}

TEST_CASE("kernel_interface: the arguments that a kernel passes to a score function are plain data") {
  CHECK(std::is_trivially_copyable_v<ScoreTile>);
  CHECK(std::is_trivially_copyable_v<ScoreContext<float>>);
  CHECK(std::is_trivially_copyable_v<ScoreFunction<double>>);
  CHECK(kScoreUnit == doctest::Approx(1 / std::log(2.0)).epsilon(1e-15));
}

TEST_CASE("kernel_interface: queries are aligned with the end of the keys") {
  for (int64_t T = 0; T < 5; ++T)
    for (int64_t S = 0; S < 5; ++S) {
      int64_t keyless = 0, prefix = S;  // queries without a key, keys before those of the triangle
      for (int64_t i = 0; i < T; ++i) {
        int64_t seen = 0;
        for (int64_t j = 0; j < S; ++j) seen += T - i <= S - j ? 1 : 0;  // the distances from the ends
        CHECK(causal_end(query_position(i, T, S), S) == seen);
        keyless += seen == 0 ? 1 : 0;
        if (seen > 0 && seen - 1 < prefix) prefix = seen - 1;
      }
      if (T == 0 || S == 0) continue;
      CHECK(causal_sides(T, S).keyless == keyless);
      CHECK(causal_sides(T, S).prefix == prefix);
    }
  static_assert(causal_end(-2, 4) == 0 && causal_end(9, 4) == 4);
}
