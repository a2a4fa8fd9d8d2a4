// The tensor: a handle to shared storage with a shape and strides, as in PyTorch. Copying a Tensor copies the handle;
// clone() copies the values. Slices and transposes are views; a reshape is a view where strides allow it.
//
// Autodiff needs no steps for views. A view keeps the node of the tensor that it was made from. Its offset and strides
// select the view's part of that tensor's gradient.
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

struct ParameterInfo;  // core/members.hpp

// Values that another rank still sends into the memory of a storage.
class Arrival {
 public:
  virtual void wait() = 0;  // returns when the values have arrived; any thread may call it

 protected:
  ~Arrival() = default;
};

// The memory that tensors share, and its state.
struct Storage {
  std::atomic<std::int64_t> references{1};
  void* data = nullptr;
  std::atomic<Arrival*> arrival{nullptr};  // null if all values have arrived; else Tensor::raw() waits for them
  std::size_t bytes = 0;
  std::uint64_t version = 0;           // raised by every write, except when an op writes its output
  ParameterInfo* parameter = nullptr;  // owned; null unless a Parameter has this storage
  std::uint64_t serial = 0;            // number of storages made before this one
  bool dry = false;                    // made in a dry_run(): values are undefined
  std::shared_ptr<void> keeper = {};   // owner of memory that is not from the pool; else null
};

void delete_storage(Storage* storage) noexcept;
std::uint64_t storages_made();  // so far; every storage made before has a smaller serial

// A counted reference to a Storage. The memory and the Storage itself are from the pool, so a new tensor calls malloc
// only if the pool has no block of its size.
class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(Storage* storage) : storage_(storage) {}  // takes over the first reference
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

StorageRef new_storage(std::size_t bytes);  // from the pool; throws Error if the system has no memory left
StorageRef new_storage(std::size_t bytes, void* data, std::shared_ptr<void> keeper);  // uses the keeper's memory

}  // namespace heed::detail

namespace heed {

namespace detail {
// An expression of xtensor.
template <class E> concept ArrayExpression = requires { typename E::expression_tag; typename E::value_type; };

// Signed 64-bit integers, such as Index. Tensors store them as int32.
template <class T> concept LongInteger = std::signed_integral<T> && sizeof(T) == 8;
template <class T> using StoredAs = std::conditional_t<LongInteger<T>, std::int32_t, T>;
std::int32_t to_int32(const char* op, std::int64_t value);  // throws Error if the value does not fit
}

// A handle to a storage, with an offset, a shape, strides and a dtype.
class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; defined() is false
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // Assignment sets the handle, not the values. x[0] = y would set a temporary view, so it does not compile.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;

  // Conversions from expressions and to arrays of xtensor, defined in core/array.hpp.
  template <class E>
    requires detail::ArrayExpression<E>
  explicit Tensor(const E& expression);
  // The elements as an array of xtensor, for writing and for reading.
  template <class T> auto array();
  template <class T> auto array() const;

