// A tensor that is trained.
#pragma once
#include <atomic>
#include <heed/core/tensor.hpp>

namespace heed {

namespace detail {
struct ParameterInfo {
  Shape shape;                  // of the whole parameter, whatever view of it is used
  std::string path;             // blocks.0.norm.weight, once the model was named
  Tensor gradient;              // allocated at the first backward, then kept
  bool has_gradient = false;    // false: the next write overwrites
  bool requires_grad = true;
  Where made;
  std::atomic<int> trainers = 0;  // live optimizers that step it
  std::atomic<int> owners = 1;  // live Parameters of the storage; 0: only tensors hold it, and no model trains it any more
  std::uint64_t node = 0;       // on the tape that used it last: one leaf a tape, however often it is used
};
}  // namespace detail

// A Tensor whose gradient Tape::backward accumulates. Move-only, so that a model is not aliased by accident: clone() copies
// a model, tie() shares a parameter on purpose.
class Parameter : public Tensor {
 public:
  Parameter() = default;
  // Takes the values over (copies them where the storage is shared or not contiguous). Errors name where it was made.
  explicit Parameter(Tensor value, Where made = Where::current());
  Parameter(Parameter&&) noexcept = default;  // the owner moves: their number stays
  Parameter& operator=(Parameter&& other) noexcept;
  ~Parameter() { count_owners(-1); }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // Undefined before the first backward and after zero_grad(). It is the gradient itself: a later backward adds to it, but
  // after zero_grad() leaves it as it is to whoever still holds it.
  Tensor grad() const;
  void zero_grad();
  bool requires_grad() const;
  void requires_grad_(bool on);  // false freezes it
  const std::string& path() const;
  void set_path(std::string path);

  friend void tie(Parameter& a, Parameter& b);

 private:
  void count_owners(int change) noexcept;
};

// b becomes another name of a: one storage, one gradient, counted and saved once. Shapes and dtypes must agree.
void tie(Parameter& a, Parameter& b);

}  // namespace heed
