// Lists of names, and rows of tables by name.
#include <heed/core/names.hpp>

#include "tests/support.hpp"

using namespace heed;
using detail::joined, detail::names_of, detail::row_named;

namespace {
struct Row {
  const char* name;
  int value;
};
constexpr Row kRows[] = {{"one", 1}, {"two", 2}, {"three", 3}};
}  // namespace

TEST_CASE("names: lists") {
  CHECK(joined(kRows, &Row::name) == "one, two, three");
  CHECK(joined(std::vector<std::string>{"a", "b"}, {}, " or ") == "a or b");
  CHECK(joined(std::vector<std::string>{"a"}) == "a");
  CHECK(joined(std::vector<std::string>{}).empty());
  CHECK(names_of(kRows, &Row::name) == std::vector<std::string>{"one", "two", "three"});
}

TEST_CASE("names: the row with a name") {
  CHECK(row_named("two", "the number", kRows, &Row::name).value == 2);
  CHECK(test::error_of([] { row_named("tw", "count: the number", kRows, &Row::name); }) ==
        "count: the number is 'tw'; it must be one of one, two, three");
}
