// The copy task of the linear-attention paper (Katharopoulos et al. 2020, section 4.1, after Kitaev et al. 2020):
//
//   | w1 w2 ... wn | w1 w2 ... wn        random symbols between separators, and the same again
//
// The second half is a copy: a model that attends n + 1 tokens back predicts it without fault, any other guesses.
#pragma once
#include <heed/data/batches.hpp>

namespace heed {

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
  Index vocabulary() const { return options_.symbols + 1; }
  Index copied() const { return options_.length / 2 - 1; }  // n, the targets of a row that count
  const CopyTaskOptions& options() const { return options_; }

 private:
  CopyTaskOptions options_;
};

}  // namespace heed
