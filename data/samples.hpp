// Samples: what a data set is made of that is no endless row of tokens; how several of them become a batch, padded and
// of similar length; and where they come from: tensors in memory, tables (CSV), pairs of texts.
//
// Example:
//
//   Rng rng(1);
//   const TensorDataset points({{"inputs", rng.normal({20, 2})}, {"targets", rng.integers({20}, 0, 3)}});
//   const auto [training, held_out] = split(points, 0.1, 7);  // a tenth to evaluate on
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

// One example: its tensors by name, without the axis of the batch. A sequence is [T] or [T, ...], a class int32 [].
using Sample = TensorsByName;

// What fills up a tensor whose first axis is shorter in some samples than in others.
struct Padding {
  double value = 0;      // of targets that do not count: kIgnoreIndex
  bool lengths = false;  // NAME_lengths in the batch: int32 [B], the lengths without padding
  bool mask = false;     // NAME_mask in the batch: bool8 [B, T], true where there is no padding
};
using PaddingByName = std::map<std::string, Padding, std::less<>>;

// A batch of these samples, each tensor [B, ...]. Those that `padding` names are as long as the longest, and filled up
// at the end. Batch::counted is the number of targets that are true in bool8 `targets_mask`, the samples' own or
// Padding::mask, and of int32 targets those alone that are not kIgnoreIndex. Targets of another type without a mask
// count by Padding::lengths where it is asked for, else each sample counts once. Batch::tokens is the length of all
// padded tensors but the targets, without padding. Error: no samples; samples with other tensors than the first, or of
// other shape or dtype; nothing that `padding` names.
Batch collate(const std::vector<Sample>& samples, const PaddingByName& padding = {});

// A row of samples: any type with `Index size() const` and `Sample sample(Index i) const` for 0 <= i < size(), yours as
// well. A pure function. With `std::string where(Index i) const`, messages say where sample i comes from.
template <class T>
concept SamplesLike = requires(const T& t, Index i) {
  { t.size() } -> std::convertible_to<Index>;
  { t.sample(i) } -> std::convertible_to<Sample>;
};

class Samples {
 public:
  template <SamplesLike T>
  requires(!std::same_as<T, Samples>) Samples(T set) : size_(set.size()) {
    const auto held = std::make_shared<const T>(std::move(set));
    sample_ = [held](Index i) -> Sample { return held->sample(i); };
    if constexpr (requires {
                    { held->where(Index{}) } -> std::convertible_to<std::string>;
                  })
      where_ = [held](Index i) -> std::string { return held->where(i); };
    fingerprint_ = [held] { return detail::fingerprint_of(*held); };
  }
  // A type that is meant as samples, as it has sample(), and is not: the compiler says what is missing.
  template <class T>
  requires(!SamplesLike<T> && requires { &T::sample; }) Samples(T) {
    constexpr bool has_size = requires(const T& t) { t.size() + Index{}; };
    constexpr bool can_be_asked = requires(const T& t, Index i) { t.sample(i); };
    static_assert(has_size, "Samples: the type lacks `Index size() const`");
    static_assert(can_be_asked, "Samples: its sample() must be `Sample sample(Index i) const`; mind the const");
    static_assert(!has_size || !can_be_asked,
                  "Samples: its sample() gives no Sample, which is tensors by name, a TensorsByName");
  }
  Index size() const { return size_; }
  Sample sample(Index i) const;                          // Error unless 0 <= i < size()
  std::string where(Index i) const;                      // "sample 3", and where it comes from, if that is known
  Samples chosen(const std::vector<Index>& rows) const;  // these, in this order; Error as of sample()
  // What the samples are: see DatasetLike. Nothing where their type does not say.
  std::optional<std::string> fingerprint() const { return fingerprint_(); }

 private:
  Index size_ = 0;
  std::function<Sample(Index)> sample_;
  std::function<std::optional<std::string>()> fingerprint_;
  std::function<std::string(Index)> where_;
};

// Chooses a share of the samples at random, by the seed, and gives the others and these, both in the order that they
// have. Error unless 0 <= share <= 1.
std::pair<Samples, Samples> split(const Samples& samples, double share, std::uint64_t seed);

