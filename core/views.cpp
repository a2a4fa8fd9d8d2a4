// Views: the same storage with another offset, shape and strides. Only reshape and flatten copy, if no strides describe
// the result.
#include <algorithm>
#include <heed/core/index.hpp>
#include <heed/core/tensor.hpp>

namespace heed {

// The axis counted from 0, of a tensor with `extra` more axes than x. Throws Error if it is out of range.
static int axis_of(const Tensor& x, int axis, const char* op, int extra = 0, const Where* where = nullptr) {
  const int rank = x.rank() + extra;
  if (axis < -rank || axis >= rank)
    detail::fail_at(where, op, ": axis is ", axis, " but x is ", x, "; it must be in [", -rank, ", ", rank, ")");
  return axis < 0 ? axis + rank : axis;
}

int detail::axis_of(const char* op, In x, int axis) { return heed::axis_of(x, axis, op, 0, &x.where()); }

Index Tensor::dim(Exactly<int> axis) const { return shape_[axis_of(*this, axis, "dim")]; }

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, Index offset) const {
  Tensor y = *this;
  y.shape_ = shape;
  y.strides_ = strides;
  y.offset_ = offset;
  return y;
}

Tensor Tensor::select(Exactly<int> axis, Exactly<Index> i) const {
  const int a = axis_of(*this, axis, "select");
  const Index n = shape_[a];
  require(i >= -n && i < n, "select: the index of axis ", axis, " is ", i, " but x is ", *this, "; it must be in [", -n,
          ", ", n, ")");
  return as_strided(shape_.without(a), strides_.without(a), offset_ + (i < 0 ? i + n : Index{i}) * strides_[a]);
}

Tensor Tensor::slice(Exactly<int> axis, Exactly<Index> begin, Exactly<Index> end, Exactly<Index> step) const {
  const int a = axis_of(*this, axis, "slice");
  require(step > 0, "slice: step is ", step, "; it must be 1 or more");
  const Index n = shape_[a];
  const auto clamp = [n](Index i) { return std::clamp<Index>(i < 0 ? i + n : i, 0, n); };
  const Index from = clamp(begin), to = std::max(from, clamp(end));
  const Index size = from == to ? 0 : (to - from - 1) / step + 1;
  return as_strided(shape_.with(a, size), strides_.with(a, size > 1 ? strides_[a] * step : strides_[a]),
                    offset_ + from * strides_[a]);
}

Tensor Tensor::transpose(Exactly<int> a, Exactly<int> b) const {
  const int p = axis_of(*this, a, "transpose"), q = axis_of(*this, b, "transpose");
  return as_strided(shape_.with(p, shape_[q]).with(q, shape_[p]), strides_.with(p, strides_[q]).with(q, strides_[p]),
                    offset_);
}

Tensor Tensor::permute(const std::vector<int>& axes) const {
  require(static_cast<int>(axes.size()) == rank(), "permute: ", axes.size(), " axes were given but x is ", *this,
          "; each axis must be given once");
  Shape shape, strides;
  unsigned seen = 0;
  for (int axis : axes) {
    const int a = axis_of(*this, axis, "permute");
    require(!(seen >> a & 1u), "permute: axis ", axis, " is given twice; each axis must be given once");
    seen |= 1u << a;
    shape.push_back(shape_[a]);
    strides.push_back(strides_[a]);
  }
  return as_strided(shape, strides, offset_);
}

Tensor Tensor::unsqueeze(Exactly<int> axis) const {
  const int a = axis_of(*this, axis, "unsqueeze", 1);
  const Shape one = {1};
  return as_strided(shape_.first(a) + one + shape_.last(rank() - a),
                    strides_.first(a) + Shape{a < rank() ? shape_[a] * strides_[a] : 1} + strides_.last(rank() - a),
                    offset_);
}

Tensor Tensor::squeeze(Exactly<int> axis) const {
  const int a = axis_of(*this, axis, "squeeze");
  require(shape_[a] == 1, "squeeze: axis ", axis, " of x, which is ", *this, ", has size ", shape_[a],
          "; it must be 1");
  return as_strided(shape_.without(a), strides_.without(a), offset_);
}