  // New tensors; empty() is uninitialized. Throw Error for a negative size or more elements than memory can hold, and
  // for a quantized dtype, which only empty() takes, unless the last axis is a multiple of 32.
  static Tensor empty(const Shape& shape, DType dtype = DType::float32);
  static Tensor zeros(const Shape& shape, DType dtype = DType::float32);
  static Tensor ones(const Shape& shape, DType dtype = DType::float32);
  // Throws Error also if the dtype cannot hold the value.
  static Tensor full(const Shape& shape, double value, DType dtype = DType::float32);
  static Tensor scalar(double value, DType dtype = DType::float32) { return full({}, value, dtype); }
  static Tensor arange(Exactly<Index> n, DType dtype = DType::int32);  // 0, 1, ..., n - 1
  static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype()); }
  static Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype()); }
  // Copies values in row-major order. Without a shape, the tensor has one axis. The dtype is that of T; 64-bit integers
  // become int32. Throws Error if there are not shape.numel() values, or an integer does not fit int32.
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
  // The same from an iterator over `count` values.
  template <std::input_iterator I> static Tensor from_values(I values, Index count, const Shape& shape);

  // Shape, strides in elements, and dtype. An undefined tensor has no axes: its rank is 0, and its numel() is 1.
  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  DType dtype() const { return dtype_; }
  int rank() const { return shape_.rank(); }
  Index dim(Exactly<int> axis) const;  // size of an axis; -1 is the last; throws Error if out of range
  Index numel() const { return shape_.numel(); }
  Index rows() const;          // product of all sizes but the last; 1 without axes
  bool is_contiguous() const;  // row-major without gaps

  // Values. All functions throw Error if the tensor is undefined.
  // The value of a tensor that has one element. Throws Error for any other tensor.
  template <class T = double> T item() const { return static_cast<T>(item_as_double()); }
  // One element. Throws Error unless there is one index per axis, each in [-size, size).
  double at(std::initializer_list<Exactly<Index>> index) const;
  // The elements in row-major order, for reading. Throws Error unless the tensor is contiguous and of T's dtype.
  template <class T> const T* data() const { return static_cast<const T*>(checked(dtype_of<T>)); }
  // The same for writing. Raises the version, so that a tape that computed or saved this tensor notices the write.
  template <class T> T* mutable_data() {
    void* p = checked(dtype_of<T>);
    storage_->version++;
    return static_cast<T*>(p);
  }
  template <class T> std::vector<T> to_vector() const;  // row-major, converted to T; to Index through int32
  // Writes. Throw Error if the dtype cannot hold the value, or if elements share memory, as after expand().
  void fill_(double value);
  void zero_() { fill_(0); }
  // Copies the values of `from`, which must have the same shape and may overlap this tensor, and converts the dtype. A
  // tape cannot record it: throws Error if `from` needs a gradient, which would be lost.
  void copy_(const Tensor& from);

  // Views of the same storage. Axes may be negative. Throw Error for an axis or an index that is out of range.
  Tensor operator[](Exactly<Index> i) const { return select(0, i); }
  Tensor select(Exactly<int> axis, Exactly<Index> i) const;  // drops the axis; i may be negative
  // Elements begin, begin + step, ... before end; step > 0. As in Python, begin and end are clamped, and negative ones
  // count from the end.
  Tensor slice(Exactly<int> axis, Exactly<Index> begin, Exactly<Index> end, Exactly<Index> step = 1) const;
  Tensor transpose(Exactly<int> a, Exactly<int> b) const;
  Tensor t() const { return transpose(-2, -1); }
  // Axis i of the result is axis axes[i] of this tensor. Throws Error unless each axis is named once.
  Tensor permute(std::initializer_list<Exactly<int>> axes) const {
    return permute(std::vector<int>(axes.begin(), axes.end()));
  }
  Tensor permute(const std::vector<int>& axes) const;
  Tensor unsqueeze(Exactly<int> axis) const;       // inserts an axis of size 1
  Tensor squeeze(Exactly<int> axis) const;         // removes the axis; throws Error unless its size is 1
  Tensor expand(const Shape& shape) const;         // broadcasts: repeated elements share memory
  Tensor view(const Shape& shape) const;           // one size may be -1; throws Error if strides do not allow a view
  Tensor detach() const;                           // shares values; a constant for autodiff

  // Copies where needed; a tape records the copies.
  Tensor reshape(const Shape& shape) const;  // a view where strides allow it; one size may be -1
  Tensor flatten(Exactly<int> from = 0, Exactly<int> to = -1) const;  // joins axes from to `to`, inclusive
  Tensor contiguous() const;                                          // row-major; this tensor if it is contiguous
  Tensor clone() const;                                               // always a copy, row-major
  // Converts the elements. To int32: truncates towards 0; numbers out of range give the nearest int32, NaN gives 0. To
  // bool8: every number but 0 is true, and so is NaN. To q8_0: rounds as ggml does, and throws Error if a number is not
  // finite; no other quantized type can be converted to.
  Tensor to(DType dtype) const;

  // For ops: the address of the first element, null if undefined. Waits for values that have not arrived. raw() throws
  // Error for quantized tensors, so that an op which does not know them refuses them; memory() is for ops that do.
  void* raw() const { return address(static_cast<std::size_t>(offset_) * size_of(dtype_)); }
  void* memory() const { return address(bytes_of(dtype_, offset_)); }
  template <class T> T* ptr() const { return static_cast<T*>(raw()); }  // dtype unchecked; raises no version
  Index offset() const { return offset_; }  // of the first element from the start of the storage, in elements
  detail::Storage* storage() const { return storage_.get(); }
  std::uint64_t version() const { return storage_ ? storage_->version : 0; }
  void bump_version() { if (storage_) storage_->version++; }
  bool shares_storage(const Tensor& other) const { return storage_.get() == other.storage_.get(); }
  Tensor as_strided(const Shape& shape, const Strides& strides, Index offset) const;  // unchecked; absolute offset
  // A tensor on memory that is not from the pool and is aligned for the dtype. `keeper` owns the memory and is released
  // after the last tensor on it.
  static Tensor of_memory(void* data, std::shared_ptr<void> keeper, const Shape& shape, DType dtype);
  Tensor dense() const;  // contiguous(), but no tape records it; undefined if this tensor is

  // For autodiff: the tape's number of this value (0: none), and flags of values without a node.
  std::uint64_t node() const { return node_; }
  void set_node(std::uint64_t node) { node_ = node, detached_ = unrecorded_ = false; }
  Tensor with_node(std::uint64_t node) const { Tensor y = *this; y.set_node(node); return y; }
  bool is_detached() const { return detached_; }
  bool is_unrecorded() const { return unrecorded_; }  // depends on parameters, but no tape was recording
  void mark_detached() { detached_ = true; unrecorded_ = false; node_ = 0; }
  void mark_unrecorded() { set_node(0), unrecorded_ = true; }

 private:
  // A contiguous tensor at the start of the storage.
  Tensor(detail::StorageRef storage, const Shape& shape, DType dtype);

  detail::StorageRef storage_;
  Index offset_ = 0;
  Shape shape_;
  Strides strides_;
  std::uint64_t node_ = 0;
  DType dtype_ = DType::float32;
  bool detached_ = false;
  bool unrecorded_ = false;

  void* address(std::size_t offset) const {
    if (!defined()) return nullptr;
    if (detail::Arrival* a = storage_->arrival.load(std::memory_order_acquire)) [[unlikely]] a->wait();
    return static_cast<char*>(storage_->data) + offset;
  }
  void* checked(DType requested) const;
  double item_as_double() const;
};

