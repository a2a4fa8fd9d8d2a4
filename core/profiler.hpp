// The interface by which ops report to the Profile of their thread (optim/profile/profile.hpp), if there is one.
// Internal.
#pragma once
#include <array>
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <heed/core/mode.hpp>
#include <string_view>

namespace heed::detail {

// The time between two calls counts for the op or scope that the second call names. So ops report only when they end.
class Profiler {
 public:
  // Time of ops inside a `part`, such as an evaluation, counts for the part. Time of ops inside a `pass` over the ops
  // of a tape, or inside a `span` named by a program, counts for the ops.
  enum class Scope { part, pass, span };

  // Reports that an op has computed its result. `module` is the module of the parameters that the op reads; empty if it
  // reads none. Returns the number of the op for begin_backward(), or 0 if nothing is measured.
  virtual std::uint64_t op(const char* name, std::string_view module, double bytes) = 0;
  // Report the begin of a scope, or of the derivative of op number `op`. `name` and `module` are used if the op was not
  // reported in the step that is measured. Both return the number for end().
  virtual std::uint64_t begin(const char* name, Scope kind) = 0;
  virtual std::uint64_t begin_backward(std::uint64_t op, const char* name, std::string_view module, double bytes) = 0;
  virtual void end(std::uint64_t begun) noexcept = 0;
  virtual void leave_out() = 0;  // the time since the last call counts for no op
  // Reports a part that has ended inside the current op. Its time does not count for the op. Times are in seconds, as
  // from seconds_now().
  virtual void waited(const char* name, double begin, double end) = 0;
  // Reports work of another thread at the same time. Called on this thread, before the step ends.
  virtual void concurrent(const char* name, double begin, double end, double bytes) = 0;

  // Adds floating-point operations, 2 per multiply-add, of products with operands of this type as the machine reads
  // them. A driver reports them once per call, on the thread of its op.
  void count(DType operands, double flops) { flops_[static_cast<std::size_t>(operands)] += flops; }

 protected:
  ~Profiler() = default;
  std::array<double, 5> flops_ = {};  // by DType, not yet assigned to an op
};

inline void count_flops(DType operands, double flops) {
  if (Profiler* p = mode().profiler) p->count(operands, flops);
}

// Reports its scope as a part of a step, or as a pass.
class ProfileScope {
 public:
  explicit ProfileScope(const char* name, Profiler::Scope kind = Profiler::Scope::part) : profiler_(mode().profiler) {
    if (profiler_ != nullptr) begun_ = profiler_->begin(name, kind);
  }
  ~ProfileScope() {
    if (profiler_ != nullptr && profiler_ == mode().profiler) profiler_->end(begun_);  // else the profile has ended
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profiler* profiler_;
  std::uint64_t begun_ = 0;
};

}  // namespace heed::detail
