// Conditions under which the check "combinations" calls a mechanism. The plan covers every pair of conditions, and
// every triple of the conditions that decide which keys a query sees.
#pragma once
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <memory>

namespace heed::detail::conformance {

// One condition of a call and its levels; level 0 is the plainest.
struct Condition {
  std::string name;
  std::vector<std::string> levels;
  bool costly = false;  // levels above 0 are slow: a row uses one only if it covers a new combination
};

// The level of each condition.
using Levels = std::vector<std::size_t>;

// Covering design: any two (strength 2) or three (strength 3) levels of different conditions occur together in at least
// one row. Built greedily (Cohen, Dalal, Fredman, Patton, "The AETG system", 1997). The same seed gives the same rows.
// Combinations of levels that occur in `others` are already covered.
std::vector<Levels> covering(const std::vector<Condition>& conditions, int strength, std::uint64_t seed,
                             const std::vector<Levels>& others = {});

// The conditions of a mechanism, which follow from its capabilities, and the problems that they describe.
class Plan {
 public:
  explicit Plan(Subject& s);

  // Indices into conditions(). A condition that the mechanism does not support has one level.
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
    gradients,
    count
  };
  const std::vector<Condition>& conditions() const { return conditions_; }
  // Rows that cover all pairs of conditions and, with few keys, all triples of the conditions that decide which keys a
  // query sees and how.
  std::vector<Levels> rows() const;
  std::string describe(const Levels& levels) const;  // dtype, order, keys and levels above 0

  Subject& subject(const Levels& levels);  // with the heads and sizes of these levels
  DType dtype_of(const Levels& levels) const;
  Index number(const Levels& levels, Which which) const;  // level of a numeric condition
  // The problem of a row: dense, in float64, with numbers in padding. The dtype of the row represents the values
  // exactly.
  Trial posed(const Levels& levels);
  const std::string& level(const Levels& levels, Which which) const { return conditions_[which].levels[levels[which]]; }
  bool is(const Levels& levels, Which which, const std::string& name) const { return level(levels, which) == name; }

 private:
  struct Extent {
    Index heads, size, value_size;
  };
  // Sets a condition and its first levels; adds levels if `has` holds.
  void set(Which which, const char* name, std::vector<std::string> levels);
  void add(Which which, bool has, std::initializer_list<const char*> levels);
  void set_masks();
  void set_sizes();
  void set_layouts();

  Subject& s_;
  std::vector<Condition> conditions_;
  std::vector<Extent> extents_;
  std::vector<std::unique_ptr<Subject>> others_;
};

// Sequence b of a trial in plain form: key mask and mask combined if the mechanism takes a mask, keys and values
// repeated for each head.
Trial sequence_plainly(Subject& s, const Trial& t, Index b);
// Outputs and gradients of a trial in float64, computed one sequence at a time in plain form. If the Properties of the
// mechanism allow it, keys and values are also permuted and all masks combined into one.
Outcome plainly(Subject& s, const Trial& t);

}  // namespace heed::detail::conformance
