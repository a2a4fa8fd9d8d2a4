// Whether an attention mechanism, heed's or a user's own, does all that it declares: one run of checks.
//
//   const ConformanceReport report = check_conformance([](Index, Rng&) { return MyAttention(); });
//   if (!report.passed()) std::cerr << report;
//
// In a doctest suite: conformance_doctest.hpp. The checks, each left out where the mechanism declares nothing of it:
//
//   gradient         float64 gradcheck of q, k, v, the bias and every parameter, plain and under each mask
//   reference        equals options.reference: plain, causal, under each mask and bias, with grouped heads, with T != S
//   weights          weights times v is the output; they are 0 where a key is masked
//   causal           later tokens, and gradients of later outputs, change no bit of what is earlier; where a maximum
//                    is shared (AttentionCapabilities::shared_maximum), nothing but its rounding
//   padding          NaN in masked keys and values changes nothing; the same as a sequence cut to its length
//   rows sum to one  values that are all 1 give 1, also under those masks that passed their own check; a row without
//                    weights may be 0
//   empty rows       a row without a key is 0 and passes a gradient of 0 to everything
//   cross lengths    with T != S the ends are aligned: the last T queries of the square problem give the same rows
//   grouped          fewer heads of k and v equal repeated ones
//   views            q, k and v that are views of one fused projection give the same as copies
//   dropout          acts in training only, and keeps the mean
//   state            at once, in chunks and token by token are the same; a step needs as many queries as keys
//   state resumed    a fresh state with the buffers of another goes on with the same bits
//   lengths          1, 63, 500 and 1000 positions in float32: finite, close to float64
//   spread           logits of about +-300 in float32: finite, close to float64
//   float32          outputs and gradients close to float64, under each mask
//   threads          the same bits at 1, 2, 3 and 8 threads
//   refuses          what is not declared is refused with an Error that names it
#pragma once
#include <cstdint>
#include <heed/layers/transformer.hpp>
#include <iosfwd>
#include <map>

namespace heed {

using NamedTensors = std::map<std::string, Tensor>;

struct ConformanceOptions {
  Index heads = 4;            // of q; an even number where the mechanism is grouped, and as many as its parameters have
  Index size = 8;             // of q and k: D
  Index value_size = 6;       // Dv
  Index longest = 1000;       // the most positions that the mechanism takes
  double spread = 300;        // greatest |q . k| / sqrt(D) of the check "spread"
  bool normalised = true;     // false: the weights of a row need not add up to 1
  bool non_negative = false;  // true: queries and keys are features, none below 0
  bool shared = false;        // true: keys are made of the queries, which so have their gradients too
  // Of the inputs, and of the generator that the factory gets. A map that is 0 for many keys, as relu, may with some
  // seeds meet a denominator near 0, where no tolerance holds: then the detail tells of a small relative error.
  std::uint64_t seed = 1;
  // Allowed difference from float64, relative to the greatest value (at least 0.1) of each output or gradient.
  double float32_tolerance = 1e-4;
  double spread_tolerance = 2e-3;
  // All pairs, term by term, in float64: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. It is
  // asked for all that the mechanism declares: masks and biases of `call`, and Hk < H where grouped. `values` are the
  // mechanism's parameters and buffers by name. Undefined: "reference" is left out, and what a bias does is not seen.
  std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                       const NamedTensors& values)>
      reference = {};
  // Saves a state's buffers and gives back what was loaded, e.g. through a checkpoint file. Undefined: copies in
  // memory.
  std::function<NamedTensors(const NamedTensors& buffers)> save_and_load = {};
};

struct ConformanceCheck {
  std::string name;
  bool passed = false;
  std::string detail;  // what was compared, and the largest difference
};

struct ConformanceReport {
  std::string mechanism;
  std::vector<ConformanceCheck> checks;  // those that had something to compare

  bool passed() const;  // false also if nothing was checked
  std::vector<std::string> failed() const;
};

// A line a check: its name, "ok" or "FAILED", its detail.
std::ostream& operator<<(std::ostream& out, const ConformanceReport& report);

// `make` makes the mechanism anew, as for a Transformer (it gets layer 0 and a generator of options.seed). Parameters
// whose elements are all equal, as zeros are, get some noise, so that their part is seen. An Error that a mechanism
// throws fails the check; for options out of range this throws Error itself.
ConformanceReport check_conformance(const MechanismFactory& make, const ConformanceOptions& options = {});

}  // namespace heed
