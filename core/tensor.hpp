// The tensor: a handle to shared storage with a shape and strides, as in PyTorch. Copying a Tensor copies the handle;
// clone() copies the values. Slices, transposes and reshapes are views where strides allow it.
//
// Views need no help from autodiff: a view keeps the node of the tensor that it looks into, and its own offset and
// strides say which part of that tensor's gradient is its own.
//
// Example:
//
//   const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});  // float32
//   const Tensor row = x[1];                                    // a view: 4, 5, 6
//   std::cout << x.t().shape() << ' ' << row.at({0}) << '\n' << row << '\n';
#pragma once
#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <heed/core/check.hpp>
#include <heed/core/dtype.hpp>
#include <heed/core/mode.hpp>
#include <heed/core/shape.hpp>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// ---- Storage ----

// The memory that tensors share, and what belongs to it when it is a parameter's.

struct ParameterInfo;  // core/members.hpp

// Values that are on their way into a storage's memory, from another process, while this one computes.
class Arrival {
 public:
  virtual void wait() = 0;  // until they are there; any thread may call it

 protected:
  ~Arrival() = default;
};

struct Storage {
  std::atomic<std::int64_t> references{1};
  void* data = nullptr;
  std::atomic<Arrival*> arrival{nullptr};  // null: the values are there. Whoever takes a pointer to them waits
  std::size_t bytes = 0;
  std::uint64_t version = 0;        // raised by every write that is not the making of an op's output
  ParameterInfo* parameter = nullptr;  // owned; null unless a Parameter was made of it
  std::uint64_t serial = 0;         // how many were made before this one
  bool dry = false;                 // made in a dry_run(): it holds anything
  std::shared_ptr<void> keeper = {};  // of memory that is not the pool's: it stays until this goes
};

Storage* new_storage(std::size_t bytes);
Storage* new_storage(std::size_t bytes, void* data, std::shared_ptr<void> keeper);
void delete_storage(Storage* storage) noexcept;
std::uint64_t storages_made();  // so far: those that were there before have smaller serials

// A counted reference. Storage and its header come from the pool, so making a tensor calls malloc only when the pool is
// cold.
class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(std::size_t bytes) : storage_(new_storage(bytes)) {}
  explicit StorageRef(Storage* storage) : storage_(storage) {}  // takes the first reference over
  StorageRef(const StorageRef& other) : storage_(other.storage_) {
    if (storage_) storage_->references.fetch_add(1, std::memory_order_relaxed);
  }
  StorageRef(StorageRef&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StorageRef& operator=(StorageRef other) noexcept { std::swap(storage_, other.storage_); return *this; }
  ~StorageRef() {
    if (storage_ && storage_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete_storage(storage_);
  }

  Storage* get() const { return storage_; }
  Storage* operator->() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }

 private:
  Storage* storage_ = nullptr;
};

}  // namespace heed::detail

namespace heed {

namespace detail {
// One of xtensor's.
template <class E> concept ArrayExpression = requires { typename E::expression_tag; typename E::value_type; };

// Whole numbers of 64 bits, Index among them, are int32 in tensors.
template <class T> concept LongInteger = std::signed_integral<T> && sizeof(T) == 8;
template <class T> using StoredAs = std::conditional_t<LongInteger<T>, std::int32_t, T>;
std::int32_t to_int32(const char* op, std::int64_t value);  // Error where it does not fit
}

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; defined() is false
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // The handle is set anew, not the values: x[0] = y would change a view that is gone at once, and does not compile.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;

  // xtensor expressions become tensors, and tensors arrays: defined in core/array.hpp.
  template <class E>
    requires detail::ArrayExpression<E>
  explicit Tensor(const E& expression);
  template <class T> auto array();
  template <class T> auto array() const;