// Samples in memory: sample i is row i of each tensor. Error where their first axes differ, or there is no tensor.
class TensorDataset {
 public:
  explicit TensorDataset(TensorsByName tensors);
  Index size() const { return tensors_.begin()->second.dim(0); }
  Sample sample(Index i) const;
  std::string fingerprint() const;
  const TensorsByName& tensors() const { return tensors_; }

 private:
  TensorsByName tensors_;
};

// ---- Batches of samples ----

// Batches of samples, for training and for evaluation.
//
//   const PaddingByName padding = {{"inputs", {.lengths = true}}};
//   SampleBatches training(samples, {.tokens = 4096, .padding = padding});           // of similar length
//   SampleEvaluation held_out(other_samples, {.tokens = 4096, .padding = padding});  // in order

struct SampleBatchOptions {
  Index rows = 0;  // samples per batch, at most; 0: as many as `tokens` lets
  // What a batch may hold at most, padding included: rows times the longest of its padded tensors. 0: any number.
  Index tokens = 0;
  PaddingByName padding = {};  // as of collate()
};

// Every sample once per epoch, in an order that is a function of the seed and the epoch; batch s of a run is a pure
// function of (seed, s). Given `tokens`, batches are of samples of similar length, within a tenth, and long ones have
// fewer rows: samples are drawn within such a bucket, and then the batches of all buckets are shuffled. The last batch
// of a bucket, or of an epoch without buckets, may have fewer rows. Then all samples are read once, for their lengths.
// Error: there are none; neither rows nor tokens; a sample that is longer than `tokens`.
class SampleBatches {
 public:
  SampleBatches(Samples samples, SampleBatchOptions options);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  Index size() const { return batches_; }  // batches of an epoch, in each the same number
  std::optional<std::string> fingerprint() const { return samples_.fingerprint(); }
  Batching batching() const { return {options_.rows, options_.tokens}; }
  // What is left of the epoch that was being read, then whole epochs. `read` may be of any batchings.
  SampleBatches continued(const std::vector<BatchesRead>& read) const;
  // Batches until the end of epoch `epochs`, those before continued() not counted.
  std::uint64_t batches_until(std::uint64_t seed, std::uint64_t epochs) const;

 private:
  struct Plan;   // the batches of an epoch
  struct Start;  // where a run that continues begins
  struct Cache;  // what was asked for last

  Samples samples_;
  SampleBatchOptions options_;
  std::shared_ptr<const std::vector<Index>> lengths_;  // of the samples; 0: not needed
  Index batches_ = 0;
  std::vector<BatchesRead> read_;  // before the first batch
  std::shared_ptr<Cache> cache_;

  std::shared_ptr<const Plan> epoch(std::uint64_t seed, std::uint64_t number) const;
  std::shared_ptr<const Start> start(std::uint64_t seed) const;
};

// Every sample once, in order: each batch holds as many as the options let. Errors as above.
class SampleEvaluation {
 public:
  SampleEvaluation(Samples samples, SampleBatchOptions options);
  Index size() const { return static_cast<Index>(begins_.size()) - 1; }
  Batch batch(Index i) const;
  std::optional<std::string> fingerprint() const { return samples_.fingerprint(); }

 private:
  Samples samples_;
  SampleBatchOptions options_;
  std::vector<Index> begins_;  // of the batches, and the end of the last
};

// ---- Tables ----

// Tables of comma-separated values (RFC 4180): columns of numbers and of classes, as tensors.
//
//   const CsvTable table = CsvTable::read("iris.csv");
//   const TensorDataset samples({{"inputs", table.numbers({"sepal length", "sepal width"})},  // float32 [rows, 2]
//                                {"targets", table.classes("species")}});                     // int32 [rows]
//   table.class_names("species");  // setosa, versicolor, virginica: what 0, 1 and 2 mean

struct CsvOptions {
  char separator = ',';
  // The names of the columns where the first line does not tell them.
  std::vector<std::string> names = {};
  // Line ends, also those within quotes; InvalidUtf8::skip leaves out rows.
  ReadTextOptions reading = {};
};

// A table in memory. The first line names the columns. A field in quotes may hold separators, line feeds and doubled
// quotes; spaces belong to fields. Blank lines at the end are no rows.
class CsvTable {
 public:
  // Error, with file, line and column: no such file, not UTF-8, no rows, a line with more or fewer fields than there
  // are columns, two columns of one name, a quote that is not closed or within a field that has none around it.
  static CsvTable read(const std::filesystem::path& file, const CsvOptions& options = {});

