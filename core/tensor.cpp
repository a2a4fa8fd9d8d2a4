// Tensors: storage, new tensors, reading, writing and copying values.
#include <cstring>
#include <heed/core/dry_run.hpp>
#include <heed/core/elementwise.hpp>
#include <heed/core/index.hpp>
#include <heed/core/members.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/tensor.hpp>
#include <new>

namespace heed {
namespace detail {

static std::atomic<std::uint64_t> made{0};

std::uint64_t storages_made() { return made.load(std::memory_order_relaxed); }

static Storage* new_header() {
  auto* s = new (pool::allocate(sizeof(Storage))) Storage;
  s->serial = made.fetch_add(1, std::memory_order_relaxed);
  return s;
}

static void delete_header(Storage* s) noexcept {
  s->~Storage();
  pool::deallocate(s, sizeof(Storage));
}

Storage* new_storage(std::size_t bytes) {
  Storage* s = new_header();
  try {
    s->data = pool::allocate(bytes);
  } catch (...) {
    delete_header(s);
    throw;
  }
  s->bytes = bytes;
  s->dry = in_dry_run();
  if (s->dry) count_dry(*s, 1);
  return s;
}

Storage* new_storage(std::size_t bytes, void* data, std::shared_ptr<void> keeper) {
  Storage* s = new_header();
  s->data = data;
  s->bytes = bytes;
  s->keeper = std::move(keeper);
  return s;
}

void delete_storage(Storage* s) noexcept {
  delete s->parameter;
  if (s->keeper == nullptr) pool::deallocate(s->data, s->bytes);
  if (s->dry) count_dry(*s, -1);
  delete_header(s);
}

std::int32_t to_int32(const char* op, std::int64_t value) {
  require(value == static_cast<std::int32_t>(value), op, ": the value ", value,
          " does not fit int32, the dtype of integers in tensors; it must be in [-2147483648, 2147483647]");
  return static_cast<std::int32_t>(value);
}

// Reports a copy made in core to the tape. Without a tape, marks y as detached, or as unrecorded if x needs a gradient.
static void note_copy(Tensor& y, const Tensor& x) {
  const Mode& m = mode();
  if (m.copied != nullptr) return m.copied(y, x);
  if (m.suspended || x.is_detached()) return y.mark_detached();
  const ParameterInfo* p = x.storage()->parameter;
  if (x.is_unrecorded() || x.node() != 0 || (p != nullptr && p->requires_grad)) y.mark_unrecorded();
}

}  // namespace detail

static std::size_t bytes_of(const Shape& shape, DType dtype) {
  for (Index s : shape) require(s >= 0, "tensor: shape is ", shape, "; every size must be 0 or more");
  require(detail::can_be_counted(shape), "tensor: shape is ", shape, "; it has more elements than memory can hold");
  return static_cast<std::size_t>(shape.numel()) * size_of(dtype);
}

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  Tensor x;
  x.storage_ = detail::StorageRef(bytes_of(shape, dtype));
  x.shape_ = shape;
  x.strides_ = contiguous_strides(shape);
  x.dtype_ = dtype;
  return x;
}

Tensor Tensor::of_memory(void* data, std::shared_ptr<void> keeper, const Shape& shape, DType dtype) {
  Tensor x;
  x.storage_ = detail::StorageRef(detail::new_storage(bytes_of(shape, dtype), data, std::move(keeper)));
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
  require(holds(dtype, value), "full: the tensor is ", shape, " ", dtype, " and the number is ", value, "; ", dtype,
          " must hold it exactly");
  Tensor x = empty(shape, dtype);
  visit_dtype(dtype, [&]<class T>(T) { std::fill_n(x.ptr<T>(), x.numel(), detail::convert<T>(value)); });
  return x;
}

Tensor Tensor::arange(Exactly<Index> n, DType dtype) {
  Tensor x = empty({n}, DType::float64);
  for (Index i = 0; i < n; ++i) x.ptr<double>()[i] = static_cast<double>(i);
  return x.to(dtype);
}