  // New tensors. `empty` is not initialised.
  static Tensor empty(const Shape& shape, DType dtype = DType::float32);
  static Tensor zeros(const Shape& shape, DType dtype = DType::float32);
  static Tensor ones(const Shape& shape, DType dtype = DType::float32);
  // Error where the dtype cannot hold the value.
  static Tensor full(const Shape& shape, double value, DType dtype = DType::float32);
  static Tensor scalar(double value, DType dtype = DType::float32) { return full({}, value, dtype); }
  static Tensor arange(Exactly<Index> n, DType dtype = DType::int32);  // 0, 1, ..., n - 1
  static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype()); }
  static Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype()); }
  // Copies values in row-major order; the number of values must be shape.numel(). Without a shape there is one axis.
  // The dtype is T's; long and the like become int32, an Error where one does not fit.
  template <class T> static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from_values(values.begin(), static_cast<Index>(values.size()), shape);
  }
  template <class T> static Tensor from(const std::vector<T>& values) {
    return from(values, {static_cast<Index>(values.size())});
  }
  // Tensor::from({1, 2, 3, 4}, {2, 2}) is float32; Tensor::from<std::int32_t>({1, 2, 3}) is int32.
  template <class T = float> static Tensor from(std::initializer_list<double> values, const Shape& shape) {
    return from_values(values.begin(), static_cast<Index>(values.size()), shape).to(dtype_of<detail::StoredAs<T>>);
  }
  template <class T = float> static Tensor from(std::initializer_list<double> values) {
    return from<T>(values, {static_cast<Index>(values.size())});
  }
  template <std::input_iterator I> static Tensor from_values(I values, Index count, const Shape& shape);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  DType dtype() const { return dtype_; }
  int rank() const { return shape_.rank(); }
  Index dim(Exactly<int> axis) const;               // size of an axis; -1 is the last; Error when out of range
  Index numel() const { return shape_.numel(); }
  Index rows() const;                               // numel() / dim(-1): the rows of a matrix of all leading axes
  bool is_contiguous() const;

  // Values.
  template <class T = double> T item() const { return static_cast<T>(item_as_double()); }  // of a tensor of one element
  double at(std::initializer_list<Exactly<Index>> index) const;                           // one element, converted
  template <class T> const T* data() const { return static_cast<const T*>(checked(dtype_of<T>)); }
  // For writing: raises the version, so that a tape that saved this tensor, or computed it, notices.
  template <class T> T* mutable_data() {
    void* p = checked(dtype_of<T>);
    storage_->version++;
    return static_cast<T*>(p);
  }
  template <class T> std::vector<T> to_vector() const;  // row-major, converted to T; to_vector<Index>() as int32
  void fill_(double value);                                            // Error where the dtype cannot hold it
  void zero_() { fill_(0); }
  // Same shape; converts the dtype; `from` may overlap this. No tape records it: Error where `from` wants a gradient.
  void copy_(const Tensor& from);

  // Views: the same storage. Axes may be negative.
  Tensor operator[](Exactly<Index> i) const { return select(0, i); }
  Tensor select(Exactly<int> axis, Exactly<Index> i) const;  // drops the axis; i may be negative
  // begin and end as Python's: clamped, and counted from the end where they are negative.
  Tensor slice(Exactly<int> axis, Exactly<Index> begin, Exactly<Index> end, Exactly<Index> step = 1) const;
  Tensor transpose(Exactly<int> a, Exactly<int> b) const;
  Tensor t() const { return transpose(-2, -1); }
  Tensor permute(std::initializer_list<Exactly<int>> axes) const {
    return permute(std::vector<int>(axes.begin(), axes.end()));
  }
  Tensor permute(const std::vector<int>& axes) const;
  Tensor unsqueeze(Exactly<int> axis) const;
  Tensor squeeze(Exactly<int> axis) const;         // the axis must have size 1
  Tensor expand(const Shape& shape) const;         // broadcasts: repeated elements share memory
  Tensor view(const Shape& shape) const;           // one size may be -1; Error where strides do not allow it
  Tensor detach() const;                           // shares values; a constant for autodiff

  // Copies, where needed; a tape records them.
  Tensor reshape(const Shape& shape) const;        // a view where strides allow it, else a copy
  Tensor flatten(Exactly<int> from = 0, Exactly<int> to = -1) const;
  Tensor contiguous() const;
  Tensor clone() const;
  // To int32: truncates towards 0; numbers out of range give the nearest int32, NaN gives 0. To bool8: NaN is true.
  Tensor to(DType dtype) const;

  // For writers of ops.
  void* raw() const {
    if (!defined()) return nullptr;
    if (detail::Arrival* a = storage_->arrival.load(std::memory_order_acquire)) [[unlikely]] a->wait();
    return static_cast<char*>(storage_->data) + static_cast<std::size_t>(offset_) * size_of(dtype_);
  }
  template <class T> T* ptr() const { return static_cast<T*>(raw()); }  // no dtype check, no version: of outputs
  Index offset() const { return offset_; }          // of the first element in the storage, in elements
  detail::Storage* storage() const { return storage_.get(); }
  std::uint64_t version() const { return storage_ ? storage_->version : 0; }
  void bump_version() { if (storage_) storage_->version++; }
  bool shares_storage(const Tensor& other) const { return storage_.get() == other.storage_.get(); }
  Tensor as_strided(const Shape& shape, const Strides& strides, Index offset) const;  // unchecked; offset absolute
  // A tensor of memory that is not the pool's, aligned for its dtype, which `keeper` keeps for as long as the tensor
  // or a view of it.
  static Tensor of_memory(void* data, std::shared_ptr<void> keeper, const Shape& shape, DType dtype);
  Tensor dense() const;                             // contiguous() that no tape records

  // For autodiff: the tape's number for this value (0: none), and how it came about outside of one.
  std::uint64_t node() const { return node_; }
  void set_node(std::uint64_t node) { node_ = node, detached_ = unrecorded_ = false; }  // however the values were made
  Tensor with_node(std::uint64_t node) const { Tensor y = *this; y.set_node(node); return y; }
  bool is_detached() const { return detached_; }
  bool is_unrecorded() const { return unrecorded_; }  // depends on parameters, but no tape was recording
  void mark_detached() { detached_ = true; unrecorded_ = false; node_ = 0; }
  void mark_unrecorded() { set_node(0), unrecorded_ = true; }

 private:
  detail::StorageRef storage_;
  Index offset_ = 0;
  Shape shape_;
  Strides strides_;
  std::uint64_t node_ = 0;
  DType dtype_ = DType::float32;
  bool detached_ = false;
  bool unrecorded_ = false;

  void* checked(DType wanted) const;
  double item_as_double() const;
};

