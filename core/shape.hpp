// Shapes and strides: lists of up to eight sizes, stored without an allocation.
//
// Example:
//
//   const Shape heads = {2, 8, 16, 64};
//   std::cout << heads.without(1) << ' ' << heads[-1] << ' ' << heads.numel() << '\n';  // [2, 16, 64] 64 16384
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <string>
#include <type_traits>

namespace heed {

namespace detail {
// True for types that convert to an integer without loss of meaning: not for floating types and bool.
template <class N>
inline constexpr bool kWhole =
    std::is_convertible_v<N, Index> && !std::is_floating_point_v<N> && !std::is_same_v<N, bool>;
// Floating types and bool: C++ would convert a value to an axis, position or size.
template <class N>
concept NotWhole = std::is_arithmetic_v<N> && !kWhole<N>;
}  // namespace detail

// A function parameter of type T, int or Index (an axis, a position, a size), that accepts whole numbers only. C++
// would silently convert a floating number or a bool: x.dim(0.5) to x.dim(0), and x.slice(true, 0, 2) to a slice of
// axis 1. Neither compiles.
template <class T>
class Exactly {
 public:
  // A number outside the range of T becomes the nearest T.
  template <class N>
  requires(detail::kWhole<N>) constexpr Exactly(N n) : value_(limited(static_cast<Index>(n))) {}
  template <detail::NotWhole N>
  Exactly(N) = delete;  // must be a whole number

  constexpr operator T() const { return value_; }  // the number

 private:
  T value_;

  // The nearest T, so that an axis outside the range of every tensor stays outside.
  static constexpr T limited(Index n) {
    constexpr Index min = std::numeric_limits<T>::min(), max = std::numeric_limits<T>::max();
    return static_cast<T>(n < min ? min : n > max ? max : n);
  }
};
inline constexpr int kMaxRank = 8;  // axes of a tensor

// Up to kMaxRank sizes, or strides in elements. Indices may be negative: shape[-1] is the last axis. They are not
// checked.
class Shape {
 public:
  Shape() = default;
  // Throw Error for more than kMaxRank sizes.
  Shape(std::initializer_list<Exactly<Index>> sizes) { for (Index s : sizes) push_back(s); }
  template <class It> Shape(It first, It last) { for (; first != last; ++first) push_back(*first); }

  int rank() const { return rank_; }         // number of sizes
  bool empty() const { return rank_ == 0; }  // whether there are no sizes, as in the shape of a scalar
  // The product of the sizes; 1 without axes. Wraps around for sizes that no tensor has (detail::can_be_counted).
  Index numel() const {
    std::uint64_t n = 1;
    for (Index s : *this) n *= static_cast<std::uint64_t>(s);
    return static_cast<Index>(n);
  }

  // The size of an axis, and of the last axis. Axes are not checked.
  Index operator[](Exactly<int> axis) const { return sizes_[place_of(axis)]; }
  Index& operator[](Exactly<int> axis) { return sizes_[place_of(axis)]; }
  Index back() const { return (*this)[-1]; }

  // The range of the sizes, for loops and algorithms.
  const Index* begin() const { return sizes_.data(); }
  const Index* end() const { return sizes_.data() + rank_; }
  Index* begin() { return sizes_.data(); }
  Index* end() { return sizes_.data() + rank_; }

  void push_back(Exactly<Index> size);             // throws Error past kMaxRank
  // A copy with one size replaced.
  Shape with(Exactly<int> axis, Exactly<Index> size) const { Shape s = *this; s[axis] = size; return s; }
  Shape without(Exactly<int> axis) const;  // a copy without this axis
  // The first n sizes, and the last n sizes.
  Shape first(Exactly<int> n) const { return Shape(begin(), begin() + n); }
  Shape last(Exactly<int> n) const { return Shape(end() - n, end()); }

  // Whether ranks and sizes are equal.
  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::array<Index, kMaxRank> sizes_{};
  int rank_ = 0;

  std::size_t place_of(int axis) const { return static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis); }
};

// A stride per axis, in elements. 0 for an axis that repeats the same elements.
using Strides = Shape;

Shape operator+(Shape a, const Shape& b);           // concatenation: {2, 3} + {4} is {2, 3, 4}
Strides contiguous_strides(const Shape& shape);     // row-major, in elements
std::ostream& operator<<(std::ostream& out, const Shape& shape);  // [2, 3]
std::string to_string(const Shape& shape);                        // "[2, 3]"

// Sets `out` to the shape of a and b after NumPy's broadcasting. Returns false if a and b do not broadcast.
bool broadcast(const Shape& a, const Shape& b, Shape& out);

}  // namespace heed
