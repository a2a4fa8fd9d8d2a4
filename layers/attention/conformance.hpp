// Whether an attention mechanism, heed's own or a user's, does all that it declares: one run of checks.
//
//   const ConformanceReport report = check_conformance([](Index, Rng&) { return MyAttention(); });
//   if (!report.passed()) std::cerr << report;
//
// In a doctest suite: conformance_doctest.hpp. The checks, each left out where the mechanism declares nothing of it;
// the report says what was left out and why. "All masks": causal, lengths, key mask, mask and bias at once, of those
// declared.
//
//   values (conformance/values.cpp)
//   reference        equals options.reference: plain, causal, under each mask and bias and all masks, with grouped
//                    heads, with T != S
//   weights          weights times v is the output; they are 0 where a pair is masked, in rows without a key, and have
//                    the dtype of q; also with T != S and grouped heads
//   rows sum to one  values that are all 1 give 1, also under those masks that passed their own check; a row without
//                    weights may be 0
//   dropout          acts in training only and keeps the mean; as many weights as it says are 0, the others raised by
//                    1 / (1 - p), each head, sequence and query by itself; backward has forward's mask. At rates from
//                    0.05 to 0.9, beside each mask, with T != S and grouped heads
//
//   gradients (conformance/gradient.cpp)
//   gradient         float64 gradcheck of q, k, v, the mechanism's inputs, the bias and every parameter, plain and
//                    under each mask
//   direction        at 1 to 600 positions, with T != S and grouped heads: the derivative in a random direction of all
//                    inputs and parameters is the gradient's, and no float64 is float32 inside
//
//   what may not be seen (conformance/masks.cpp, conformance/causal.cpp)
//   masks            all-true masks, full lengths and a zero bias change nothing; a key mask and a mask are the mask of
//                    both (where it takes no inputs of keys); masks and biases of all ranks, and broadcast by strides
//                    of 0, are those written out
//   causal           later tokens, and gradients of later outputs, change no bit of what is earlier, up to 600
//                    positions; where a maximum is shared (AttentionCapabilities::shared_maximum), nothing but its
//                    rounding
//   padding          NaN and infinities in masked keys and values, and in the inputs of theirs, change nothing, with
//                    T != S, grouped heads and a bias too; the same as a sequence cut to its length
//   empty rows       a row without a key is 0 and passes a gradient of 0 to everything
//   cross lengths    with T != S the ends are aligned: the last T queries of the square problem give the same rows; and
//                    unless positions count (AttentionCapabilities::aligned), so does any query alone
//   borders          up to 260 positions, where blocks of kernels end: the first m positions of a causal sequence, and
//                    a sequence padded from a length, are that sequence alone; keys that a mask hides may be any;
//                    masks that allow all change nothing
//
//   shapes (conformance/shapes.cpp)
//   grouped          fewer heads of k and v, one alone too, equal repeated ones
//   views            q, k and v that are views of one fused projection, or broadcast, give the same as copies
//   batch            three sequences at once give what each gives alone; so do the columns of v
//   sizes            other numbers of heads, odd ones too, and sizes of q, k and v, up to 128: options.of_sizes
//   zero vectors     queries, keys or values of 0: finite, close to float64
//   empty tensors    no sequences, queries or keys: outputs and gradients of these shapes, 0 where there is no key
//
//   calls and states (conformance/calls.cpp, conformance/state.cpp)
//   calls            a call has the same bits after others, of other lengths too, and in memory that held other
//                    values; two on one tape have the gradients of each; nothing that is given is written to, and the
//                    output shares its memory with nothing
//   mapped keys      map_keys() and apply_mapped() give what apply() gives; rows of mapped keys can be picked
//   state            at once, in chunks and token by token are the same, up to 600 positions, with a bias too; two
//                    states at a time; a step needs as many queries as keys, and keeps none of their memory
//   state copies     a copy and its original go on apart, with the bits of states that were never copied
//   state rows       picked, repeated and reordered rows go on as in a batch of these rows; the original is unharmed
//   ragged state     rows of different length, whose padding is NaN, give what each gives alone: prompts, single
//                    positions, several, rows that stand still; with a bias too; lengths() says how long they are
//   state resumed    a fresh state with the buffers of another goes on with the same bits
//   state programs   steps of equal and of ragged counts, of no position too, picks, copies and resumption in turn,
//                    past 600 positions: each row gives what its own sequence gives at once
//
//   numbers (conformance/numbers.cpp)
//   lengths          1, 63, 500 and 1000 positions in float32: finite, close to float64
//   spread           logits of about +-300 in float32: finite, close to float64
//   float32          outputs and gradients close to float64, under each mask, with T != S and grouped heads
//   bfloat16         outputs, gradients and states close to float64, each head of the right size, under each mask,
//                    with T != S and grouped heads
//   threads          the same bits at 1, 2, 3 and 8 threads
//
//   what it says of itself (conformance/claims.cpp)
//   members          names are there, each once; another mechanism with the same parameters and buffers gives the same
//                    bits; no parameter is used that is not named
//   cost             keys_per_query is a number above 0 that does not fall with the length; memory grows no faster
//   refuses          what is not declared is refused with an Error that names it
//
//   all of that together (conformance/combinations.cpp)
//   combinations     each pair of dtype, order, mask, key lengths, key mask, content of padding, bias, numbers of keys,
//                    queries, heads and sequences, sizes, layouts in memory of each operand, threads and wanted
//                    gradients, and each triple of those that decide what a query sees: the same as each sequence
//                    alone, dense, in float64, with its masks in one; and as single queries. A failure names the
//                    conditions that it needs
//
// "borders", "state programs" and "combinations" run where all others passed, and by name (ConformanceOptions::only).
// Many positions are asked of two heads where the mechanism can have any number (ConformanceOptions::of_sizes).
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