Tensor Tensor::expand(const Shape& shape) const {
  Shape out;
  for (Index s : shape) require(s >= 0, "expand: shape is ", shape, "; every size must be 0 or more");
  require(broadcast(shape_, shape, out) && out == shape, "expand: x is ", *this, " and shape is ", shape,
          "; x must broadcast to it");
  require(detail::can_be_counted(shape), "expand: shape is ", shape, "; it has more elements than can be counted");
  Strides strides = shape;
  for (int i = 1; i <= shape.rank(); ++i) strides[-i] = i <= rank() && shape_[-i] == shape[-i] ? strides_[-i] : 0;
  return as_strided(shape, strides, offset_);
}

// Replaces a -1 by the size that fits. Throws Error if the shape does not have as many elements as x.
static Shape complete(const Tensor& x, const Shape& shape, const char* op) {
  Shape full = shape;
  int unknown = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      require(unknown < 0, op, ": shape is ", shape, "; only one size may be -1");
      unknown = i;
      full[i] = 1;
    } else {
      require(shape[i] >= 0, op, ": shape is ", shape, "; every size must be 0 or more, except one that may be -1");
    }
  }
  require(detail::can_be_counted(full), op, ": shape is ", shape, "; it has more elements than can be counted");
  const Index known = full.numel();
  if (unknown >= 0 && known != 0) full[unknown] = x.numel() / known;
  require(unknown < 0 || known != 0 || x.numel() != 0, op, ": x is ", x, " and shape is ", shape,
          "; with a size of 0, -1 is ambiguous: give the size");
  require(full.numel() == x.numel(), op, ": x is ", x, " with ", x.numel(), " elements and shape is ", shape,
          "; the number of elements must be the same");
  return full;
}

// Finds strides that view x as `shape` without a copy. Returns false if there are none.
static bool view_strides(const Tensor& x, const Shape& shape, Strides& strides) {
  strides = contiguous_strides(shape);
  if (x.numel() == 0 || x.is_contiguous()) return true;
  Shape sizes;
  Strides steps;  // of axes with more than one element; other strides have no effect
  for (int a = 0; a < x.rank(); ++a) {
    if (x.shape()[a] == 1) continue;
    sizes.push_back(x.shape()[a]);
    steps.push_back(x.strides()[a]);
  }
  int axis = sizes.rank() - 1, out = shape.rank() - 1;
  while (axis >= 0) {
    // Find a run of axes of x that are contiguous with each other, and the axes of `shape` that split the run.
    Index size = sizes[axis];
    const Index step = steps[axis];
    while (axis > 0 && steps[axis - 1] == size * step) size *= sizes[--axis];
    Index taken = 1;
    while (out >= 0 && (taken < size || shape[out] == 1)) {
      strides[out] = taken * step;
      taken *= shape[out--];
    }
    if (taken != size) return false;
    --axis;
  }
  return true;
}

Tensor Tensor::view(const Shape& shape) const {
  const Shape full = complete(*this, shape, "view");
  Strides strides;
  require(view_strides(*this, full, strides), "view: x is ", *this, " with strides ", strides_, " and shape is ", shape,
          "; the strides do not allow a view: use reshape(), which copies");
  return as_strided(full, strides, offset_);
}

Tensor Tensor::reshape(const Shape& shape) const {
  const Shape full = complete(*this, shape, "reshape");
  Strides strides;
  if (view_strides(*this, full, strides)) return as_strided(full, strides, offset_);
  return contiguous().view(full);
}

Tensor Tensor::flatten(Exactly<int> from, Exactly<int> to) const {
  if (rank() == 0) return view({1});
  const int a = axis_of(*this, from, "flatten"), b = axis_of(*this, to, "flatten");
  require(a <= b, "flatten: axes ", from, " to ", to, "; the first must not be after the last");
  const Index n = shape_.first(b + 1).last(b + 1 - a).numel();
  return reshape(shape_.first(a) + Shape{n} + shape_.last(rank() - 1 - b));
}

}  // namespace heed
