// The built-in corpus: small stories without end, from an unambiguous probabilistic grammar.
//
//   Mia found a red map. She hid it by the oak. Tom ran to the lake. Where is the map? By the oak.
//
// Things are put, hidden, found, taken, moved and given; people come and go; at the end somebody asks, and the last
// place counts. So a model has to look back. The exact probability of every text is known: the mean -log p of held-out
// stories is the floor of the loss of any model (Shannon 1948, theorem of source coding), reached only by one that
// knows the grammar and remembers each story whole.
#pragma once
#include <heed/data/grammar.hpp>

namespace heed {

// The words of the stories. Shrinking the lists gives a grammar whose texts can be enumerated.
struct StoryWords {
  std::vector<std::string> girls, boys, things, colours, prepositions, spots, lands, asides;

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
  std::string text;  // one line; ends with a line feed
  double log_probability = 0;
  std::vector<StoryQuestion> questions;
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

}  // namespace heed