struct ConformanceOptions {
  Index heads = 4;            // of q; as many as its parameters have
  Index size = 8;             // of q and k: D
  Index value_size = 6;       // Dv
  Index longest = 1000;       // the most positions that the mechanism takes
  double spread = 300;        // greatest |q . k| / sqrt(D) of the check "spread"
  bool normalised = true;     // false: the weights of a row need not add up to 1
  bool non_negative = false;  // true: queries and keys are features, none below 0
  bool shared = false;        // true: keys are made of the queries, which so have their gradients too
  // Of the inputs, and of the generator that the factory gets.
  std::uint64_t seed = 1;
  // Allowed difference from float64, relative to the greatest value (at least 0.1) of each output or gradient. More is
  // allowed where a rounding of the inputs changes a result by more, as features do whose sums nearly cancel.
  double float32_tolerance = 1e-4;
  double spread_tolerance = 2e-3;
  double bfloat16_tolerance = 0.03;  // of outputs, where the mechanism declares bfloat16; of gradients twice that
  // All pairs, term by term, in float64: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. It is
  // asked for all that the mechanism declares: masks and biases of `call`, and Hk < H where grouped. `values` are the
  // mechanism's parameters and buffers by name, and what it takes beside q, k and v as "input NAME". Undefined:
  // "reference" is left out, and what a bias does is not seen.
  std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                       const TensorsByName& values)>
      reference = {};
  // The mechanism for other heads and sizes of q and k, for "sizes". Undefined: `make` itself where it has neither
  // parameters nor buffers, else "sizes" is left out.
  std::function<MechanismFactory(Index heads, Index size)> of_sizes = {};
  // Saves a state's buffers and gives back what was loaded, e.g. through a checkpoint file. Undefined: copies in
  // memory.
  std::function<TensorsByName(const TensorsByName& buffers)> save_and_load = {};
  // Names of the checks to run, of conformance_checks(). Empty: all.
  std::vector<std::string> only = {};
};

struct ConformanceCheck {
  std::string name = {};
  bool passed = false;
  // What was compared, and the largest difference. Of a failed check: the first failure, with the index of the worst
  // element, its value and the one that it must have, the variant of the call and the shapes of q, k and v.
  std::string detail = {};
};

struct ConformanceReport {
  std::string mechanism = {};
  std::vector<ConformanceCheck> checks = {};  // those that had something to compare
  std::vector<std::string> left_out = {};  // what was not compared, and why: «causal: 600 positions, longest is 150»

  bool passed() const;  // false also if nothing was checked
  std::vector<std::string> failed() const;
};

// A line a check: its name, "ok" or "FAILED", its detail. Then what was left out.
std::ostream& operator<<(std::ostream& out, const ConformanceReport& report);

// The names of all checks, in the order in which they run.
const std::vector<std::string>& conformance_checks();

// `make` makes the mechanism anew, as for a Transformer (it gets layer 0 and a generator of options.seed). Parameters
// whose elements are all equal, as zeros are, get some noise, so that their part is seen. An Error that a mechanism
// throws fails the check; for options out of range, and names of no check, this throws Error itself.
ConformanceReport check_conformance(const MechanismFactory& make, const ConformanceOptions& options = {});

}  // namespace heed
