// What writers of ops use: record() tells the tape how to take an op's derivative.
//
// The closure gets the output's gradient (contiguous, the output's shape) and what was saved, tensors or structs of
// them; it captures scalars by name, never tensors: of a captured one the tape would know neither the size nor whether
// it was written to, and nothing tells. Inside it nothing is recorded. Whatever y's values came from, under NoTape or
// by detach(), from here on it depends on the inputs. record() costs next to nothing where no input wants a gradient.
//
// Example:
//
//   struct Double {  // an op of one's own: 2 x
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

// Where a derivative writes. `gradient` has the shape of the input; add to it if `accumulate`, else overwrite all of
// it.
struct Target {
  Tensor gradient;
  bool accumulate = false;
  explicit operator bool() const { return gradient.defined(); }  // false: this gradient is not wanted
};

// The gradients of a step's inputs, by their position in the list given to record().
class Grads {
 public:
  bool wants(int i) const;

  // Adds a computed gradient. It may have any shape to which the input was broadcast: it is summed to the input's
  // shape.
  void add(int i, const Tensor& gradient);

  // The same, computed when it is needed: where complete gradients are sent on while backward runs (several ranks),
  // that of a parameter which earlier ops read, too, keeps others waiting and is not complete; it is computed just
  // before backward comes to these ops. In all other cases at once.
  void add_later(int i, std::function<Tensor()> gradient);

  // Memory to write the gradient into directly. `dense` is contiguous; `strided` may have the input's strides (of a
  // view) but never overlaps itself or another target of this step.
  Target dense(int i);
  Target strided(int i);

  Grads(detail::Step& step, Tape& tape);
  void finish();  // the engine's: adds what could not be written in place
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
  std::uint64_t handed_out_ = 0;  // bit i: target i was given out as a view of the root's gradient

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

inline constexpr std::uint32_t kNotWanted = 0xffffffffu;

// An input of a step: which node's gradient, and which part of it. A parameter is held by its storage.
struct InputRef {
  std::uint32_t node = kNotWanted;
  Index offset = 0;
  Shape shape = {};
  Strides strides = {};
};

struct Step {
  const char* op = "";
  Where where;
  std::uint64_t profiled = 0;  // the op's number in a profile
  std::uint32_t output = 0;
  std::span<InputRef> inputs;
  virtual ~Step() = default;
  virtual void run(Grads& d, const Tensor& dy) = 0;
  virtual std::span<const SavedTensor> saved() const = 0;
};

// A struct of tensors and of other things, which is saved whole: `tensors()` is a std::tie of all its tensors.
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

// Tensors, and structs of them, whose tensors are kept among the others.
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
  using Rest = std::conditional_t<TensorStruct<X>, X, Nothing>;  // the struct, whose tensors are undefined meanwhile

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
    const std::tuple<const T&...> all{restored<T>(std::get<I>(rest_), at)...};  // in braces: from left to right
    f(d, dy, std::get<I>(all)...);
  }
};

// As many as there are at run time: the closure gets one std::vector<Tensor>.
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

// True if a tape of this thread records and some input wants a gradient; sets y's marks where none does. Throws Error
// where silence would mean a wrong gradient (see Tape), and where y or the tape can have no step. `inside` is given for
// an op that is made of ops, which were searched for NaN one by one: whether parameters inside want a gradient.
bool begin_step(const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs,
                std::span<const SavedTensor> kept, std::optional<bool> inside = std::nullopt);
void* step_memory(std::size_t bytes, std::size_t alignment);
void end_step(Step* step, const char* op, const Where& where, Tensor& y, std::span<const Tensor* const> inputs);

}  // namespace detail

// What the derivative needs: tensors, of which some may be undefined, and structs of them (detail::TensorStruct).
template <class... T>
auto saved(const T&... x) {
  return detail::Saved<std::conditional_t<std::is_convertible_v<const T&, const Tensor&>, Tensor, T>...>(x...);
}

inline detail::SavedList saved_list(const std::vector<Tensor>& tensors) {
  detail::SavedList kept;
  for (const Tensor& x : tensors) kept.tensors.push_back(detail::save(x));
  return kept;
}

// An op's inputs as given to record().
class Inputs {
 public:
  Inputs(std::initializer_list<In> inputs) {
    check_count(inputs.size());
    for (const In& x : inputs) list_[count_++] = &x.tensor();
  }
  explicit Inputs(std::span<const Tensor> inputs) {
    check_count(inputs.size());
    for (const Tensor& x : inputs) list_[count_++] = &x;
  }
  std::span<const Tensor* const> list() const { return {list_.data(), count_}; }

  static constexpr std::size_t kMostInputs = 64;

 private:
  std::array<const Tensor*, kMostInputs> list_;
  std::size_t count_ = 0;

  static void check_count(std::size_t n) {
    require(n <= kMostInputs, "record: ", n, " inputs; an op has at most ", kMostInputs, ": split it up");
  }
};

namespace detail {
template <class Kept, class F>
void append_step(const char* op, const Where& where, Tensor& y, const Inputs& inputs, Kept kept, F f) {
  using S = StepOf<Kept, F>;
  auto* step = new (step_memory(sizeof(S), alignof(S))) S(std::move(kept), std::move(f));
  end_step(step, op, where, y, inputs.list());
}

// For recompute: a step is due even where no input wants a gradient, if parameters inside do.
template <class Kept, class F>
void record_always(const char* op, const Where& where, Tensor& y, const Inputs& inputs, bool inside, Kept kept, F f) {
  if (begin_step(op, where, y, inputs.list(), kept.list(), inside))
    append_step(op, where, y, inputs, std::move(kept), std::move(f));
}
}  // namespace detail

// Appends the step that takes dy to the gradients of the inputs. y must be new: contiguous, in storage of its own.
template <class Kept, class F>
void record(const char* op, const Where& where, Tensor& y, const Inputs& inputs, Kept kept, F f) {
  if (detail::begin_step(op, where, y, inputs.list(), kept.list()))
    detail::append_step(op, where, y, inputs, std::move(kept), std::move(f));
}

// For what reads tensors but is not recorded, as it has no derivative (comparisons): recompute, in the first run of its
// function, notes what that needs again. record() does so by itself for the inputs and for what is saved.
void note_reads(const Inputs& inputs);

// Whether an op whose inputs these are would be recorded now: ops ask it before computing what only backward needs.
bool wants_gradient(std::span<const Tensor* const> inputs);
inline bool wants_gradient(std::initializer_list<In> inputs) { return wants_gradient(Inputs(inputs).list()); }

}  // namespace heed
