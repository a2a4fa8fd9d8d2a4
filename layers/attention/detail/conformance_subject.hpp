// What the checks of conformance.hpp share: the mechanism under test, and what a check has found so far.
#pragma once
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/conformance.hpp>
#include <memory>
#include <optional>
#include <set>

namespace heed::detail::conformance {

// Puts the number of threads back.
struct RestoreThreads {
  int before = threads();
  ~RestoreThreads() { set_threads(before); }
};

// One problem, in float64 with values that float32 has too.
struct Trial {
  Tensor q, k, v;  // [B, H, T, D], [B, Hk, S, D], [B, Hk, S, Dv]
  Tensor dy;       // [B, H, T, Dv]
  AttentionCall call = {};
  std::string name = "plain";       // of the call
  std::vector<Tensor> inputs = {};  // what the mechanism takes beside them: [B, H, T, size] or [B, Hk, S, size]
  std::vector<MechanismInput> declared = {};  // what it says of them
};

// One of q, k, v and the inputs of a trial, by the name of its gradient: "q", "k", "v", "input NAME".
struct Part {
  std::string name;
  Tensor* x;
  bool of_keys;
};
std::vector<Part> parts(Trial& trial);

inline Tensor applied(const AttentionMechanism& m, const Trial& t) { return m.apply(t.q, t.k, t.v, t.call, t.inputs); }

struct Outcome {
  Tensor out;
  // "q", "k", "v", "input NAME" and "parameter NAME" of each, "bias" where there is one; never undefined.
  TensorsByName gradients;
};

struct Sizes {
  Index queries = 1, keys = 1;
  Index batch = 2;
  Index shared = 1;  // how many heads of q share one of k: Hk = H / shared
};

// A call of what the mechanism declares.
struct Variant {
  std::string name;
  AttentionCall call;
};

inline bool masks_keys(const heed::AttentionCall& call) {
  return call.key_lengths.defined() || call.key_mask.defined();
}

// What the plain calls of a mechanism show of it, beyond what it declares. Where one of these holds, it must hold under
// all masks, lengths and sizes.
struct Properties {
  bool heads_alike = false;        // [B, H, ...] as [B * H, 1, ...] gives the same
  bool keys_unordered = false;     // keys and values in another order give the same
  bool lengths_are_masks = false;  // key_lengths as a key_mask give the same
  bool causal_is_mask = false;     // causal as a mask of pairs gives the same
};

// The trial with its tensors in another dtype: what Subject's functions then need not convert. Beside bfloat16 a bias
// is float32.
Trial in_dtype(const Trial& t, DType dtype);
// The same with q and dy, or k and v, of some positions.
Trial with_queries(const Trial& t, Index first, Index last);
Trial with_keys(const Trial& t, Index length);
// Of a trial of one sequence: queries [first, last) with keys [0, end), and this part of its masks and bias.
Trial part_of(const Trial& t, Index first, Index last, Index end);
// x [B, Hk, S, ...] with `value` at the keys that key_lengths and key_mask of the call mask.
Tensor with_padding(const Tensor& x, const AttentionCall& call, double value);
// The first positions of x [B, H, T, D].
inline Tensor head(const Tensor& x, Index length) { return x.slice(2, 0, length); }

class Finding;

class Subject {
 public:
  Subject(const MechanismFactory& make, const ConformanceOptions& options);

  const AttentionCapabilities& can() const { return in64_.capabilities(); }
  // Beside bfloat16 parameters are float32, as in training with products of bfloat16; where the mechanism refuses that,
  // they are bfloat16, as in a model of it.
  AttentionMechanism& mechanism(DType dtype);
  TensorsByName values(const Trial& t);  // parameters, buffers and inputs, float64: what a reference is told

  // "plain" and "causal": those that it can.
  std::vector<Variant> orders() const;
  // Those of the lengths that it takes; the others are noted as left out.
  std::vector<Index> lengths(std::initializer_list<Index> wanted, Finding& f) const;
  Index at_most(Index positions) const { return std::min(positions, options.longest); }
  // Whether there are that many positions for a check that makes no sense with fewer.
  bool takes(Index positions, Finding& f) const;
  // H, H / 2 and one head of k and v, as numbers of heads of q that share one: where it is grouped.
  std::vector<Index> sharings() const;
  // n queries and keys: alone, with shared heads, with fewer queries and with fewer keys, where it can.
  std::vector<Sizes> shapes(Index n) const;

  Trial trial(const Sizes& sizes, std::uint64_t seed = 0) const;
  // For differences: where the mechanism chooses, the scores of a row are well apart.
  Trial separated_trial(const Sizes& sizes) const;
  Trial asked(Trial trial, const Variant& variant) const;  // the trial with that call
  // plain, causal, key lengths, key mask, mask, mask of heads, bias, key bias, causal with key lengths, all masks:
  // those declared. Every query may attend to key 0, unless the mechanism itself forbids it.
  std::vector<Variant> variants(const Sizes& sizes) const;
  // Every second one of them, from the first or from the second on. Two shapes of one kind have all of them together.
  std::vector<Variant> half_of_variants(const Sizes& sizes, bool second) const;
  // The first (plain, or causal where it is causal only), and all masks where several are declared.
  std::vector<Variant> ends(const Sizes& sizes) const;

