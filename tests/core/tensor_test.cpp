// Tensors: creation, access, views, conversion, printing and errors. Above 400 lines: the members of one class.
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>
#include <limits>
#include <numeric>
#include <sstream>
#include <type_traits>
#include <utility>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::same_bits;

namespace {

using Values = std::vector<double>;

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

// The elements of a matrix, read one by one with at().
Values by_at(const Tensor& x) {
  REQUIRE(x.rank() == 2);
  Values v;
  for (Index i = 0; i < x.dim(0); ++i)
    for (Index j = 0; j < x.dim(1); ++j) v.push_back(x.at({i, j}));
  return v;
}

}  // namespace

TEST_CASE("tensor: created from values, from one value, and empty") {
  CHECK(Tensor::from({1, 2, 3}).dtype() == DType::float32);
  CHECK(Tensor::from<double>({1, 2, 3, 4}, {2, 2}).at({1, 0}) == 3);
  CHECK(Tensor::from<std::int32_t>({7, -8}).to_vector<int>() == std::vector<int>{7, -8});
  CHECK(Tensor::from(std::vector<double>{1, 2}, {2, 1}).dtype() == DType::float64);
  CHECK(Tensor::from(std::vector<float>{1, 2}).shape() == Shape{2});
  CHECK(Tensor::from(std::vector<bool>{true, false}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(Tensor::from<bool>({0, 1}).dtype() == DType::bool8);
  CHECK(Tensor::full({2}, 1.5, DType::bfloat16).to_vector<double>() == Values{1.5, 1.5});
  CHECK(Tensor::ones({2, 2}, DType::int32).to_vector<int>() == std::vector<int>{1, 1, 1, 1});
  for (const double edge : {-2147483648., 2147483647.}) {
    CHECK(Tensor::scalar(edge, DType::int32).item() == edge);
    const double beyond = edge * 1.5;
    CHECK(contains(error_of([&] { Tensor::full({1}, beyond, DType::int32); }), "int32 must hold it exactly"));
  }
  CHECK(Tensor::zeros({3}).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(Tensor::arange(4).to_vector<int>() == std::vector<int>{0, 1, 2, 3});
  CHECK(Tensor::arange(3, DType::float64).dtype() == DType::float64);
  CHECK(Tensor::scalar(2.5).rank() == 0);
  CHECK(Tensor::scalar(2.5).item<float>() == 2.5f);
  CHECK(Tensor::scalar(2.5).at({}) == 2.5);
  CHECK(Tensor::scalar(2.5).rows() == 1);
  CHECK(Tensor::zeros({0, 3}).numel() == 0);
  CHECK(Tensor::zeros({0, 3}).rows() == 0);
  CHECK(Tensor::zeros({0, 3}).to_vector<double>().empty());
  CHECK(Tensor::zeros({0, 3}).is_contiguous());
  CHECK(Tensor::zeros_like(Tensor::ones({2, 3}, DType::int32)).dtype() == DType::int32);
  CHECK(Tensor::zeros({2, 3, 4}).rows() == 6);
  CHECK(!Tensor().defined());
  CHECK(Tensor::zeros({1, 1, 1, 1, 1, 1, 1, 2}).dim(-1) == 2);
}

TEST_CASE("tensor: views show the same memory") {
  const Tensor x = Tensor::arange(12, DType::float64).view({3, 4});
  CHECK(by_at(x.t()) == Values{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(x[1].to_vector<double>() == Values{4, 5, 6, 7});
  CHECK(x[-1].to_vector<double>() == Values{8, 9, 10, 11});
  CHECK(x.select(1, 2).to_vector<double>() == Values{2, 6, 10});
  CHECK(x.slice(1, 1, -1).to_vector<double>() == Values{1, 2, 5, 6, 9, 10});
  CHECK(x.slice(1, 0, 4, 3).to_vector<double>() == Values{0, 3, 4, 7, 8, 11});
  CHECK(x.slice(0, -2, 100).to_vector<double>() == Values{4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(x.slice(0, 2, 1).shape() == Shape{0, 4});
  CHECK(x.slice(0, -100, 1).shape() == Shape{1, 4});
  CHECK(x.view({2, 1, 6}).permute({2, 0, 1}).shape() == Shape{6, 2, 1});
  CHECK(x.view({2, 2, 3}).permute({2, 0, 1}).dense().to_vector<double>() ==
        Values{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11});
  CHECK(x.unsqueeze(0).shape() == Shape{1, 3, 4});
  CHECK(x.unsqueeze(-1).shape() == Shape{3, 4, 1});
  CHECK(x.unsqueeze(1).squeeze(1).shares_storage(x));
  CHECK(x.unsqueeze(1).squeeze(-2).shape() == x.shape());
  CHECK(x[0].expand({2, 4}).to_vector<double>() == Values{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(x.slice(1, 0, 1).expand({2, 3, 2}).to_vector<double>() == Values{0, 0, 4, 4, 8, 8, 0, 0, 4, 4, 8, 8});
  CHECK(x.view({-1, 6}).shape() == Shape{2, 6});
  CHECK(x.view({12}).shares_storage(x));
  CHECK(x.slice(1, 0, 2).view({3, 2, 1}).shares_storage(x));
  const Tensor every_second = x.view({2, 6}).slice(1, 0, 6, 2);  // an axis of one element never prevents a view
  for (const int axis : {0, 1, 2})
    CHECK(every_second.unsqueeze(axis).view({6}).to_vector<double>() == Values{0, 2, 4, 6, 8, 10});
  CHECK(x.t().view({2, 2, 3}).at({1, 0, 2}) == x.t().at({2, 2}));
  CHECK(x.transpose(0, 1).transpose(0, 1).is_contiguous());
  CHECK(Tensor::scalar(3).view({1, 1}).shape() == Shape{1, 1});
  CHECK(Tensor::zeros({0, 4}).view({2, 0}).shape() == Shape{2, 0});
  Tensor y = x.clone();
  y.t()[1].fill_(-1);
  CHECK(y.to_vector<double>() == Values{0, -1, 2, 3, 4, -1, 6, 7, 8, -1, 10, 11});
  y.slice(0, 1, 2).copy_(Tensor::from({9, 8, 7, 6}, {1, 4}));
  CHECK(y[1].to_vector<double>() == Values{9, 8, 7, 6});
  CHECK(x[1].to_vector<double>() == Values{4, 5, 6, 7});
}

TEST_CASE("tensor: reshape copies only where strides need it") {
  const Tensor x = Tensor::arange(24).view({2, 3, 4});
  CHECK(x.reshape({6, 4}).shares_storage(x));
  CHECK(!x.t().reshape({6, 4}).shares_storage(x));
  CHECK(x.permute({1, 0, 2}).reshape({6, 4}).to_vector<int>() == x.permute({1, 0, 2}).dense().to_vector<int>());
  CHECK(x.flatten().shape() == Shape{24});
  CHECK(x.flatten(1).shape() == Shape{2, 12});
  CHECK(x.flatten(0, 1).shape() == Shape{6, 4});
  CHECK(Tensor::scalar(1).flatten().shape() == Shape{1});
  CHECK(x.contiguous().shares_storage(x));
  CHECK(x.t().contiguous().is_contiguous());
  // All permutations of a small shape, sliced, reshaped to each shape of the same size.
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    const Tensor p = x.permute(order).slice(1, 0, 2);
    const Values expected = p.dense().to_vector<double>();
    for (const Shape& shape :
         {Shape{-1}, Shape{2, -1}, Shape{-1, 2}, Shape{2, 2, -1}, Shape{1, -1, 1, 2}, Shape{4, -1}})
      CHECK(p.reshape(shape).dense().to_vector<double>() == expected);
  }
}

TEST_CASE("tensor: every dtype converts to every other, from and to any strides") {
  const Tensor x = Tensor::from<double>({0, 1, -2, 3, 250, -7}, {2, 3});
  const DType types[] = {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::bool8};
  for (const DType from : types) {
    for (const DType to : types) {
      CAPTURE(std::string(name_of(from)));
      CAPTURE(std::string(name_of(to)));
      const bool mask = from == DType::bool8 || to == DType::bool8;
      const Values expected = mask ? Values{0, 1, 1, 1, 1, 1} : Values{0, 1, -2, 3, 250, -7};
      const Tensor y = x.to(from).to(to);
      CHECK(y.dtype() == to);
      CHECK(y.to_vector<double>() == expected);
      CHECK(same_bits(x.to(from).t().to(to).t(), y));
      Tensor z = Tensor::empty({3, 2}, to).t();
      z.copy_(x.to(from));
      CHECK(same_bits(z, y));
    }
  }
  const Tensor odd = Tensor::from<double>({NAN, INFINITY, -INFINITY, 0.5, 1e300});
  CHECK(odd.to(DType::bool8).to_vector<double>() == Values{1, 1, 1, 1, 1});
  const Values narrow = odd.to(DType::float32).to_vector<double>();
  CHECK(std::isnan(narrow[0]));
  CHECK(narrow[1] == INFINITY);
  CHECK(narrow[4] == INFINITY);
  const Values ints{0, 2147483647, -2147483648.0, 0, 2147483647};  // the same on every machine
  CHECK(odd.to(DType::int32).to_vector<double>() == ints);
  CHECK(odd.to(DType::float32).to(DType::int32).to_vector<double>() == ints);
  CHECK(odd.to(DType::bfloat16).to(DType::int32).to_vector<double>() == ints);
  const Tensor edges =
      Tensor::from<double>({2147483647, 2147483647.5, 2147483648.0, -2147483648.9, -2147483649.0, -0.9});
  CHECK(edges.to(DType::int32).to_vector<double>() ==
        Values{2147483647, 2147483647, 2147483647, -2147483648.0, -2147483648.0, 0});
  const Values half = odd.to(DType::bfloat16).to_vector<double>();
  CHECK(std::isnan(half[0]));
  CHECK(half[2] == -INFINITY);
  CHECK(half[3] == 0.5);
}

TEST_CASE("tensor: writing raises the version, reading and viewing do not") {
  Tensor x = Tensor::zeros({2, 2});
  const std::uint64_t start = x.version();
  x.data<float>();
  x.t();
  x.to_vector<float>();
  CHECK(x.version() == start);
  x.mutable_data<float>()[0] = 1;
  CHECK(x.version() == start + 1);
  x[1].fill_(2);
  CHECK(x.version() > start + 1);
  const std::uint64_t before = x.version();
  x.copy_(Tensor::ones({2, 2}, DType::float64));
  CHECK(x.version() > before);
  CHECK(x.detach().shares_storage(x));
  CHECK(!x.clone().shares_storage(x));
}

TEST_CASE("tensor: of_memory() keeps foreign memory until its last tensor is gone, and a Parameter copies it") {
  auto memory = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6});
  const std::weak_ptr<std::vector<float>> seen = memory;
  Tensor x = Tensor::of_memory(memory->data(), memory, {2, 2}, DType::float32);
  Tensor y = Tensor::of_memory(memory->data() + 4, memory, {2}, DType::float32);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4});
  CHECK(y.to_vector<float>() == std::vector<float>{5, 6});
  CHECK_FALSE(x.shares_storage(y));
  const std::uint64_t version = y.version();
  x.fill_(9);
  CHECK(memory->at(3) == 9);
  CHECK(y.version() == version);
  const Parameter p(std::move(y));
  CHECK(p.raw() != memory->data() + 4);
  CHECK(p.to_vector<float>() == std::vector<float>{5, 6});
  const Tensor row = x[1];
  memory.reset();
  x = {};
  y = {};
  CHECK_FALSE(seen.expired());
  CHECK(row.to_vector<float>() == std::vector<float>{9, 9});
}

TEST_CASE("tensor: printed as nested lists, aligned, shortened where long") {
  CHECK(printed(Tensor::from({1, -2, 3.5, 4}, {2, 2})) == "[[ 1.0000, -2.0000],\n [ 3.5000,  4.0000]]  [2, 2] float32");
  CHECK(printed(Tensor::from({1, -2, 3, 4})) == "[ 1., -2.,  3.,  4.]  [4] float32");
  CHECK(printed(Tensor::from<std::int32_t>({1, 200, 3})) == "[  1, 200,   3]  [3] int32");
  CHECK(printed(Tensor::from<bool>({1, 0})) == "[ true, false]  [2] bool8");
  CHECK(printed(Tensor::scalar(2.5, DType::bfloat16)) == "2.5000  [] bfloat16");
  CHECK(printed(Tensor::from({1, NAN, INFINITY, -INFINITY})) == "[  1.,  nan,  inf, -inf]  [4] float32");
  CHECK(printed(Tensor::from<double>({1e-9, 1}, {2})) == "[1.0000e-09, 1.0000e+00]  [2] float64");
  CHECK(printed(Tensor::from({1e10})) == "[1.0000e+10]  [1] float32");
  CHECK(printed(Tensor::zeros({2, 0})) == "[[],\n []]  [2, 0] float32");
  CHECK(printed(Tensor::zeros({0})) == "[]  [0] float32");
  CHECK(printed(Tensor()) == "undefined tensor");
  CHECK(printed(Tensor::arange(2000)) == "[   0,    1,    2, ..., 1997, 1998, 1999]  [2000] int32");
  CHECK(printed(Tensor::zeros({2, 2, 1})) == "[[[0.],\n  [0.]],\n\n [[0.],\n  [0.]]]  [2, 2, 1] float32");
  CHECK(contains(printed(Tensor::zeros({40, 50})), "...,"));
  CHECK(describe(Tensor()) == "undefined");
  CHECK(describe(Tensor::zeros({2}, DType::bool8)) == "[2] bool8");
}

TEST_CASE("tensor: errors have messages that show the input") {
  const Tensor x = Tensor::zeros({2, 3}), none;
  Tensor undefined, y = x.clone();
  test::check_errors({
      {"tensor: shape is [2, -1]; every size must be 0 or more",
       [] {
         Tensor::zeros({2, -1});
       }},
      {"it has more elements than memory can hold",
       [] {
         Tensor::empty({Index{1} << 40, Index{1} << 40});
       }},
      {"it has more elements than memory can hold", [] { Tensor::empty({Index{1} << 62}, DType::float64); }},
      {"tensor: 3 values were given for shape [2, 2]; it needs 4",
       [] {
         Tensor::from({1, 2, 3}, {2, 2});
       }},
      {"shape: a tensor has at most 8 axes",
       [] {
         Tensor::zeros({1, 1, 1, 1, 1, 1, 1, 1, 1});
       }},
      {"shape: a tensor has at most 8 axes",
       [] {
         Tensor::zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0);
       }},
      {"dim: axis is 2 but x is [2, 3] float32; it must be in [-2, 2)", [&] { x.dim(2); }},
      {"data: the tensor is undefined; it must have values", [&] { none.data<float>(); }},
      {"data: x is [2, 3] float32 but data<T>() was called with T of int32; they must match",
       [&] { x.data<std::int32_t>(); }},
      {"data: x is [3, 2] float32 with strides [1, 3]; data() requires a contiguous tensor: call contiguous() first",
       [&] { x.t().data<float>(); }},
      {"item: the tensor is undefined; it must have one element", [&] { none.item(); }},
      {"item: x is [2, 3] float32; it must have one element", [&] { x.item(); }},
      {"item: x is [0] float32; it must have one element", [] { Tensor::zeros({0}).item(); }},
      {"at: the tensor is undefined; it must have values", [&] { none.at({}); }},
      {"at: 1 indices were given but x is [2, 3] float32; give one index per axis", [&] { x.at({1}); }},
      {"at: the index of axis 1 is 3 but x is [2, 3] float32; it must be in [-3, 3)",
       [&] {
         x.at({0, 3});
       }},
      {"at: the index of axis 0 is -3 but x is [2, 3] float32; it must be in [-2, 2)",
       [&] {
         x.at({-3, 0});
       }},
      {"full: the tensor is [1] int32 and the number is 2.5; int32 must hold it exactly",
       [] { Tensor::full({1}, 2.5, DType::int32); }},
      {"full: the tensor is [] bool8 and the number is 2; bool8", [] { Tensor::scalar(2, DType::bool8); }},
      {"fill_: the tensor is [2] int32 and the number is nan; int32", [] { Tensor::arange(2).fill_(NAN); }},
      {"fill_: the tensor is undefined", [&] { undefined.fill_(1); }},
      {"copy_: from is undefined and x is [2, 3] float32; both must have values", [&] { y.copy_(none); }},
      {"copy_: from is [2, 3] float32 and x is undefined; both must have values", [&] { undefined.copy_(x); }},
      {"copy_: from is [3, 2] float32 but x is [2, 3] float32; the shapes must be the same", [&] { y.copy_(x.t()); }},
      {"select: axis is -3 but x is [2, 3] float32; it must be in [-2, 2)", [&] { x.select(-3, 0); }},
      {"select: the index of axis 0 is 2 but x is [2, 3] float32; it must be in [-2, 2)", [&] { x[2]; }},
      {"select: axis is 0 but x is [] float32; it must be in [0, 0)", [] { Tensor::scalar(1)[0]; }},
      {"slice: axis is 2 but x is [2, 3] float32; it must be in [-2, 2)", [&] { x.slice(2, 0, 1); }},
      {"slice: step is 0; it must be 1 or more", [&] { x.slice(0, 0, 1, 0); }},
      {"transpose: axis is 2 but x is [2, 3] float32; it must be in [-2, 2)", [&] { x.transpose(0, 2); }},
      {"transpose: axis is -2 but x is [4] float32; it must be in [-1, 1)", [] { Tensor::zeros({4}).t(); }},
      {"permute: 1 axes were given but x is [2, 3] float32; each axis must be given once", [&] { x.permute({1}); }},
      {"permute: axis -1 is given twice; each axis must be given once",
       [&] {
         x.permute({1, -1});
       }},
      {"permute: axis is 5 but x is [2, 3] float32; it must be in [-2, 2)",
       [&] {
         x.permute({0, 5});
       }},
      {"unsqueeze: axis is 3 but x is [2, 3] float32; it must be in [-3, 3)", [&] { x.unsqueeze(3); }},
      {"squeeze: axis 1 of x, which is [2, 3] float32, has size 3; it must be 1", [&] { x.squeeze(1); }},
      {"expand: x is [2, 3] float32 and shape is [2, 4]; x must broadcast to it",
       [&] {
         x.expand({2, 4});
       }},
      {"expand: x is [2, 3] float32 and shape is [3]; x must broadcast to it", [&] { x.expand({3}); }},
      {"expand: shape is [-5]; every size must be 0 or more", [] { Tensor::zeros({1}).expand({-5}); }},
      {"view: shape is [-2, -3]; every size must be 0 or more, except one that may be -1",
       [&] {
         x.view({-2, -3});
       }},
      {"view: shape is [-1, -1]; only one size may be -1",
       [&] {
         x.view({-1, -1});
       }},
      {"view: x is [2, 3] float32 with 6 elements and shape is [4]; the number of elements must be the same",
       [&] { x.view({4}); }},
      {"view: x is [2, 3] float32 with 6 elements and shape is [4, -1]; the number",
       [&] {
         x.view({4, -1});
       }},
      {"view: x is [0] float32 and shape is [0, -1]; with a size of 0, -1 is ambiguous: give the size",
       [] {
         Tensor::zeros({0}).view({0, -1});
       }},
      {"view: x is [3, 2] float32 with strides [1, 3] and shape is [6]; the strides do not allow a view: use reshape()",
       [&] { x.t().view({6}); }},
      {"reshape: x is [2, 3] float32 with 6 elements and shape is [5]", [&] { x.reshape({5}); }},
      {"flatten: axes 1 to 0; the first must not be after the last", [&] { x.flatten(1, 0); }},
      {"flatten: axis is 2 but x is [2, 3] float32; it must be in [-2, 2)", [&] { x.flatten(2); }},
      {"clone: the tensor is undefined", [&] { none.clone(); }},
      {"to: the tensor is undefined", [&] { none.to(DType::float64); }},
      {"to: the tensor is undefined", [&] { none.to_vector<double>(); }},
      {"tensor: the value 2147483648 does not fit int32, the dtype of integers in tensors; it must be in "
       "[-2147483648, 2147483647]",
       [] {
         Tensor::from(std::vector<long>{0, 2147483648});
       }},
      {"tensor: the value -2147483649 does not fit",
       [] {
         Tensor::from(std::vector<Index>{-2147483649}, {1, 1});
       }},
      {"tensor: 2 values were given for shape [3]; it needs 3",
       [] {
         Tensor::from(std::vector<long>{1, 2}, {3});
       }},
      {"Parameter: the value is undefined; it must have values", [&] { Parameter p(none); }},
      {"Parameter: the value is [2] int32; it must be float32, float64, bfloat16 or quantized",
       [] { Parameter(Tensor::arange(2)); }},
      {"Parameter: it is undefined (moved from, or default-constructed)", [] { Parameter().grad(); }},
  });
}

TEST_CASE("tensor: 64-bit integers become int32, and convert back") {
  const std::vector<long> longs = {-2147483648, -1, 0, 7, 2147483647};
  const std::vector<long long> same(longs.begin(), longs.end());
  for (const Tensor& x :
       {Tensor::from(longs), Tensor::from(same), Tensor::from(longs, {5, 1}), Tensor::from(same, {1, 5})}) {
    CHECK(x.dtype() == DType::int32);
    CHECK(x.to_vector<long>() == longs);
    CHECK(x.to_vector<long long>() == same);
  }
  CHECK(Tensor::from<Index>({3, -4}).dtype() == DType::int32);
  CHECK(Tensor::from({2, -3}).to_vector<Index>() == std::vector<Index>{2, -3});
  CHECK(Tensor::from(std::vector<long>()).shape() == Shape{0});
}

namespace {

// What the compiler of the tests prints about functions with these bodies, with -Wall -Werror, but without sanitizers,
// which hide the warning. Body i is at line 100 (i + 1) of "body".
std::string messages_about(const std::vector<std::string>& bodies) {
  std::string source = "#include <heed/autograd/elementwise.hpp>\nusing namespace heed;\n";
  for (std::size_t i = 0; i < bodies.size(); ++i)
    source += "Tensor f" + std::to_string(i) + "(In x) {\n#line " + std::to_string(100 * (i + 1)) + " \"body\"\n" +
              bodies[i] + "\n}\n";
  const test::TemporaryFolder folder;
  const std::string file = folder.write("bodies.cpp", source).string();
  const test::Ran ran = test::run("exec " + test::quoted(test::compiler()) + " -std=c++20 -Wall -Werror -O1 -I " +
                                  test::quoted(test::in_build("include")) + " -S -o /dev/null " + test::quoted(file));
  CHECK(ran.exit_code == 1);
  return ran.output;
}

}  // namespace

// Assignments such as x[0] = y or p.grad() = y would set a temporary handle, so they do not compile. Named handles can
// be assigned.
static_assert(!std::is_assignable_v<Tensor, Tensor> && !std::is_assignable_v<Tensor, const Tensor&>);
static_assert(!std::is_assignable_v<decltype(std::declval<Tensor&>()[0]), Tensor>);
static_assert(!std::is_assignable_v<decltype(std::declval<Parameter&>().grad()), Tensor>);
static_assert(std::is_assignable_v<Tensor&, Tensor> && std::is_assignable_v<Tensor&, const Tensor&>);
static_assert(std::is_nothrow_move_constructible_v<Tensor> && std::is_nothrow_move_assignable_v<Tensor>);

RELEASE_TEST_CASE("In: a variable that refers to a result which is gone does not compile with -Wall -Werror") {
  const std::vector<std::string> bodies = {"In h = relu(x); return relu(h);",
                                           "In h = relu(x); return relu(h + 1.0);",
                                           "In h(relu(x)); return h;",
                                           "const In h = x.tensor()[0]; return h->clone();",
                                           "Tensor h = relu(x); return relu(h);",
                                           "Tensor h = relu(x); In again = h; return relu(again);",
                                           "return relu(relu(x) + x);",
                                           "In again = x; return relu(In(again, x.where()));"};
  const std::string messages = messages_about(bodies);
  INFO(messages);
  CHECK(contains(messages, "angling"));
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    INFO(bodies[i]);
    CHECK(contains(messages, "body:" + std::to_string(100 * (i + 1)) + ":") == (i < 4));  // the first four refer
  }
}
