// Properties of all differentiable ops, tested for each row of op_cases.hpp and op_cases_fused.hpp. Also the float32
// errors of every op on every level, which must not exceed docs/accuracy.md. Above 400 lines: one place for the
// properties of all ops.
#include <algorithm>
#include <fstream>
#include <heed/core/kernels/elementwise/ops.hpp>
#include <iostream>
#include <map>
#include <sstream>

#include "benchmarks/accuracy_rows.hpp"
#include "tests/autograd/fused_support.hpp"
#include "tests/autograd/op_cases_fused.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// The result of f, with the same random numbers each time, and its gradients for a fixed dy.
Run run_of(const OpCase& c, const List& inputs) {
  manual_seed(5);
  Shape shape;
  {
    const NoTape guard;
    shape = c.f(inputs).shape();
  }
  manual_seed(5);
  return run(c.f, inputs, spread(shape, -1, 1, 11).to(inputs[0].dtype()));
}

List converted(const List& inputs, DType dtype) {
  List list;
  for (const Tensor& x : inputs) list.push_back(x.to(dtype));
  return list;
}

List flat(const Run& r) {
  List list = {r.y};
  list.insert(list.end(), r.gradients.begin(), r.gradients.end());
  return list;
}

// a - b| relative to the largest |b|, at least 1 (the magnitude of inputs). 1e300 if shapes differ, or only one tensor
// is undefined or finite.
double distance(const Tensor& a, const Tensor& b) {
  if (!a.defined() && !b.defined()) return 0;
  if (!a.defined() || !b.defined() || a.shape() != b.shape()) return 1e300;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double max_difference = 0, size = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(y[i])) size = std::max(size, std::fabs(y[i]));
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return 1e300;
    max_difference = std::max(max_difference, std::fabs(x[i] - y[i]));
  }
  return max_difference / size;
}

// The largest distance between float32 and float64, for the same inputs, which float32 represents.
double rounding(const OpCase& c, const List& inputs) {
  const List rounded = converted(inputs, DType::float32);
  const List rough = flat(run_of(c, rounded)), exact = flat(run_of(c, converted(rounded, DType::float64)));
  double max_difference = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    max_difference = std::max(max_difference, distance(rough[i], exact[i]));
  return max_difference;
}

void check_gradient(const OpCase& c, const List& inputs) {
  manual_seed(5);
  gradcheck(c.f, inputs);
}

// Whether the op accepts an axis of size n.
bool fits(const OpCase& c, Index n) {
  if (n == 0) return !(c.except & kNotEmpty);
  return n % 2 == 0 || !(c.except & kEven);
}

std::string head(const OpCase& c) { return c.except & kAnyName ? "" : c.name.substr(0, c.name.find(' ')) + ": "; }

// A tensor such that view_of(base, rank) has x's values with gaps or transposed axes.
Tensor base_of(const Tensor& x) {
  if (x.rank() >= 2) return x.transpose(0, -1).contiguous();
  Tensor base = Tensor::full(x.shape() + Shape{2}, 77, x.dtype());
  base.select(-1, 1).copy_(x);
  return base;
}
Tensor view_of(const Tensor& base, int rank) { return rank >= 2 ? base.transpose(0, -1) : base.select(-1, 1); }

}  // namespace

TEST_CASE("every op: gradcheck with axes of one, two, five and eight elements") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    for (const Index n : {1, 2, 5, 8})
      if (fits(c, n) && !(c.except & kRounds) && !(n == 1 && (c.except & kOneIsNan)))
        check_gradient(c, inputs_of(c, n));
  }
}

TEST_CASE("every op: float32 agrees with float64, forward and backward, around the widths of vectors, on each level") {
  on_each_level([] {
    for (const OpCase& c : op_cases()) {
      CAPTURE(c.name);
      for (const Index n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 16, 17, 18, 31, 32, 33, 64, 65}) {
        CAPTURE(n);
        if (fits(c, n)) CHECK(rounding(c, inputs_of(c, n)) <= 1e-5);
      }
    }
  });
}

