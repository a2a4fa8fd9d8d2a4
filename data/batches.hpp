// Batches: what a training step and an evaluation read, and those of language models, also masked ones.
//
// data/samples.hpp makes batches of samples: texts of different length, rows of a table.
//
// Example:
//
//   const Tokenizer tokenizer = CharTokenizer("to be or not to be ");
//   const TokenSource tokens(tokenizer.encode("to be or not to be to be or not to be "), tokenizer.vocabulary_size());
//   const LanguageModelBatches training(tokens, {.batch = 2, .context = 8});
//   const Batch b = training.batch(1, 0);  // of seed 1 and step 0: b.inputs, b.targets, int32 [2, 8]
//
//   Batch pairs;  // of a model of translation: any number of tensors by name
//   pairs["source"] = Tensor::zeros({2, 5}, DType::int32), pairs.inputs = b.inputs, pairs.targets = b.targets;
//   pairs.counted = 16;
#pragma once
#include <concepts>
#include <condition_variable>
#include <exception>
#include <functional>
#include <heed/core/members.hpp>
#include <heed/data/token_file.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace heed {

inline constexpr std::int32_t kIgnoreIndex = -100;  // a target that does not count: cross_entropy's ignore_index

struct Batch {
  Tensor inputs = {};   // language models: [B, T] int32
  Tensor targets = {};  // [B, T] int32, the inputs' next tokens; kIgnoreIndex where none counts
  // Targets that count, which a data set of your own must set: a mean over several batches weighs each one's loss by
  // it, unless the loss has weights of its own (autograd/losses.hpp, "Weighted means"). A batch of none, whose mean
  // loss is NaN, is left out; where all batches of a step or of an evaluation are such, run() and evaluate() throw
  // Error.
  Index counted = 0;
  Index tokens = 0;           // of the inputs without padding, for the speed that a run shows; 0: there is no padding
  TensorsByName others = {};  // what a model reads besides: a source, lengths, a mask

  // Any of its tensors: "inputs", "targets" or one of the others, which is made, undefined, where it is not there.
  Tensor& operator[](std::string_view name);
  // Error where it is not there, or undefined: it names those that are.
  const Tensor& operator[](std::string_view name) const { return at(name); }
  const Tensor& at(std::string_view name) const;
  bool has(std::string_view name) const;
  Tensor get(std::string_view name) const { return has(name) ? at(name) : Tensor(); }  // undefined where not there

  // Tokens that were read, or of inputs that are no tokens but numbers, targets that count.
  Index read() const;
  // Whether each token has a target: int32 targets of the inputs' shape, or of two axes or more where the inputs have
  // other names. Else a batch consists of samples.
  bool has_token_targets() const;
  Index samples() const;  // the first axis of the inputs, or else of the targets; `counted` where there is neither
};

// How samples become batches: at most `rows` samples and at most `tokens` tokens, padding included. 0: no limit.
struct Batching {
  Index rows = 0, tokens = 0;
  bool operator==(const Batching&) const = default;
};

// Batches that a run has read, all made in one way.
struct BatchesRead {
  Batching batching;
  std::uint64_t count = 0;
};

// What to train on: any type with `Batch batch(std::uint64_t seed, std::uint64_t step) const`, yours as well. A pure
// function: the same batch whenever it is asked for, so that a resumed run reads what the first one would have read.
// A data set may also have
//   std::string fingerprint() const;     what the data are, however batches are made of them: "2000 pairs, hash 1f..".
//                                        A run is not resumed on data with another fingerprint. Without one, run()
//                                        hashes the first two batches.
//   Batching batching() const;           how batches are made of them, and
//   T continued(const std::vector<BatchesRead>& read) const;    the data set whose batch 0 follows the batches `read`,
//                                        oldest first, so that a resumed run may have batches of another size.
template <class T>
concept DatasetLike = requires(const T& t, std::uint64_t n) {
  { t.batch(n, n) } -> std::convertible_to<Batch>;
};

// What to evaluate on: any type with `Index size() const` and `Batch batch(Index i) const` for 0 <= i < size(), and
// perhaps fingerprint(), as above.
template <class T>
concept EvaluationSetLike = requires(const T& t, Index i) {
  { t.size() } -> std::convertible_to<Index>;
  { t.batch(i) } -> std::convertible_to<Batch>;
};

namespace detail {

// The fingerprint of a data set, or nothing where its type has none.
template <class T>
std::optional<std::string> fingerprint_of(const T& set) {
  if constexpr (requires { set.fingerprint(); }) return set.fingerprint();
  return std::nullopt;
}

// The samples of a run in the order in which it reads them, of a data set whose batches all have as many rows. A run
// that continues with another number of rows goes on with the next sample.
class RowOrder {
 public:
  // A number of rows for data sets whose batches differ: each batch has room for so many.
  static constexpr Index kRoom = Index{1} << 20;

