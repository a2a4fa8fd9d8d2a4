// Samples: data sets of separate examples, and batches of samples, padded and of similar length. Sources of samples are
// tensors in memory, tables (CSV) and pairs of texts.
//
// Example:
//
//   Rng rng(1);
//   const TensorDataset points({{"inputs", rng.normal({20, 2})}, {"targets", rng.integers({20}, 0, 3)}});
//   const auto [training, held_out] = split(points, 0.1, 7);  // a tenth for evaluation
//   const SampleBatches batches(training, {.rows = 4});
//   const Batch b = batches.batch(1, 0);
#pragma once
#include <concepts>
#include <filesystem>
#include <functional>
#include <heed/core/tensor.hpp>
#include <heed/data/batches.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {

// One example: tensors by name, without the batch axis. A sequence is [T] or [T, ...], a class is int32 [].
using Sample = TensorsByName;

// How a tensor is padded whose first axis differs in length between samples.
struct Padding {
  double value = 0;      // fills the padding; kIgnoreIndex for targets that do not count
  bool lengths = false;  // adds NAME_lengths to the batch: int32 [B], the lengths without padding
  bool mask = false;     // adds NAME_mask to the batch: bool8 [B, T], true except for padding
};
using PaddingByName = std::map<std::string, Padding, std::less<>>;  // by the name of the tensor

// Joins samples into a batch; each tensor becomes [B, ...]. A tensor named in `padding` is padded at its end to the
// longest length. Batch::counted is
// - for int32 targets the number that are not kIgnoreIndex and, if the batch has a bool8 `targets_mask` of their shape,
//   true in the mask (from Padding::mask or from the samples)
// - for other targets the number of true elements of `targets_mask`. Without a mask, the total length of the targets if
//   Padding::lengths is set for them, else the number of samples.
//
// Batch::tokens is the total length without padding of all padded tensors except the targets. Throws Error if there are
// no samples, if tensors differ between samples in name, shape or dtype, or if `padding` names a missing tensor.
Batch collate(const std::vector<Sample>& samples, const PaddingByName& padding = {});

// A list of samples: any type, including your own, that has
//   Index size() const;
//   Sample sample(Index i) const;           a pure function, for 0 <= i < size()
// and optionally
//   std::string where(Index i) const;       the origin of sample i, for messages
template <class T>
concept SamplesLike = requires(const T& t, Index i) {
  { t.size() } -> std::convertible_to<Index>;
  { t.sample(i) } -> std::convertible_to<Sample>;
};

// Holds a list of samples of any type that is SamplesLike.
class Samples {
 public:
  // Holds any SamplesLike list. Copies of a Samples share it.
  template <SamplesLike T>
  requires(!std::same_as<T, Samples>) Samples(T set) : size_(set.size()) {
    const auto held = std::make_shared<const T>(std::move(set));
    sample_ = [held](Index i) -> Sample { return held->sample(i); };
    if constexpr (requires { held->where(Index{}); })
      where_ = [held](Index i) -> std::string { return held->where(i); };
    fingerprint_ = [held] { return detail::fingerprint_of(*held); };
  }
  // A type with sample() that is not SamplesLike: the compiler names the missing part.
  template <class T>
  requires(!SamplesLike<T> && requires { &T::sample; }) Samples(T) {
    constexpr bool has_size = requires(const T& t) { t.size() + Index{}; };
    constexpr bool has_sample = requires(const T& t, Index i) { t.sample(i); };
    static_assert(has_size, "Samples: the type lacks `Index size() const`");
    static_assert(has_sample, "Samples: its sample() must be `Sample sample(Index i) const`; note the const");
    static_assert(!has_size || !has_sample, "Samples: its sample() must return Sample, which is TensorsByName");
  }
  Index size() const { return size_; }                   // number of samples
  Sample sample(Index i) const;                          // throws Error unless 0 <= i < size()
  std::string where(Index i) const;                      // "sample 3", with its origin if known
  Samples chosen(const std::vector<Index>& rows) const;  // these, in this order; Error as in sample()
  // Identifies the samples, as in DatasetLike; nullopt if their type has no fingerprint().
  std::optional<std::string> fingerprint() const { return fingerprint_(); }

