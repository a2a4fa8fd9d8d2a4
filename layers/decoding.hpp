// Decoding: greedy, by sampling, or by beams, of any model that tells what follows a row of tokens.
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
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace heed {

// What a DecodeState can hold. `read` takes what each of N rows reads next, int32 [N, T], of row i the first lengths[i]
// of its T tokens (int32 [N], each from 1 to T; undefined: all), and gives the logits [N, vocabulary] of what follows.
// `rows` gives a state whose row i is row indices[i] of this, int32 [M]; rows may repeat.
template <class T>
concept DecodeStateLike = std::copyable<T> && requires(T& state, const T& seen, const Tensor& x) {
  { state.read(x, x) } -> std::convertible_to<Tensor>;
  { seen.rows(x) } -> std::convertible_to<T>;
};

// What a model has read so far, and how it reads on: a value of any such type, yours as well. Nothing is recorded on a
// tape, and there is no dropout. The model must live as long.
class DecodeState {
 public:
  template <class T>
  requires(!std::same_as<T, DecodeState> && DecodeStateLike<T>) DecodeState(T state)
      : self_(std::make_unique<Model<T>>(std::move(state))) {}
  DecodeState(const DecodeState& from) : self_(from.self_->rows({})) {}
  DecodeState(DecodeState&&) = default;
  DecodeState& operator=(DecodeState from) noexcept {
    self_ = std::move(from.self_);
    return *this;
  }

  // Error for lengths out of range.
  Tensor read(const Tensor& tokens, const Tensor& lengths = {});
  DecodeState rows(const Tensor& indices) const { return DecodeState(self_->rows(indices)); }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual Tensor read(const Tensor& tokens, const Tensor& lengths) = 0;
    virtual std::unique_ptr<Concept> rows(const Tensor& indices) const = 0;  // undefined: all of them, a copy
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
      return std::make_unique<Model>(indices.defined() ? state.rows(indices) : state);
    }
  };
  explicit DecodeState(std::unique_ptr<Concept> self) : self_(std::move(self)) {}

  std::unique_ptr<Concept> self_;
};

// ---- Sampling ----

struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest
  Index top_k = 0;         // > 0: only the k likeliest
  double top_p = 1;        // < 1: only the fewest likeliest whose probabilities reach top_p (Holtzman et al. 2020)
};

// Throws Error for options out of range.
void check_sampling(const SamplingOptions& options);

// Draws one index from logits [V]: one random number of rng a call. Ties go to the lowest index.
std::int32_t sample(const Tensor& logits, const SamplingOptions& options, Rng& rng);

struct GenerateOptions {
  Index count = 100;  // tokens of a row at most
  SamplingOptions sampling = {};
  Tokens stop_tokens = {};                     // a row ends with the first of them, which is its last token
  std::uint64_t seed = 1, stream = 0;          // row i draws from Rng(seed, stream + i)
  // Each token as it comes; false: the row ends with it.
  std::function<bool(Index row, std::int32_t token)> on_token = {};
  std::vector<Index> counts = {};  // of each row, in the place of `count`; empty: all have `count`
};

// What goes on from each of the prompts, of any lengths but 0, of a state that has read nothing of them. Rows know
// nothing of each other, and leave the batch when they end. Error for stop tokens outside the model's vocabulary.
std::vector<Tokens> generate(DecodeState state, std::span<const Tokens> prompts, const GenerateOptions& options = {});

// Throws Error for a token outside a vocabulary: "OP: WHAT 300 is not in the vocabulary of 256 tokens".
void check_vocabulary(const char* op, const char* what, const Tokens& tokens, Index vocabulary);

namespace detail {
// The loop of generate(): each row that goes on draws from rng_of(row).
void generate_rows(DecodeState state, std::span<const Tokens> prompts, const SamplingOptions& sampling,
                   const Tokens& stop_tokens,
                   const std::function<Rng&(Index row)>& rng_of, const std::function<bool(Index row)>& goes_on,
                   const std::function<void(Index row, std::int32_t token)>& use);
}  // namespace detail

// ---- Beams ----

// What a text's score is, of the sum of the log probabilities of its n tokens, the stop token included.
enum class LengthPenalty {
  none,     // the sum
  average,  // the sum / n^alpha
  gnmt      // the sum / ((5 + n) / 6)^alpha: Wu et al., "Google's neural machine translation system", 2016, equation 14
};

struct Hypothesis {
  Tokens tokens;  // behind the prompt; the last is a stop token, unless it came to its most tokens
  double log_probability = 0;
  double score = 0;
};

struct BeamOptions {
  Index beam = 5;                              // texts that go on in each row
  Index n_best = 1;                            // of those that are given back, at most `beam`
  Index count = 100;                           // tokens of a text at most
  std::vector<Index> counts = {};              // of each row, in the place of `count`; empty: all have `count`
  Tokens stop_tokens = {};                     // a text ends with the first of them
  Tokens never = {};                           // tokens that are not written, such as one for unknown words
  LengthPenalty penalty = LengthPenalty::average;
  double alpha = 1;  // 0 or more
  // A row ends when `beam` of its texts have ended and none that goes on has now a better score than the n_best of
  // them; exact: when none that goes on could still get one.
  bool exact = false;
  std::function<void(Index row)> on_done = {};  // as rows end
};

// The likeliest texts that a search of this width finds behind each prompt, the best first. At each step a row's texts,
// with each of the tokens that may follow, are looked through from the likeliest on: those with a stop token have
// ended, the first `beam` others go on. Of equal ones the lower text, and then the lower token, is first. Log
// probabilities are summed in float64. Error for stop tokens, and tokens of `never`, outside the model's vocabulary.
std::vector<std::vector<Hypothesis>> beam_search(DecodeState state, std::span<const Tokens> prompts,
                                                 const BeamOptions& options = {});

}  // namespace heed