  explicit RowOrder(Index rows) : rows_(to_unsigned(rows)), first_rows_(rows_) {}
  RowOrder continued(const std::vector<BatchesRead>& read) const;

  std::uint64_t number(std::uint64_t step, Index row) const { return begin_ + step * rows_ + to_unsigned(row); }
  // Where a row is in batches of the size that the run began with: the numbers of the batch and of the row in it.
  std::pair<std::uint64_t, std::uint64_t> place(std::uint64_t step, Index row) const {
    const std::uint64_t n = number(step, row);
    return {n / first_rows_, n % first_rows_};
  }

 private:
  std::uint64_t rows_, first_rows_, begin_ = 0;
  static std::uint64_t to_unsigned(Index n) { return static_cast<std::uint64_t>(n); }
};

}  // namespace detail

class Dataset {
 public:
  Dataset() = default;  // no data: for a variable that is assigned later
  template <DatasetLike T>
  requires(!std::same_as<T, Dataset>) Dataset(T set) : held_(std::make_shared<Held<T>>(std::move(set))) {}
  // A type that is meant as one, as it has batch(), and is not: the compiler says what is missing.
  template <class T>
  requires(!DatasetLike<T> && !EvaluationSetLike<T> && requires { &T::batch; }) Dataset(T) {
    static_assert(DatasetLike<T>, "Dataset: it must have `Batch batch(std::uint64_t seed, std::uint64_t step) const`; "
                                  "mind the const");
  }
  Batch batch(std::uint64_t seed, std::uint64_t step) const { return held_->batch(seed, step); }
  std::optional<std::string> fingerprint() const { return held_->fingerprint(); }  // nothing: the type has none
  Batching batching() const { return held_->batching(); }                          // no limits: the type has none
  // Error where the type has no continued() and a batch of `read` was made in another way.
  Dataset continued(const std::vector<BatchesRead>& read) const { return held_->continued(read); }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual Batch batch(std::uint64_t seed, std::uint64_t step) const = 0;
    virtual std::optional<std::string> fingerprint() const = 0;
    virtual Batching batching() const = 0;
    virtual Dataset continued(const std::vector<BatchesRead>& read) const = 0;
  };
  template <class T>
  struct Held;

  std::shared_ptr<const Concept> held_;
};

template <class T>
struct Dataset::Held final : Concept {
  T set;
  explicit Held(T s) : set(std::move(s)) {}
  Batch batch(std::uint64_t seed, std::uint64_t step) const override { return set.batch(seed, step); }
  std::optional<std::string> fingerprint() const override { return detail::fingerprint_of(set); }
  Batching batching() const override {
    if constexpr (requires { set.batching(); }) return set.batching();
    return {};
  }
  Dataset continued(const std::vector<BatchesRead>& read) const override {
    if constexpr (requires { set.continued(read); }) {
      return set.continued(read);
    } else {
      fail("batches: the data set has no continued(), so that it cannot go on with batches of another size");
    }
  }
};

class EvaluationSet {
 public:
  EvaluationSet() = default;  // empty: size() is 0
  template <EvaluationSetLike T>
  requires(!std::same_as<T, EvaluationSet>) EvaluationSet(T set) : size_(set.size()) {
    const auto held = std::make_shared<T>(std::move(set));
    batch_ = [held](Index i) -> Batch { return held->batch(i); };
    fingerprint_ = [held] { return detail::fingerprint_of(*held); };
  }
  template <class T>
  requires(!DatasetLike<T> && !EvaluationSetLike<T> && requires { &T::batch; }) EvaluationSet(T) {
    static_assert(EvaluationSetLike<T>,
                  "EvaluationSet: it must have `Index size() const` and `Batch batch(Index i) const`; mind the const");
  }
  Index size() const { return size_; }
  Batch batch(Index i) const { return batch_(i); }
  std::optional<std::string> fingerprint() const {  // nothing: the type has none, or the set is empty
    return fingerprint_ ? fingerprint_() : std::nullopt;
  }

 private:
  Index size_ = 0;
  std::function<Batch(Index)> batch_;
  std::function<std::optional<std::string>()> fingerprint_;
};

struct WindowOptions {
  Index batch = 12;    // B, windows per batch
  Index context = 64;  // T, tokens per window
  // Windows start at this token only, and for evaluation each token is read with all since the last one before it
  // (as far as T allows): for texts of short pieces that do not depend on each other, such as the built-in stories.
  std::optional<std::int32_t> separator = std::nullopt;
  std::string name = "the text";  // of the tokens, for messages: "the last tenth of the text, for validation,"
};

// Random windows of a row of tokens: row r of step s is a pure function of (seed, s, r). A window starts anywhere, or
// at any separator, from which T + 1 tokens follow; Error if there is none.
class LanguageModelBatches {
 public:
  LanguageModelBatches(TokenSource tokens, WindowOptions options);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  std::string fingerprint() const { return tokens_.fingerprint(); }
  Batching batching() const { return {.rows = options_.batch}; }
  LanguageModelBatches continued(const std::vector<BatchesRead>& read) const;
  Index windows() const {
    return separators_ ? static_cast<Index>(separators_->size()) : tokens_.size() - options_.context;
  }

