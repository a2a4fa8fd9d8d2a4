// Shapes: changing, joining, broadcasting and printing them.
#include <heed/core/names.hpp>
#include <heed/core/shape.hpp>
#include <ostream>

namespace heed {

void Shape::push_back(Exactly<Index> size) {
  require(rank_ < kMaxRank, "shape: a tensor has at most ", kMaxRank, " axes");
  sizes_[static_cast<std::size_t>(rank_++)] = size;
}

Shape Shape::without(Exactly<int> axis) const {
  Shape s;
  const int skip = axis < 0 ? axis + rank_ : int{axis};
  for (int i = 0; i < rank_; ++i)
    if (i != skip) s.push_back((*this)[i]);
  return s;
}

Shape operator+(Shape a, const Shape& b) {
  for (Index s : b) a.push_back(s);
  return a;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  Index step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << to_string(shape);
}

std::string to_string(const Shape& shape) {
  return "[" + detail::joined(shape, [](Index n) { return std::to_string(n); }) + "]";
}

bool broadcast(const Shape& a, const Shape& b, Shape& out) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  out = longer;
  for (int i = 1; i <= shorter.rank(); ++i) {
    const Index p = longer[-i], q = shorter[-i];
    if (p != q && p != 1 && q != 1) return false;
    out[-i] = p == 1 ? q : p;
  }
  return true;
}

}  // namespace heed