  Index rows() const { return static_cast<Index>(lines_.size()); }
  const std::vector<std::string>& names() const { return names_; }
  // The field of a row, counted from 0. Error for a row or a column that is not there.
  const std::string& field(Index row, std::string_view column) const;

  // float32 [rows, columns], and [rows] of a single one. Error for a column that is not there, and, with file, line and
  // column, for a field that is no finite number such as -1.5e3, or that float32 cannot hold.
  Tensor numbers(const std::vector<std::string>& columns) const;
  Tensor column(const std::string& name) const { return numbers({name}).select(1, 0); }

  // int32 [rows]: the place of each field among the names of the classes, those of the column unless others are given
  // (of the table that a model was trained on). Error for a field that is none of them, or empty.
  Tensor classes(std::string_view column) const { return classes(column, class_names(column)); }
  Tensor classes(std::string_view column, const std::vector<std::string>& names) const;
  std::vector<std::string> class_names(std::string_view column) const;  // sorted, each once

 private:
  std::string file_;
  std::vector<std::string> names_;
  std::vector<std::string> fields_;  // row by row
  std::vector<Index> lines_;         // of each row, in the file

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

struct TextPair {
  std::string source = {}, target = {};
  Index line = 0;  // of the files that it was read from, from 1; 0: of none
};

// Line i of one file and of the other; or a file whose lines are source, tab, target, with blank lines at the end. With
// InvalidUtf8::skip, pairs with a side that is not UTF-8 are left out. Error, with file and line: as read_text(); files
// with different numbers of lines; a line without a tab, or with two.
std::vector<TextPair> read_text_pairs(const std::filesystem::path& source, const std::filesystem::path& target,
                                      const ReadTextOptions& o = {});
std::vector<TextPair> read_text_pairs(const std::filesystem::path& tab_separated, const ReadTextOptions& o = {});

// The tokens that begin and end a text, "<s>" and "</s>", and how many ids a model needs with them. A tokenizer that
// does not have both gets two more ids behind its vocabulary.
struct TextMarks {
  std::int32_t begin = 0, end = 0;
  Index vocabulary = 0;
};
TextMarks text_marks(const Tokenizer& tokenizer);

struct TextPairOptions {
  Index longest = 0;  // tokens of a source, or of a target with the token that begins or ends it; 0: any number
  // Leaves out pairs that are longer or one of whose sides has no token; else they are an Error. TextPairs::skipped()
  // counts them.
  bool skip = false;
  bool source_end = false;  // sources end with the token that ends a text, too
  std::string files = {};   // that the pairs were read from, as messages name them: "train.de and train.en"
};

// Sample i of a pair: "source" int32 [S], its tokens; "inputs" int32 [T], begin() and the tokens of the target;
// "targets" int32 [T], the tokens of the target and end(). These two are the target's text_marks(). With one tokenizer
// for both sides, both have the same ids.
class TextPairs {
 public:
  // Error: no pairs; one that does not fit the options, named by where(); EncodeError.
  TextPairs(const std::vector<TextPair>& pairs, const Tokenizer& source, const Tokenizer& target,
            const TextPairOptions& options = {});

  Index size() const { return static_cast<Index>(sources_.size()); }
  Sample sample(Index i) const;
  std::string fingerprint() const;
  Index skipped() const { return skipped_; }
  std::string where(Index i) const;  // "line 7 of train.de and train.en", or "pair 7" of all that were given
  // Of all sources and targets but those skipped.
  const TokenCounts& source_counts() const { return source_counts_; }
  const TokenCounts& target_counts() const { return target_counts_; }

  std::int32_t begin() const { return target_.begin; }
  std::int32_t end() const { return target_.end; }
  Index source_vocabulary() const { return source_.vocabulary; }  // of a model's encoder
  Index target_vocabulary() const { return target_.vocabulary; }  // of its decoder
  // Padding of all three, with source_lengths; padded targets do not count.
  static PaddingByName padding();

 private:
  TextMarks source_, target_;
  std::vector<Tokens> sources_, targets_;  // targets_: begin(), the tokens, end()
  std::vector<Index> numbers_;             // of each sample, for where(): its line, or minus its number among the pairs
  std::string files_;
  TokenCounts source_counts_, target_counts_;
  Index skipped_ = 0;
};

}  // namespace heed
