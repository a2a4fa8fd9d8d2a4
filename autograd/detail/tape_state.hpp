// The state of a Tape, shared by the sources of the engine.
#pragma once
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <vector>

namespace heed {

namespace detail {

// A value that has a gradient: the result of a step, a parameter, or a watched input. The gradient is contiguous and
// has the shape of the whole value. Views of the value read and write their part of it.
struct Node {
  Tensor gradient;   // undefined until first written; unused for a parameter, which has its own
  Tensor parameter;  // defined for a parameter
  Shape shape;
  Index offset = 0;              // of the value in its storage, in elements
  std::uint64_t version = 0;     // of the value's storage when the node was made; meaningless for a parameter
  DType dtype = DType::float32;  // of the gradient
  bool written = false;          // the gradient holds values
  bool watched = false;          // the gradient is kept for Tape::grad()
};

// Bump allocator for steps. clear() returns its chunks to the pool.
class Arena {
 public:
  ~Arena() { clear(); }
  void* allocate(std::size_t bytes, std::size_t alignment);
  void clear();

 private:
  static constexpr std::size_t kChunk = 64 * 1024;
  struct Chunk {
    char* data;
    std::size_t size;
  };
  std::vector<Chunk> chunks_;
  std::size_t used_ = 0;
};

}  // namespace detail

struct Tape::State {
  TapeOptions options;
  std::uint32_t serial = 0;
  bool spent = false;
  std::vector<detail::Node> nodes;
  std::vector<detail::Step*> steps;
  detail::Arena arena;
  // Called during backward with each parameter whose gradient is complete: no earlier step reads it or adds to it,
  // including steps inside functions that recompute runs again.
  std::function<void(const Tensor& parameter)> completed;
  // Gradients from Grads::add_later(), to compute before backward reaches step `before`. `step` is their step, which is
  // kept until then.
  struct Late {
    std::size_t before;
    detail::Step* step;
    int input;
    std::function<Tensor()> gradient;
  };
  std::vector<Late> late;
  std::size_t running = 0;     // index of the step that backward runs
  std::uint64_t unfilled = 0;  // bit i: input i of the running step is part of a gradient and holds no values yet

  std::uint32_t new_node(const Tensor& value);
  std::uint32_t node_of(const Tensor& x);  // kNoNode for a constant; makes a parameter's node at its first use
  std::uint64_t id(std::uint32_t node) const { return static_cast<std::uint64_t>(serial) << 32 | node; }
  Tensor& gradient_of(std::uint32_t node);  // allocated, not initialised
  bool is_written(std::uint32_t node) const;
  void set_written(std::uint32_t node);
  // Whether x, which has a node of this tape, was written to since: its values are then not those of the node.
  bool is_stale(const Tensor& x) const { return nodes[static_cast<std::uint32_t>(x.node())].version != x.version(); }
  // The last step before the running one that reads a parameter, also inside a function that recompute runs again.
  std::optional<std::size_t> last_reader(const Tensor& parameter) const;
  void run(detail::Step& step, Tape& tape);
  void run_late(std::size_t before, Tape& tape);
  void release(detail::Step* step);  // destroys the step unless a late gradient needs it
  void clear();
};

namespace detail {
// The first run of a function given to recompute. Notes each tensor that ops read and that is older than the run, so
// that it is kept until backward runs the function again. Tensors made by the function are not kept.
struct FirstRun {
  const std::uint64_t began = storages_made();
  const bool find_nan;
  std::vector<SavedTensor> read;
  void note(const Tensor& x);
};

// Calls f for each parameter that a step reads. Parameters read by a function that recompute runs again are among the
// tensors saved by its step.
template <class F>
void each_parameter(const Tape::State& s, const Step& step, const F& f) {
  for (const InputRef& in : step.inputs)
    if (in.node != kNoNode && s.nodes[in.node].parameter.defined()) f(s.nodes[in.node].parameter);
  for (const SavedTensor& kept : step.saved())
    if (kept.tensor.defined() && kept.tensor.storage()->parameter != nullptr) f(kept.tensor);
}

// Whether x is floating, and is or depends on a tensor that needs a gradient.
bool is_variable(const Tensor& x);

// Whether backward of this thread's tape reports complete gradients while it runs (several ranks).
bool gradients_leave_early();

// Memory for a gradient of x that is computed before backward. It is the parameter's own gradient if x is a whole
// parameter without gradient and nothing else refers to that memory. Grads::add then leaves the values in place.
Tensor gradient_memory(const Tensor& x, DType dtype);

// Throws Error if x holds a NaN, or an infinity while no tensor in `from` holds one. `what` names x in the message. A
// NaN is an error even if an input holds it: results are searched, so it is from a constant, a parameter or dy, and no
// other op would report it.
void check_finite(const Tensor& x, const char* op, const char* what, const Where& where, const std::string& path,
                  std::span<const Tensor* const> from);
// The module of the first parameter among the inputs, or the path of a parameter outside of modules; empty if there is
// none.
std::string_view module_path(std::span<const Tensor* const> inputs);
// The module of the first parameter that the step reads; empty if there is none.
std::string_view module_of(const Tape::State& s, const Step& step);
// The innermost module that contains all parameters among the inputs: mlp for parameters of mlp.up and mlp.down.
std::string_view module_of_all(std::span<const Tensor* const> inputs);
// Bytes that the derivative of a step reads and writes at least.
double backward_bytes(const Tape::State& s, const Step& step);

// Registers a new tape of this thread and returns its number; removes a tape that ends.
std::uint32_t register_tape();
void unregister_tape(std::uint32_t serial);
}  // namespace detail

}  // namespace heed
