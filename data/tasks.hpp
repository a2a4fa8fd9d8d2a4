// Built-in texts and tasks, without files: small stories whose least possible loss is known, the copy task, ListOps,
// and dates to translate.
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
#include <functional>
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
//   | w1 w2 ... wn | w1 w2 ... wn        random symbols between separators, and the same again
//
// The second half is a copy: a model that attends n + 1 tokens back predicts it without fault, any other guesses.

struct CopyTaskOptions {
  Index batch = 32;
  Index length = 128;  // T, tokens per row with both separators: even, so that n = T / 2 - 1
  Index symbols = 10;  // besides the separator

  // Rows of another seed's stream: what is held out is never trained on, but for the chance of symbols^-n.
  bool held_out = false;
};

// Row r of step s is a pure function of (seed, s, r). inputs [B, T] int32, a whole sequence; targets [B, T] int32, the
// next token where it is one of the second half's symbols, else kIgnoreIndex.
class CopyTask {
 public:
  static constexpr std::int32_t kSeparator = 0;  // symbols are 1, 2, ...

  // Throws Error for a batch or symbols below 1 and for a length that is odd or below 4.
  explicit CopyTask(CopyTaskOptions options = {});
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  std::string fingerprint() const;
  Batching batching() const { return {.rows = options_.batch}; }
  CopyTask continued(const std::vector<BatchesRead>& read) const;
  Index vocabulary() const { return options_.symbols + 1; }
  Index copied() const { return options_.length / 2 - 1; }  // n, the targets of a row that count
  const CopyTaskOptions& options() const { return options_; }

 private:
  CopyTaskOptions options_;
  detail::RowOrder order_;
};

// ---- ListOps ----

// ListOps (Nangia and Bowman, "ListOps: a diagnostic dataset for latent tree learning", 2018; long sequences of it: Tay
// et al., "Long Range Arena", 2020): nested lists in prefix form whose value is a digit,
//
//   [MAX 2 9 [MIN 4 7 ] 0 ]  =  9
//
// with MAX, MIN, MED (the median, rounded down where two are in the middle) and SM (the sum modulo 10).

struct ListOpsOptions {
  Index depth = 4;      // of lists in lists, at most
  Index arguments = 5;  // of a list: 2 to so many
  Index least = 4;      // tokens of an expression, at least
  Index most = 48;      // and at most
  double list = 0.25;   // share of arguments that are lists, where the depth allows it
};

struct ListOpsExample {
  Tokens tokens;
  std::int32_t value = 0;  // 0 to 9
};

class ListOps {
 public:
  // Tokens: the digits are 0 to 9.
  static constexpr std::int32_t kMax = 10, kMin = 11, kMed = 12, kSm = 13, kClose = 14, kPadding = 15;
  static constexpr Index kVocabulary = 16, kValues = 10;

  // Throws Error for options out of range, and where no expression has such a length.
  explicit ListOps(const ListOpsOptions& options = {});

  ListOpsExample example(std::uint64_t seed, std::uint64_t index) const;  // a pure function of (seed, index)
  const ListOpsOptions& options() const { return options_; }
  std::string fingerprint() const;

  static std::string text(std::span<const std::int32_t> tokens);    // "[MAX 2 9 ]"; padding is left out
  static Tokens tokens(std::string_view text);                      // Error for other words
  static std::int32_t value(std::span<const std::int32_t> tokens);  // Error for what is no expression

 private:
  ListOpsOptions options_;
};

// Batches of examples: inputs int32 [B, T], T the longest of the batch, padded at the end with kPadding; targets int32
// [B]. Row r of step s is a pure function of (seed, s, r), and held-out examples have random numbers of their own.
class ListOpsBatches {
 public:
  ListOpsBatches(ListOps examples, Exactly<Index> rows);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
  std::string fingerprint() const { return examples_.fingerprint(); }
  Batching batching() const { return {.rows = rows_}; }
  ListOpsBatches continued(const std::vector<BatchesRead>& read) const;

 private:
  ListOps examples_;
  Index rows_;
  detail::RowOrder order_;
};