Index Tensor::rows() const { return rank() == 0 ? 1 : shape_.first(rank() - 1).numel(); }

bool Tensor::is_contiguous() const {
  Index step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return numel() == 0;
    step *= shape_[i];
  }
  return true;
}

void* Tensor::checked(DType requested) const {
  require(defined(), "data: the tensor is undefined; it must have values");
  require(dtype_ == requested, "data: x is ", *this, " but data<T>() was called with T of ", name_of(requested),
          "; they must match");
  require(is_contiguous(), "data: x is ", *this, " with strides ", strides_,
          "; data() requires a contiguous tensor: call contiguous() first");
  return raw();
}

static double load(const Tensor& x, Index offset) {
  return visit_dtype(x.dtype(),
                     [&]<class T>(T) { return detail::convert<double>(static_cast<const T*>(x.raw())[offset]); });
}

double Tensor::item_as_double() const {
  require(defined(), "item: the tensor is undefined; it must have one element");
  require(numel() == 1, "item: x is ", *this, "; it must have one element");
  return load(*this, 0);
}

double Tensor::at(std::initializer_list<Exactly<Index>> index) const {
  require(defined(), "at: the tensor is undefined; it must have values");
  require(static_cast<int>(index.size()) == rank(), "at: ", index.size(), " indices were given but x is ", *this,
          "; give one index per axis");
  Index offset = 0;
  int axis = 0;
  for (Index i : index) {
    const Index n = shape_[axis];
    require(i >= -n && i < n, "at: the index of axis ", axis, " is ", i, " but x is ", *this, "; it must be in [", -n,
            ", ", n, ")");
    offset += (i < 0 ? i + n : i) * strides_[axis++];
  }
  return load(*this, offset);
}

// Throws Error if elements of x share memory, because several threads would write to them.
static void check_once_each(const char* op, const Tensor& x) {
  if (x.numel() == 0) return;  // strides may be 0
  for (int a = 0; a < x.rank(); ++a)
    require(x.strides()[a] != 0 || x.shape()[a] == 1, op, ": x is ", x, " with strides ", x.strides(), ", so axis ", a,
            " repeats elements; each must occur once: write to the tensor that x was expanded from");
}

void Tensor::fill_(double value) {
  require(defined(), "fill_: the tensor is undefined; it must have values");
  require(holds(dtype_, value), "fill_: the tensor is ", *this, " and the number is ", value, "; ", dtype_,
          " must hold it exactly");
  check_once_each("fill_", *this);
  copy_(full({}, value, dtype_).expand(shape_));
}

void Tensor::copy_(const Tensor& from) {
  require(defined() && from.defined(), "copy_: from is ", from, " and x is ", *this, "; both must have values");
  require(from.shape() == shape_, "copy_: from is ", from, " but x is ", *this, "; the shapes must be the same");
  check_once_each("copy_", *this);
  if (const auto written = detail::mode().written) written(*this, from);
  if (!shares_storage(from)) {
    detail::copy_values(*this, from);
  } else if (offset_ != from.offset_ || !(strides_ == from.strides_)) {
    // They may overlap: a thread could read an element that another thread has already written. Copy through a buffer.
    Tensor apart = empty(shape_, dtype_);
    detail::copy_values(apart, from);
    detail::copy_values(*this, apart);
  }
  bump_version();
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
  require(defined(), "clone: the tensor is undefined; it must have values");
  Tensor y = empty(shape_, dtype_);
  detail::copy_values(y, *this);
  detail::note_copy(y, *this);
  return y;
}

Tensor Tensor::to(DType dtype) const {
  require(defined(), "to: the tensor is undefined; it must have values");
  if (dtype == dtype_) return *this;
  Tensor y = empty(shape_, dtype);
  detail::copy_values(y, *this);
  detail::note_copy(y, *this);
  return y;
}

}  // namespace heed
