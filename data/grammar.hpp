// Texts told by choices. A grammar is a function that asks a Teller to choose among pieces of text until the story is
// told; one function is read in three ways: it makes texts, it explains a given text, and it lists all texts.
//
// At each choice no option is the beginning of another one. So a text settles every choice on the way to it: the
// grammar is unambiguous, p(text) is the product of the chosen shares, and the probability of a character given all
// before it is a ratio of two sums over one choice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <heed/core/random.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

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

}  // namespace heed
