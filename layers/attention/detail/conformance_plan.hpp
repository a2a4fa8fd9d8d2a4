// Conditions under which the check "combinations" calls a mechanism, and a plan that has every pair of them, and of
// those that decide what a query sees every triple.
#pragma once
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <memory>

namespace heed::detail::conformance {

// One condition of a call and its levels; level 0 is the plainest.
struct Condition {
  std::string name;
  std::vector<std::string> levels;
  bool costly = false;  // levels above 0 take their time: a row has one only where it covers something with it
};

// The level of each condition.
using Levels = std::vector<std::size_t>;

// Rows in which any two (strength 2) or three (3) levels of different conditions occur together at least once: a
// covering design, built greedily (Cohen, Dalal, Fredman, Patton, "The AETG system", 1997). The same rows for the same
// seed. Levels that occur together in `others` need no further row.
std::vector<Levels> covering(const std::vector<Condition>& conditions, int strength, std::uint64_t seed,
                             const std::vector<Levels>& others = {});

// The conditions of a mechanism, which follow from what it declares, and the problems that they describe.
class Plan {
 public:
  explicit Plan(Subject& s);

  // In this order. Conditions that the mechanism does not have have one level.
  enum Which {
    dtype,
    order,
    mask,
    lengths,
    key_mask,
    padding,
    bias,
    keys,
    queries,
    shared,
    sizes,
    q_layout,
    k_layout,
    v_layout,
    dy_layout,
    mask_layout,
    threads,
    batch,
    wanted,
    count
  };
  const std::vector<Condition>& conditions() const { return conditions_; }
  // All pairs of conditions; and with few keys all triples of those that decide which keys a query sees, and how.
  std::vector<Levels> rows() const;
  std::string describe(const Levels& levels) const;  // of those that are not plain: "97 keys, a mask [T, S]"

  Subject& subject(const Levels& levels);  // of these numbers of heads and sizes
  DType dtype_of(const Levels& levels) const;
  Index number(const Levels& levels, Which which) const;  // of a condition whose levels are numbers
  // float64, dense, one value for what is padding; values that the dtype holds exactly.
  Trial posed(const Levels& levels);
  bool is(const Levels& levels, Which which, const std::string& level) const {
    return conditions_[which].levels[levels[which]] == level;
  }

 private:
  struct Extent {
    Index heads, size, value_size;
  };
  Subject& s_;
  std::vector<Condition> conditions_;
  std::vector<Extent> extents_;
  std::vector<std::unique_ptr<Subject>> others_;
};

// Sequence b of a trial with its masks in one where the mechanism takes one, and with keys and values for each head.
Trial sequence_plainly(Subject& s, const Trial& t, Index b);
// Outputs and gradients of a trial in float64, of each sequence so posed, but with keys and values in another order and
// all that masks them in one mask, where Properties say that this is the same.
Outcome plainly(Subject& s, const Trial& t);

}  // namespace heed::detail::conformance
