// Shapes and strides: short lists of sizes, kept inline.
//
// Example:
//
//   const Shape heads = {2, 8, 16, 64};
//   std::cout << heads.without(1) << ' ' << heads[-1] << ' ' << heads.numel() << '\n';  // [2, 16, 64] 64 16384
#pragma once
#include <array>
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <initializer_list>
#include <iosfwd>
#include <string>

namespace heed {

inline constexpr int kMaxRank = 8;

// Up to kMaxRank sizes (or strides, in elements). Indices may be negative: shape[-1] is the last axis.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Index> sizes) { for (Index s : sizes) push_back(s); }
  template <class It> Shape(It first, It last) { for (; first != last; ++first) push_back(*first); }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  // Wraps around for sizes that no tensor has (detail::can_be_counted).
  Index numel() const {
    std::uint64_t n = 1;
    for (Index s : *this) n *= static_cast<std::uint64_t>(s);
    return static_cast<Index>(n);
  }

  Index operator[](int axis) const { return sizes_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)]; }
  Index& operator[](int axis) { return sizes_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)]; }
  Index back() const { return (*this)[-1]; }

  const Index* begin() const { return sizes_.data(); }
  const Index* end() const { return sizes_.data() + rank_; }
  Index* begin() { return sizes_.data(); }
  Index* end() { return sizes_.data() + rank_; }

  void push_back(Index size);                      // throws Error past kMaxRank
  Shape with(int axis, Index size) const { Shape s = *this; s[axis] = size; return s; }
  Shape without(int axis) const;                   // one axis dropped
  Shape first(int n) const { return Shape(begin(), begin() + n); }
  Shape last(int n) const { return Shape(end() - n, end()); }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<Index, kMaxRank> sizes_{};
  int rank_ = 0;
};

using Strides = Shape;

Shape operator+(Shape a, const Shape& b);           // concatenation: {2, 3} + {4} is {2, 3, 4}
Strides contiguous_strides(const Shape& shape);     // row-major
std::ostream& operator<<(std::ostream& out, const Shape& shape);  // [2, 3]
std::string to_string(const Shape& shape);

// The shape that NumPy's broadcasting gives; false if the two do not fit.
bool broadcast(const Shape& a, const Shape& b, Shape& out);

}  // namespace heed
