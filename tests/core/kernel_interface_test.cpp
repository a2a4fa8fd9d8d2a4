// What kernels and the templates of public headers both know.
#include <heed/core/kernel_interface.hpp>
#include <type_traits>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("kernel_interface: names of ops are equal where their letters are, up to fifteen") {
  constexpr OpName sine = "sin";
  CHECK(sine == OpName("sin"));
  CHECK_FALSE(sine == OpName("sinh"));
  CHECK_FALSE(sine == OpName("si"));
  CHECK_FALSE(sine == OpName("Sin"));
  CHECK(std::string(OpName("fifteen_letters").text) == "fifteen_letters");
  static_assert(OpName("a") == OpName("a") && !(OpName("a") == OpName("b")));  // templates take them as arguments
}

TEST_CASE("kernel_interface: what a kernel passes to a function of scores is plain data") {
  CHECK(std::is_trivially_copyable_v<ScoreTile>);
  CHECK(std::is_trivially_copyable_v<ScoreContext<float>>);
  CHECK(std::is_trivially_copyable_v<ScoreFunction<double>>);
  CHECK(kScoreUnit == doctest::Approx(1 / std::log(2.0)).epsilon(1e-15));
}
