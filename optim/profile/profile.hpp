// The time and work of training steps: by op and by module, forward and backward, and of everything that is not an op
// (the optimizer, batches, evaluations). As a table, as numbers, and as a trace for chrome://tracing or Perfetto. Names
// are those of torch.profiler where it has one. docs/profiling.md explains a table.
//
// Example:
//
//   Rng rng(1);
//   Sequential model(Linear(16, 64, rng), relu, Linear(64, 4, rng));
//   AdamW optimizer(named_parameters(model), {.lr = 1e-3});
//   Profile profile({.warmup = 2, .active = 5});  // begins to measure this thread
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

// Work of one direction of an op, or of a part. All numbers except the shares are per step.
struct ProfileWork {
  double calls = 0;            // number of calls
  double seconds = 0;          // of the thread of the profile; for `concurrent`, of other threads
  double flops = 0;            // of products; a multiply-add counts as 2
  double bytes = 0;            // min bytes to read and write: inputs, results, and tensors kept for backward
  double share_of_peak = 0;    // time at peak_flops() of the operands' types, relative to `seconds`
  double share_of_memory = 0;  // of peak_bandwidth(); above 1 if the bytes are in caches
};

// A row of averages over the steps. Ops, parts and the rest add up to the step. Spans overlap them. Rows of kind
// `concurrent` are work of other threads at the same time: the ranks of a run exchange gradients and new values, and
// `bytes` are those sent.
struct ProfileRow {
  // rest: the time of a step outside of ops and parts.
  enum Kind { op, part, rest, span, concurrent };
  Kind kind = op;  // defines which of the following are set
  std::string name =
      {};  // "linear"; of a part "optimizer"; of a span the name of its RecordFunction; concurrent: "values"
  std::string module = {};  // of an op: "blocks.2.mlp"; empty: the model itself
  ProfileWork forward = {}, backward = {};                               // only ops have `backward`
  double seconds() const { return forward.seconds + backward.seconds; }  // both directions
};

// Options of a Profile.
struct ProfileOptions {
  Index warmup = 0;                     // steps before the first measured step
  Index active = 0;                     // measured steps; 0: all after the warm-up
  Index trace_events = Index{1} << 20;  // max events of a trace, about 100 bytes each; tables count all events
};

// Measures the thread that made it until it is destroyed there, like a Tape. A thread has one profile at a time. The
// time between two ops counts for the second op, because an op reports when it is done. So the program's own
// computations count for the next op, unless they are inside a RecordFunction. The work of other threads, such as
// making batches, is not measured, except exchanges between ranks.
//
// An op counts for the innermost module that contains all parameters that the op reads, by their names from
// named_parameters(). An op that reads none counts for the innermost module that contains the last parameter read
// before it and the next one read after it: attention for blocks.0.attention, between its qkv and its proj. The ops of
// a derivative count for its op.
class Profile {
 public:
  explicit Profile(ProfileOptions options = {});  // throws Error if this thread has a profile already
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void step();        // ends a step and begins the next; throws Error inside a backward pass
  void start();       // begins the step now, without the time since the last step; throws Error inside a backward pass
  bool done() const;  // whether all `active` steps are measured; then nothing is measured any more

  // If step() was never called, results are those of one step, from the beginning to now. Otherwise the time after the
  // last step is left out.
  Index steps() const;     // measured steps: calls of step() after the warm-up
  double seconds() const;  // average time per step

  // All rows, by kind, then by time, the longest first; one row per op and module. The first call measures the machine
  // (peak_flops(), peak_bandwidth()).
  std::vector<ProfileRow> key_averages() const;

  // Prints tables by op and by op and module, of at most max_rows rows; the shortest ops are joined in one row.
  // Modules that differ only in numbers, such as those of the blocks, are joined: blocks.*.mlp.
  void print(std::ostream& out, Index max_rows = 40) const;

  // Writes the measured steps on a time line, as JSON: steps contain passes, passes contain modules, modules contain
  // ops. The file is replaced whole. Throws Error if it cannot be written.
  void export_chrome_trace(const std::filesystem::path& file) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  detail::ModeScope scope_;
};

// Records its lifetime as a span with this name. Does nothing if the thread has no profile.
class RecordFunction {
 public:
  explicit RecordFunction(const std::string& name);  // begins the span
  ~RecordFunction();
  RecordFunction(const RecordFunction&) = delete;
  RecordFunction& operator=(const RecordFunction&) = delete;

 private:
  detail::Profiler* profiler_;
  std::uint64_t begun_ = 0;
};

}  // namespace heed
