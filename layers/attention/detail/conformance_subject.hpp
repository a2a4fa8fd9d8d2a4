// Types shared by the checks of conformance.hpp: the mechanism under test, its problems, and the findings of a check.
#pragma once
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/conformance.hpp>
#include <memory>
#include <optional>
#include <set>

namespace heed::detail::conformance {

// Restores the number of threads at the end of the scope.
struct RestoreThreads {
  int before = threads();
  ~RestoreThreads() { set_threads(before); }
};

// One problem, in float64 with values that float32 represents exactly.
struct Trial {
  Tensor q, k, v;  // [B, H, T, D], [B, Hk, S, D], [B, Hk, S, Dv]
  Tensor dy;       // [B, H, T, Dv]
  AttentionCall call = {};
  std::string name = "plain";                 // describes the call, for failures
  std::vector<Tensor> inputs = {};            // other inputs of the mechanism: [B, H, T, size] or [B, Hk, S, size]
  std::vector<MechanismInput> declared = {};  // declarations of `inputs`, in the same order

  void members(MemberVisitor& visit) {
    visit.buffer("q", q), visit.buffer("k", k), visit.buffer("v", v), visit.buffer("dy", dy);
    visit("call", call);
    for (std::size_t i = 0; i < inputs.size(); ++i) visit.buffer("input " + declared[i].name, inputs[i]);
  }
};

// q, k, v and the inputs of a trial, by the names of their gradients: "q", "k", "v", "input NAME".
std::vector<NamedBuffer> parts(Trial& trial);
std::vector<NamedBuffer> query_parts(Trial& trial);     // those per query: q, inputs
std::vector<NamedBuffer> key_parts(Trial& trial);       // those per key: k, v, inputs
std::vector<NamedBuffer> parts_and_bias(Trial& trial);  // also "bias", if the call has one

inline Tensor applied(const AttentionMechanism& m, const Trial& t) { return m.apply(t.q, t.k, t.v, t.call, t.inputs); }

// Output and gradients of a call.
struct Outcome {
  Tensor out;
  // By name: "q", "k", "v", "input NAME", "parameter NAME", and "bias" if the call has one. Never undefined.
  TensorsByName gradients;
};

// Moves the gradients of the parameters to `gradients`: "parameter NAME".
void take_parameter_gradients(AttentionMechanism& m, TensorsByName& gradients);

// Sizes of a problem.
struct Sizes {
  Index queries = 1, keys = 1;
  Index batch = 2;
  Index shared = 1;  // heads of q per head of k: Hk = H / shared
};

// A call that uses only declared features.
struct Variant {
  std::string name;
  AttentionCall call;
};

inline bool masks_keys(const heed::AttentionCall& call) {
  return call.key_lengths.defined() || call.key_mask.defined();
}

// Properties of a mechanism that its plain calls show and that it does not declare. A property that holds for plain
// calls must hold under all masks, lengths and sizes.
struct Properties {
  bool heads_alike = false;        // [B, H, ...] as [B * H, 1, ...] gives the same
  bool keys_unordered = false;     // keys and values in another order give the same
  bool lengths_are_masks = false;  // key_lengths as a key_mask give the same
  bool causal_is_mask = false;     // causal as a mask of pairs gives the same
};

// The trial with its tensors in another dtype, so that Subject's functions need not convert them. With bfloat16 the
// bias is float32.
Trial in_dtype(const Trial& t, DType dtype);
// The trial in float64, with values that bfloat16 represents exactly.
Trial rounded_to_bfloat16(Trial t);
// The trial with each head as a sequence of one head: [B, H, ...] as [B * H, 1, ...].
Trial heads_apart(const Trial& t);
// Permutes the keys of a trial. Returns the new position of each key, int32 [S].
Tensor permute_keys(Trial& t, Rng rng);
// A mask that is true with probability `share`; key 0 is always true.
Tensor random_mask(Rng& rng, const Shape& shape, double share);
// The trial with a range of queries (q, dy and inputs per query), or with the first keys (k, v and inputs per key).
Trial with_queries(const Trial& t, Index first, Index last);
Trial with_keys(const Trial& t, Index length);
// Sequence b of a trial, with its masks and bias.
Trial sequence(const Trial& t, Index b);
// Sequence b of a trial, cut to `length`, with only the causal flag of the call.
Trial cut_sequence(const Trial& t, Index b, Index length);
// For a trial of one sequence: queries [first, last) with keys [0, end), and the same part of its masks and bias.
Trial part_of(const Trial& t, Index first, Index last, Index end);
// The mask of a trial and these conditions of a call in one: bool [B, H, T, S].
Tensor one_mask(const Trial& t, AttentionCall conditions);
// x [B, Hk, S, ...] with `value` at the keys that key_lengths and key_mask of the call hide.
Tensor with_padding(const Tensor& x, const AttentionCall& call, double value);
// The first positions of x [B, H, T, D].
inline Tensor head(const Tensor& x, Index length) { return x.slice(2, 0, length); }

class Finding;

// The mechanism under test, in each dtype, and the problems that are posed to it.
class Subject {
 public:
  Subject(const MechanismFactory& make, const ConformanceOptions& options);

