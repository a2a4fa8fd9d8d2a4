// tests/tools/function_sizes.py: few functions of the library are longer than 40 lines or have 8 or more parameters.
#include <algorithm>

#include "tests/data/temporary_folder.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed::test;

namespace {

// The functions of the library above each limit. These numbers may only be lowered.
constexpr int kMaxLong = 8;
constexpr int kMaxWide = 3;

Ran run_function_sizes(const std::string& python, const std::string& files) {
  return run("exec " + python + " " + quoted(in_source("tests/tools/function_sizes.py")) + " " + files);
}

// The total at the start of the line that ends with this text; -1 if no line does.
int total(const std::string& output, const std::string& end) {
  const std::size_t at = output.find(end + "\n");
  if (at == std::string::npos) return -1;
  const std::size_t line = output.rfind('\n', at) + 1;  // npos + 1 is 0
  return std::stoi(output.substr(line));
}

std::string statements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "  use(" + std::to_string(i) + ");  // {\n\n  // a comment\n";
  return text;
}

// LONG is replaced by 39 statements on lines of their own, SHORT by 38.
const char* const kExample = R"(// An example.
namespace heed {
namespace {

HEED_KERNEL_TABLE(Table, table)
using Eight = void (*)(int, int, int, int, int, int, int, int);
struct Pointers {
  void (*eight)(int, int, int, int, int, int, int, int) = nullptr;
  std::function<void(int, int, int, int, int, int, int, int)> other = {};
  int values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
};

int short_enough(int x) {
SHORT}

template <class T, class U = std::pair<int, int>>
  requires(sizeof(T) > 4)
int with_lambda(int x,
                const std::map<std::pair<int, int>, T>& y = std::map<std::pair<int, int>, T>(), int z = (1, 2)) {
SHORT  return [&](int a) { return a < x; }(1); }

}  // namespace

class Box : public Base<int, int> {
 public:
  Box(int a, std::pair<int, int> b, int c = 3, int d = f(4, 5), std::array<int, 2> e = {6, 7}, int g = 1'000, int h = 0,
      char i = ',')
      : Base<int, int>{a, c}, b_(b), d_{d} {
    LONG  }
  ~Box() noexcept(false) {}
  bool operator()(int a, int b) const { return a < b; }
  bool operator<(const Box&) const = default;
  operator bool() const { return true; }
  template <class... T>
  static int seven(const T&... all, int b, int c, std::map<int, std::pair<int, int>> d, int e, int f, bool g = 1 < 2);
  int declared(int a, int b, int c, int d, int e, int f, int g, int h = 0) const;

 private:
  std::pair<int, int> b_;
  int d_ = {};
};

int declared(int, int, int, int, int, int, int, int);
int declared(int, int, int, int, int, int, int, float);
int Box::declared(int a, int b, int c, int d, int e, int f, int g, int h) const {
  const char* text = R"x(}
{)x";
  return 1;
}
int declared(int a, int b, int c, int d, int e, int f, int g, int h) { return 0; }

namespace detail {
auto last(int x) noexcept -> std::vector<std::pair<int, int>> try {
#if EXAMPLE
SHORT#endif
} catch (...) {
  throw;
}
}  // namespace detail
}  // namespace heed
)";

}  // namespace

TEST_CASE("function sizes: few functions are long or have many parameters") {
  const std::string python = python_with("argparse, pathlib");
  if (python.empty()) return;
  const Ran ran = run_function_sizes(python, "");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  const int long_ones = total(ran.output, "functions are longer than 40 lines");
  const int wide_ones = total(ran.output, "functions have 8 or more parameters");
  CHECK(long_ones >= 0);
  CHECK(long_ones <= kMaxLong);
  CHECK(wide_ones >= 0);
  CHECK(wide_ones <= kMaxWide);
}

TEST_CASE("function sizes: the script reads an example") {
  const std::string python = python_with("argparse, pathlib");
  if (python.empty()) return;
  std::string text = kExample;
  for (const auto& [name, count] : {std::pair("LONG", 39), std::pair("SHORT", 38)})
    for (std::size_t at; (at = text.find(name)) != std::string::npos;)
      text.replace(at, std::string(name).size(), statements(count));
  const TemporaryFolder folder;
  const std::string file = folder.write("example.hpp", text).string();
  const auto line_of = [&](const std::string& part) {
    return std::to_string(1 +
                          std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(part)), '\n'));
  };
  const Ran ran = run_function_sizes(python, quoted(file));
  const std::string at = file + ":";
  CHECK(ran.output == at + line_of("  requires(") + ": with_lambda: 42 lines\n" + at + line_of("  Box(int a") +
                          ": Box::Box: 43 lines\n" + at + line_of("auto last") + ": detail::last: 44 lines\n" + at +
                          line_of("  Box(int a") + ": Box::Box: 8 parameters\n" + at +
                          line_of("int declared(int, int, int, int, int, int, int, float)") +
                          ": declared: 8 parameters\n" + at + line_of("int Box::declared") +
                          ": Box::declared: 8 parameters\n" + at +
                          line_of("int declared(int a, int b, int c, int d, int e, int f, int g, int h) {") +
                          ": declared: 8 parameters\n" +
                          "3 of 12 functions are longer than 40 lines\n4 of 12 functions have 8 or more parameters\n");
  const Ran broken = run_function_sizes(python, quoted(folder.write("broken.hpp", "void f() {\n").string()));
  CHECK(broken.exit_code == 1);
  CHECK(broken.output.find("line 1: '{' has no matching bracket") != std::string::npos);
}
