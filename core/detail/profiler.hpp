// What the engine tells the Profile of this thread (optim/profile.hpp), if there is one. Internal.
#pragma once
#include <array>
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <heed/core/mode.hpp>
#include <string_view>

namespace heed::detail {

// Each moment belongs to one thing: the time since the last of these calls to what the next one names, so that no op
// need say when it begins.
class Profiler {
 public:
  // A `part` of a step is no op, and takes the time of the ops in it, as an evaluation does. A `pass` over the ops of a
  // tape, and a `span` that a program names, leave them theirs.
  enum class Scope { part, pass, span };

  // An op has computed its result. `module`: of the parameters that it reads, empty if it reads none. Gives the
  // number by which its derivative is known, 0 where nothing is measured.
  virtual std::uint64_t op(const char* name, std::string_view module, double bytes) = 0;
  // What takes a while: a scope, or the derivative of an op, whose `name` and `module` count where its number is not of
  // the step that is measured. Both give the number to end it by.
  virtual std::uint64_t begin(const char* name, Scope kind) = 0;
  virtual std::uint64_t begin_backward(std::uint64_t op, const char* name, std::string_view module, double bytes) = 0;
  virtual void end(std::uint64_t begun) noexcept = 0;
  virtual void leave_out() = 0;  // the time up to now is no op's
  // A part inside the op that goes on, which is over: its time is not the op's. In seconds of seconds_now().
  virtual void waited(const char* name, double begin, double end) = 0;
  // What another thread did meanwhile, in the same seconds; told on this one, before the step is over.
  virtual void beside(const char* name, double begin, double end, double bytes) = 0;

  // Floating-point operations, 2 a multiply-add, of products whose operands are of this type as the machine reads them.
  // A driver tells them once a call, on the thread of its op.
  void count(DType operands, double flops) { flops_[static_cast<std::size_t>(operands)] += flops; }

 protected:
  ~Profiler() = default;
  std::array<double, 5> flops_ = {};  // by DType, since they were last taken
};

inline void count_flops(DType operands, double flops) {
  if (Profiler* p = mode().profiler) p->count(operands, flops);
}

// A part of a step that is no op, or a pass, for as long as it lives.
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
