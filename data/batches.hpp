// The batches that training and evaluation read, and the data sets of language models, including masked ones.
//
// data/samples.hpp makes batches of samples, such as texts of different lengths or rows of a table.
//
// Example:
//
//   const Tokenizer tokenizer = CharTokenizer("to be or not to be ");
//   const TokenSource tokens(tokenizer.encode("to be or not to be to be or not to be "), tokenizer.vocabulary_size());
//   const LanguageModelBatches training(tokens, {.batch = 2, .context = 8});
//   const Batch b = training.batch(1, 0);  // seed 1, step 0: b.inputs and b.targets are int32 [2, 8]
//
//   Batch pairs;  // for a translation model: any number of tensors by name
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

inline constexpr std::int32_t kIgnoreIndex = -100;  // a target that does not count; cross_entropy's ignore_index

// The tensors that a model reads in one step or one evaluation batch.
struct Batch {
  Tensor inputs = {};   // language models: [B, T] int32
  Tensor targets = {};  // [B, T] int32, the next token of each input; kIgnoreIndex where a target does not count
  // Targets that count. Your own data set must set this number. A mean over several batches weighs the loss of each
  // batch by `counted`, unless the loss has weights (autograd/losses.hpp, "Weighted means"). A batch without counted
  // targets, whose mean loss is NaN, is left out. run() and evaluate() throw Error if no batch of a step or of an
  // evaluation has any.
  Index counted = 0;
  Index tokens = 0;           // tokens of the inputs without padding, for the speed that a run prints; 0: no padding
  TensorsByName others = {};  // further tensors that a model reads: a source, lengths, a mask

  // The tensor of this name: "inputs", "targets" or one of the others. A missing one is added, undefined.
  Tensor& operator[](std::string_view name);
  // Throws Error, which names the defined tensors, if there is no such tensor or it is undefined.
  const Tensor& operator[](std::string_view name) const { return at(name); }
  const Tensor& at(std::string_view name) const;
  bool has(std::string_view name) const;  // whether the tensor exists and is defined
  Tensor get(std::string_view name) const { return has(name) ? at(name) : Tensor(); }  // undefined if missing

  // Tokens read: `tokens`, or the number of int32 inputs. For other inputs, the number of counted targets.
  Index read() const;
  // Whether each token has a target: the targets are int32 of rank 2 or more and have the shape of the int32 inputs. A
  // batch without `inputs` needs `tokens` above 0 instead. Any other batch consists of samples.
  bool has_token_targets() const;
  Index samples() const;  // size of the first axis of inputs, else of targets; else `counted`
};

// Limits of a batch: at most `rows` samples and at most `tokens` tokens, padding included. 0: no limit.
struct Batching {
  Index rows = 0, tokens = 0;  // per batch
  bool operator==(const Batching&) const = default;
};

// A number of batches that a run has read, all with the same limits.
struct BatchesRead {
  Batching batching;        // of each of these batches
  std::uint64_t count = 0;  // batches
};

// A data set for training: any type, including your own, that has
//   Batch batch(std::uint64_t seed, std::uint64_t step) const;
// batch() must be a pure function, so that a resumed run reads the same batches as an uninterrupted run. A data set may
// also have
//   std::string fingerprint() const;     identifies the data, however they are batched: "2000 pairs, hash 1f..". A run
//                                        is not resumed on data with another fingerprint. Without this function, run()
//                                        hashes the first two batches.
//   Batching batching() const;           the limits of its batches
//   T continued(const std::vector<BatchesRead>& read) const;    the data set whose batch 0 follows the batches `read`,
//                                        oldest first, so that a resumed run may change the size of its batches
template <class T>
concept DatasetLike = requires(const T& t, std::uint64_t n) {
  { t.batch(n, n) } -> std::convertible_to<Batch>;
};

// A data set for evaluation: any type with `Index size() const` and `Batch batch(Index i) const` for 0 <= i < size(),
// and optionally fingerprint(), as in DatasetLike.
template <class T>
concept EvaluationSetLike = requires(const T& t, Index i) {
  { t.size() } -> std::convertible_to<Index>;
  { t.batch(i) } -> std::convertible_to<Batch>;
};

