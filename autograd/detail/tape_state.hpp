// The inside of a Tape, shared by the files of the engine.
#pragma once
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <vector>

namespace heed {

namespace detail {

// A value that some step made, a parameter, or a watched input: what has a gradient. The gradient is contiguous and has
// the shape of the whole value; views of the value read and write their part of it.
struct Node {
  Tensor gradient;   // undefined until first written; for a parameter, the parameter's own
  Tensor parameter;  // defined for a parameter
  Shape shape;
  Index offset = 0;              // of the value in its storage
  std::uint64_t version = 0;     // of the value's storage when the node was made; means nothing for a parameter
  DType dtype = DType::float32;  // of the gradient
  bool written = false;
  bool watched = false;
};

// Bump allocation for steps; the chunks go back to the pool with the tape.
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
  // Called during backward for each parameter whose gradient is complete: no step before reads it or adds to it, be it
  // inside of a function that recompute runs again.
  std::function<void(const Tensor& parameter)> completed;
  // Gradients that are computed before backward comes to a step, and the steps that they are of, which last so long.
  struct Late {
    std::size_t before;
    detail::Step* step;
    int input;
    std::function<Tensor()> gradient;
  };
  std::vector<Late> late;
  std::size_t running = 0;     // the step that backward runs
  std::uint64_t unfilled = 0;  // bit i: input i of the running step is a part of a gradient that holds no values yet

  std::uint32_t new_node(const Tensor& value);
  std::uint32_t node_of(const Tensor& x);  // kNotWanted for a constant; makes the leaf of a parameter at its first use
  std::uint64_t id(std::uint32_t node) const { return static_cast<std::uint64_t>(serial) << 32 | node; }
  Tensor& gradient_of(std::uint32_t node);  // allocated, not initialised
  bool is_written(std::uint32_t node) const;
  void set_written(std::uint32_t node);
  // Whether x, which has a node of this tape, was written to since: then the node is that of other values.
  bool is_stale(const Tensor& x) const { return nodes[static_cast<std::uint32_t>(x.node())].version != x.version(); }
  // The last step before the running one that reads a parameter, inside of a function that recompute runs again, too.
  std::optional<std::size_t> last_reader(const Tensor& parameter) const;
  void run(detail::Step& step, Tape& tape);
  void run_late(std::size_t before, Tape& tape);
  void release(detail::Step* step);  // ends it, where no late gradient is of it
  void clear();
};

namespace detail {
// The first run of a function that was given to recompute. It notes what ops read that was there before it began, to be
// kept as it is until backward runs the function again. What the function makes by itself is not held.
struct FirstRun {
  const std::uint64_t began = storages_made();
  const bool find_nan;
  std::vector<SavedTensor> read;
  void note(const Tensor& x);
};

// Whether x is of a type that has gradients, and is, or depends on, something that wants one.
bool is_variable(const Tensor& x);

// Whether backward of this thread's tape tells of gradients that are complete while it runs.
bool gradients_leave_early();

// Memory for a gradient of x that is computed before backward: the parameter's own where x is all of one that has no
// gradient yet, and nobody else looks at it. Grads::add then leaves it where it is.
Tensor gradient_memory(const Tensor& x, DType dtype);

// Throws Error if x, which is `what` of an op, holds a NaN, or an infinity where nothing that it was computed from
// holds one. A NaN that was given is one too: results being searched, it is from a constant, a parameter or dy, and no
// other op would tell.
void check_finite(const Tensor& x, const char* op, const char* what, const Where& where, const std::string& path,
                  std::span<const Tensor* const> from);
// The module of the first parameter among them, or the parameter itself where that is in none; empty if there is none.
std::string_view module_path(std::span<const Tensor* const> inputs);
// The innermost module that holds all parameters among them: mlp for those of mlp.up and mlp.down.
std::string_view module_of_all(std::span<const Tensor* const> inputs);
// What the derivative of a step must at least read and write.
double backward_bytes(const Tape::State& s, const Step& step);

// A tape of this thread begins, and gets its number; a tape ends.
std::uint32_t register_tape();
void unregister_tape(std::uint32_t serial);
}  // namespace detail

}  // namespace heed
