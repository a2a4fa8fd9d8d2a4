// Pairs of texts, such as sentences and their translations, as samples.
//
//   const std::vector<TextPair> pairs = read_text_pairs("train.de", "train.en");
//   const TextPairs samples(pairs, german, english, {.longest = 100, .skip = true});
//   SampleBatches training(samples, {.tokens = 4096, .padding = samples.padding()});
//   // batch["source"], batch["source_lengths"], batch.inputs, batch.targets
#pragma once
#include <filesystem>
#include <heed/data/samples.hpp>
#include <heed/data/tokenizer.hpp>

namespace heed {

struct TextPair {
  std::string source, target;
};

// Line i of one file and of the other; or a file whose lines are source, tab, target. A carriage return before the line
// feed is dropped. Error, with file and line: a file that cannot be read, is empty or not UTF-8; files with different
// numbers of lines; a line without a tab, or with two.
std::vector<TextPair> read_text_pairs(const std::filesystem::path& source, const std::filesystem::path& target);
std::vector<TextPair> read_text_pairs(const std::filesystem::path& tab_separated);

struct TextPairOptions {
  Index longest = 0;  // tokens of a source, or of a target with the token that begins or ends it; 0: any number
  // Leaves out pairs that are longer or one of whose sides has no token; else they are an Error. TextPairs::skipped()
  // counts them.
  bool skip = false;
};

// Sample i of a pair: "source" int32 [S], its tokens; "inputs" int32 [T], begin() and the tokens of the target;
// "targets" int32 [T], the tokens of the target and end(). These two are the tokens behind the target's vocabulary.
class TextPairs {
 public:
  // Error: no pairs; one that does not fit the options, told by its number from 1, the line of its file; EncodeError.
  TextPairs(const std::vector<TextPair>& pairs, const Tokenizer& source, const Tokenizer& target,
            const TextPairOptions& options = {});

  Index size() const { return static_cast<Index>(sources_.size()); }
  Sample sample(Index i) const;
  Index skipped() const { return skipped_; }

  std::int32_t begin() const { return begin_; }
  std::int32_t end() const { return begin_ + 1; }
  Index target_vocabulary() const { return begin_ + 2; }  // both included: of a model's decoder
  // Padding of all three, with source_lengths; padded targets do not count.
  static PaddingByName padding();

 private:
  std::int32_t begin_;
  std::vector<std::vector<std::int32_t>> sources_, targets_;  // targets_: begin(), the tokens, end()
  Index skipped_ = 0;
};

}  // namespace heed
