// The plan of the check "combinations": covering designs, and the problem that each row describes.
#include <algorithm>
#include <heed/layers/attention/detail/conformance_plan.hpp>
#include <heed/layers/model.hpp>

namespace heed::detail::conformance {
namespace {

// The combinations of levels of two or three conditions (`strength`) that no row covers yet.
class Open {
 public:
  Open(const std::vector<Condition>& conditions, int strength) : strength_(strength), groups_of_(conditions.size()) {
    for (const Condition& c : conditions) begin_.push_back(size_), size_ += c.levels.size();
    open_.assign(size_ * size_ * (strength == 3 ? size_ : 1), false);
    for (std::size_t a = 0; a < conditions.size(); ++a)
      for (std::size_t b = a + 1; b < conditions.size(); ++b) {
        if (strength == 2) open({a, b}, conditions);
        for (std::size_t c = b + 1; strength == 3 && c < conditions.size(); ++c) open({a, b, c}, conditions);
      }
  }
  bool any() const { return left_ > 0; }
  // The number of open combinations of condition a with chosen conditions, at the levels of the row.
  int gained(const Levels& row, std::size_t a, const std::vector<bool>& chosen) const {
    int sum = 0;
    for (const Group& g : groups_of_[a])
      if (std::all_of(g.begin(), g.end(), [&](std::size_t b) { return b == a || chosen[b]; })) sum += open_[at(row, g)];
    return sum;
  }
  void close(const Levels& row) {
    for (const std::vector<Group>& groups : groups_of_)
      for (const Group& g : groups)
        if (const std::size_t i = at(row, g); open_[i]) open_[i] = false, --left_;
  }
  // `row` with the levels of the first open combination.
  Levels with_first(Levels row) const {
    std::size_t i = static_cast<std::size_t>(std::find(open_.begin(), open_.end(), true) - open_.begin());
    for (int n = 0; n < strength_; ++n, i /= size_) {
      const auto a =
          static_cast<std::size_t>(std::upper_bound(begin_.begin(), begin_.end(), i % size_) - begin_.begin()) - 1;
      row[a] = i % size_ - begin_[a];
    }
    return row;
  }