  const AttentionCapabilities& can() const { return in64_.capabilities(); }
  // With bfloat16 inputs, parameters are float32, as in training with bfloat16 products. If the mechanism refuses this
  // mix, parameters are bfloat16, as in a bfloat16 model.
  AttentionMechanism& mechanism(DType dtype);

  // "plain" and "causal", if supported.
  std::vector<Variant> orders() const;
  // The lengths that the mechanism supports. The others are noted as left out.
  std::vector<Index> lengths(std::initializer_list<Index> candidates, Finding& f) const;
  Index at_most(Index positions) const { return std::min(positions, options.longest); }
  // Whether the mechanism supports this many positions. If not, notes them as left out.
  bool takes(Index positions, Finding& f) const;
  // Heads of q per head of k to test: 1 and, if the mechanism is grouped, the smallest divisor of H above 1, and H.
  std::vector<Index> sharings() const;
  // n queries and keys with each of sharings(), and, if T != S is supported, fewer queries and fewer keys.
  std::vector<Sizes> shapes(Index n) const;

  Trial trial(const Sizes& sizes, std::uint64_t seed = 0) const;
  // For difference quotients: if the mechanism is discrete, the scores of a row are well separated.
  Trial separated_trial(const Sizes& sizes) const;
  Trial with_call(Trial trial, const Variant& variant) const;  // the trial with that call
  // The declared ones of: plain, causal, key lengths, key mask, mask, mask of heads, bias, key bias, causal with key
  // lengths, all masks. Every query may attend to key 0, unless the mechanism itself forbids it.
  std::vector<Variant> variants(const Sizes& sizes) const;
  // Every second variant, from the first or the second on. Two shapes of one kind together cover all variants.
  std::vector<Variant> half_of_variants(const Sizes& sizes, bool second) const;
  // The first variant (plain, or causal if the mechanism is causal only) and the last (all masks, if several are
  // declared).
  std::vector<Variant> ends(const Sizes& sizes) const;

  const Properties& properties();  // computed on the first call
  // Whether a key mask equals a mask of pairs. False if the mechanism takes inputs per key, which a key mask may hide.
  bool folds_key_masks() const;

  // The same mechanism with other heads and sizes, with the same properties(). Requires any_sizes().
  bool any_sizes();
  std::unique_ptr<Subject> in_sizes(Index heads, Index size, Index value_size);
  // The mechanism with two heads, for problems of many positions. Returns the subject itself if it cannot have other
  // heads.
  Subject& of_few_heads();

  Tensor out(const Trial& trial, DType dtype = DType::float64);   // output only, without a tape
  // Forward and backward. `apply` calls the mechanism. If `only` is not empty, other inputs are constants.
  using Apply = Tensor (*)(const AttentionMechanism&, const Trial&);
  Outcome run(const Trial& trial, DType dtype = DType::float64, Apply apply = applied, const std::string& only = "");

