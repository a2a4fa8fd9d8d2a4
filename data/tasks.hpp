// Built-in texts and tasks that need no files: short stories whose minimal loss is known, the copy task, ListOps, and
// dates to translate.
//
// Example:
//
//   const Stories stories;
//   std::cout << stories.story(1, 0).text;  // Mia found a red map. ... Where is the map? By the oak.
//   const CopyTask copy({.batch = 2, .length = 8});
//   const ListOpsExample example = ListOps().example(1, 0);
//   std::cout << ListOps::text(example.tokens) << " = " << example.value << '\n';  // [MAX 2 9 [MIN 4 7 ] 0 ] = 9
//   const DateSentence date = DateSentences().sentence(1, 0);
//   std::cout << date.source << " -> " << date.target << '\n';  // see you on the third of May, 2021 -> 2021-05-03
#pragma once
#include <cstddef>
#include <cstdint>
#include <heed/core/random.hpp>
#include <heed/data/samples.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// ---- The copy task ----

// The copy task of the linear-attention paper (Katharopoulos et al. 2020, section 4.1, after Kitaev et al. 2020):
//
//   | w1 w2 ... wn | w1 w2 ... wn        random symbols between separators, then the same symbols again
//
// The second half is a copy. A model that attends n + 1 tokens back predicts it perfectly; any other model guesses.

// The sizes of a copy task.
struct CopyTaskOptions {
  Index batch = 32;    // B, rows per batch
  Index length = 128;  // T, tokens per row with both separators: even, so that n = T / 2 - 1
  Index symbols = 10;  // number of symbols, without the separator

  // Rows from a separate random stream: a held-out row occurs in training only by chance (symbols^-n).
  bool held_out = false;
};

// Row r of step s is a pure function of (seed, s, r). inputs: int32 [B, T], whole sequences. targets: int32 [B, T], the
// next token if it is a symbol of the second half, else kIgnoreIndex.
class CopyTask {
 public:
  static constexpr std::int32_t kSeparator = 0;  // symbols are 1, 2, ...

  // Throws Error if batch or symbols is below 1, or if length is odd or below 4.
  explicit CopyTask(CopyTaskOptions options = {});
  // The members of a data set: see DatasetLike.
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  std::string fingerprint() const;
  Batching batching() const { return {.rows = options_.batch}; }
  CopyTask continued(const std::vector<BatchesRead>& read) const;
  Index vocabulary() const { return options_.symbols + 1; }  // symbols and separator
  Index copied() const { return options_.length / 2 - 1; }  // n, the counted targets per row
  const CopyTaskOptions& options() const { return options_; }  // the argument of the constructor

 private:
  CopyTaskOptions options_;
  detail::RowOrder order_;
};

// ---- ListOps ----

// ListOps (Nangia and Bowman, "ListOps: a diagnostic dataset for latent tree learning", 2018; long sequences: Tay et
// al., "Long Range Arena", 2020): nested lists in prefix notation whose value is a digit,
//
//   [MAX 2 9 [MIN 4 7 ] 0 ]  =  9
//
// with MAX, MIN, MED (the median; the mean of two middle values is rounded down) and SM (the sum modulo 10).

// The distribution of expressions.
struct ListOpsOptions {
  Index depth = 4;      // max depth of nested lists
  Index arguments = 5;  // max arguments of a list; the min is 2
  Index min_tokens = 4;   // min tokens of an expression
  Index max_tokens = 48;  // max tokens of an expression
  double list = 0.25;   // probability that an argument is a list, if the depth allows one
};

// An expression and its value.
struct ListOpsExample {
  Tokens tokens;           // without padding
  std::int32_t value = 0;  // 0 to 9
};

// Random expressions.
class ListOps {
 public:
  // Ids of tokens; the digits are 0 to 9.
  static constexpr std::int32_t kMax = 10, kMin = 11, kMed = 12, kSm = 13, kClose = 14, kPadding = 15;
  static constexpr Index kVocabulary = 16, kValues = 10;  // number of tokens and of values

  // Throws Error for options out of range, or if no expression of such a length is found.
  explicit ListOps(const ListOpsOptions& options = {});

  ListOpsExample example(std::uint64_t seed, std::uint64_t index) const;  // a pure function of (seed, index)
  const ListOpsOptions& options() const { return options_; }              // the argument of the constructor
  std::string fingerprint() const;                                        // depends on the options: see DatasetLike

  static std::string text(std::span<const std::int32_t> tokens);    // "[MAX 2 9 ]", without padding
  static Tokens tokens(std::string_view text);                      // throws Error for other words
  static std::int32_t value(std::span<const std::int32_t> tokens);  // throws Error unless it is an expression

