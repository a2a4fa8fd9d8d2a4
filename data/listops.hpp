// ListOps (Nangia and Bowman, "ListOps: a diagnostic dataset for latent tree learning", 2018; long sequences of it: Tay
// et al., "Long Range Arena", 2020): nested lists in prefix form whose value is a digit,
//
//   [MAX 2 9 [MIN 4 7 ] 0 ]  =  9
//
// with MAX, MIN, MED (the median, rounded down where two are in the middle) and SM (the sum modulo 10).
#pragma once
#include <heed/data/batches.hpp>
#include <string>
#include <string_view>

namespace heed {

struct ListOpsOptions {
  Index depth = 4;      // of lists in lists, at most
  Index arguments = 5;  // of a list: 2 to so many
  Index least = 4;      // tokens of an expression, at least
  Index most = 48;      // and at most
  double list = 0.25;   // share of arguments that are lists, where the depth allows it
};

struct ListOpsExample {
  std::vector<std::int32_t> tokens;
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

  static std::string text(std::span<const std::int32_t> tokens);    // "[MAX 2 9 ]"; padding is left out
  static std::vector<std::int32_t> tokens(std::string_view text);   // Error for other words
  static std::int32_t value(std::span<const std::int32_t> tokens);  // Error for what is no expression

 private:
  ListOpsOptions options_;
};

// Batches of examples: inputs int32 [B, T], T the longest of the batch, padded at the end with kPadding; targets int32
// [B]. Row r of step s is a pure function of (seed, s, r), and held-out examples have random numbers of their own.
class ListOpsBatches {
 public:
  ListOpsBatches(ListOps examples, Index rows);
  Batch batch(std::uint64_t seed, std::uint64_t step) const;

 private:
  ListOps examples_;
  Index rows_;
};

class ListOpsHeldOut {
 public:
  // `count` examples in batches of `rows`; of the run with this seed.
  ListOpsHeldOut(ListOps examples, Index count, Index rows, std::uint64_t seed);
  Index size() const { return (count_ + rows_ - 1) / rows_; }
  Batch batch(Index i) const;
  ListOpsExample example(Index i) const;
  double majority() const;  // share of the commonest value: what always giving one answer reaches

 private:
  ListOps examples_;
  Index count_, rows_;
  std::uint64_t seed_;
};

}  // namespace heed