 private:
  Index size_ = 0;
  std::function<Sample(Index)> sample_;
  std::function<std::optional<std::string>()> fingerprint_;
  std::function<std::string(Index)> where_;
};

// Chooses a share of the samples at random. Returns the other samples and the chosen samples, both in their original
// order. A pure function of its arguments. Throws Error unless 0 <= share <= 1.
std::pair<Samples, Samples> split(const Samples& samples, double share, std::uint64_t seed);

// Samples in memory: sample i is row i of each tensor. Throws Error if there is no tensor or the first axes differ.
class TensorDataset {
 public:
  explicit TensorDataset(TensorsByName tensors);  // [samples, ...], by name
  // The members of a list of samples: see SamplesLike. sample(i) has views of the tensors. The fingerprint has a hash
  // of names and values.
  Index size() const { return tensors_.begin()->second.dim(0); }
  Sample sample(Index i) const;
  std::string fingerprint() const;
  const TensorsByName& tensors() const { return tensors_; }  // the argument of the constructor

 private:
  TensorsByName tensors_;
};

// ---- Batches of samples ----

// Batches of samples, for training and for evaluation.
//
//   const PaddingByName padding = {{"inputs", {.lengths = true}}};
//   SampleBatches training(samples, {.tokens = 4096, .padding = padding});           // of similar length
//   SampleEvaluation held_out(other_samples, {.tokens = 4096, .padding = padding});  // in order

// Options of SampleBatches and SampleEvaluation.
struct SampleBatchOptions {
  Index rows = 0;  // max samples per batch; 0: no limit except `tokens`
  // Max tokens per batch, padding included: rows times the longest of its padded tensors. 0: no limit.
  Index tokens = 0;
  PaddingByName padding = {};  // as for collate()
};

// Training batches that read every sample once per epoch. Batch s of a run is a pure function of (seed, s), and the
// order within an epoch is a function of the seed and the epoch.
//
// With `tokens`, the samples of a batch have similar lengths (the longest is at most a tenth longer than the shortest),
// and batches of long samples have fewer rows. The constructor then reads all samples once for their lengths. Samples
// are shuffled within buckets of similar length, then the batches of all buckets are shuffled. The last batch of a
// bucket, or of an epoch without buckets, may have fewer rows. Throws Error if there are no samples, if neither rows
// nor tokens is given, or if a sample is longer than `tokens`.
class SampleBatches {
 public:
  SampleBatches(Samples samples, SampleBatchOptions options);  // errors as above
  // Number `step` of the run, from 0; epochs follow each other.
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  Index size() const { return batches_; }  // batches per epoch, the same number in every epoch
  // The optional members of DatasetLike.
  std::optional<std::string> fingerprint() const { return samples_.fingerprint(); }
  Batching batching() const { return {options_.rows, options_.tokens}; }
  // Reads the rest of the current epoch, then whole epochs. `read` may have any limits.
  SampleBatches continued(const std::vector<BatchesRead>& read) const;
  // Batches until the end of epoch `epochs`, without the batches before continued().
  std::uint64_t batches_until(std::uint64_t seed, std::uint64_t epochs) const;

 private:
  struct Plan;   // the batches of one epoch, or of the rest of one
  struct Cache;  // the last plans that epoch() and start() made

  Samples samples_;
  SampleBatchOptions options_;
  std::shared_ptr<const std::vector<Index>> lengths_;  // length of each sample; 0: not needed
  Index batches_ = 0;
  std::vector<BatchesRead> read_;  // before batch 0
  std::shared_ptr<Cache> cache_;

