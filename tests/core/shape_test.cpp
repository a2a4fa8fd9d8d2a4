// Shapes: axes from either end, strides, and broadcasting.
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>
#include <limits>
#include <sstream>

#include "tests/support.hpp"

using namespace heed;

namespace {

// NumPy's rule: pads the shorter shape with ones in front. The result has -1 where sizes do not match.
std::vector<Index> broadcast_by_rule(const std::vector<Index>& a, const std::vector<Index>& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  std::vector<Index> all;
  for (std::size_t i = 0; i < rank; ++i) {
    const Index p = i + a.size() < rank ? 1 : a[i + a.size() - rank],
                q = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    all.push_back(p == q || q == 1 ? p : p == 1 ? q : -1);
  }
  return all;
}

Shape shape_of(const std::vector<Index>& x) { return Shape(x.begin(), x.end()); }

// Axes, indices and sizes are integers. Other types are not converted.
template <class A>
concept WholeOfAny = requires(const Tensor& x, A a) { x[a]; } || requires(const Tensor& x, A a) { x.dim(a); } ||
    requires(const Tensor& x, A a) { x.select(a, 0); } || requires(const Tensor& x, A a) { x.select(0, a); } ||
    requires(const Tensor& x, A a) { x.slice(a, 0, 1); } || requires(const Tensor& x, A a) { x.slice(0, a, 1); } ||
    requires(const Tensor& x, A a) { x.slice(0, 0, a); } || requires(const Tensor& x, A a) { x.slice(0, 0, 1, a); } ||
    requires(const Tensor& x, A a) { x.transpose(a, 1); } || requires(const Tensor& x, A a) { x.transpose(0, a); } ||
    requires(const Tensor& x, A a) { x.permute({a, 1}); } || requires(const Tensor& x, A a) { x.unsqueeze(a); } ||
    requires(const Tensor& x, A a) { x.squeeze(a); } || requires(const Tensor& x, A a) { x.flatten(a); } ||
    requires(const Tensor& x, A a) { x.flatten(0, a); } || requires(const Tensor& x, A a) { x.view({a}); } ||
    requires(const Tensor& x, A a) { x.reshape({a, 2}); } || requires(const Tensor& x, A a) { x.expand({a}); } ||
    requires(const Tensor& x, A a) { x.at({a}); } || requires(A a) { Tensor::zeros({2, a}); } ||
    requires(A a) { Tensor::arange(a); } || requires(const Shape& s, A a) { s[a]; } ||
    requires(const Shape& s, A a) { s.with(a, 1); } || requires(const Shape& s, A a) { s.with(0, a); } ||
    requires(const Shape& s, A a) { s.without(a); } || requires(const Shape& s, A a) { s.first(a); } ||
    requires(const Shape& s, A a) { s.last(a); } || requires(Shape& s, A a) { s.push_back(a); } ||
    requires(Rng& r, A a) { r.integer(a); } || requires(Rng& r, A a) { r.permutation(a); } ||
    requires(Rng& r, A a) { r.integers({2}, 0, a); } || requires(Rng& r, A a) { r.integers({2}, a, 4); };
static_assert(!WholeOfAny<double> && !WholeOfAny<float> && !WholeOfAny<bool>);
template <class A>
concept WholeOfAll = requires(const Tensor& x, const Shape& s, Shape& changed, Rng& r, A a) {
  x[a], x.dim(a), x.select(a, a), x.slice(a, a, a, a), x.transpose(a, a), x.permute({a, 1}), x.unsqueeze(a);
  x.squeeze(a), x.flatten(a, a), x.view({a}), x.reshape({a, 2}), x.expand({a}), x.at({a}), Tensor::zeros({2, a});
  Tensor::arange(a), s[a], s.with(a, a), s.without(a), s.first(a), s.last(a), changed.push_back(a), r.integer(a);
  r.permutation(a), r.integers({2}, a, a);
};
static_assert(WholeOfAll<int> && WholeOfAll<Index> && WholeOfAll<std::size_t>);

}  // namespace