class ListOpsHeldOut {
 public:
  // `count` examples in batches of `rows`; of the run with this seed.
  ListOpsHeldOut(ListOps examples, Exactly<Index> count, Exactly<Index> rows, std::uint64_t seed);
  Index size() const { return (count_ + rows_ - 1) / rows_; }
  Batch batch(Index i) const;
  ListOpsExample example(Index i) const;
  std::string fingerprint() const;
  double majority() const;  // share of the commonest value: what always giving one answer reaches

 private:
  ListOps examples_;
  Index count_, rows_;
  std::uint64_t seed_;
};

// ---- Dates ----

// A small language to translate from: dates as people write them, inside short sentences, with other numbers beside
// them, into ISO 8601.
//
//   see you on the third of May, 2021, at the lake            2021-05-03
//   the bill of 7/12/98 names 4 guests                        1998-07-12
//
// Day first where dots are between the numbers, month first where slashes are; a year of two digits is of 1950 to 2049.

struct DateSentence {
  std::string source = {}, target = {};
  // Where in the source each field of the target stands: characters [begin, end).
  struct Field {
    Index begin = 0, end = 0;
  };
  Field year = {}, month = {}, day = {};
};

struct DateOptions {
  Index first_year = 1950, last_year = 2049;
  // One day in ten is held out: it is in no sentence of the others, and these have no other day.
  bool held_out = false;
};

class DateSentences {
 public:
  explicit DateSentences(const DateOptions& options = {});  // Error for years out of 1000 to 9999, or out of order
  DateSentence sentence(std::uint64_t seed, std::uint64_t index) const;  // a pure function of (seed, index)
  std::vector<TextPair> pairs(std::uint64_t seed, Index count) const;    // of the indices 0, 1, ...
  static const std::string& characters();  // all that sources and targets have: for a CharTokenizer

 private:
  DateOptions options_;
};

// ---- Grammars ----

// Texts told by choices. A grammar is a function that asks a Teller to choose among pieces of text until the story is
// told; one function is read in three ways: it makes texts, it explains a given text, and it lists all texts.
//
// At each choice no option is the beginning of another one. So a text settles every choice on the way to it: the
// grammar is unambiguous, p(text) is the product of the chosen shares, and the probability of a character given all
// before it is a ratio of two sums over one choice.

struct Option {
  std::string_view text;  // not empty; no option begins with another
  double weight = 1;      // its share is weight / sum of weights; an option of weight 0 cannot be taken
};

// What a grammar talks to. position() is the number of characters told so far.
class Teller {
 public:
  virtual ~Teller() = default;
  std::size_t choose(std::span<const Option> options);  // the index taken; Error if the options are ambiguous
  void say(std::string_view text);                      // a choice of one
  std::size_t position() const { return position_; }
  double log_probability() const { return log_probability_; }

 protected:
  virtual std::size_t pick(std::span<const Option> options, double total) = 0;

 private:
  std::size_t position_ = 0;
  double log_probability_ = 0;
};

// Tells a random text, a pure function of (seed, index).
class Sampler : public Teller {
 public:
  Sampler(std::uint64_t seed, std::uint64_t index) : rng_(seed, index) {}
  const std::string& text() const { return text_; }

 private:
  std::size_t pick(std::span<const Option> options, double total) override;

  Rng rng_;
  std::string text_;
};

// Finds the choices that tell the beginning of a given text, and the -log p of each character given all before it.
class Reader : public Teller {
 public:
  struct Stuck {};     // thrown by choose: the text goes on as no option does
  struct CutShort {};  // thrown by choose: the text ends within an option

  // Appends to nats, if given, one number for each character read.
  explicit Reader(std::string_view text, std::vector<double>* nats = nullptr) : text_(text), nats_(nats) {}

 private:
  std::size_t pick(std::span<const Option> options, double total) override;

  std::string_view text_;
  std::vector<double>* nats_;
};

