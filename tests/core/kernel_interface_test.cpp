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
