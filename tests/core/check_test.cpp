// Errors: how a message shows its arguments, the module and the caller's line.
#include <heed/core/check.hpp>
#include <heed/core/members.hpp>
#include <heed/core/tensor.hpp>

#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::error_of;

namespace {

// An op as a user may write it, whose error names the line of the call.
void even(Index n, Where where = Where::current()) { check(n % 2 == 0, where, "even: n is ", n, "; it must be even"); }

}  // namespace

TEST_CASE("check: does nothing if the condition holds, else throws Error with the caller's line") {
  CHECK(error_of([] { even(2); }).empty());
  const unsigned line = Where::current().line() + 1;
  const std::string message = error_of([] { even(3); });
  CHECK(message == "even: n is 3; it must be even (check_test.cpp:" + std::to_string(line) + ")");
  CHECK_THROWS_AS(even(3), Error);
  CHECK_THROWS_AS(even(3), std::runtime_error);
}

TEST_CASE("check: require and fail name no line") {
  CHECK(error_of([] { require(true, "never"); }).empty());
  CHECK(error_of([] { require(false, "file: ", "x.h5", " has ", 3, " rows"); }) == "file: x.h5 has 3 rows");
  CHECK(error_of([] { fail("no such ", std::string("batch")); }) == "no such batch");
}

TEST_CASE("check: text of a file in a message is escaped and cut") {
  CHECK(error_of([] { fail("it is '", std::string("\x1B[2J\xFF\n"), "'"); }) == "it is '\\x1B[2J\\xFF\\n'");
  CHECK(error_of([] { fail("it is '", "\xFF", "'"); }) == "it is '\\xFF'");
  CHECK(std::string(Error("\x9B\u00e9").what()) == "\\x9B\u00e9");
  const std::string long_part(100000, 'x');
  CHECK(error_of([&] { fail("a ", long_part, " b"); }) == "a " + std::string(1000, 'x') + "... b");
  CHECK(error_of([&] { fail("a ", std::string_view(long_part), " b"); }).size() < 1100);
}

TEST_CASE("check: tensors show as shape and dtype, numbers as they are, NaN without a sign") {
  const Tensor x = Tensor::zeros({32, 128}), nothing;
  CHECK(error_of([&] { fail(x, ", ", x.shape(), ", ", DType::bool8); }) == "[32, 128] float32, [32, 128], bool8");
  CHECK(error_of([&] { fail("x is ", nothing); }) == "x is undefined");
  CHECK(error_of([] { fail(0.5, " ", -0.25f, " ", 7, " ", 'c'); }) == "0.5 -0.25 7 c");
  CHECK(error_of([] { fail(test::kNaN, " ", -test::kNaN, " ", -static_cast<float>(test::kNaN)); }) == "nan nan nan");
  CHECK(error_of([] { fail(-test::kInf); }) == "-inf");
}

TEST_CASE("check: the module of the first parameter is named before the line") {
  Parameter weight(Tensor::zeros({2})), other(Tensor::zeros({3})), top(Tensor::zeros({1}));
  weight.set_path("blocks.2.mlp.weight");
  other.set_path("blocks.3.norm.gain");
  top.set_path("scale");
  CHECK(error_of([&] { fail(weight, " and ", other); }) == "[2] float32 and [3] float32 (blocks.2.mlp)");
  CHECK(error_of([&] { fail(top, " is bad"); }) == "[1] float32 is bad (scale)");  // a parameter outside any module is
                                                                                   // shown by its own name
  const unsigned line = Where::current().line() + 1;
  const std::string message = error_of([&] { check(false, Where::current(), other, " is bad"); });
  CHECK(message == "[3] float32 is bad (blocks.3.norm, check_test.cpp:" + std::to_string(line) + ")");
}

RELEASE_TEST_CASE(
    "check: messages, shapes and tensors are the same text in every locale, and in streams that have one") {
  const Tensor x = Tensor::from({1234.5, -0.25, 1e7, 2}, {2, 2}), large = Tensor::zeros({1500, 2000});
  test::check_in_every_locale([&] {
    std::ostringstream out;  // of the program's locale
    out << x << ' ' << large.shape() << ' ' << Tensor::from<std::int32_t>({123456, 2});
    const std::string message = error_of([&] { fail(large, " ", 66.87, " ", 1234567, " ", 0.5f, " ", large.shape()); });
    return out.str() + message + to_string(large.shape()) + describe(large) +
           error_of([&] { Tensor::zeros({1500, 2}).view({1234, 5}); }) + detail::formatted("%.3f %d", 0.125, 12345);
  });
  CHECK(detail::formatted("%.2f", 66.87) == "66.87");
  CHECK(detail::formatted("%s|%5s", std::string(200, 'x').c_str(), "y") == std::string(200, 'x') + "|    y");
  CHECK(detail::formatted("%s", "").empty());
}