  const MechanismFactory make;
  const ConformanceOptions options;
  std::set<std::string> failed = {};  // names of the checks that failed so far

 private:
  AttentionMechanism in32_, in64_;
  std::optional<AttentionMechanism> in16_;
  bool float32_before_bfloat16_ = true;
  std::optional<Properties> properties_;
  std::unique_ptr<Subject> of_few_heads_;
};

// Gathers the comparisons of a check.
class Finding {
 public:
  // Sets the variant and the shapes that later failures mention.
  void about(const Trial& trial);
  // Requires |got - expected| <= tolerance * max(0.1, max |expected|), without NaN or infinity. A share of rows (along
  // the last axis) may differ by more.
  void close(const std::string& what, const Tensor& got, const Tensor& expected, double tolerance, double share = 0);
  void close(const std::string& what, const Outcome& got, const Outcome& expected, double tolerance, double share = 0);
  void same_bits(const std::string& what, const Tensor& got, const Tensor& expected);
  void same_bits(const std::string& what, const Outcome& got, const Outcome& expected);
  void zeros(const std::string& what, const Tensor& x);  // all elements are exactly 0
  void finite(const std::string& what, const Tensor& x);
  void finite(const std::string& what, const Outcome& x);
  void expect(bool ok, const std::string& otherwise);
  // Returns `has`. If false, notes that the check, or a part of the check, is left out.
  bool declared(bool has, const std::string& what);
  void leave_out(const std::string& what) { left_out_.push_back(what); }
  void add(const Finding& other);

  bool compared() const { return count_ > 0; }
  bool ok() const { return failure_.empty(); }
  const std::string& failure() const { return failure_; }  // the first failure
  const std::vector<std::string>& left_out() const { return left_out_; }
  ConformanceCheck result(const std::string& name) const;

 private:
  int count_ = 0;
  double worst_ = -1;       // max of difference / allowed difference
  std::string worst_text_;  // describes that difference
  std::string failure_;     // the first failure
  std::string about_;
  std::vector<std::string> left_out_;
  void fail(const std::string& text);
  void each(const std::string& what, const Tensor& x, bool (*good)(double), const char* rule);
};

// The arguments of a call and copies of them, to check that the call writes to none and returns the memory of none.
class Arguments {
 public:
  explicit Arguments(std::vector<NamedBuffer> given);  // skips undefined tensors
  void check(Finding& f, const Tensor& y) const;       // y: the output of the call