  std::shared_ptr<const Plan> epoch(std::uint64_t seed, std::uint64_t number) const;
  // The rest of the epoch that was being read before continued(); its `epoch` is the first whole one.
  std::shared_ptr<const Plan> start(std::uint64_t seed) const;
};

// Every sample once, in order. Each batch holds as many samples as the options allow. Errors as in SampleBatches.
class SampleEvaluation {
 public:
  SampleEvaluation(Samples samples, SampleBatchOptions options);  // errors as above
  // The members of an evaluation set: see EvaluationSetLike. batch() throws Error for an index out of range.
  Index size() const { return static_cast<Index>(begins_.size()) - 1; }
  Batch batch(Index i) const;
  std::optional<std::string> fingerprint() const { return samples_.fingerprint(); }

 private:
  Samples samples_;
  SampleBatchOptions options_;
  std::vector<Index> begins_;  // start of each batch, then the number of samples
};

// ---- Tables ----

// Tables of comma-separated values (RFC 4180): columns of numbers and of classes, as tensors.
//
//   const CsvTable table = CsvTable::read("iris.csv");
//   const TensorDataset samples({{"inputs", table.numbers({"sepal length", "sepal width"})},  // float32 [rows, 2]
//                                {"targets", table.classes("species")}});                     // int32 [rows]
//   table.class_names("species");  // setosa, versicolor, virginica: what 0, 1 and 2 mean

// How a CSV file is read.
struct CsvOptions {
  char separator = ',';  // one byte between fields
  // Names of the columns, for a file without a line of names.
  std::vector<std::string> names = {};
  // Line ends (within quotes too) and invalid UTF-8; InvalidUtf8::skip leaves out rows.
  ReadTextOptions reading = {};
};

// A table in memory. The first line names the columns. A quoted field may contain separators, line feeds and doubled
// quotes. Spaces are part of fields. Blank lines at the end are ignored.
class CsvTable {
 public:
  // Throws Error, with file, line and column, if the file is missing, is not UTF-8 or has no rows, or if two columns
  // have the same name. Also throws Error if a line has more or fewer fields than there are columns, or if a quote is
  // not closed or is inside an unquoted field.
  static CsvTable read(const std::filesystem::path& file, const CsvOptions& options = {});

  Index rows() const { return static_cast<Index>(lines_.size()); }  // without the line of names
  const std::vector<std::string>& names() const { return names_; }  // of the columns, in order
  // The field in this row, from 0. Throws Error if there is no such row or column.
  const std::string& field(Index row, std::string_view column) const;

  // float32 [rows, columns]. Throws Error if a column does not exist. Throws Error, with file, line and column, if a
  // field is not a finite number, such as -1.5e3, or is outside the range of float32.
  Tensor numbers(const std::vector<std::string>& columns) const;
  // One column: float32 [rows]. Errors as in numbers().
  Tensor column(const std::string& name) const { return numbers({name}).select(1, 0); }

  // int32 [rows]: the index of each field in the list of class names. The list defaults to the column's own names; give
  // the names of the training table to read another table. Throws Error if a field is empty or is not in the list.
  Tensor classes(std::string_view column) const { return classes(column, class_names(column)); }
  Tensor classes(std::string_view column, const std::vector<std::string>& names) const;
  std::vector<std::string> class_names(std::string_view column) const;  // sorted, unique, without ""

 private:
  std::string file_;
  std::vector<std::string> names_;
  std::vector<std::string> fields_;  // row-major
  std::vector<Index> lines_;         // line of each row in the file

  std::size_t place_of(std::string_view column) const;
  const std::string& at(std::size_t row, std::size_t column) const { return fields_[row * names_.size() + column]; }
  std::string where(std::size_t row, std::size_t column) const;
};

// ---- Pairs of texts ----