// The bytes of a tensor, with one bit pattern for all NaNs, because ops do not guarantee which NaN results.
template <class T>
std::string bytes_of(const Tensor& x) {
  std::vector<T> numbers = x.to_vector<T>();
  for (T& v : numbers)
    if (std::isnan(v)) v = std::numeric_limits<T>::quiet_NaN();
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::vector<std::string> bytes_of(const List& list) {
  std::vector<std::string> all;
  for (const Tensor& x : list)
    all.push_back(!x.defined()                    ? ""
                  : x.dtype() == DType::float64 ? bytes_of<double>(x)
                                                : bytes_of<float>(x.to(DType::float32)));
  return all;
}

TEST_CASE("every op: the same bits forward and backward, in each floating type, on each level with fma") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    for (const Index n : {1, 2, 5, 8, 14, 16, 17, 33, 64, 90}) {
      if (!fits(c, n)) continue;
      CAPTURE(n);
      for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
        CAPTURE(dtype);
        const List inputs = converted(inputs_of(c, n), dtype);
        if (dtype == DType::bfloat16 && !error_of([&] { run_of(c, inputs); }).empty()) continue;  // refused
        std::vector<std::string> first;
        on_each_level([&] {
          if (!kernels::fuses(kernels::level())) return;
          const std::vector<std::string> bytes = bytes_of(flat(run_of(c, inputs)));
          if (first.empty()) first = bytes;
          CHECK_MESSAGE(bytes == first, c.name << " " << n << " " << name_of(dtype));
        });
      }
    }
  }
}

TEST_CASE("every op: a second backward adds to the gradients, around the widths of vectors, on each level") {
  on_each_level([] {
    for (const OpCase& c : op_cases()) {
      CAPTURE(c.name);
      for (const Index n : {2, 6, 8, 10, 16, 18, 34}) {
        for (const DType dtype : {DType::float32, DType::float64}) {
          std::vector<Parameter> parameters;
          for (const Tensor& x : inputs_of(c, n)) parameters.emplace_back(x.to(dtype));
          List once;
          for (const double times : {1, 2}) {
            Tape tape;
            manual_seed(5);
            const List inputs(parameters.begin(), parameters.end());
            const Tensor y = c.f(inputs);
            if (y.node() == 0) break;  // the derivative is 0
            tape.backward(y, spread(y.shape(), -1, 1, 11).to(dtype));
            for (std::size_t i = 0; i < parameters.size(); ++i) {
              if (times == 1)
                once.push_back(parameters[i].grad().clone());
              else
                CHECK(distance(parameters[i].grad(), once[i] * 2) <= (dtype == DType::float32 ? 1e-6 : 1e-14));
            }
          }
        }
      }
    }
  });
}

TEST_CASE("every op: empty tensors have empty gradients of their shapes, or are an Error that names the op") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    const List inputs = inputs_of(c, 0);
    if (!fits(c, 0)) {
      CHECK(contains(error_of([&] { run_of(c, inputs); }), head(c)));
      continue;
    }
    check_gradient(c, inputs);
    const Run r = run_of(c, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!r.gradients[i].defined()) continue;
      CHECK(r.gradients[i].shape() == inputs[i].shape());
    }
    CHECK(rounding(c, inputs) <= 1e-5);
  }
}

TEST_CASE("every op: rank 0, or an Error that names the op") {
  for (OpCase c : op_cases()) {
    CAPTURE(c.name);
    for (Shape& shape : c.shapes) shape = {};
    const List inputs = inputs_of(c, 1);
    if (c.except & kNoScalar) {
      CHECK(contains(error_of([&] { run_of(c, inputs); }), head(c)));
      continue;
    }
    if (!(c.except & (kRounds | kOneIsNan))) check_gradient(c, inputs);
    CHECK(rounding(c, inputs) <= 1e-5);
  }
}