namespace detail {

// Throws Error, "WHAT 3 is out of range; there are 3", unless 0 <= i < size.
void check_index(const char* what, Index i, Index size);

// The fingerprint of a data set; nullopt if its type has none.
template <class T>
std::optional<std::string> fingerprint_of(const T& set) {
  if constexpr (requires { set.fingerprint(); }) return set.fingerprint();
  return std::nullopt;
}

// Numbers the samples of a run in the order of reading, for a data set whose batches all have the same number of rows.
// A run that continues with another number of rows reads the next sample.
class RowOrder {
 public:
  explicit RowOrder(const Batching& batching) : rows_(rows_of(batching)), first_rows_(rows_) {}
  RowOrder continued(const std::vector<BatchesRead>& read) const;

  // The number of the sample in this row.
  std::uint64_t number(std::uint64_t step, Index row) const { return begin_ + step * rows_ + to_unsigned(row); }
  // The position of a row in batches of the size that the run began with: the number of the batch and the row in it.
  std::pair<std::uint64_t, std::uint64_t> place(std::uint64_t step, Index row) const {
    const std::uint64_t n = number(step, row);
    return {n / first_rows_, n % first_rows_};
  }

 private:
  std::uint64_t rows_, first_rows_, begin_ = 0;
  static std::uint64_t to_unsigned(Index n) { return static_cast<std::uint64_t>(n); }
  // The number of samples reserved per batch: 2^20 if batches may differ in size.
  static std::uint64_t rows_of(const Batching& b) {
    return to_unsigned(b.rows > 0 && b.tokens == 0 ? b.rows : Index{1} << 20);
  }
};

}  // namespace detail

// Holds a data set of any type that is DatasetLike.
class Dataset {
 public:
  Dataset() = default;  // no data: for a variable that is assigned later
  // Holds any DatasetLike data set. Copies of a Dataset share it.
  template <DatasetLike T>
  requires(!std::same_as<T, Dataset>) Dataset(T set) {
    const auto held = std::make_shared<const T>(std::move(set));
    batch_ = [held](std::uint64_t seed, std::uint64_t step) -> Batch { return held->batch(seed, step); };
    fingerprint_ = [held] { return detail::fingerprint_of(*held); };
    if constexpr (requires { held->batching(); }) batching_ = held->batching();
    continued_ = [held](const std::vector<BatchesRead>& read) -> Dataset {
      if constexpr (requires { held->continued(read); })
        return held->continued(read);
      else
        fail("batches: the data set has no continued(), so it cannot continue with batches of another size");
    };
  }
  // A type with batch() that is neither kind of data set: the compiler names the missing part.
  template <class T>
  requires(!DatasetLike<T> && !EvaluationSetLike<T> && requires { &T::batch; }) Dataset(T) {
    static_assert(DatasetLike<T>,
                  "Dataset: it must have `Batch batch(std::uint64_t seed, std::uint64_t step) const`; note the const");
  }
  // The functions of the held data set.
  Batch batch(std::uint64_t seed, std::uint64_t step) const { return batch_(seed, step); }
  std::optional<std::string> fingerprint() const { return fingerprint_(); }  // nullopt if the type has none
  Batching batching() const { return batching_; }                            // no limits if the type has none
  // Throws Error if the type has no continued() and a batch of `read` had other limits.
  Dataset continued(const std::vector<BatchesRead>& read) const { return continued_(read); }

 private:
  std::function<Batch(std::uint64_t seed, std::uint64_t step)> batch_;
  std::function<std::optional<std::string>()> fingerprint_;
  std::function<Dataset(const std::vector<BatchesRead>& read)> continued_;
  Batching batching_;
};