 private:
  ListOpsOptions options_;
};

// Training batches. inputs: int32 [B, T], padded with kPadding at the end to T, the longest of the batch. targets:
// int32 [B]. Row r of step s is a pure function of (seed, s, r). Held-out examples use separate random streams.
class ListOpsBatches {
 public:
  ListOpsBatches(ListOps examples, Exactly<Index> rows);  // throws Error for rows below 1
  // The members of a data set: see DatasetLike.
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  std::string fingerprint() const { return examples_.fingerprint(); }
  Batching batching() const { return {.rows = rows_}; }
  ListOpsBatches continued(const std::vector<BatchesRead>& read) const;

 private:
  ListOps examples_;
  Index rows_;
  detail::RowOrder order_;
};

// Evaluation batches of held-out examples.
class ListOpsHeldOut {
 public:
  // `count` examples in batches of `rows`, for the run with this seed.
  // Throws Error for count or rows below 1.
  ListOpsHeldOut(ListOps examples, Exactly<Index> count, Exactly<Index> rows, std::uint64_t seed);
  // The members of an evaluation set: see EvaluationSetLike. batch() throws Error for an index out of range.
  Index size() const { return (count_ + rows_ - 1) / rows_; }
  Batch batch(Index i) const;
  ListOpsExample example(Index i) const;
  std::string fingerprint() const;
  double majority() const;  // accuracy of a constant answer

 private:
  ListOps examples_;
  Index count_, rows_;
  std::uint64_t seed_;
};

// ---- Dates ----

// A small language for translation: dates in various notations, inside short sentences with other numbers, to ISO 8601.
//
//   see you on the third of May, 2021, at the lake            2021-05-03
//   the bill of 7/12/98 names 4 guests                        1998-07-12
//
// With dots the day is first. With slashes the month is first, except after a leading year (1998/07/12). A year of two
// digits is in 1950 to 2049.

// A sentence and the date in it.
struct DateSentence {
  std::string source = {}, target = {};  // a sentence; its date as YYYY-MM-DD
  // The characters [begin, end) of the source that contain each field of the target.
  struct Field {
    Index begin = 0, end = 0;  // [begin, end)
  };
  Field year = {}, month = {}, day = {};
};

// The dates that occur.
struct DateOptions {
  Index first_year = 1950, last_year = 2049;  // both may occur
  // One day in ten is held out. Held-out sentences have only these days, all other sentences only the other days.
  bool held_out = false;
};

// Random sentences.
class DateSentences {
 public:
  explicit DateSentences(const DateOptions& options = {});  // throws Error unless 1000 <= first <= last <= 9999
  DateSentence sentence(std::uint64_t seed, std::uint64_t index) const;  // a pure function of (seed, index)
  std::vector<TextPair> pairs(std::uint64_t seed, Index count) const;    // sentences 0, 1, ..., count - 1
  static const std::string& characters();  // all characters of sources and targets, for a CharTokenizer

 private:
  DateOptions options_;
};

// ---- Grammars ----

// A grammar is a function that calls a Chooser to choose between pieces of text until a text is complete. The same
// function serves two purposes: to sample texts, and to parse a given text.
//
// In each choice no option is a prefix of another option, so a text determines every choice. The grammar is therefore
// unambiguous: p(text) is the product of the shares of the chosen options. The probability of a character given all
// characters before it is a ratio of two sums over one choice.

// One option of a choice.
struct Option {
  std::string_view text;  // not empty; no option begins with another
  double weight = 1;      // its share is weight / sum of weights; an option of weight 0 is never chosen
};

// The interface between a grammar and its uses.
class Chooser {
 public:
  virtual ~Chooser() = default;
  std::size_t choose(std::span<const Option> options);         // the chosen index; throws Error for ambiguous options
  void append(std::string_view text);                          // a choice with one option
  std::size_t position() const { return position_; }           // number of characters so far
  double log_probability() const { return log_probability_; }  // of the text so far

 protected:
  // Returns the index of the option to take. `total` is the sum of the weights.
  virtual std::size_t pick(std::span<const Option> options, double total) = 0;

 private:
  std::size_t position_ = 0;
  double log_probability_ = 0;
};

// Samples a random text, a pure function of (seed, index).
class Sampler : public Chooser {
 public:
  Sampler(std::uint64_t seed, std::uint64_t index) : rng_(seed, index) {}  // text number `index` of the seed
  const std::string& text() const { return text_; }                        // the text so far

 private:
  std::size_t pick(std::span<const Option> options, double total) override;

  Rng rng_;
  std::string text_;
};