TEST_CASE("every op: NaN and infinities spread in float32 as in float64, and NaN is not lost, on each level") {
  on_each_level([] {
    for (const OpCase& c : op_cases()) {
      CAPTURE(c.name);
      for (std::size_t k = 0; k < c.shapes.size(); ++k) {
        for (const double bad : {NAN, INFINITY, -INFINITY}) {
          for (const bool last : {false, true}) {
            List inputs = inputs_of(c, 10);
            inputs[k].ptr<double>()[last ? inputs[k].numel() - 1 : 0] = bad;
            CAPTURE(k);
            CAPTURE(bad);
            CAPTURE(last);
            if (!(c.except & kJumps)) CHECK(rounding(c, inputs) <= 1e-5);
            if (!std::isnan(bad) || (c.except & kHidesNan)) continue;
            bool seen = false;
            for (const double v : run_of(c, converted(inputs, DType::float32)).y.to_vector<double>())
              seen = seen || std::isnan(v);
            CHECK(seen);
          }
        }
      }
    }
  });
}

TEST_CASE("every op: strided inputs give the results of contiguous inputs") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    const List inputs = inputs_of(c, 6), expected = flat(run_of(c, inputs));
    List bases;
    for (const Tensor& x : inputs) bases.push_back(base_of(x));
    const auto views = [&](const List& x) {
      List list;
      for (std::size_t i = 0; i < x.size(); ++i)
        list.push_back(x[i].defined() ? view_of(x[i], inputs[i].rank()) : x[i]);
      return list;
    };
    Run r = run_of({c.name, {}, [&](const List& x) { return c.f(views(x)); }}, bases);
    r.gradients = views(r.gradients);
    const List got = flat(r);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(distance(got[i], expected[i]) <= 1e-13);
  }
}

TEST_CASE("every op: bfloat16 is computed in float32 and rounded once, forward, or is an Error that names it") {
  int taken = 0;
  for (const OpCase& c : op_cases()) {
    if (c.except & kAnyName) continue;
    CAPTURE(c.name);
    for (const Index n : {2, 6, 40, 700}) {
      const List half = converted(inputs_of(c, n), DType::bfloat16), wide = converted(half, DType::float32);
      const std::string error = error_of([&] { run_of(c, half); });
      if (!error.empty()) {
        CHECK(contains(error, head(c)));
        CHECK(contains(error, "bfloat16"));
        continue;
      }
      ++taken;
      const Run got = run_of(c, half), expected = run_of(c, wide);
      if (got.y.dtype() == DType::float32) continue;  // matrix products
      // If intermediate values are rounded, each to at most 2^-8, two such errors are added in a gradient.
      const bool dots = (c.except & kDots) != 0;
      CHECK((same_bits(got.y, expected.y.to(DType::bfloat16)) || (dots && distance(got.y, expected.y) <= 0x1p-7)));
      for (std::size_t i = 0; i < half.size(); ++i)
        CHECK(distance(got.gradients[i], expected.gradients[i]) <= (dots ? 3e-2 : 2e-2));
    }
  }
  CHECK(taken > 300);
}

TEST_CASE("every op: undefined inputs and other dtypes are an Error that names the op") {
  for (const OpCase& c : op_cases()) {
    if (c.except & kAnyName) continue;
    CAPTURE(c.name);
    const List inputs = inputs_of(c, 4);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(i);
      const auto error_with = [&](const Tensor& x) {
        List changed = inputs;
        changed[i] = x;
        const std::string error = error_of([&] { c.f(changed); });
        CHECK((error.empty() || contains(error, head(c))));
        return error;
      };
      if (i < c.optional) CHECK(contains(error_with({}), "undefined"));
      if (c.except & kAnyType && inputs.size() == 1) continue;
      for (const DType t : {DType::float32, DType::bfloat16, DType::int32, DType::bool8}) {
        CAPTURE(std::string(name_of(t)));
        if (inputs.size() == 1 && is_floating(t)) continue;
        CHECK(contains(error_with(inputs[i].to(t)), std::string(name_of(t))));
      }
    }
  }
}

