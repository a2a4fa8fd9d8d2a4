// Decoding: greedy, by sampling, or by beam search, for any model that gives logits of the next token.
//
// Example:
//
//   struct Cycle {  // a model of four tokens, each of which is followed by the next
//     Tensor read(const Tensor& tokens, const Tensor&) {
//       const Tensor last = tokens.select(1, tokens.dim(1) - 1), next = Tensor::from<std::int32_t>({1, 2, 3, 0});
//       return one_hot(gather(next, 0, last), 4) * 9.0;
//     }
//     Cycle rows(const Tensor&) const { return *this; }
//   };
//   const std::vector<Tokens> prompts = {{2}, {1}};
//   const auto texts = generate(Cycle(), prompts, {.count = 3, .sampling = {.temperature = 0}});  // 3 0 1, 2 3 0
//   const auto best = beam_search(Cycle(), prompts, {.beam = 2, .count = 9, .stop_tokens = {0}});
//   std::cout << best[0][0].score << '\n';
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <heed/core/mode.hpp>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>
#include <heed/layers/state_rows.hpp>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace heed {

// The types that a DecodeState can hold.
// - read(tokens, lengths) appends tokens int32 [N, T] to N rows and returns the logits [N, vocabulary] of the next
//   token. Row i has the first lengths[i] of its T tokens (int32 [N], each from 1 to T; undefined: all).
// - Its rows can be picked (layers/state_rows.hpp): members() names the tensors that it keeps, or rows(indices) returns
//   a state whose row i is a copy of row indices[i], int32 [M]; rows may repeat.
template <class T>
concept DecodeStateLike = std::copyable<T> && HasRows<T> && requires(T& state, const Tensor& x) {
  { state.read(x, x) } -> std::convertible_to<Tensor>;
};

// The state of decoding: the tokens that a model has read so far, as a value of any type that is DecodeStateLike.
// read() runs without a tape and without dropout. The model must outlive the state.
class DecodeState {
 public:
  // Holds any DecodeStateLike state.
  template <class T>
  requires(!std::same_as<T, DecodeState> && DecodeStateLike<T>) DecodeState(T state)
      : self_(std::make_unique<Model<T>>(std::move(state))) {}
  DecodeState(const DecodeState& from) : self_(from.self_->rows({})) {}
  DecodeState(DecodeState&&) = default;
  DecodeState& operator=(DecodeState&&) = default;
  DecodeState& operator=(const DecodeState& from) { return *this = DecodeState(from); }

  // Throws Error for lengths out of range.
  Tensor read(const Tensor& tokens, const Tensor& lengths = {});
  DecodeState rows(const Tensor& indices) const { return DecodeState(self_->rows(indices)); }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual Tensor read(const Tensor& tokens, const Tensor& lengths) = 0;
    virtual std::unique_ptr<Concept> rows(const Tensor& indices) const = 0;  // undefined: a copy of all rows
  };
  template <class T>
  struct Model final : Concept {
    T state;
    explicit Model(T s) : state(std::move(s)) {}
    Tensor read(const Tensor& tokens, const Tensor& lengths) override {
      const NoTape no_tape;
      const Evaluation evaluation;
      return state.read(tokens, lengths);
    }
    std::unique_ptr<Concept> rows(const Tensor& indices) const override {
      return std::make_unique<Model>(indices.defined() ? pick_rows(state, indices) : state);
    }
  };
  explicit DecodeState(std::unique_ptr<Concept> self) : self_(std::move(self)) {}

  std::unique_ptr<Concept> self_;
};

// ---- Sampling ----

// How sample() chooses a token.
struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest
  Index top_k = 0;         // > 0: only the k likeliest
  double top_p = 1;        // < 1: only the likeliest, as few as reach probability top_p (Holtzman et al. 2020)
  // > 0: only tokens whose probability is at least min_p times that of the likeliest (Nguyen et al., "Turning up the
  // heat: min-p sampling", 2024).
  double min_p = 0;
  // > 1: makes the tokens of the prompt and the text less likely: divides positive logits, and multiplies negative ones
  // (Keskar et al., "CTRL", 2019, section 4.1).
  double repetition_penalty = 1;
};

// Throws Error for options out of range.
void check_sampling(const SamplingOptions& options);

