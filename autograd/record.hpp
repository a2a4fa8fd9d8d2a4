// The interface for writers of ops: record() stores on the tape how to compute the derivative of an op.
//
// The closure receives the gradient of the output (contiguous, the output's shape) and the saved tensors, or structs of
// tensors. It captures scalars by name and must not capture tensors: the tape could neither count their memory nor
// detect writes to them, and no error would be reported. Nothing is recorded inside the closure. After record(), y
// depends on the inputs, even if its values were computed under NoTape or from detached tensors. record() costs next to
// nothing if no input needs a gradient.
//
// Example:
//
//   struct Double {  // a custom op: 2 x
//     static Tensor of(In x) {
//       Tensor y;
//       {
//         NoTape no_tape;
//         y = x * 2;
//       }
//       record("double", x.where(), y, {x}, saved(), [](Grads& d, const Tensor& dy) { d.add(0, dy * 2); });
//       return y;
//     }
//   };
#pragma once
#include <array>
#include <functional>
#include <heed/core/members.hpp>
#include <heed/core/tensor.hpp>
#include <optional>
#include <span>
#include <tuple>

namespace heed {

namespace detail {
struct Node;
struct Step;
struct InputRef;
}  // namespace detail

// The memory that a derivative writes to. `gradient` has the shape of the input: add to it if `accumulate`, otherwise
// overwrite all of it.
struct Target {
  Tensor gradient;                                               // undefined if the gradient is not needed
  bool accumulate = false;                                       // false: `gradient` holds no values yet
  explicit operator bool() const { return gradient.defined(); }  // false: this gradient is not needed
};

// The gradients of a step's inputs, indexed by position in the list given to record().
class Grads {
 public:
  bool needs(int i) const;  // whether input i needs a gradient; throws Error if there is no input i

  // Adds a computed gradient of input i. It may have any shape to which the input was broadcast, and is summed to the
  // input's shape. Throws Error for other shapes and if it is not floating.
  void add(int i, const Tensor& gradient);

  // As add(), with a gradient that may be computed later. This matters where complete gradients are sent during
  // backward (several ranks). If earlier ops also read the parameter, its gradient is not complete before backward has
  // run these ops, and computing it now would delay others. So gradient() is called just before backward reaches the
  // nearest of these ops. In all other cases gradient() is called at once.
  void add_later(int i, std::function<Tensor()> gradient);

  // Memory to write the gradient of input i into directly; undefined if it is not needed. dense() is contiguous.
  // strided() may have the strides of an input that is a view, but never overlaps itself or another target of this
  // step.
  Target dense(int i);
  Target strided(int i);

  Grads(detail::Step& step, Tape& tape);  // made by the engine
  void finish();                          // called by the engine: adds gradients that could not be written in place
  Grads(const Grads&) = delete;
  Grads& operator=(const Grads&) = delete;

 private:
  detail::Step& step_;
  Tape& tape_;
  static constexpr int kPending = 16;
  struct Pending {
    int input;
    Tensor gradient;
  };
  std::array<Pending, kPending> pending_;
  int pending_count_ = 0;
  std::uint64_t handed_out_ = 0;  // bit i: target i is a view of the root's gradient

  Target target(int i);
  Target aside(int i);
  bool writes_in_place(int i) const;
  void add_now(int i, const Tensor& gradient);
};

namespace detail {

struct SavedTensor {
  Tensor tensor;
  std::uint64_t version = 0;
};

inline constexpr std::uint32_t kNoNode = 0xffffffffu;

// An input of a step: the node of its gradient, and its part of that gradient. `offset`, in elements, is relative to
// the node's value. Parameters are kept alive by their nodes.
struct InputRef {
  std::uint32_t node = kNoNode;
  Index offset = 0;
  Shape shape = {};
  Strides strides = {};
};

struct Step {
  const char* op = "";
  Where where;
  std::uint64_t profiled = 0;  // the op's number in a profile, or 0
  std::uint32_t output = 0;
  std::span<InputRef> inputs;
  virtual ~Step() = default;
  virtual void run(Grads& d, const Tensor& dy) = 0;
  virtual std::span<const SavedTensor> saved() const = 0;
};

// A struct that contains tensors and is saved as a whole: `tensors()` returns a std::tie of all its tensors.
template <class T>
concept TensorStruct = requires(T& x) {
  x.tensors();
};

template <class T>
constexpr std::size_t tensors_in() {
  if constexpr (TensorStruct<T>)
    return std::tuple_size_v<decltype(std::declval<T&>().tensors())>;
  else
    return 1;
}

inline SavedTensor save(const Tensor& x) {
  SavedTensor s{x, x.version()};
  s.tensor.mark_detached();  // a constant inside the closure
  return s;
}

// Saved tensors and structs. The tensors of a struct are stored with the other tensors.
template <class... T>
class Saved {
 public:
  explicit Saved(const T&... x) : rest_{rest_of(x)...} {
    [[maybe_unused]] std::size_t at = 0;
    (each_tensor(x, [&](const Tensor& tensor) { tensors_[at++] = save(tensor); }), ...);
  }
  std::span<const SavedTensor> list() const { return tensors_; }
  template <class F>
  void call(F& f, Grads& d, const Tensor& dy) {
    call(f, d, dy, std::index_sequence_for<T...>());
  }

 private:
  struct Nothing {};
  template <class X>
  using Rest = std::conditional_t<TensorStruct<X>, X, Nothing>;  // the struct; its tensors are undefined until call()

  std::array<SavedTensor, (tensors_in<T>() + ... + 0)> tensors_;
  std::tuple<Rest<T>...> rest_;