// Holds a data set of any type that is EvaluationSetLike.
class EvaluationSet {
 public:
  EvaluationSet() = default;  // empty: size() is 0
  // Holds any EvaluationSetLike set. Copies of an EvaluationSet share it.
  template <EvaluationSetLike T>
  requires(!std::same_as<T, EvaluationSet>) EvaluationSet(T set) : size_(set.size()) {
    const auto held = std::make_shared<T>(std::move(set));
    batch_ = [held](Index i) -> Batch { return held->batch(i); };
    fingerprint_ = [held] { return detail::fingerprint_of(*held); };
  }
  // A type with batch() that is neither kind of data set: the compiler names the missing part.
  template <class T>
  requires(!DatasetLike<T> && !EvaluationSetLike<T> && requires { &T::batch; }) EvaluationSet(T) {
    static_assert(EvaluationSetLike<T>,
                  "EvaluationSet: it must have `Index size() const` and `Batch batch(Index i) const`; note the const");
  }
  Index size() const { return size_; }  // batches
  Batch batch(Index i) const { return batch_(i); }  // 0 <= i < size()
  std::optional<std::string> fingerprint() const {  // nullopt if the type has none or the set is empty
    return fingerprint_ ? fingerprint_() : std::nullopt;
  }

 private:
  Index size_ = 0;
  std::function<Batch(Index)> batch_;
  std::function<std::optional<std::string>()> fingerprint_;
};

// How a sequence of tokens is cut into windows.
struct WindowOptions {
  Index batch = 12;    // B, windows per batch
  Index context = 64;  // T, tokens per window
  // Windows start only at this token. For evaluation, each token is read with all tokens since the last separator
  // before it, as far as T allows. For short texts that do not depend on each other, such as the built-in stories.
  std::optional<std::int32_t> separator = std::nullopt;
  std::string name = "the text";  // name of the tokens in messages: "the last tenth of the text, for validation,"
};

// Random windows of a sequence of tokens, for training. Row r of step s is a pure function of (seed, s, r). A window
// starts at any token, or at any separator, that T more tokens follow. Throws Error if there is no such start.
class LanguageModelBatches {
 public:
  LanguageModelBatches(TokenSource tokens, WindowOptions options);  // throws Error also for options out of range
  Batch batch(std::uint64_t seed, std::uint64_t step) const;  // inputs and targets int32 [B, T]
  // The optional members of DatasetLike. The fingerprint is that of the tokens.
  std::string fingerprint() const { return tokens_.fingerprint(); }
  Batching batching() const { return {.rows = options_.batch}; }
  LanguageModelBatches continued(const std::vector<BatchesRead>& read) const;
  Index windows() const {  // possible starts of a window
    return separators_ ? static_cast<Index>(separators_->size()) : tokens_.size() - options_.context;
  }

 private:
  TokenSource tokens_;
  WindowOptions options_;
  detail::RowOrder order_;
  std::shared_ptr<const std::vector<Index>> separators_;  // starts of windows; null: windows start at any token
};

// Windows over a whole sequence of tokens in order, for evaluation. Each token is a counted target once, except the
// first token and a remainder at the end that is shorter than a window. Without a separator, windows do not overlap:
// window i reads T tokens from i T on. With a separator, a window starts at the last separator before the next token
// to be counted. Targets that an earlier window counted are ignored.
class WholeSplit {
 public:
  WholeSplit(TokenSource tokens, WindowOptions options);  // throws Error if the tokens do not fill one window
  // Number of batches. The last may have fewer rows.
  Index size() const { return (windows() + options_.batch - 1) / options_.batch; }
  Batch batch(Index i) const;                                            // throws Error unless 0 <= i < size()
  std::string fingerprint() const { return tokens_.fingerprint(); }      // of the tokens: see DatasetLike
  Index windows() const { return static_cast<Index>(starts_->size()); }  // total number of windows
  const TokenSource& tokens() const { return tokens_; }                  // the arguments of the constructor
  // The counted targets of the first `batches` (0: all) are the tokens [counted_begin(), counted_end(batches)).
  Index counted_begin() const { return 1; }
  Index counted_end(Index batches = 0) const;  // throws Error unless 0 <= batches <= size()