// Pairs of texts, such as sentences and their translations, as samples.
//
//   const std::vector<TextPair> pairs = read_text_pairs("train.de", "train.en");
//   const TextPairs samples(pairs, german, english, {.longest = 100, .skip = true});
//   SampleBatches training(samples, {.tokens = 4096, .padding = samples.padding()});
//   // batch["source"], batch["source_lengths"], batch.inputs, batch.targets

// A text and its translation.
struct TextPair {
  std::string source = {}, target = {};  // without line ends
  Index line = 0;  // line of the files, from 1; 0: not from a file
};

// Pairs line i of one file with line i of another, or reads a file whose lines are source, tab, target (blank lines at
// the end are ignored). With InvalidUtf8::skip, pairs with a side that is not UTF-8 are left out. Throws Error, with
// file and line, if read_text() would, if the files have different numbers of lines, or if a line has no tab or
// several.
std::vector<TextPair> read_text_pairs(const std::filesystem::path& source, const std::filesystem::path& target,
                                      const ReadTextOptions& o = {});
std::vector<TextPair> read_text_pairs(const std::filesystem::path& tab_separated, const ReadTextOptions& o = {});

// The tokens that begin and end a text, "<s>" and "</s>", and the number of ids that a model needs with them. If the
// tokenizer lacks either token, both are new ids after its vocabulary.
struct TextMarks {
  std::int32_t begin = 0, end = 0;  // ids
  Index vocabulary = 0;             // number of ids, with both marks
};
TextMarks text_marks(const Tokenizer& tokenizer);

// Which pairs are used, and how they are encoded.
struct TextPairOptions {
  Index longest = 0;  // max tokens of a source, or of a target with one of its two marks; 0: no limit
  // Leaves out pairs that are too long or have a side without tokens. If false, such pairs are errors.
  // TextPairs::skipped() counts the left-out pairs.
  bool skip = false;
  bool source_end = false;  // sources end with the end token too
  std::string files = {};   // files of the pairs, for messages: "train.de and train.en"
};

// Pairs of texts as samples. Sample i has "source" int32 [S], the tokens of the source; "inputs" int32 [T], begin() and
// the tokens of the target; "targets" int32 [T], the tokens of the target and end(). The two marks are text_marks() of
// the target's tokenizer. If both sides use one tokenizer, they have the same marks.
class TextPairs {
 public:
  // Throws Error if there are no pairs, or if a pair does not fit the options (named as by where()). Throws EncodeError
  // if a text cannot be encoded.
  TextPairs(const std::vector<TextPair>& pairs, const Tokenizer& source, const Tokenizer& target,
            const TextPairOptions& options = {});

  // The members of a list of samples: see SamplesLike.
  Index size() const { return static_cast<Index>(sources_.size()); }
  Sample sample(Index i) const;
  std::string fingerprint() const;
  Index skipped() const { return skipped_; }  // pairs left out
  std::string where(Index i) const;  // "line 7 of train.de and train.en", or "pair 7" of the constructor's pairs
  // Counts over all sources and targets that were not skipped.
  const TokenCounts& source_counts() const { return source_counts_; }
  const TokenCounts& target_counts() const { return target_counts_; }

  // The ids of the marks of a target.
  std::int32_t begin() const { return target_.begin; }
  std::int32_t end() const { return target_.end; }
  Index source_vocabulary() const { return source_.vocabulary; }  // for the encoder of a model
  Index target_vocabulary() const { return target_.vocabulary; }  // for its decoder
  // Padding for all three tensors, with source_lengths. Padded targets do not count.
  static PaddingByName padding();

 private:
  TextMarks source_, target_;
  std::vector<Tokens> sources_, targets_;  // targets_: begin(), the tokens of the target, end()
  std::vector<Index> numbers_;             // per sample, for where(): its line, or minus its number among the pairs
  std::string files_;
  TokenCounts source_counts_, target_counts_;
  Index skipped_ = 0;
};

}  // namespace heed