 private:
  TokenSource tokens_;
  WindowOptions options_;
  detail::RowOrder order_;
  std::shared_ptr<const std::vector<Index>> separators_;  // null: windows start anywhere
};

// A whole row of tokens in order, each counted once, but for a rest of less than a window at the end. Without a
// separator the windows do not overlap: window i reads T tokens from i T on. With one, a window starts at the separator
// last before the first token that is not yet counted, and what was counted before is ignored.
class WholeSplit {
 public:
  WholeSplit(TokenSource tokens, WindowOptions options);  // Error if there is not one window
  Index size() const {
    return (windows() + options_.batch - 1) / options_.batch;
  }  // batches; the last may have fewer rows
  Batch batch(Index i) const;
  std::string fingerprint() const { return tokens_.fingerprint(); }
  Index windows() const { return static_cast<Index>(starts_->size()); }
  const TokenSource& tokens() const { return tokens_; }
  // The targets that the first `batches` count (0: all of them), all together: tokens begin to end of the row.
  Index counted_begin() const { return 1; }
  Index counted_end(Index batches = 0) const;  // Error if batches is not in 0..size()

 private:
  TokenSource tokens_;
  WindowOptions options_;
  std::shared_ptr<const std::vector<std::pair<Index, Index>>>
      starts_;  // (first input, first input whose target counts)
};

// The same batches, the next one built by a thread of its own while the step computes: the one behind, or where some in
// a row and then a jump came before, as a rank asks that has a part of each step, that which the same jump leads to.
// What the data set throws is thrown by batch(). Use from one thread. Not part of what a run saves: a resumed run asks
// for the step it needs.
class Prefetch {
 public:
  explicit Prefetch(Dataset data);
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch();
  Batch batch(std::uint64_t seed, std::uint64_t step);  // and begins with the next one

 private:
  enum class State { idle, asked, ready, stopping };
  void work();
  void ask(std::unique_lock<std::mutex>& lock, std::uint64_t seed, std::uint64_t step);

  Dataset data_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;
  std::uint64_t seed_ = 0, step_ = 0;  // of the batch asked for
  std::uint64_t last_ = 0, in_row_ = 0;   // what batch() gave, and how many in a row it was the last of
  std::uint64_t row_ = 0, jump_ = 0;      // how long the row before was, and what followed it; 0: not known
  Batch batch_;
  std::exception_ptr error_;
  std::thread thread_;  // last, so that it starts when all else is there
};

// ---- Masked language modelling ----

// Masked language modelling (Devlin et al., "BERT: pre-training of deep bidirectional transformers", 2018,
// section 3.1): some tokens of a text are hidden, and the model is to tell them from all the others.

struct MaskOptions {
  Index vocabulary = 0;                                  // random tokens are drawn from [0, vocabulary)
  std::int32_t mask = 0;                                 // what stands in for a hidden token: an id of its own
  std::optional<std::int32_t> separator = std::nullopt;  // is never chosen, as BERT's [SEP]
  double share = 0.15;                                   // of a row's positions, chosen: rounded, and at least one
  double masked = 0.8;                                   // share of the chosen that become `mask`;
  double random = 0.1;  // of those that become a random token; the others stay as they are
};

// Batches of any texts, inputs int32 [B, T], with some of their tokens hidden. Targets are the tokens that were there
// at the chosen positions, and kIgnoreIndex elsewhere; the texts' own targets are not read, and other tensors stay.
// What is chosen and what it becomes is a pure function of (seed, step, row). Throws Error for options out of range.
class MaskedBatches {
 public:
  MaskedBatches(Dataset texts, const MaskOptions& options);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  std::optional<std::string> fingerprint() const { return texts_.fingerprint(); }
  Batching batching() const { return texts_.batching(); }
  MaskedBatches continued(const std::vector<BatchesRead>& read) const;

 private:
  Dataset texts_;
  MaskOptions options_;
  detail::RowOrder order_;
};

// The same of texts to evaluate on, hidden at the same places each time: a function of (seed, batch, row), so that
// evaluations compare. A chosen position counts only where the text's own target does: windows of WholeSplit that
// overlap count nothing twice. Error unless these targets are int32 of the shape of the inputs; where a text has none
// (an undefined tensor), all chosen positions count.
class MaskedEvaluation {
 public:
  MaskedEvaluation(EvaluationSet texts, const MaskOptions& options, std::uint64_t seed = 0);
  Index size() const { return texts_.size(); }
  Batch batch(Index i) const;
  std::optional<std::string> fingerprint() const { return texts_.fingerprint(); }

 private:
  EvaluationSet texts_;
  MaskOptions options_;
  std::uint64_t seed_;
};

}  // namespace heed