 private:
  using Group = std::vector<std::size_t>;  // two or three conditions, in ascending order
  int strength_;
  std::vector<std::vector<Group>> groups_of_;  // the groups with each condition
  std::vector<std::size_t> begin_;
  std::size_t size_ = 0, left_ = 0;
  std::vector<bool> open_;
  // Opens the combinations of all levels of a group.
  void open(const Group& group, const std::vector<Condition>& conditions) {
    for (const std::size_t a : group) groups_of_[a].push_back(group);
    Levels row(conditions.size(), 0);
    for (std::size_t n = 0; n < group.size();) {
      open_[at(row, group)] = true, ++left_;
      // The next combination: a level that overflows is reset and raises the level of the next condition.
      for (n = 0; n < group.size() && ++row[group[n]] == conditions[group[n]].levels.size(); ++n) row[group[n]] = 0;
    }
  }
  // The index of a combination.
  std::size_t at(const Levels& row, const Group& group) const {
    std::size_t i = 0;
    for (const std::size_t a : group) i = i * size_ + begin_[a] + row[a];
    return i;
  }
};

// A row that covers many open combinations: visits conditions in random order and picks the level that gains most.
Levels greedy_row(const std::vector<Condition>& conditions, const Open& open, Rng& rng, int* gained) {
  Levels row(conditions.size(), 0);
  std::vector<bool> chosen(row.size(), false);
  *gained = 0;
  for (const Index next : rng.permutation(static_cast<Index>(row.size()))) {
    const auto a = static_cast<std::size_t>(next);
    std::size_t best = 0;
    int max_gain = -1;
    for (const Index level : rng.permutation(static_cast<Index>(conditions[a].levels.size()))) {
      row[a] = static_cast<std::size_t>(level);
      if (const int gain = open.gained(row, a, chosen); gain > max_gain) max_gain = gain, best = row[a];
    }
    row[a] = best;
    chosen[a] = true, *gained += max_gain;
  }
  return row;
}

// A length for each sequence, [batch], at or near the ends of kernel blocks.
Tensor drawn_lengths(Rng& rng, Index batch, Index keys) {
  Tensor lengths = Tensor::empty({batch}, DType::int32);
  const Index ends[] = {1,  15, 16,  17,  31,  32,  33,  48,  63,  64,  65,  80, 95,
                        96, 97, 127, 128, 129, 160, 191, 192, 193, 255, 256, 257};
  std::vector<Index> near;
  for (const Index e : ends)
    if (e <= keys) near.push_back(e);
  near.push_back(keys);
  for (Index b = 0; b < batch; ++b) {
    const Index last = std::max<Index>(0, static_cast<Index>(near.size()) - 8);  // mostly the larger lengths
    const Index i = rng.integer(3) == 0 ? rng.integer(static_cast<Index>(near.size()))
                                        : last + rng.integer(static_cast<Index>(near.size()) - last);
    lengths.ptr<std::int32_t>()[b] = static_cast<std::int32_t>(near[static_cast<std::size_t>(i)]);
  }
  return lengths;
}

// The conditions that decide which keys a query sees, and how. All their triples are covered.
constexpr Plan::Which kMeaning[] = {Plan::dtype,   Plan::order, Plan::mask,    Plan::lengths, Plan::key_mask,
                                    Plan::padding, Plan::bias,  Plan::queries, Plan::shared};

// Max of queries x keys x (size of k + size of v), summed over heads and sequences: about 68 queries and 260 keys in 4
// heads of sizes 8 and 6. Larger problems would dominate the time; "borders" has as many queries as keys.
constexpr Index kMaxWork = 1'000'000;

// The shape that a name such as "[B, 1, T, S]" describes.
Shape shape_of(const std::string& name, Index B, Index H, Index T, Index S) {
  std::vector<Index> sizes;
  for (const char c : name) {
    if (c == 'B') sizes.push_back(B);
    if (c == 'H') sizes.push_back(H);
    if (c == 'T') sizes.push_back(T);
    if (c == 'S') sizes.push_back(S);
    if (c == '1') sizes.push_back(1);
  }
  return Shape(sizes.begin(), sizes.end());
}

// Clears every eleventh row of a mask, so that these rows have no key.
void empty_some_rows(Tensor& mask) {
  for (Index i = 5; i < mask.dim(-2); i += 11) mask.slice(-2, i, i + 1).fill_(0);
}

}  // namespace

std::vector<Levels> covering(const std::vector<Condition>& conditions, int strength, std::uint64_t seed,
                             const std::vector<Levels>& others) {
  Rng rng(seed, 101);
  Open open(conditions, strength);
  for (const Levels& row : others) open.close(row);
  std::vector<Levels> rows;
  while (open.any()) {
    Levels best;
    int max_gain = -1;
    for (int draw = 0; draw < 10; ++draw) {
      int gained = 0;
      Levels row = greedy_row(conditions, open, rng, &gained);
      if (gained > max_gain) best = std::move(row), max_gain = gained;
    }
    if (max_gain == 0) best = open.with_first(best);  // a random order may miss the last open combinations
    const std::vector<bool> all(best.size(), true);
    for (std::size_t a = 0; a < best.size(); ++a)
      if (conditions[a].costly && open.gained(best, a, all) == 0) best[a] = 0;
    open.close(best);
    rows.push_back(std::move(best));
  }
  return rows;
}

std::vector<Levels> Plan::rows() const {
  std::vector<Levels> meanings;
  std::vector<Condition> few;
  for (const Which which : kMeaning) few.push_back(conditions_[which]);
  Rng rng(s_.options.seed, 102);
  for (const Levels& meaning : covering(few, 3, s_.options.seed)) {
    Levels row;
    for (const Condition& c : conditions_)
      row.push_back(static_cast<std::size_t>(rng.integer(static_cast<Index>(c.levels.size()))));
    for (std::size_t i = 0; i < few.size(); ++i) row[kMeaning[i]] = meaning[i];
    row[keys] = 0, row[sizes] = 0, row[threads] = 0;
    meanings.push_back(std::move(row));
  }
  std::vector<Levels> all = covering(conditions_, 2, s_.options.seed, meanings);
  all.insert(all.end(), meanings.begin(), meanings.end());
  return all;
}

void Plan::set(Which which, const char* name, std::vector<std::string> levels) {
  conditions_[which] = {name, std::move(levels), which == keys || which == sizes || which == threads};
}
void Plan::add(Which which, bool has, std::initializer_list<const char*> levels) {
  if (has) conditions_[which].levels.insert(conditions_[which].levels.end(), levels.begin(), levels.end());
}

Plan::Plan(Subject& s) : s_(s), conditions_(count) {
  const AttentionCapabilities& can = s.can();
  set(dtype, "", {"float64", "float32"});
  add(dtype, can.bfloat16, {"bfloat16"});
  set_masks();
  set_sizes();
  set_layouts();
  set(threads, "threads: ", {"1", "2", "3", "8"});
  set(batch, "sequences: ", {"2", "1", "3", "5"});
  set(gradients, "gradients of ", {"all", "q alone", "k alone", "v alone", "parameters alone"});
  add(gradients, can.bias || can.key_bias, {"the bias alone"});
}

// Conditions that decide which keys a query sees, and the bias.
void Plan::set_masks() {
  const AttentionCapabilities& can = s_.can();
  set(order, "", can.causal_only ? std::vector<std::string>{"causal"} : std::vector<std::string>{"not causal"});
  add(order, can.causal && !can.causal_only, {"causal"});
  set(mask, "a mask ", {"no"});
  add(mask, can.full_mask, {"[T, S]", "[B, 1, T, S]", "[H, T, S]", "[B, H, T, S]"});
  set(lengths, "key lengths ", {"no"});
  add(lengths, can.key_mask, {"given"});
  set(key_mask, "a key mask ", {"no"});
  add(key_mask, can.key_mask, {"given"});
  set(padding, "in padding ", {"numbers"});
  add(padding, can.key_mask, {"NaN", "infinity"});
  set(bias, "a bias ", {"no"});
  add(bias, can.bias || can.key_bias, {"[B, 1, 1, S]"});
  add(bias, can.bias, {"[H, T, S]", "[B, H, T, S]"});
}

void Plan::set_sizes() {
  const AttentionCapabilities& can = s_.can();
  const ConformanceOptions& o = s_.options;
  set(keys, "keys: ", {});
  for (const Index n : {17, 2, 65, 97, 130, 260})
    if (n <= o.longest) conditions_[keys].levels.push_back(std::to_string(n));
  if (conditions_[keys].levels.empty()) conditions_[keys].levels = {std::to_string(o.longest)};
  set(queries, "queries: ", {"as many as keys"});
  add(queries, can.cross, {"fewer than keys", "more than keys", "1"});
  set(shared, "query heads per key head: ", {"1"});
  add(shared, can.grouped, {"some", "all"});
  extents_ = {{o.heads, o.size, o.value_size}};
  if (s_.any_sizes()) extents_.insert(extents_.end(), {{3, 40, 5}, {2, 100, 33}, {5, 7, 100}, {3, 96, 40}});
  for (Extent& e : extents_)
    if (o.fixed_values) e.value_size = o.value_size;
  set(sizes, "", {});
  for (const Extent& e : extents_)
    conditions_[sizes].levels.push_back(std::to_string(e.heads) + " heads of " + std::to_string(e.size) + " and " +
                                        std::to_string(e.value_size));
  others_.resize(extents_.size());
}

// How the tensors of a call are laid out in memory.
void Plan::set_layouts() {
  for (const auto& [which, name] : {std::pair{q_layout, "q "}, {k_layout, "k "}, {v_layout, "v "}, {dy_layout, "dy "}})
    set(which, name, {"dense", "with heads side by side", "with a last stride of 2", "transposed", "broadcast"});
  set(mask_layout, "masks, lengths and bias ", {"dense", "with a last stride of 2", "transposed"});
}

std::string Plan::describe(const Levels& levels) const {
  std::string text;
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (levels[i] != 0 || conditions_[i].levels.size() == 1 || i == dtype || i == order || i == keys)
      if (conditions_[i].levels.size() > 1 || i == order)
        text += (text.empty() ? "" : "; ") + conditions_[i].name + conditions_[i].levels[levels[i]];
  return text;
}

DType Plan::dtype_of(const Levels& levels) const {
  return is(levels, dtype, "float64")   ? DType::float64
         : is(levels, dtype, "float32") ? DType::float32
                                        : DType::bfloat16;
}

Index Plan::number(const Levels& levels, Which which) const { return std::stol(level(levels, which)); }

Subject& Plan::subject(const Levels& levels) {
  const std::size_t i = levels[sizes];
  if (i == 0) return s_;
  if (others_[i] == nullptr) others_[i] = s_.in_sizes(extents_[i].heads, extents_[i].size, extents_[i].value_size);
  return *others_[i];
}

Trial Plan::posed(const Levels& levels) {
  Subject& s = subject(levels);
  const Index S = number(levels, keys), H = s.options.heads;
  Sizes n{S, S, std::min(number(levels, batch), std::max<Index>(1, 270 / S))};
  if (is(levels, queries, "fewer than keys")) n.queries = std::max<Index>(1, S * 2 / 3);
  if (is(levels, queries, "more than keys")) n.queries = S + S / 2 + 1;
  if (is(levels, queries, "1")) n.queries = 1;
  if (n.queries > s.options.longest) n.queries = S;
  // Limit the work: fewer sequences first, then fewer queries.
  const Index of_pair = s.options.heads * (s.options.size + s.options.value_size);
  const auto work = [&] { return n.batch * of_pair * n.queries * S; };
  while (n.batch > 1 && work() > kMaxWork) --n.batch;
  if (s.can().cross && work() > kMaxWork) n.queries = std::max<Index>(1, n.queries * kMaxWork / work());
  if (is(levels, shared, "all")) n.shared = H;
  if (is(levels, shared, "some")) n.shared = s.sharings()[s.sharings().size() / 2];
  std::uint64_t seed = 2000;
  for (const std::size_t level : levels) seed = seed * 31 + level;
  Trial t = s.trial(n, seed % 1000003);
  const auto broadcast = [&](Which which, Tensor& x) {
    if (is(levels, which, "broadcast")) x = x.slice(0, 0, 1).expand(x.shape()).dense().clone();
  };
  broadcast(q_layout, t.q), broadcast(k_layout, t.k), broadcast(v_layout, t.v), broadcast(dy_layout, t.dy);
  if (dtype_of(levels) == DType::bfloat16) t = rounded_to_bfloat16(t);
  Rng rng(s.options.seed, 3000 + seed % 1000003);
  const Index B = n.batch, T = n.queries;
  t.call.causal = is(levels, order, "causal");
  if (is(levels, lengths, "given")) t.call.key_lengths = drawn_lengths(rng, B, S);
  if (is(levels, key_mask, "given")) t.call.key_mask = random_mask(rng, {B, S}, 0.6);
  if (levels[mask] != 0) {
    t.call.mask = random_mask(rng, shape_of(level(levels, mask), B, H, T, S), 0.6);
    empty_some_rows(t.call.mask);
  }
  if (levels[bias] != 0) t.call.bias = rng.normal(shape_of(level(levels, bias), B, H, T, S)).to(DType::float64);
  t.name = describe(levels);
  return t;
}

}  // namespace heed::detail::conformance
