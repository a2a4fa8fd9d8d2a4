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

StorageRef new_storage(std::size_t bytes, void* data, std::shared_ptr<void> keeper) {
  auto* s = new (pool::allocate(sizeof(Storage))) Storage;
  s->serial = made.fetch_add(1, std::memory_order_relaxed);
  s->data = data;
  s->bytes = bytes;
  s->keeper = std::move(keeper);
  return StorageRef(s);
}

StorageRef new_storage(std::size_t bytes) {
  StorageRef s = new_storage(bytes, nullptr, nullptr);
  s->data = pool::allocate(bytes);  // if it throws, `s` frees the Storage
  s->dry = in_dry_run();
  if (s->dry) count_dry(*s.get(), 1);
  return s;
}

void delete_storage(Storage* s) noexcept {
  delete s->parameter;
  if (s->keeper == nullptr) pool::deallocate(s->data, s->bytes);
  if (s->dry) count_dry(*s, -1);
  s->~Storage();
  pool::deallocate(s, sizeof(Storage));
}

std::int32_t to_int32(const char* op, std::int64_t value) {
  require(value == static_cast<std::int32_t>(value), op, ": the value ", value,
          " does not fit int32, the dtype of integers in tensors; it must be in [-2147483648, 2147483647]");
  return static_cast<std::int32_t>(value);
}

// Reports y, a copy of x made in core, to the tape. Without a tape, marks y as detached, or as unrecorded if x needs a
// gradient. Returns y.
static Tensor reported(Tensor y, const Tensor& x) {
  const Mode& m = mode();
  const ParameterInfo* p = x.storage()->parameter;
  if (m.copied != nullptr)
    m.copied(y, x);
  else if (m.suspended || x.is_detached())
    y.mark_detached();
  else if (x.is_unrecorded() || x.node() != 0 || (p != nullptr && p->requires_grad))
    y.mark_unrecorded();
  return y;
}

// A copy of x in row-major order. No tape records it.
static Tensor plain_copy(const Tensor& x, DType dtype) {
  Tensor y = Tensor::empty(x.shape(), dtype);
  copy_values(y, x);
  return y;
}

Tensor cast(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : plain_copy(x, dtype); }

}  // namespace detail

static std::size_t storage_bytes(const Shape& shape, DType dtype) {
  for (Index s : shape) require(s >= 0, "tensor: shape is ", shape, "; every size must be 0 or more");
  require(detail::can_be_counted(shape), "tensor: shape is ", shape, "; it has more elements than memory can hold");
  require(!is_quantized(dtype) || (!shape.empty() && shape.back() % kBlockNumbers == 0), "tensor: shape is ", shape,
          " and the dtype is ", dtype, ", whose rows are blocks; the last axis must be a multiple of ", kBlockNumbers);
  return bytes_of(dtype, shape.numel());
}

Tensor::Tensor(detail::StorageRef storage, const Shape& shape, DType dtype)
    : storage_(std::move(storage)), shape_(shape), strides_(contiguous_strides(shape)), dtype_(dtype) {}

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  return Tensor(detail::new_storage(storage_bytes(shape, dtype)), shape, dtype);
}

Tensor Tensor::of_memory(void* data, std::shared_ptr<void> keeper, const Shape& shape, DType dtype) {
  return Tensor(detail::new_storage(storage_bytes(shape, dtype), data, std::move(keeper)), shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor x = empty(shape, dtype);
  std::memset(x.storage_->data, 0, x.storage_->bytes);  // all zero bits are 0 in every dtype
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

double Tensor::item_as_double() const {
  require(defined(), "item: the tensor is undefined; it must have one element");
  require(numel() == 1, "item: x is ", *this, "; it must have one element");
  return visit_dtype(dtype_, [&]<class T>(T) { return detail::convert<double>(*ptr<T>()); });
}

double Tensor::at(std::initializer_list<Exactly<Index>> index) const {
  require(defined(), "at: the tensor is undefined; it must have values");
  require(static_cast<int>(index.size()) == rank(), "at: ", index.size(), " indices were given but x is ", *this,
          "; give one index per axis");
  Index element = 0;
  int axis = 0;
  for (Index i : index) {
    const Index n = shape_[axis];
    require(i >= -n && i < n, "at: the index of axis ", axis, " is ", i, " but x is ", *this, "; it must be in [", -n,
            ", ", n, ")");
    element += (i < 0 ? i + n : i) * strides_[axis++];
  }
  return visit_dtype(dtype_, [&]<class T>(T) { return detail::convert<double>(ptr<T>()[element]); });
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
    detail::copy_values(*this, detail::plain_copy(from, dtype_));
  }
  bump_version();
}

Tensor Tensor::detach() const {
  Tensor y = *this;
  y.mark_detached();
  return y;
}

Tensor Tensor::dense() const { return is_contiguous() ? *this : detail::plain_copy(*this, dtype_); }

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  require(defined(), "clone: the tensor is undefined; it must have values");
  return detail::reported(detail::plain_copy(*this, dtype_), *this);
}

Tensor Tensor::to(DType dtype) const {
  require(defined(), "to: the tensor is undefined; it must have values");
  return dtype == dtype_ ? *this : detail::reported(detail::plain_copy(*this, dtype), *this);
}

}  // namespace heed