  const Properties& properties();  // found at the first call
  // Whether a key mask is the same as a mask of pairs: not where it may take away inputs of keys, too.
  bool folds_key_masks() const;

  // The same mechanism with other heads and sizes, which share what properties() found. Only where any_sizes().
  bool any_sizes();
  std::unique_ptr<Subject> in_sizes(Index heads, Index size, Index value_size);
  // With two heads, for problems of many positions; the subject itself where it cannot have other heads.
  Subject& of_few_heads();

  Tensor out(const Trial& trial, DType dtype = DType::float64);   // without gradient
  Outcome run(const Trial& trial, DType dtype = DType::float64);  // forward and backward

  const MechanismFactory make;
  const ConformanceOptions options;
  std::set<std::string> failed = {};  // names of the checks so far

 private:
  AttentionMechanism in32_, in64_;
  std::optional<AttentionMechanism> in16_;
  bool float32_beside_bfloat16_ = true;
  std::optional<Properties> properties_;
  std::unique_ptr<Subject> of_few_heads_;
};

// Gathers the comparisons of a check.
class Finding {
 public:
  // What is compared from here on, for failures: the variant and the shapes.
  void about(const Trial& trial);
  // |got - wanted| <= tolerance * max(0.1, max |wanted|), nothing NaN or infinite; a share of rows (of the last axis)
  // may differ.
  void close(const std::string& what, const Tensor& got, const Tensor& wanted, double tolerance, double share = 0);
  void close(const std::string& what, const Outcome& got, const Outcome& wanted, double tolerance, double share = 0);
  void same_bits(const std::string& what, const Tensor& got, const Tensor& wanted);
  void same_bits(const std::string& what, const Outcome& got, const Outcome& wanted);
  void zeros(const std::string& what, const Tensor& x);  // exactly
  void finite(const std::string& what, const Tensor& x);
  void finite(const std::string& what, const Outcome& x);
  void expect(bool ok, const std::string& otherwise);
  // Whether the mechanism declares something; else notes that the check, or a part of it, is left out.
  bool declared(bool has, const std::string& what);
  void leave_out(const std::string& what) { left_out_.push_back(what); }
  void add(const Finding& other);

  bool compared() const { return count_ > 0; }
  bool ok() const { return failure_.empty(); }
  const std::string& failure() const { return failure_; }  // the first
  const std::vector<std::string>& left_out() const { return left_out_; }
  ConformanceCheck result(const std::string& name) const;

 private:
  int count_ = 0;
  double worst_ = -1;       // difference / what is allowed
  std::string worst_text_;  // of the largest difference
  std::string failure_;     // the first
  std::string about_;
  std::vector<std::string> left_out_;
  void fail(const std::string& text);
  void each(const std::string& what, const Tensor& x, bool (*good)(double), const char* rule);
};

// Allowed difference of a dtype from float64: of outputs, and of float32's gradients; of the others' twice that.
double tolerance_of(DType dtype, const ConformanceOptions& options);
// What a call of `t` gave in a dtype, against what it gives in float64. Of bfloat16, whose single numbers are coarse,
// the size of each head must be right, too. A difference is allowed where the rounding of the inputs makes one as
// large: sums of features that are mostly 0 may nearly cancel. Gradients named in `summed` are sums over sequences.
void close_in(Subject& s, Finding& f, const std::string& what, const Outcome& got, const Outcome& wanted, DType dtype,
              const Trial& t, const std::set<std::string>& summed = {});

// float64 against float64, where only the order of sums differs.
inline constexpr double kRounding = 1e-10;
// The same of float32.
inline constexpr double kRounding32 = 1e-5;
inline double rounding(DType dtype) { return dtype == DType::float64 ? kRounding : kRounding32; }
// A choice may fall otherwise in float32: so many rows may differ.
inline double share_of(const Subject& s) { return s.can().discrete ? 0.05 : 0; }

// The gradient, or zeros where nothing came.
Tensor or_zeros(const Tensor& gradient, const Tensor& like);

// Outputs and gradients in float32 against those in float64.
void compare_float32(Subject& s, Finding& f, const Trial& t);
// The derivative of sum(dy * y) in a random direction of all inputs and parameters, against the gradients.
void compare_direction(Subject& s, Finding& f, const Trial& t);
// Masks that allow all, full lengths and a bias of 0, each added to `t`, change no output and, where `gradients`, no
// gradient.
void check_nothing_asked(Subject& s, Finding& f, const Trial& t, DType dtype, bool gradients = true);
// Some queries of a trial of one sequence, each alone with the keys that it may see: where the mechanism can do that.
void compare_rows(Subject& s, Finding& f, const Trial& t);

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
void check_borders(Subject& s, Finding& f);
void check_combinations(Subject& s, Finding& f);
void check_state_programs(Subject& s, Finding& f);
void check_members(Subject& s, Finding& f);
void check_cost(Subject& s, Finding& f);
void check_refuses(Subject& s, Finding& f);

}  // namespace heed::detail::conformance
