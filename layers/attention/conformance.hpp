// Conformance kit: checks that an attention mechanism, of heed or of a user, does all that it declares.
//
//   const ConformanceReport report = check_conformance([](Index, Rng&) { return MyAttention(); });
//   if (!report.passed()) std::cerr << report;
//
// conformance_doctest.hpp has the same for a doctest suite. A check is left out if the mechanism does not declare the
// feature; the report lists left-out checks with reasons. "All masks" means causal, lengths, key mask, mask and bias
// in one call, as far as the mechanism declares them. The checks are:
//
//   values (conformance/values.cpp)
//   reference        outputs equal options.reference: plain, causal, under each mask and bias and under all masks,
//                    with grouped heads, with T != S
//   weights          weights times v is the output; weights of masked pairs and of rows without a key are 0; weights
//                    have the dtype of q; also with T != S and grouped heads
//   rows sum to one  values that are all 1 give 1; masks whose own check failed are skipped; a row without weights may
//                    be 0
//   dropout          acts in training only and keeps the mean; the given share of weights is 0 and the rest is scaled
//                    by 1 / (1 - p), independently per head, sequence and query; backward uses the mask of forward; at
//                    rates from 0.05 to 0.9, with each mask, with T != S and grouped heads
//
//   gradients (conformance/gradient.cpp)
//   gradient         float64 gradcheck of q, k, v, the mechanism's inputs, the bias and every parameter, plain and
//                    under each mask
//   direction        at 1 to 600 positions, with T != S and grouped heads: the derivative in a random direction of all
//                    inputs and parameters matches the gradients, and float64 is not float32 internally
//
//   hidden positions (conformance/masks.cpp, conformance/causal.cpp)
//   masks            all-true masks, full lengths and a zero bias change nothing; a key mask and a mask equal one mask
//                    of both (if the mechanism takes no inputs per key); masks and biases of every rank, also broadcast
//                    by strides of 0, equal their dense form
//   causal           later tokens, and gradients of later outputs, change no bit of earlier rows, up to 600 positions;
//                    with a shared maximum (AttentionCapabilities::shared_maximum) only its rounding may change
//   padding          NaN and infinities in masked keys, values and inputs per key change nothing, also with T != S,
//                    grouped heads and a bias; a padded sequence equals the sequence cut to its length
//   empty rows       a row without a key is 0 and passes a gradient of 0 to everything
//   cross lengths    with T != S queries are aligned with the end of the keys: the last T queries of the square problem
//                    give the same rows; a single query too, unless positions count (AttentionCapabilities::aligned)
//   borders          up to 260 positions, at the ends of kernel blocks: the first m positions of a causal sequence, and
//                    a padded sequence, equal that sequence alone; keys hidden by a mask do not matter; masks that
//                    allow everything change nothing
//
//   shapes (conformance/shapes.cpp)
//   grouped          fewer heads of k and v, down to one, equal repeated heads
//   views            q, k and v as views of one fused projection, or broadcast, give the same as copies
//   batch            three sequences in one batch give what each gives alone; the same for the columns of v
//   sizes            other numbers of heads, also odd, and sizes of q, k and v up to 128 (options.of_sizes)
//   zero vectors     queries, keys or values of 0 give finite results close to float64
//   empty tensors    without sequences, queries or keys, outputs and gradients have the right shapes, and are 0 where
//                    there is no key
//
//   calls and states (conformance/calls.cpp, conformance/state.cpp, conformance/state_programs.cpp)
//   calls            a call has the same bits after other calls, also of other lengths, and in reused memory; two calls
//                    on one tape have the gradients of each; no argument is written to, and the output shares memory
//                    with nothing
//   mapped keys      map_keys() and apply_mapped() give what apply() gives; rows of mapped keys can be picked
//   documents        rows that hold several documents give what each document gives in a row by itself, with grouped
//                    heads (AttentionCapabilities::documents)
//   state            all positions at once, chunks and single tokens give the same, up to 600 positions, also with a
//                    bias; two states are independent; a step requires as many queries as keys and keeps no reference
//                    to their memory
//   state copies     a copy and its original continue independently, with the bits of states that were never copied
//   state rows       picked, repeated and reordered rows continue as in a batch of these rows; the original does not
//                    change
//   ragged state     rows of different lengths, padded with NaN, give what their own sequences give at once: prompts,
//                    one or several positions, rows without a new position; also with a bias; lengths() returns the row
//                    lengths
//   state resumed    a fresh state with the buffers of another continues with the same bits
//   state programs   sequences of steps (equal and ragged counts, also 0), picks, copies and resumption, past 600
//                    positions: each row gives what its own sequence gives at once
//
//   numbers (conformance/numbers.cpp)
//   lengths          1, 63, 500 and 1000 positions in float32: finite, close to float64
//   spread           logits of about +-300 in float32: finite, close to float64
//   float32          outputs and gradients close to float64, under each mask, with T != S and grouped heads
//   bfloat16         outputs, gradients and states close to float64, with the right magnitude per head, under each
//                    mask, with T != S and grouped heads
//   threads          the same bits with 1, 2, 3 and 8 threads
//
//   declarations (conformance/claims.cpp)
//   members          members have names, each unique; another mechanism with the same parameters and buffers gives the
//                    same bits; no parameter is used without a name
//   cost             keys_per_query is above 0 and does not fall with the length; memory grows no faster
//   refuses          a call that needs an undeclared feature throws an Error that names the feature
//
//   all of this together (conformance/combinations.cpp)
//   combinations     covers each pair of dtype, order, mask, key lengths, key mask, content of padding, bias, numbers
//                    of keys, queries, heads and sequences, sizes, memory layout of each operand, threads and wanted
//                    gradients, and each triple of the conditions that decide which keys a query sees. Each call equals
//                    the same sequences alone, dense, in float64, with one combined mask, and the same queries alone. A
//                    failure lists the conditions that it needs
//
// "borders", "state programs" and "combinations" run only if all other checks pass, or by name
// (ConformanceOptions::only). Problems of many positions use two heads if the mechanism supports any number of heads
// (ConformanceOptions::of_sizes).
//
// Example:
//
//   const ConformanceReport report = check_conformance([](Index, Rng&) { return SoftmaxAttention(); });
//   if (!report.passed()) std::cerr << report;
#pragma once
#include <cstdint>
#include <heed/layers/transformer.hpp>
#include <iosfwd>
#include <map>

