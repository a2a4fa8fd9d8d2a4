// Patterns of a tokenizer.json: a text that is searched for, or a regular expression, run by PCRE2 within limits.
#pragma once
#include <cstdint>
#include <heed/io/tokenizer/json.hpp>
#include <heed/io/tokenizer/text.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace heed::detail::tokenizer {

// Memory that PCRE2 needs to match, and the steps that a text may take. One thread may use it at a time, with any
// pattern.
class MatchState {
 public:
  static constexpr std::uint64_t kStepsPerByte = 256;

  MatchState();
  ~MatchState();
  // Begins a text of `bytes` bytes: it may take 2^20 steps and kStepsPerByte for each byte. A step takes some
  // nanoseconds.
  void allow(std::size_t bytes);
  // Counts steps. Throws Error if none are left.
  void spend(std::uint64_t steps);
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

 private:
  friend class Pattern;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

// A pattern. `tokenizers` runs Oniguruma in Ruby's syntax. Expressions that PCRE2 would read differently are refused.
class Pattern {
 public:
  // A regular expression. `path` names its place in messages. Throws Error if it is longer than 4096 bytes, is not
  // valid, or has a construct that Oniguruma and PCRE2 read differently.
  static Pattern expression(const std::string& source, const std::string& path);
  static Pattern literal(std::string text);  // not empty
  // {"String": text} or {"Regex": source}.
  static Pattern from_json(const JsonView& json);

  // The first match at or after `from` in valid UTF-8. Throws Error if the search exceeds a limit: the steps of
  // `state`, a stack of 4 MiB, or a heap of 16 MiB.
  std::optional<Range> find(std::string_view text, std::size_t from, MatchState& state) const;

  // Calls use(range, is_match) for each match, and for each part before, between and after matches, in order. A match
  // may be empty; then the search continues after the next character.
  template <class Use>
  void each(std::string_view text, MatchState& state, const Use& use) const {
    std::size_t done = 0, from = 0;
    bool matched = false;  // a match ends at `from`
    while (from <= text.size()) {
      const auto match = find(text, from, state);
      if (!match) break;
      if (match->begin == match->end && matched && match->end == from) {  // empty, directly after a match
        from += from < text.size() ? length_at(text, from) : 1;
        matched = false;
        continue;
      }
      if (done != match->begin) use(range(done, match->begin), false);
      use(*match, true);
      done = from = match->end;
      matched = true;
    }
    if (done != text.size()) use(range(done, text.size()), false);
  }

 private:
  struct Code;
  std::string text_;  // of a literal; empty for an expression
  std::shared_ptr<const Code> code_;
};

}  // namespace heed::detail::tokenizer
