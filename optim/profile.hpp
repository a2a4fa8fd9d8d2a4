// What a step spends its time on: by op and by module, forward and backward, and what no op does (the optimizer,
// batches, evaluations). As a table, as numbers, and as a trace for chrome://tracing or Perfetto. Names are those of
// torch.profiler where it has one. docs/profiling.md explains a table.
//
// Example:
//
//   Rng rng(1);
//   Sequential model(Linear(16, 64, rng), relu, Linear(64, 4, rng));
//   AdamW optimizer(named_parameters(model), {.lr = 1e-3});
//   Profile profile({.warmup = 2, .active = 5});  // begins; it is this thread's
//   while (!profile.done()) {
//     {
//       Tape tape;
//       tape.backward(mean(model(rng.normal({32, 16}))));
//     }
//     optimizer.step();
//     optimizer.zero_grad();
//     profile.step();
//   }
//   profile.print(std::cout);
//   profile.export_chrome_trace("trace.json");
#pragma once
#include <filesystem>
#include <heed/core/dtype.hpp>
#include <heed/core/mode.hpp>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

namespace heed {

// Of one direction of an op, or of a part; all but the shares per step.
struct ProfileWork {
  double calls = 0;
  double seconds = 0;
  double flops = 0;            // of products: multiply-adds count as 2
  double bytes = 0;            // that it must read and write at least: inputs, results, what is kept for backward
  double share_of_peak = 0;    // of what peak_flops() of the operands' types would do in these seconds
  double share_of_memory = 0;  // of peak_bandwidth(); above 1 where the bytes are in caches
};

// Averages over the steps. Ops, parts and the rest add up to the step; spans overlap them. Beside them other threads
// work: those of several ranks (run()) send each other gradients and new values, and `bytes` are those that are sent.
struct ProfileRow {
  enum Kind { op, part, rest, span, beside };
  Kind kind = op;
  std::string name = {};    // "linear"; of a part "optimizer"; of a span as its RecordFunction was named; "values"
  std::string module = {};  // of an op: "blocks.2.mlp"; empty: the model itself
  ProfileWork forward = {}, backward = {};
  double seconds() const { return forward.seconds + backward.seconds; }
};

struct ProfileOptions {
  Index warmup = 0;                     // steps before the first that is measured
  Index active = 0;                     // steps that are measured; 0: all that follow
  Index trace_events = Index{1} << 20;  // that a trace holds at most, about 100 bytes each; the table counts all
};

// Measures the thread that it is made on until it ends there, like a Tape; one at a time. Each moment between two ops
// counts for the second: an op tells when it is done. So what a program computes by itself counts for the op after it,
// unless a RecordFunction holds it. What other threads do by themselves, as the making of batches, is not seen, but for
// what ranks send each other.
//
// An op counts for the innermost module that holds all parameters which it reads, as named_parameters() named them. One
// that reads none counts for that which holds both the last parameter read before it and the next one after it:
// attention for blocks.0.attention, between its qkv and its proj. What a derivative is made of counts for its op.
class Profile {
 public:
  explicit Profile(ProfileOptions options = {});  // Error where this thread has one already
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void step();        // a step is done, and the next begins; Error inside a backward pass
  void start();       // a step begins only now: what went before since the last one is left out
  bool done() const;  // all `active` steps were made: nothing is measured any more

  // Where step() was never called, all since the beginning is one step; else what follows the last step is left out.
  Index steps() const;     // that were measured
  double seconds() const;  // of one of them, on average

  // Longest first, each op once for every module. The first call measures the machine (peak_flops, peak_bandwidth).
  std::vector<ProfileRow> key_averages() const;

  // The same as tables, by op and by module and op, of at most so many rows; the shorter ones are one row then. Modules
  // that differ in a number alone, as those of the blocks, are one: blocks.*.mlp.
  void print(std::ostream& out, Index most_rows = 40) const;

  // The measured steps on a time line, as JSON: steps hold passes, these modules, and these ops. The file is whole when
  // it is there. Error where it cannot be written.
  void export_chrome_trace(const std::filesystem::path& file) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  detail::ModeScope scope_;
};

// A span of a profile for as long as it lives, with a name of the program's; nothing where no profile is.
class RecordFunction {
 public:
  explicit RecordFunction(const std::string& name);
  ~RecordFunction();
  RecordFunction(const RecordFunction&) = delete;
  RecordFunction& operator=(const RecordFunction&) = delete;

 private:
  detail::Profiler* profiler_;
  std::uint64_t begun_ = 0;
};

}  // namespace heed