// Draws an index from logits [V], with one random number per call. Among equal logits the lowest index is the likelier.
// `seen`: the tokens that repetition_penalty concerns. Throws Error for options out of range, for NaN and +inf, and if
// all logits are -inf.
std::int32_t sample(const Tensor& logits, const SamplingOptions& options, Rng& rng,
                    std::span<const std::int32_t> seen = {});

// Options of generate().
struct GenerateOptions {
  Index count = 100;  // maximum number of tokens per row
  SamplingOptions sampling = {};               // how tokens are chosen
  Tokens stop_tokens = {};                     // a row ends with the first of these, which is its last token
  std::uint64_t seed = 1, stream = 0;          // row i draws from Rng(seed, stream + i)
  // Called with each token. If it returns false, the row ends with the token.
  std::function<bool(Index row, std::int32_t token)> on_token = {};
  std::vector<Index> counts = {};  // per row, instead of `count`; empty: `count` for all
};

// Continues each prompt, of any length above 0, by up to `count` tokens. `state` must not have read any tokens. Rows
// are independent, and leave the batch when they end. Throws Error for stop tokens outside the model's vocabulary.
std::vector<Tokens> generate(DecodeState state, std::span<const Tokens> prompts, const GenerateOptions& options = {});

// Throws Error for a token outside a vocabulary: "OP: WHAT 300 is not in the vocabulary of 256 tokens".
void check_vocabulary(const char* op, const char* what, const Tokens& tokens, Index vocabulary);

namespace detail {
// generate() with a generator per prompt; options.seed and options.stream are not read.
std::vector<Tokens> generate_by(DecodeState state, std::span<const Tokens> prompts, const GenerateOptions& options,
                                std::span<Rng> generators);

// Rows of tokens of any lengths above 0, padded to int32 [rows, longest], and their lengths if they differ.
struct PaddedTokens {
  Tensor tokens, lengths;

  explicit PaddedTokens(const std::vector<std::span<const std::int32_t>>& rows);
};
}  // namespace detail

// ---- CTC ----

// The labels of the likeliest path of each sequence: the best class of each step, equal neighbours merged, blanks
// removed. scores [N, T, C] are logits or log probabilities; lengths int32 [N] are the steps that count, undefined: T.
// The loss is ctc_loss() (autograd/losses.hpp). Throws Error for other shapes and types.
std::vector<Tokens> ctc_greedy(const Tensor& scores, const Tensor& lengths = {}, Index blank = 0);

// ---- Beams ----

// The score of a text, from the sum of the log probabilities of its n tokens, including the stop token.
enum class LengthPenalty {
  none,     // sum
  average,  // sum / n^alpha
  gnmt      // sum / ((5 + n) / 6)^alpha: Wu et al., "Google's neural machine translation system", 2016, equation 14
};

// A text found by beam_search().
struct Hypothesis {
  Tokens tokens;               // after the prompt; the last is a stop token, unless the text has `count` tokens
  double log_probability = 0;  // sum over the tokens
  double score = 0;            // by LengthPenalty
};

// Options of beam_search().
struct BeamOptions {
  Index beam = 5;                  // number of unfinished texts per row
  Index n_best = 1;                // number of texts returned, at most `beam`
  Index count = 100;               // maximum number of tokens per text
  std::vector<Index> counts = {};  // per row, instead of `count`; empty: `count` for all
  Tokens stop_tokens = {};         // a text ends with the first of these
  Tokens never = {};               // tokens that are never chosen, such as one for unknown words
  LengthPenalty penalty = LengthPenalty::average;  // how the length changes a score
  double alpha = 1;  // 0 or more
  // false: a row ends when at least `beam` texts have ended and no unfinished text has a better score than the n_best
  // ended ones. true: a row ends when no unfinished text could still get a better score than those.
  bool exact = false;
  std::function<void(Index row)> on_done = {};  // called when a row ends
};

// The n_best likeliest texts for each prompt found by a search of width `beam`, best first. In each step, the
// continuations of a row's texts by one token are considered in order of probability. Texts with a stop token end; the
// first `beam` others continue. Among equal continuations, the lower text and then the lower token is first. Log
// probabilities are summed in float64. Throws Error for options out of range, empty prompts, and for stop tokens or
// `never` tokens outside the model's vocabulary.
std::vector<std::vector<Hypothesis>> beam_search(DecodeState state, std::span<const Tokens> prompts,
                                                 const BeamOptions& options = {});

}  // namespace heed