// Calls visit(text, log p) for every text that tell can tell, in the order of the choices. The texts must be finitely
// many.
void enumerate(const std::function<void(Teller&)>& tell, const std::function<void(const std::string&, double)>& visit);

// ---- Stories ----

// The built-in corpus: small stories without end, from an unambiguous probabilistic grammar.
//
//   Mia found a red map. She hid it by the oak. Tom ran to the lake. Where is the map? By the oak.
//
// Things are put, hidden, found, taken, moved and given; people come and go; at the end somebody asks, and the last
// place counts. So a model has to look back. The exact probability of every text is known: the mean -log p of held-out
// stories is the floor of the loss of any model (Shannon 1948, theorem of source coding), reached only by one that
// knows the grammar and remembers each story whole.

// The words of the stories. Shrinking the lists gives a grammar whose texts can be enumerated.
struct StoryWords {
  std::vector<std::string> girls = {}, boys = {}, things = {}, colours = {}, prepositions = {}, spots = {}, lands = {},
                           asides = {};

  static StoryWords all();
  static StoryWords few();  // one to three of each: a few thousand texts
};

// Characters of the longest story that StoryWords::all() makes with the default options, its line feed included: a
// window of so many tokens that starts at the line feed before a story holds all of it.
inline constexpr std::size_t kLongestStory = 136;

struct StoryOptions {
  int most_events = 3;  // sentences before the questions
};

// One question of a text and where its answer stands, in characters from the start of the text.
struct StoryQuestion {
  std::size_t question = 0;  // where «Where is ...» begins
  std::size_t answer = 0, answer_end = 0;
  std::size_t fact = 0;  // where what tells the answer begins: a place, or the name of who has the thing
  std::size_t distance() const { return answer - fact; }
};

struct Story {
  std::string text = {};  // one line; ends with a line feed
  double log_probability = 0;
  std::vector<StoryQuestion> questions = {};
};

class Stories {
 public:
  // Throws Error if a list is empty, or later if one word begins with another (so that a text could be read in two
  // ways).
  explicit Stories(StoryWords words = StoryWords::all(), StoryOptions options = {});

  Story story(std::uint64_t seed, std::uint64_t index) const;  // a pure function of (seed, index)

  // Whole stories `first`, `first` + 1, ... of a seed, as many as fit into so many characters.
  std::string text(std::uint64_t seed, std::size_t characters, std::uint64_t first = 0) const;

  // What a model is trained on: text() after a line feed, so that every story follows one.
  std::string corpus(std::uint64_t seed, std::size_t characters) const { return "\n" + text(seed, characters); }

  // log p of a text of whole stories, each given as one of an endless row; nothing if the grammar cannot tell it.
  std::optional<double> log_probability(std::string_view text) const;

  // -log p of each character of a text given all before it; the last story may be cut short. Nothing as above.
  std::optional<std::vector<double>> nats(std::string_view text) const;

  // The questions of a text of whole stories. Throws Error if the grammar cannot tell it.
  std::vector<StoryQuestion> questions(std::string_view text) const;

  // Tells one story to any teller: to enumerate(), for one. Adds its questions to `asked`, if given.
  void tell(Teller& teller, std::vector<StoryQuestion>* asked = nullptr) const;

 private:
  StoryWords words_;
  StoryOptions options_;
};

// ---- Their least loss ----

// The least loss that is possible on the built-in stories.

struct StoryFloor {
  double loss = 0;  // mean -log p a token, in nats
  // Of the loss as an estimate from so many stories. A model's loss on them may by luck lie a little below the floor;
  // where it lies more than 3 of these below, the model has seen its targets.
  double standard_error = 0;
};

// The floor of the mean loss over the tokens that a whole split counts, or its first `batches` (0: all). The split's
// tokens must be Stories::corpus (or its last part, cut at a line feed) by this tokenizer. Exact for bytes and
// characters; for pieces of words it is the -log p of their text, and so still no more than any model's loss. Throws
// Error for a text of another grammar.
StoryFloor story_floor(const Stories& stories, const WholeSplit& split, const Tokenizer& tokenizer, Index batches = 0);

}  // namespace heed