TEST_CASE("shape: axes from either end, parts and products") {
  const Shape s = {2, 3, 4, 5};
  CHECK(s.rank() == 4);
  CHECK(!s.empty());
  CHECK(s.numel() == 120);
  for (int i = 0; i < 4; ++i) {
    CHECK(s[i] == 2 + i);
    CHECK(s[i - 4] == 2 + i);
  }
  CHECK(s.back() == 5);
  CHECK(s.with(1, 7) == Shape{2, 7, 4, 5});
  CHECK(s.with(-1, 7) == Shape{2, 3, 4, 7});
  CHECK(s == Shape{2, 3, 4, 5});  // with() returns a copy
  CHECK(s.without(0) == Shape{3, 4, 5});
  CHECK(s.without(-2) == Shape{2, 3, 5});
  CHECK(s.first(3) == Shape{2, 3, 4});
  CHECK(s.last(2) == Shape{4, 5});
  CHECK(s.first(0) + s.last(0) == Shape{});
  CHECK(s.first(1) + s.last(3) == s);
  CHECK(Shape{}.empty());
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{3, 0, 5}.numel() == 0);
  CHECK_FALSE((Shape{2, 3} == Shape{3, 2}));
  CHECK_FALSE((Shape{2, 3} == Shape{2, 3, 1}));
}

TEST_CASE("shape: row-major strides, by which each element has a place of its own") {
  for (const Shape& s : {Shape{2, 3, 4}, Shape{1, 5}, Shape{7}, Shape{2, 1, 3, 2}}) {
    const Strides strides = contiguous_strides(s);
    REQUIRE(strides.rank() == s.rank());
    std::vector<Index> at(static_cast<std::size_t>(s.rank()));  // advances like an odometer
    for (Index n = 0; n < s.numel(); ++n) {
      Index place = 0;
      for (int a = 0; a < s.rank(); ++a) place += at[static_cast<std::size_t>(a)] * strides[a];
      CHECK(place == n);
      for (int a = s.rank() - 1; a >= 0 && ++at[static_cast<std::size_t>(a)] == s[a]; --a)
        at[static_cast<std::size_t>(a)] = 0;
    }
  }
  CHECK(contiguous_strides({}) == Strides{});
}

TEST_CASE("shape: two shapes broadcast as in NumPy, in either order") {
  std::vector<std::vector<Index>> all = {{}};
  for (std::size_t begin = 0, rank = 0; rank < 3; ++rank) {
    const std::size_t end = all.size();
    for (std::size_t i = begin; i < end; ++i)
      for (const Index size : {0, 1, 2, 3}) {
        all.push_back(all[i]);
        all.back().push_back(size);
      }
    begin = end;
  }
  int wrong = 0, fit = 0;
  for (const auto& a : all)
    for (const auto& b : all) {
      const std::vector<Index> expected = broadcast_by_rule(a, b);
      const bool fits = std::find(expected.begin(), expected.end(), -1) == expected.end();
      Shape got;
      wrong += broadcast(shape_of(a), shape_of(b), got) != fits || (fits && got != shape_of(expected));
      fit += fits;
    }
  CHECK(all.size() == 85);
  CHECK(fit > 1000);
  CHECK(wrong == 0);
}

TEST_CASE("shape: shown in brackets, and a ninth axis is refused") {
  std::ostringstream out;
  out << Shape{2, 3} << Shape{} << Shape{7};
  CHECK(out.str() == "[2, 3][][7]");
  CHECK(to_string(Shape{1, 0, 12}) == "[1, 0, 12]");
  const Shape eight = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(eight.rank() == kMaxRank);
  const std::string message = "shape: a tensor has at most 8 axes";
  CHECK(test::error_of([&] { Shape(eight).push_back(9); }) == message);
  CHECK(test::error_of([&] { eight + Shape{1}; }) == message);
  CHECK(test::error_of([] { Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}; }) == message);
}

TEST_CASE("shape: an axis beyond int stays out of range") {
  const Exactly<int> far = Index{1} << 40, near = Index{-1};
  CHECK((far == std::numeric_limits<int>::max() && near == -1));
  CHECK(test::contains(test::error_of([] { Tensor::zeros({2}).dim(Index{1} << 32); }), "dim"));
}
