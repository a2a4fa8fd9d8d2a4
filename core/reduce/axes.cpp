// The axes of reductions, and the grouped layout of a tensor along them.
#include <algorithm>
#include <heed/core/reduce/reduce.hpp>

namespace heed {

void Axes::add(int axis) {
  require(count_ < kMaxRank, "axes: more than ", kMaxRank, " axes were given; a tensor has at most that many");
  axes_[count_++] = axis;
}

unsigned Axes::of(const char* op, In x) const {
  check(x->defined(), x.where(), op, ": x is undefined; it must have values");
  if (count_ == 0) return (1u << x.rank()) - 1u;
  const Tensor vector = x.rank() == 0 ? x->unsqueeze(0) : x.tensor();
  unsigned mask = 0;
  for (int i = 0; i < count_; ++i) {
    const unsigned bit = 1u << detail::axis_of(op, In(vector, x.where()), axes_[i]);
    check(!(mask & bit), x.where(), op, ": axis ", axes_[i], " of x, which is ", x.tensor(),
          ", is given twice; each axis may be given once");
    mask |= bit;
  }
  return mask;
}

namespace detail {

void check_float(const char* op, In x) {
  check(x->defined() && is_floating(x.dtype()), x.where(), op, ": x is ", x.tensor(), "; it must be floating");
}

namespace {

// A view of x whose axis i is axis order[i] of x.
Tensor permuted(const Tensor& x, const Shape& order) {
  Shape shape, strides;
  for (Index a : order) {
    shape.push_back(x.shape()[static_cast<int>(a)]);
    strides.push_back(x.strides()[static_cast<int>(a)]);
  }
  return x.as_strided(shape, strides, x.offset());
}

// The axes of x in their order in memory, the largest stride first.
Shape memory_order(const Tensor& x) {
  Shape order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i);
  if (x.is_contiguous()) return order;
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return x.strides()[static_cast<int>(a)] > x.strides()[static_cast<int>(b)];
  });
  return order;
}

}  // namespace

Groups::Groups(const Tensor& x, unsigned reduced)
    : order_(memory_order(x)), sizes_(x.shape()), reduced_(reduced), dtype_(x.dtype()) {
  if (permuted(x, order_).is_contiguous() && set_sizes()) return;
  std::sort(order_.begin(), order_.end());
  std::stable_partition(order_.begin(), order_.end(), [&](Index a) { return !(reduced >> a & 1u); });
  set_sizes();
}

// Returns false if the reduced axes are not next to each other.
bool Groups::set_sizes() {
  outer = n = inner = 1;
  bool seen = false, passed = false;
  for (Index a : order_) {
    const Index size = sizes_[static_cast<int>(a)];
    if (size == 1) continue;
    if (reduced_ >> a & 1u) {
      if (passed) return false;
      n *= size;
      seen = true;
    } else {
      (seen ? inner : outer) *= size;
      passed = seen;
    }
  }
  return true;
}

Tensor Groups::gather(const Tensor& x) const { return widened(permuted(x, order_)).dense(); }

Shape Groups::shape() const {
  Shape shape;
  for (Index a : order_) shape.push_back(sizes_[static_cast<int>(a)]);
  return shape;
}

Shape Groups::result_shape() const {
  Shape shape;
  for (Index a : order_)
    if (!(reduced_ >> a & 1u)) shape.push_back(sizes_[static_cast<int>(a)]);
  return shape;
}

Tensor Groups::to_result(const Tensor& y, bool keepdim) const {
  Shape place = sizes_, order, shape;  // place[a]: the axis of y for axis a of x
  Index next = 0;
  for (Index a : order_)
    if (!(reduced_ >> a & 1u)) place[static_cast<int>(a)] = next++;
  for (int a = 0; a < sizes_.rank(); ++a) {
    const bool kept = !(reduced_ >> a & 1u);
    if (kept) order.push_back(place[a]);
    if (kept || keepdim) shape.push_back(kept ? sizes_[a] : 1);
  }
  const Tensor result = permuted(y, order).dense().view(shape);
  return is_floating(y.dtype()) ? cast(result, dtype_) : result;
}

Tensor Groups::from_result(const Tensor& dy) const {
  Shape kept = sizes_;
  for (int a = 0; a < kept.rank(); ++a)
    if (reduced_ >> a & 1u) kept[a] = 1;
  return permuted(dy.dense().view(kept), order_).dense().view(result_shape());
}

Tensor Groups::to_input(const Tensor& dx) const {
  Shape inverse = order_;
  for (int i = 0; i < order_.rank(); ++i) inverse[static_cast<int>(order_[i])] = i;
  return permuted(dx.view(shape()), inverse);
}

bool Groups::in_order() const { return std::is_sorted(order_.begin(), order_.end()); }

}  // namespace detail
}  // namespace heed