 private:
  TokenSource tokens_;
  WindowOptions options_;
  std::shared_ptr<const std::vector<std::pair<Index, Index>>>
      starts_;  // (first input, first input whose target counts)
};

// The batches of a data set, built ahead by a separate thread while the caller computes a step. The thread builds the
// batch of the next step. A rank that reads only its own part of each step reads some consecutive batches and then
// skips some. After one such skip, the thread expects the same pattern again. batch() rethrows exceptions of the data
// set. Use from one thread. A run does not save this object: a resumed run requests the batch of its step.
class Prefetch {
 public:
  explicit Prefetch(Dataset data);  // starts the thread
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch();
  Batch batch(std::uint64_t seed, std::uint64_t step);  // also starts building the next batch

 private:
  enum class State { idle, requested, ready, stopping };
  void work();
  void request(std::unique_lock<std::mutex>& lock, std::uint64_t seed, std::uint64_t step);

  Dataset data_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;
  std::uint64_t seed_ = 0, step_ = 0;    // of the requested batch
  std::uint64_t last_ = 0, in_row_ = 0;  // the last step returned, and the number of consecutive steps up to it
  std::uint64_t row_ = 0, jump_ = 0;     // that number before the last skip, and the skip; 0: unknown
  Batch batch_;
  std::exception_ptr error_;
  std::thread thread_;  // last, so that the thread starts after all other members are initialized
};

// ---- Masked language modelling ----

// Masked language modelling (Devlin et al., "BERT: pre-training of deep bidirectional transformers", 2018, section
// 3.1): some tokens of a text are hidden, and the model predicts them from all other tokens.

// Which tokens are hidden, and how.
struct MaskOptions {
  Index vocabulary = 0;                                  // random tokens are drawn from [special, vocabulary)
  std::int32_t mask = 0;                                 // replaces a hidden token; an id that no text contains
  std::optional<std::int32_t> separator = std::nullopt;  // this token is never hidden, as BERT's [SEP]
  std::int32_t special = 0;  // tokens [0, special) are never hidden or drawn, as BERT's padding, [CLS] and [SEP]
  double share = 0.15;  // share of a row's positions that are chosen: rounded, at least one
  double masked = 0.8;  // share of the chosen positions that become `mask`
  double random = 0.1;  // share that become a random token; the others keep their token
};

// Batches of any texts, inputs int32 [B, T], with some tokens hidden. Targets are the original tokens at the chosen
// positions and kIgnoreIndex elsewhere. The targets of the texts are not read; other tensors are kept. The choice of
// positions and their new tokens are a pure function of (seed, step, row). Throws Error for options out of range.
class MaskedBatches {
 public:
  MaskedBatches(Dataset texts, const MaskOptions& options);  // throws Error for options out of range
  // The members of a data set: see DatasetLike. Fingerprint and limits are those of the texts.
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  std::optional<std::string> fingerprint() const { return texts_.fingerprint(); }
  Batching batching() const { return texts_.batching(); }
  MaskedBatches continued(const std::vector<BatchesRead>& read) const;

 private:
  Dataset texts_;
  MaskOptions options_;
  detail::RowOrder order_;
};

// Evaluation batches with tokens hidden in the same way. The hidden positions are a function of (seed, batch, row), so
// that evaluations can be compared. A chosen position counts only where the target of the text counts, so that
// overlapping windows of WholeSplit count no token twice. All chosen positions count if the text has no targets (an
// undefined tensor). Throws Error unless the targets are int32 of the shape of the inputs.
class MaskedEvaluation {
 public:
  // `seed` chooses the hidden positions. Throws Error for options out of range.
  MaskedEvaluation(EvaluationSet texts, const MaskOptions& options, std::uint64_t seed = 0);
  // The members of an evaluation set: see EvaluationSetLike. The fingerprint is that of the texts.
  Index size() const { return texts_.size(); }
  Batch batch(Index i) const;
  std::optional<std::string> fingerprint() const { return texts_.fingerprint(); }

 private:
  EvaluationSet texts_;
  MaskOptions options_;
  std::uint64_t seed_;
};

}  // namespace heed