// Finds the choices that produce the beginning of a given text, and -log p of each character given all before it.
class Reader : public Chooser {
 public:
  struct Stuck {};     // thrown by choose: no option continues the text
  struct CutShort {};  // thrown by choose: the text ends within an option

  // Appends one number per character to `nats`, if given.
  explicit Reader(std::string_view text, std::vector<double>* nats = nullptr) : text_(text), nats_(nats) {}

 private:
  std::size_t pick(std::span<const Option> options, double total) override;

  std::string_view text_;
  std::vector<double>* nats_;
};

// ---- Stories ----

// The built-in corpus: an endless sequence of short stories, from an unambiguous probabilistic grammar.
//
//   Mia found a red map. She hid it by the oak. Tom ran to the lake. Where is the map? By the oak.
//
// Things are put, hidden, found, taken, moved and given, and people move. Questions at the end are about the last place
// or holder of a thing, or the last place of a person, so a model has to look back. The exact probability of every text
// is known. The mean -log p of held-out stories is the floor of the loss of any model (Shannon 1948, source coding
// theorem). Only a model that knows the grammar and remembers each whole story reaches the floor.

// The words of the stories.
struct StoryWords {
  // One word or group of words per item.
  std::vector<std::string> girls = {}, boys = {}, things = {}, colours = {}, prepositions = {}, spots = {}, lands = {},
                           asides = {};

  static StoryWords all();  // the words of the built-in stories
};

// Characters of the longest story of StoryWords::all() with default options, including its line feed. A window of as
// many characters that starts at the line feed before a story contains the whole story.
inline constexpr std::size_t kLongestStory = 136;

// The length of stories.
struct StoryOptions {
  int max_events = 3;  // max sentences before the questions
};

// One question of a text. Positions are characters from the start of the text.
struct StoryQuestion {
  std::size_t question = 0;  // begin of "Where is ..."
  std::size_t answer = 0, answer_end = 0;  // [answer, answer_end), the words of the answer
  std::size_t fact = 0;  // begin of the words that determine the answer: a place, or the name of the holder
  std::size_t distance() const { return answer - fact; }  // characters from the fact to the answer
};

// A story with its probability and questions.
struct Story {
  std::string text = {};  // one line, ends with a line feed
  double log_probability = 0;                 // in nats
  std::vector<StoryQuestion> questions = {};  // in the order of the text
};

// Generates stories and computes the probabilities of given ones.
class Stories {
 public:
  // Throws Error for max_events below 1, an empty list, fewer than 2 spots, and fewer things than max_events. Later
  // calls throw Error if one word begins with another, since a text would be ambiguous.
  explicit Stories(StoryWords words = StoryWords::all(), StoryOptions options = {});

  Story story(std::uint64_t seed, std::uint64_t index) const;  // a pure function of (seed, index)

  // Whole stories `first`, `first` + 1, ... of a seed, as many as fit into `characters` characters.
  std::string text(std::uint64_t seed, std::size_t characters, std::uint64_t first = 0) const;

  // The text to train on: text() after a line feed, so that a line feed precedes every story.
  std::string corpus(std::uint64_t seed, std::size_t characters) const { return "\n" + text(seed, characters); }

  // -log p of each character of a text given all before it, in an endless sequence of stories. The last story may be
  // cut short. nullopt if the grammar cannot produce the text.
  std::optional<std::vector<double>> nats(std::string_view text) const;

  // The questions of a text of whole stories. Throws Error if the grammar cannot produce the text.
  std::vector<StoryQuestion> questions(std::string_view text) const;

  // Produces one story with any Chooser. Adds its questions to `questions`, if given.
  void generate(Chooser& chooser, std::vector<StoryQuestion>* questions = nullptr) const;

 private:
  StoryWords words_;
  StoryOptions options_;
};

// ---- Minimal loss of stories ----

// The minimal loss on the built-in stories.
struct StoryFloor {
  double loss = 0;  // mean -log p per token, in nats
  // Standard error of `loss` as an estimate from these stories. A model's loss on them may be slightly below the floor
  // by chance. If it is more than 3 standard errors below, the model has seen the targets.
  double standard_error = 0;
};

// The minimal mean loss over the counted tokens of a split, or of its first `batches` batches (0: all). The tokens must
// be Stories::corpus, or its last part from a line feed on, encoded by this tokenizer. Exact for bytes and characters.
// For pieces of words the result is -log p of their text, a lower bound of any model's loss. Throws Error for a text of
// another grammar.
StoryFloor story_floor(const Stories& stories, const WholeSplit& split, const Tokenizer& tokenizer, Index batches = 0);

}  // namespace heed