namespace heed {

// The problems that check_conformance poses, and the differences that it allows.
struct ConformanceOptions {
  Index heads = 4;            // of q; must match the mechanism's parameters
  Index size = 8;             // of q and k: D
  Index value_size = 6;       // Dv
  Index longest = 1000;       // max number of positions that the mechanism supports
  double spread = 300;        // max |q . k| / sqrt(D) of the check "spread"
  bool normalised = true;     // false: the weights of a row need not sum to 1
  bool non_negative = false;  // true: queries and keys are features, all >= 0
  // true: keys are computed from the queries, or results read earlier queries too, as after a convolution. Gradients of
  // later results then reach q.
  bool shared = false;
  // true: the size of values is fixed as value_size, by parameters, or columns of v are not independent of each other.
  bool fixed_values = false;
  // Seed of the drawn inputs and of the generator passed to the factory.
  std::uint64_t seed = 1;
  // Allowed difference from float64, relative to the max absolute value (at least 0.1) of each output or gradient. A
  // larger difference is allowed if rounding of the inputs changes a result by more, as in sums that nearly cancel.
  double float32_tolerance = 1e-4;
  double spread_tolerance = 2e-3;
  double bfloat16_tolerance = 0.03;  // for outputs, if the mechanism declares bfloat16; twice that for gradients
  // Reference implementation in float64: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. It must
  // support all that the mechanism declares: masks and biases of `call`, and Hk < H if grouped. `values` has the
  // mechanism's parameters and buffers by name, and its inputs other than q, k and v as "input NAME". Undefined:
  // "reference" is left out, and the effect of a bias is not checked.
  std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                       const TensorsByName& values)>
      reference = {};
  // Factory of the mechanism for another number of heads and size of q and k, for "sizes". Undefined: `make` is used
  // if the mechanism has neither parameters nor buffers, else "sizes" is left out.
  std::function<MechanismFactory(Index heads, Index size)> of_sizes = {};
  // Saves the buffers of a state and returns the loaded ones, e.g. through a checkpoint file. Undefined: copies in
  // memory.
  std::function<TensorsByName(const TensorsByName& buffers)> save_and_load = {};
  // Names of the checks to run, from conformance_checks(). Empty: all.
  std::vector<std::string> only = {};
};

// The result of one check.
struct ConformanceCheck {
  std::string name = {};  // one of conformance_checks()
  bool passed = false;    // no comparison failed
  // Passed: the number of comparisons and the largest difference. Failed: the first failure, with the index of the
  // worst element, its value and the expected value, the variant of the call and the shapes of q, k and v.
  std::string detail = {};
};

// The results of all checks of one mechanism.
struct ConformanceReport {
  std::string mechanism = {};                 // its name()
  std::vector<ConformanceCheck> checks = {};  // the checks that compared something
  std::vector<std::string> left_out = {};  // skipped parts, with reasons: «causal: 600 positions, as longest is 150»

  bool passed() const;                      // false also if nothing was checked
  std::vector<std::string> failed() const;  // names of the failed checks
};

// Prints one line per check (its name, "ok" or "FAILED", its detail), then the parts that were left out.
std::ostream& operator<<(std::ostream& out, const ConformanceReport& report);

// The names of all checks, in the order in which they run.
const std::vector<std::string>& conformance_checks();

// Runs the checks on a mechanism. `make` creates the mechanism, as for a Transformer; its arguments are layer 0 and a
// generator with options.seed. Parameters whose elements are all equal, such as zeros, get noise so that their effect
// is visible. An exception of the mechanism fails the check. Throws Error if an option is out of range or a name in
// options.only is not a check.
ConformanceReport check_conformance(const MechanismFactory& make, const ConformanceOptions& options = {});

}  // namespace heed