 private:
  std::vector<NamedBuffer> given_;
  std::vector<Tensor> before_;
};

// Allowed difference of a dtype from float64, for outputs and for float32 gradients. For gradients of the other dtypes
// twice that.
double tolerance_of(DType dtype, const ConformanceOptions& options);
// The outcome of a call in a dtype, and the float64 outcome.
struct Outcomes {
  DType dtype;
  Outcome got, expected;
};
// Compares the outcomes of a call of `t`. bfloat16 elements are coarse, so the magnitude of each head is compared too.
// A difference is allowed if rounding of the inputs causes one as large: sums of features that are mostly 0 may nearly
// cancel. Gradients named in `summed` are sums over sequences.
void close_in(Subject& s, Finding& f, const std::string& what, const Outcomes& of, const Trial& t,
              const std::set<std::string>& summed = {});

// Tolerance between two float64 results that differ only in the order of sums.
inline constexpr double kRounding = 1e-10;
// The same for float32.
inline constexpr double kRounding32 = 1e-5;
inline double rounding(DType dtype) { return dtype == DType::float64 ? kRounding : kRounding32; }
// Share of rows that may differ in float32, where a discrete mechanism may choose other keys.
inline double share_of(const Subject& s) { return s.can().discrete ? 0.05 : 0; }

// The gradient, or zeros like `like` if it is undefined.
Tensor or_zeros(const Tensor& gradient, const Tensor& like);

// Compares outputs with options.reference, which must be defined.
void compare_reference(Subject& s, Finding& f, const Trial& t);
// Compares outputs and gradients in float32 with those in float64.
void compare_float32(Subject& s, Finding& f, const Trial& t);
// Derivatives of sum(dy * y) in a direction, by a difference quotient and by gradients.
struct Slopes {
  double numeric = 0, analytic = 0, size = 0;  // size: the root of the sum of squares of gradient times direction
  bool agree(double tolerance) const;          // relative to the size
};
using Output = std::function<Tensor(const Trial&)>;  // computes the output of a trial
// Slopes in a random direction of all inputs and parameters or, if `only` is not empty, of that one. `o` is the outcome
// of the trial; `out` computes the output of a trial with moved inputs.
Slopes slopes(Subject& s, const Trial& t, const Outcome& o, Rng& rng, const std::string& only, const Output& out);
// Compares the derivative of sum(dy * y) in a random direction of all inputs and parameters with the gradients.
void compare_direction(Subject& s, Finding& f, const Trial& t);
// Checks that masks that allow everything, full lengths and a bias of 0, each added to `t`, change no output and, if
// `gradients`, no gradient.
void check_neutral_call(Subject& s, Finding& f, const Trial& t, DType dtype, bool gradients = true);
// Compares some queries of a trial of one sequence with each of these queries alone, with its visible keys. Does
// nothing if the mechanism does not support such calls.
void compare_rows(Subject& s, Finding& f, const Trial& t);

// Outputs of `state` for positions [begin, end), `step` at a time. Overwrites the inputs after each step, to find
// states that keep a reference to them.
Tensor steps(AttentionState& state, const Trial& t, DType dtype, Index begin, Index end, Index step);
// A fresh state with the buffers of another, which options.save_and_load saves and loads. The new state must have
// these buffers.
AttentionState resumed(Subject& s, Finding& f, AttentionState& state, DType dtype);

// The checks. conformance.hpp describes them.
void check_gradient(Subject& s, Finding& f);
void check_direction(Subject& s, Finding& f);
void check_reference(Subject& s, Finding& f);
void check_rows(Subject& s, Finding& f);
void check_weights(Subject& s, Finding& f);
void check_masks(Subject& s, Finding& f);
void check_causal(Subject& s, Finding& f);
void check_padding(Subject& s, Finding& f);
void check_empty_rows(Subject& s, Finding& f);
void check_cross_lengths(Subject& s, Finding& f);
void check_grouped(Subject& s, Finding& f);
void check_views(Subject& s, Finding& f);
void check_batch(Subject& s, Finding& f);
void check_sizes(Subject& s, Finding& f);
void check_zero_vectors(Subject& s, Finding& f);
void check_empty_tensors(Subject& s, Finding& f);
void check_dropout(Subject& s, Finding& f);
void check_calls(Subject& s, Finding& f);
void check_state(Subject& s, Finding& f);
void check_state_copies(Subject& s, Finding& f);
void check_state_rows(Subject& s, Finding& f);
void check_ragged_state(Subject& s, Finding& f);
void check_state_resumed(Subject& s, Finding& f);
void check_lengths(Subject& s, Finding& f);
void check_spread(Subject& s, Finding& f);
void check_float32(Subject& s, Finding& f);
void check_threads(Subject& s, Finding& f);
void check_bfloat16(Subject& s, Finding& f);
void check_mapped_keys(Subject& s, Finding& f);
void check_documents(Subject& s, Finding& f);
void check_borders(Subject& s, Finding& f);
void check_combinations(Subject& s, Finding& f);
void check_state_programs(Subject& s, Finding& f);
void check_members(Subject& s, Finding& f);
void check_cost(Subject& s, Finding& f);
void check_refuses(Subject& s, Finding& f);

}  // namespace heed::detail::conformance