  template <class X>
  static void each_tensor(X& x, auto&& f) {
    if constexpr (TensorStruct<std::remove_const_t<X>>)
      std::apply([&](auto&... tensor) { (f(tensor), ...); }, const_cast<std::remove_const_t<X>&>(x).tensors());
    else
      f(x);
  }
  template <class X>
  static Rest<X> rest_of(const X& x) {
    Rest<X> rest;
    if constexpr (TensorStruct<X>) {
      rest = x;
      each_tensor(rest, [](Tensor& tensor) { tensor = Tensor(); });
    }
    return rest;
  }
  template <class X>
  const X& restored(Rest<X>& rest, std::size_t& at) {
    if constexpr (TensorStruct<X>) {
      each_tensor(rest, [&](Tensor& tensor) { tensor = tensors_[at++].tensor; });
      return rest;
    } else {
      return tensors_[at++].tensor;
    }
  }
  template <class F, std::size_t... I>
  void call(F& f, Grads& d, const Tensor& dy, std::index_sequence<I...>) {
    [[maybe_unused]] std::size_t at = 0;
    const std::tuple<const T&...> all{restored<T>(std::get<I>(rest_), at)...};  // braces: evaluated from left to right
    f(d, dy, std::get<I>(all)...);
  }
};

// A list of tensors whose number is known at run time only. The closure gets one std::vector<Tensor>.
struct SavedList {
  std::vector<SavedTensor> tensors;

  std::span<const SavedTensor> list() const { return tensors; }
  template <class F>
  void call(F& f, Grads& d, const Tensor& dy) {
    std::vector<Tensor> list;
    for (const SavedTensor& s : tensors) list.push_back(s.tensor);
    f(d, dy, list);
  }
};

template <class Kept, class F>
struct StepOf final : Step {
  Kept kept;
  F f;
  StepOf(Kept k, F fn) : kept(std::move(k)), f(std::move(fn)) {}
  void run(Grads& d, const Tensor& dy) override { kept.call(f, d, dy); }
  std::span<const SavedTensor> saved() const override { return kept.list(); }
};

// Returns true if a tape of this thread records and some input needs a gradient; otherwise sets y's marks. Throws Error
// where continuing would give a wrong gradient (see Tape), if y is not new, and if the tape ran backward already.
// `inside` is given for an op made of ops, which were already searched for NaN: whether parameters inside need a
// gradient.
bool begin_step(const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs,
                std::span<const SavedTensor> kept, std::optional<bool> inside);
void* step_memory(std::size_t bytes, std::size_t alignment);
void end_step(Step* step, const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs);

}  // namespace detail

// The tensors that a derivative needs, of which some may be undefined, and structs of tensors (detail::TensorStruct).
template <class... T>
auto saved(const T&... x) {
  return detail::Saved<std::conditional_t<std::is_convertible_v<const T&, const Tensor&>, Tensor, T>...>(x...);
}

// The same for a list of tensors. The closure gets one std::vector<Tensor>.
inline detail::SavedList saved_list(const std::vector<Tensor>& tensors) {
  detail::SavedList kept;
  for (const Tensor& x : tensors) kept.tensors.push_back(detail::save(x));
  return kept;
}

// The inputs of an op, as given to record(). Throws Error for more than kMaxInputs.
class Inputs {
 public:
  // Refers to the tensors, which must outlive the Inputs.
  Inputs(std::initializer_list<In> inputs) {
    check_count(inputs.size());
    for (const In& x : inputs) list_[count_++] = &x.tensor();
  }
  explicit Inputs(std::span<const Tensor> inputs) {
    check_count(inputs.size());
    for (const Tensor& x : inputs) list_[count_++] = &x;
  }
  std::span<const Tensor* const> list() const { return {list_.data(), count_}; }  // in the order given

  static constexpr std::size_t kMaxInputs = 64;  // per op

 private:
  std::array<const Tensor*, kMaxInputs> list_;
  std::size_t count_ = 0;

  static void check_count(std::size_t n) {
    require(n <= kMaxInputs, "record: ", n, " inputs; an op has at most ", kMaxInputs, ": split it up");
  }
};

namespace detail {
// record(). `inside`, for recompute: records a step also if no input needs a gradient, but parameters inside do.
template <class Kept, class F>
void record_step(const char* op, const Where& where, Tensor& y, const Inputs& inputs, std::optional<bool> inside,
                 Kept&& kept, F&& f) {
  if (!begin_step(op, where, y, inputs.list(), kept.list(), inside)) return;
  using S = StepOf<Kept, F>;
  auto* step = new (step_memory(sizeof(S), alignof(S))) S(std::move(kept), std::move(f));
  end_step(step, op, where, y, inputs.list());
}
}  // namespace detail

// Appends the step that computes the gradients of the inputs: f(Grads& d, const Tensor& dy, saved...). y must be new:
// contiguous, in its own storage. Throws Error otherwise, and where a gradient would be wrong (see Tape).
template <class Kept, class F>
void record(const char* op, const Where& where, Tensor& y, const Inputs& inputs, Kept kept, F f) {
  detail::record_step(op, where, y, inputs, std::nullopt, std::move(kept), std::move(f));
}

// For functions that read tensors but have no derivative (comparisons) and so record no step. In the first run of a
// function given to recompute, this notes the tensors that its second run needs. record() notes the inputs and the
// saved tensors itself.
void note_reads(const Inputs& inputs);

// Whether an op with these inputs would be recorded now. Ops check this before they compute values that only backward
// needs.
bool needs_gradient(std::span<const Tensor* const> inputs);
inline bool needs_gradient(std::initializer_list<In> inputs) { return needs_gradient(Inputs(inputs).list()); }

}  // namespace heed