std::ostream& operator<<(std::ostream& out, const Tensor& x);  // the values, nested as in NumPy, then shape and dtype
std::string describe(const Tensor& x);                         // shape and dtype: «[32, 128] float32»

#ifdef __clang__
#define HEED_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define HEED_LIFETIMEBOUND
#endif

// The parameter type of ops for tensors: a reference to a tensor, and the source location of the call, which the
// conversion from Tensor captures. Use it for function parameters only, because it keeps nothing alive. As a variable,
// In h = layer(x); refers to a tensor that is destroyed when the statement ends: write Tensor h. clang warns about such
// a variable, and so does g++ -Wall from -O1 on, if h is used.
class In {
 public:
  // Refers to x. `where` is the source location of the call.
  In(const Tensor& x HEED_LIFETIMEBOUND, Where where = Where::current()) : x_(&x), where_(where) {}
  // Reads the tensor, so that g++ can warn that it was destroyed. The read compiles to no code.
  In(const In& other) : x_(other.x_), where_(other.where_) {
    if (x_->rank() < 0) __builtin_unreachable();
  }
  In& operator=(const In&) = default;

  // The tensor, and the source location of the call.
  operator const Tensor&() const { return *x_; }
  const Tensor& tensor() const { return *x_; }
  const Tensor* operator->() const { return x_; }
  const Where& where() const { return where_; }

  // As the functions of Tensor.
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
// Copies values between tensors of the same shape, with any strides and dtypes. Raises no version; no tape records it.
void copy_values(Tensor& to, const Tensor& from);
void add_values(Tensor& to, const Tensor& from);  // to += from; `to` must not overlap itself
// Sums x over the axes that broadcasting from `shape` to x.shape() would repeat. The result has `shape`.
Tensor sum_to(const Tensor& x, const Shape& shape);
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

// The axes of a reduction: one, several, or none, which means all. Negative axes count from the end. A scalar is
// treated as a vector of one element, with the axis 0 or -1, as in PyTorch.
class Axes {
 public:
  Axes() = default;
  // One axis.
  template <class N>
  requires(detail::kWhole<N>) Axes(N axis) { add(Exactly<int>(axis)); }
  // max(x, 0.0) does not compile: the larger of each element and a number is maximum(x, 0.0), the smaller minimum().
  template <detail::NotWhole N>
  Axes(N axis) = delete;
  Axes(std::initializer_list<Exactly<int>> axes) {
    for (int a : axes) add(a);
  }
  Axes(const std::vector<int>& axes) {
    for (int a : axes) add(a);
  }

  // A mask with bit a set for each given axis a of x. Throws Error if x is undefined, or an axis is out of range or
  // given twice.
  unsigned of(const char* op, In x) const;
  int count() const { return count_; }  // axes given; 0: all

 private:
  void add(int axis);
  int axes_[kMaxRank] = {};
  int count_ = 0;
};

namespace detail {

// Throws Error unless x is floating.
void check_float(const char* op, In x);
// to(), but no tape records it.
Tensor cast(const Tensor& x, DType dtype);
// x in the dtype that ops compute in: bfloat16 becomes float32. The op rounds its result once.
inline Tensor widened(const Tensor& x) { return x.dtype() == DType::bfloat16 ? cast(x, DType::float32) : x; }
// Calls f(float{}) or f(double{}).
template <class F>
void with_float(DType dtype, F f) {
  if (dtype == DType::float64)
    f(double{});
  else
    f(float{});
}

// The axis counted from 0. Throws Error if x has no such axis.
int axis_of(const char* op, In x, int axis);

}  // namespace detail
}  // namespace heed
