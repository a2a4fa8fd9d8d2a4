// What the checks of conformance.hpp share: the mechanism under test, and what a check has found so far.
#pragma once
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/conformance.hpp>
#include <set>

namespace heed::detail::conformance {

// One problem, in float64 with values that float32 has too.
struct Trial {
  Tensor q, k, v;  // [B, H, T, D], [B, Hk, S, D], [B, Hk, S, Dv]
  Tensor dy;       // [B, H, T, Dv]
  AttentionCall call = {};
};

struct Outcome {
  Tensor out;
  NamedTensors gradients;  // "q", "k", "v", "bias" where there is one, and each parameter by its name; never undefined
};

struct Sizes {
  Index queries = 1, keys = 1;
  Index batch = 2;
  bool grouped = false;
};

// A call of what the mechanism declares.
struct Variant {
  std::string name;
  AttentionCall call;
};

inline bool masks_keys(const heed::AttentionCall& call) {
  return call.key_lengths.defined() || call.key_mask.defined();
}

class Subject {
 public:
  Subject(const MechanismFactory& make, const ConformanceOptions& options);

  const AttentionCapabilities& can() const { return in64_.capabilities(); }
  AttentionMechanism& mechanism(DType dtype) { return dtype == DType::float64 ? in64_ : in32_; }
  NamedTensors values();  // parameters and buffers, float64

  Trial trial(const Sizes& sizes, std::uint64_t seed = 0) const;
  // For differences: where the mechanism chooses, the scores of a row are well apart.
  Trial separated_trial(const Sizes& sizes) const;
  // plain, causal, key lengths, key mask, mask, bias, key bias, causal with lengths: those declared. Every query may
  // attend to key 0, unless the mechanism itself forbids it.
  std::vector<Variant> variants(const Sizes& sizes) const;

  Tensor out(const Trial& trial, DType dtype = DType::float64);   // without gradient
  Outcome run(const Trial& trial, DType dtype = DType::float64);  // forward and backward

  const ConformanceOptions options;
  std::set<std::string> failed = {};  // names of the checks so far

 private:
  AttentionMechanism in32_, in64_;
};

// Gathers the comparisons of a check.
class Finding {
 public:
  // |got - wanted| <= tolerance * max(0.1, max |wanted|), nothing NaN or infinite; a share of rows (of the last axis)
  // may differ.
  void close(const std::string& what, const Tensor& got, const Tensor& wanted, double tolerance, double share = 0);
  void close(const std::string& what, const Outcome& got, const Outcome& wanted, double tolerance, double share = 0);
  void same_bits(const std::string& what, const Tensor& got, const Tensor& wanted);
  void zeros(const std::string& what, const Tensor& x);  // exactly
  void finite(const std::string& what, const Tensor& x);
  void expect(bool ok, const std::string& otherwise);

  bool compared() const { return count_ > 0; }
  ConformanceCheck result(const std::string& name) const;

 private:
  int count_ = 0;
  double worst_ = -1;       // difference / what is allowed
  std::string worst_text_;  // of the largest difference
  std::string failure_;     // the first
  void fail(const std::string& text);
};

// float64 against float64, where only the order of sums differs.
inline constexpr double kRounding = 1e-10;

void check_gradient(Subject& s, Finding& f);
void check_reference(Subject& s, Finding& f);
void check_rows(Subject& s, Finding& f);
void check_weights(Subject& s, Finding& f);
void check_causal(Subject& s, Finding& f);
void check_padding(Subject& s, Finding& f);
void check_empty_rows(Subject& s, Finding& f);
void check_cross_lengths(Subject& s, Finding& f);
void check_grouped(Subject& s, Finding& f);
void check_views(Subject& s, Finding& f);
void check_dropout(Subject& s, Finding& f);
void check_state(Subject& s, Finding& f);
void check_state_resumed(Subject& s, Finding& f);
void check_lengths(Subject& s, Finding& f);
void check_spread(Subject& s, Finding& f);
void check_float32(Subject& s, Finding& f);
void check_threads(Subject& s, Finding& f);
void check_refuses(Subject& s, Finding& f);

}  // namespace heed::detail::conformance