namespace {

// The cells of a line of a Markdown table, without the surrounding spaces.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

// The documented errors of the value and the derivative, by "op, inputs" and by level.
std::map<std::string, std::map<std::string, bench::AccuracyErrors>> documented() {
  std::ifstream in(test::in_source("docs/accuracy.md"));
  std::map<std::string, std::map<std::string, bench::AccuracyErrors>> table;
  std::vector<std::string> header;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("|")) header.clear();
    if (!line.starts_with("| ")) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (header.empty()) {
      header = cells;
      continue;
    }
    for (std::size_t c = 2; c + 1 < header.size() - 1; c += 2)
      table[cells.at(0) + ", " + cells.at(1)][header[c]] = {std::stod(cells.at(c)), std::stod(cells.at(c + 1))};
  }
  return table;
}

}  // namespace

namespace {

template <class... R>
std::vector<std::string> names_of(kernels::names::Rows<R...>) {
  return {R::name.text...};
}

bool begins_with_word(const std::string& text, const std::string& word) {
  return text.rfind(word, 0) == 0 &&
         (text.size() == word.size() || text[word.size()] == ' ' || text[word.size()] == ',');
}

}  // namespace

TEST_CASE("every elementwise op has a row in the tables that tests use") {
  std::vector<std::string> ops = names_of(kernels::names::kUnaryOps);
  for (const std::string& name : names_of(kernels::names::kBinaryOps)) ops.push_back(name);
  CHECK(ops.size() > 30);
  const std::vector<OpCase> cases = elementwise_cases();
  const std::vector<bench::AccuracyRow> rows = bench::accuracy_rows();
  // Exact ops and copies: docs/accuracy.md leaves them out.
  const std::vector<std::string> exact = {"neg",     "abs",     "sign", "square", "clamp",
                                          "maximum", "minimum", "add",  "sub",    "mul"};
  for (const std::string& op : ops) {
    const bool has_case = std::ranges::any_of(cases, [&](const OpCase& c) { return begins_with_word(c.name, op); });
    CHECK_MESSAGE(has_case, op, " has no row in tests/autograd/op_cases.hpp");
    const bool has_row = std::ranges::any_of(rows, [&](const auto& r) { return begins_with_word(r.name, op); }) ||
                         std::ranges::count(exact, op) == 1 || op == "gelu_tanh";  // its row is «gelu, tanh form»
    CHECK_MESSAGE(has_row, op, " has no row in benchmarks/accuracy_rows.cpp");
  }
}

RELEASE_TEST_CASE("accuracy: no op is less exact than docs/accuracy.md states, on each level") {
  auto table = documented();
  const std::vector<bench::AccuracyRow> rows = bench::accuracy_rows(), of_bfloat16 = bench::bfloat16_accuracy_rows();
  std::vector<bench::AccuracyRow> all = rows;
  all.insert(all.end(), of_bfloat16.begin(), of_bfloat16.end());
  for (const bench::AccuracyRow& row : all)
    CHECK_MESSAGE(table.count(row.name + ", " + row.domain) == 1, "docs/accuracy.md lacks ", row.name,
                  "; add the line that bench_accuracy prints");
  CHECK(table.size() == all.size());
#if !defined(__x86_64__)
  std::cout << "docs/accuracy.md tells the errors of x86: not compared here\n";
  return;
#endif
  const auto compare = [&](const bench::AccuracyRow& row, double epsilon, bool is_bfloat16) {
    CAPTURE(row.name);
    REQUIRE(table.count(row.name + ", " + row.domain) == 1);
    const auto& levels = table[row.name + ", " + row.domain];
    const std::vector<Tensor> reference = bench::accuracy_reference(row);
    heed::test::on_each_level([&] {
      std::string level = kernels::name_of(kernels::level());
      if (level == "avx512_bf16" && !is_bfloat16) level = "avx512";  // the same kernels
      REQUIRE(levels.count(level) == 1);
      const bench::AccuracyErrors errors = bench::accuracy_errors(row, reference), published = levels.at(level);
      CHECK(errors.value / epsilon <= published.value + 0.006);  // the page has two digits
      CHECK(errors.derivative / epsilon <= published.derivative + 0.006);
    });
  };
  for (const bench::AccuracyRow& row : rows) compare(row, 1, false);
  for (const bench::AccuracyRow& row : of_bfloat16) compare(row, bench::kBfloat16, true);
}
