#include <algorithm>
#include <cstring>
#include <heed/core/parameter.hpp>
#include <heed/core/pool.hpp>
#include <heed/core/tensor.hpp>
#include <new>

namespace heed {
namespace detail {

Mode& mode() {
  thread_local Mode m;
  return m;
}

Storage* new_storage(std::size_t bytes) {
  void* header = pool::allocate(sizeof(Storage));
  auto* s = new (header) Storage;
  try {
    s->data = pool::allocate(bytes);
  } catch (...) {
    pool::deallocate(header, sizeof(Storage));
    throw;
  }
  s->bytes = bytes;
  return s;
}

void delete_storage(Storage* s) noexcept {
  delete s->parameter;
  pool::deallocate(s->data, s->bytes);
  s->~Storage();
  pool::deallocate(s, sizeof(Storage));
}

// A copy that core made by itself: tell the tape, or note that nothing heard of it.
static void note_copy(Tensor& y, const Tensor& x) {
  const Mode& m = mode();
  if (m.suspended || x.is_detached()) return y.mark_detached();
  if (m.copied != nullptr) return m.copied(y, x);
  const ParameterInfo* p = x.storage()->parameter;
  if (x.is_unrecorded() || x.node() != 0 || (p != nullptr && p->requires_grad)) y.mark_unrecorded();
}

}  // namespace detail

NoTape::NoTape() : previous_(detail::mode()) {
  detail::Mode& m = detail::mode();
  m.tape = nullptr;
  m.copied = nullptr;
  m.suspended = true;
}

NoTape::~NoTape() {
  detail::Mode& m = detail::mode();
  const bool training = m.training;
  m = previous_;
  m.training = training;
}

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  for (Index s : shape) require(s >= 0, "tensor: shape is ", shape, "; every size must be 0 or more");
  Tensor x;
  x.storage_ = detail::StorageRef(static_cast<std::size_t>(shape.numel()) * size_of(dtype));
  x.shape_ = shape;
  x.strides_ = contiguous_strides(shape);
  x.dtype_ = dtype;
  return x;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor x = empty(shape, dtype);
  std::memset(x.raw(), 0, x.storage_->bytes);  // all zero bits are 0 in every dtype
  return x;
}

Tensor Tensor::ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor x = empty(shape, dtype);
  visit_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    T v;
    if constexpr (std::is_same_v<T, bfloat16>) v = bfloat16(static_cast<float>(value));
    else v = static_cast<T>(value);
    std::fill_n(x.ptr<T>(), x.numel(), v);
  });
  return x;
}

Tensor Tensor::arange(Index n, DType dtype) {
  Tensor x = empty({n}, DType::float64);
  for (Index i = 0; i < n; ++i) x.ptr<double>()[i] = static_cast<double>(i);
  return x.to(dtype);
}

static int axis_of(const Tensor& x, int axis, const char* op, int extra = 0) {
  const int rank = x.rank() + extra;
  require(axis >= -rank && axis < rank, op, ": axis is ", axis, " but x is ", x, "; it must lie in [", -rank, ", ", rank, ")");
  return axis < 0 ? axis + rank : axis;
}

Index Tensor::dim(int axis) const { return shape_[axis_of(*this, axis, "dim")]; }

Index Tensor::rows() const {
  if (rank() == 0) return 1;
  Index n = 1;
  for (int i = 0; i + 1 < rank(); ++i) n *= shape_[i];
  return n;
}

bool Tensor::is_contiguous() const {
  Index step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return numel() == 0;
    step *= shape_[i];
  }
  return true;
}

void* Tensor::checked(DType wanted) const {
  require(defined(), "data: the tensor is undefined; it must have values");
  require(dtype_ == wanted, "data: x is ", *this, "; data<T>() of a T for ", name_of(wanted), " was asked for");
  require(is_contiguous(), "data: x is ", *this, " with strides ", strides_, "; data() needs a contiguous tensor: call contiguous() first");
  return raw();
}

static double load(const Tensor& x, Index offset) {
  return visit_dtype(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T v = static_cast<const T*>(x.raw())[offset];
    if constexpr (std::is_same_v<T, bfloat16>) return static_cast<double>(static_cast<float>(v));
    else return static_cast<double>(v);
  });
}

double Tensor::item_as_double() const {
  require(defined(), "item: the tensor is undefined; it must have one element");
  require(numel() == 1, "item: x is ", *this, "; it must have one element");
  return load(*this, 0);
}

double Tensor::at(std::initializer_list<Index> index) const {
  require(static_cast<int>(index.size()) == rank(), "at: ", index.size(), " indices were given but x is ", *this, "; one an axis is needed");
  Index offset = 0;
  int axis = 0;
  for (Index i : index) {
    const Index n = shape_[axis];
    require(i >= -n && i < n, "at: index ", i, " of axis ", axis, " but x is ", *this, "; it must lie in [", -n, ", ", n, ")");
    offset += (i < 0 ? i + n : i) * strides_[axis++];
  }
  return load(*this, offset);
}

void Tensor::fill_(double value) {
  copy_(full({}, value, dtype_).expand(shape_));
}

void Tensor::copy_(const Tensor& from) {
  require(from.shape() == shape_, "copy_: from is ", from, " but x is ", *this, "; the shapes must be the same");
  detail::copy_values(*this, from);
  bump_version();
}

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, Index offset) const {
  Tensor y = *this;
  y.shape_ = shape;
  y.strides_ = strides;
  y.offset_ = offset;
  return y;
}