std::ostream& operator<<(std::ostream& out, const Tensor& x);  // the values, nested as in NumPy, then shape and dtype
std::string describe(const Tensor& x);                         // «[32, 128] float32»

#ifdef __clang__
#define HEED_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define HEED_LIFETIMEBOUND
#endif

// An op's tensor argument, with the place of the call: converting a Tensor to In notes where that happened. It refers
// to the tensor and keeps nothing alive, so that it is for parameters of functions only: In h = layer(x); as a variable
// refers to a tensor that is gone when the statement ends. There, write Tensor h. clang warns of it; so does g++ -Wall
// from -O1 on, where h is used.
class In {
 public:
  In(const Tensor& x HEED_LIFETIMEBOUND, Where where = Where::current()) : x_(&x), where_(where) {}
  // Says that the tensor is read, for g++'s warning to see that it is gone; that is no code.
  In(const In& other) : x_(other.x_), where_(other.where_) {
    if (x_->rank() < 0) __builtin_unreachable();
  }
  In& operator=(const In&) = default;

  operator const Tensor&() const { return *x_; }
  const Tensor& tensor() const { return *x_; }
  const Tensor* operator->() const { return x_; }
  const Where& where() const { return where_; }

  const Shape& shape() const { return x_->shape(); }
  Index dim(Exactly<int> axis) const { return x_->dim(axis); }
  int rank() const { return x_->rank(); }
  Index numel() const { return x_->numel(); }
  Index rows() const { return x_->rows(); }
  DType dtype() const { return x_->dtype(); }

 private:
  const Tensor* x_;
  Where where_;
};
#undef HEED_LIFETIMEBOUND

namespace detail {
void copy_values(Tensor& to, const Tensor& from);     // any strides, any dtypes, same shape; no version, no tape
void add_values(Tensor& to, const Tensor& from);      // to += from, the same freedom; `to` must not overlap itself
Tensor sum_to(const Tensor& x, const Shape& shape);   // sums the axes that broadcasting `shape` to x's shape repeated
}

template <std::input_iterator I> Tensor Tensor::from_values(I values, Index count, const Shape& shape) {
  using T = std::iter_value_t<I>;
  require(count == shape.numel(), "tensor: ", count, " values were given for shape ", shape, "; it needs ",
          shape.numel());
  Tensor x = empty(shape, dtype_of<detail::StoredAs<T>>);
  if constexpr (detail::LongInteger<T>)
    std::transform(values, values + count, x.ptr<std::int32_t>(), [](T v) { return detail::to_int32("tensor", v); });
  else
    std::copy(values, values + count, x.ptr<T>());
  return x;
}

template <class T> std::vector<T> Tensor::to_vector() const {
  using Stored = detail::StoredAs<T>;
  const Tensor x = detach().to(dtype_of<Stored>).dense();
  return std::vector<T>(x.ptr<Stored>(), x.ptr<Stored>() + numel());
}

// ---- Axes ----

// The axes that an op works along.

// The axes of a reduction: one, several, or none, which means all. Negative ones count from the end. A scalar counts as
// a vector of one element: it has the axis 0, or -1, as in PyTorch.
class Axes {
 public:
  Axes() = default;
  template <class N>
  requires(detail::kWhole<N>) Axes(N axis) { add(Exactly<int>(axis)); }
  // Only whole numbers are axes: the greater of elements and a number is maximum(x, 0.0), the lesser minimum(x, 0.0).
  template <detail::NotWhole N>
  Axes(N axis) = delete;
  Axes(std::initializer_list<Exactly<int>> axes) {
    for (int a : axes) add(a);
  }
  Axes(const std::vector<int>& axes) {
    for (int a : axes) add(a);
  }

  // Bit a is set for each axis a of x; throws Error for an axis that x lacks or that is named twice.
  unsigned of(const char* op, In x) const;
  int count() const { return count_; }

 private:
  void add(int axis);
  int axes_[kMaxRank] = {};
  int count_ = 0;
};

namespace detail {

// Throws Error unless x is floating.
void check_float(const char* op, In x);
// to() that no tape records.
Tensor cast(const Tensor& x, DType dtype);
// x as ops compute with it: bfloat16 becomes float32, of which the op rounds its result once.
inline Tensor widened(const Tensor& x) { return x.dtype() == DType::bfloat16 ? cast(x, DType::float32) : x; }
// Calls f(float{}) or f(double{}).
template <class F>
void with_float(DType dtype, F f) {
  if (dtype == DType::float64)
    f(double{});
  else
    f(float{});
}

// The axis counted from 0; throws Error where x has no such axis.
int axis_of(const char* op, In x, int axis);

}  // namespace detail
}  // namespace heed