Tensor Tensor::select(int axis, Index i) const {
  const int a = axis_of(*this, axis, "select");
  const Index n = shape_[a];
  require(i >= -n && i < n, "select: index ", i, " of axis ", axis, " but x is ", *this, "; it must lie in [", -n, ", ", n, ")");
  return as_strided(shape_.without(a), strides_.without(a), offset_ + (i < 0 ? i + n : i) * strides_[a]);
}

Tensor Tensor::slice(int axis, Index begin, Index end, Index step) const {
  const int a = axis_of(*this, axis, "slice");
  require(step > 0, "slice: step is ", step, "; it must be 1 or more");
  const Index n = shape_[a];
  const auto clamp = [n](Index i) { return std::clamp<Index>(i < 0 ? i + n : i, 0, n); };
  const Index from = clamp(begin), to = std::max(from, clamp(end));
  return as_strided(shape_.with(a, (to - from + step - 1) / step), strides_.with(a, strides_[a] * step), offset_ + from * strides_[a]);
}

Tensor Tensor::transpose(int a, int b) const {
  const int p = axis_of(*this, a, "transpose"), q = axis_of(*this, b, "transpose");
  return as_strided(shape_.with(p, shape_[q]).with(q, shape_[p]), strides_.with(p, strides_[q]).with(q, strides_[p]), offset_);
}

Tensor Tensor::permute(const std::vector<int>& axes) const {
  require(static_cast<int>(axes.size()) == rank(), "permute: ", axes.size(), " axes were given but x is ", *this, "; each axis must be named once");
  Shape shape, strides;
  unsigned seen = 0;
  for (int axis : axes) {
    const int a = axis_of(*this, axis, "permute");
    require(!(seen >> a & 1u), "permute: axis ", axis, " is named twice; each axis must be named once");
    seen |= 1u << a;
    shape.push_back(shape_[a]);
    strides.push_back(strides_[a]);
  }
  return as_strided(shape, strides, offset_);
}

Tensor Tensor::unsqueeze(int axis) const {
  const int a = axis_of(*this, axis, "unsqueeze", 1);
  const Shape one = {1};
  return as_strided(shape_.first(a) + one + shape_.last(rank() - a),
                    strides_.first(a) + Shape{a < rank() ? shape_[a] * strides_[a] : 1} + strides_.last(rank() - a), offset_);
}

Tensor Tensor::squeeze(int axis) const {
  const int a = axis_of(*this, axis, "squeeze");
  require(shape_[a] == 1, "squeeze: axis ", axis, " of x, which is ", *this, ", has size ", shape_[a], "; it must be 1");
  return as_strided(shape_.without(a), strides_.without(a), offset_);
}

Tensor Tensor::expand(const Shape& shape) const {
  Shape out;
  require(broadcast(shape_, shape, out) && out == shape, "expand: x is ", *this, " and shape is ", shape, "; x must broadcast to it");
  Strides strides = shape;
  for (int i = 1; i <= shape.rank(); ++i) strides[-i] = i <= rank() && shape_[-i] == shape[-i] ? strides_[-i] : 0;
  return as_strided(shape, strides, offset_);
}

// Replaces a -1 by the size that fits.
static Shape complete(const Tensor& x, const Shape& shape, const char* op) {
  Shape full = shape;
  int unknown = -1;
  Index known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      require(unknown < 0, op, ": shape is ", shape, "; only one size may be -1");
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0 && known != 0) full[unknown] = x.numel() / known;
  require(full.numel() == x.numel() && (unknown < 0 || known != 0), op, ": x is ", x, " of ", x.numel(), " elements and shape is ", shape,
          "; the number of elements must be the same");
  return full;
}

// Strides that show x as `shape` without a copy; false where there are none.
static bool view_strides(const Tensor& x, const Shape& shape, Strides& strides) {
  strides = contiguous_strides(shape);
  if (x.numel() == 0 || x.is_contiguous()) return true;
  int axis = x.rank() - 1, out = shape.rank() - 1;
  while (axis >= 0) {
    // A run of x's axes that is laid out as one, and the axes of `shape` that make it up.
    Index size = x.shape()[axis];
    const Index step = x.strides()[axis];
    while (axis > 0 && (x.shape()[axis - 1] == 1 || size == 1 ? false : x.strides()[axis - 1] == size * step)) size *= x.shape()[--axis];
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

Tensor Tensor::flatten(int from, int to) const {
  if (rank() == 0) return view({1});
  const int a = axis_of(*this, from, "flatten"), b = axis_of(*this, to, "flatten");
  require(a <= b, "flatten: axes ", from, " to ", to, "; the first must not lie behind the last");
  Index n = 1;
  for (int i = a; i <= b; ++i) n *= shape_[i];
  return reshape(shape_.first(a) + Shape{n} + shape_.last(rank() - 1 - b));
}

Tensor Tensor::detach() const {
  Tensor y = *this;
  y.mark_detached();
  return y;
}

Tensor Tensor::dense() const {
  if (is_contiguous()) return *this;
  Tensor y = empty(shape_, dtype_);
  detail::copy_values(y, *this);
  return y;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  require(defined(), "clone: the tensor is undefined");
  Tensor y = empty(shape_, dtype_);
  detail::copy_values(y, *this);
  detail::note_copy(y, *this);
  return y;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor y = empty(shape_, dtype);
  detail::copy_values(y, *this);
  detail::note_copy(y, *this);
  return y;
}

}  // namespace heed
