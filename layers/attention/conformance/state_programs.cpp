// The check "state programs": steps of equal and ragged counts, picks, copies and resumption, in sequence. Each row is
// compared with its own sequence at once.
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>
#include <limits>

namespace heed::detail::conformance {
namespace {

using Rows = std::vector<std::int32_t>;
// Cached float64 outputs of whole sequences, keyed by the pieces of the sequence.
using Wholes = std::map<std::vector<std::pair<Index, Index>>, Tensor>;

// One row of a state: the drawn sequences that its positions are taken from, and its outputs.
struct Row {
  Index from = 0;                                    // the sequence of the next positions
  std::vector<std::pair<Index, Index>> pieces = {};  // (sequence, number of positions)
  Index length = 0;
  std::vector<Tensor> out = {};  // [1, H, count, Dv] each
};

class Program {
 public:
  Program(Subject& s, Finding& f, const Trial& sequences, DType dtype, Wholes& wholes)
      : s_(s), f_(f), t_(sequences), dtype_(dtype), wholes_(wholes), state_(s.mechanism(dtype).make_state()) {}

  void begin(Index rows) {
    for (Index r = 0; r < rows; ++r) rows_.push_back({.from = r % t_.q.dim(0)});
    about_ = std::to_string(rows) + " rows";
  }

  // Feeds the next counts[r] positions of row r, padded with NaN to the max count or to `padded`, if that is larger.
  void step(const Rows& counts, Index padded = 0) {
    note("steps", counts);
    const NoTape guard;
    const auto batch = static_cast<Index>(rows_.size());
    const Index max_count = std::max<Index>(padded, *std::max_element(counts.begin(), counts.end()));
    const bool equal = std::all_of(counts.begin(), counts.end(), [&](std::int32_t n) { return n == max_count; });
    Trial next = next_positions(counts, max_count);
    AttentionCall call;
    if (!equal) call.key_lengths = Tensor::from(counts, {batch});
    if (t_.call.bias.defined()) call.bias = bias_of(counts, max_count);
    std::vector<Tensor> before;
    for (const Part& p : parts(next)) before.push_back(p.x->clone());
    const Tensor y = state_.apply(next.q, next.k, next.v, call, next.inputs);
    std::size_t i = 0;
    for (const Part& p : parts(next)) {
      f_.same_bits(p.name + " after a step", *p.x, before[i++]);
      f_.expect(y.storage() != p.x->storage() || y.numel() == 0, "the output of a step shares memory with " + p.name);
    }
    for (const NamedBuffer& b : named_buffers(state_))
      f_.expect(!b.buffer->defined() || y.storage() != b.buffer->storage() || y.numel() == 0,
                "the output of a step shares memory with the buffer " + b.name);
    // Outputs are not copied, so a later step that overwrites them is found.
    for (Index r = 0; r < batch; ++r) {
      Row& row = rows_[static_cast<std::size_t>(r)];
      const Index count = counts[static_cast<std::size_t>(r)];
      if (count == 0) continue;
      row.out.push_back(y.slice(0, r, r + 1).slice(2, 0, count));
      row.pieces.emplace_back(row.from, count);
      row.length += count;
    }
    check_lengths();
  }

  void pick(const Rows& rows) {
    note("rows", rows);
    state_ = state_.rows(Tensor::from(rows, {static_cast<Index>(rows.size())}));
    std::vector<Row> picked;
    for (const std::int32_t r : rows) {
      picked.push_back(rows_[static_cast<std::size_t>(r)]);
      // Copies of one row continue with different sequences.
      picked.back().from = static_cast<Index>((picked.size() + rows_.size()) % static_cast<std::size_t>(t_.q.dim(0)));
    }
    rows_ = picked;
    check_lengths();
  }

  // Steps a copy of the state, then continues with the original, which must not change.
  void copy() {
    about_ += ", a copy";
    AttentionState original = state_;
    const std::vector<Row> rows = rows_;
    for (Row& row : rows_) row.from = (row.from + 1) % t_.q.dim(0);
    const std::string about = about_;
    step(Rows(rows_.size(), 2));
    state_ = original, rows_ = rows, about_ = about;
  }

  // Replaces the state by a fresh state with the same buffers.
  void resume() {
    about_ += ", resumed";
    TensorsByName kept;
    for (const NamedBuffer& b : named_buffers(state_))
      if (b.buffer->defined()) kept[b.name] = b.buffer->detach().clone();
    state_ = s_.mechanism(dtype_).make_state();
    for (const NamedBuffer& b : named_buffers(state_))
      if (const auto found = kept.find(b.name); found != kept.end()) *b.buffer = found->second;
  }

  // Compares each row with its whole sequence at once.
  void finish() {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      if (row.length == 0) continue;
      Trial whole = s_.with_call(t_, {t_.name, {.causal = true}});
      for (const Part& p : parts(whole)) {
        std::vector<Tensor> pieces;
        Index at = 0;
        for (const auto& [from, count] : row.pieces) {
          pieces.push_back(p.x->slice(0, from, from + 1).slice(2, at, at + count));
          at += count;
        }
        *p.x = concatenate(pieces, 2);
      }
      if (t_.call.bias.defined())
        whole.call.bias = t_.call.bias.slice(-2, 0, row.length).slice(-1, 0, row.length).contiguous();
      f_.about(whole);
      const std::string what = std::string(name_of(dtype_)) + ", row " + std::to_string(r) + " of a state (" + about_ +
                               ") against its sequence all at once";
      const NoTape guard;
      Tensor& expected = wholes_[row.pieces];
      if (!expected.defined()) expected = s_.out(whole);
      close_in(s_, f_, what, {dtype_, {concatenate(row.out, 2), {}}, {expected, {}}}, whole);
    }
  }

 private:
  Subject& s_;
  Finding& f_;
  const Trial& t_;
  DType dtype_;
  Wholes& wholes_;  // outputs of these sequences
  AttentionState state_;
  std::vector<Row> rows_;
  std::string about_;  // the steps so far, for failures

  void note(const char* what, const Rows& rows) {
    about_ += std::string(", ") + what;
    for (const std::int32_t r : rows) about_ += " " + std::to_string(r);
  }
  // The next counts[r] positions of row r, padded to `max_count`: keys and values with NaN.
  Trial next_positions(const Rows& counts, Index max_count) const {
    const auto batch = static_cast<Index>(rows_.size());
    Trial next = t_;
    for (const Part& p : parts(next)) {
      const Tensor x = *p.x;
      // Heads are side by side in memory, as a projection returns them.
      *p.x = Tensor::full({batch, max_count, x.dim(1), x.dim(3)},
                          p.of_keys ? std::numeric_limits<double>::quiet_NaN() : 0.5, dtype_)
                 .transpose(1, 2);
      for (Index r = 0; r < batch; ++r) {
        const Row& row = rows_[static_cast<std::size_t>(r)];
        const Index count = counts[static_cast<std::size_t>(r)];
        if (count > 0)
          (*p.x)[r].slice(1, 0, count).copy_(x[row.from].slice(1, row.length, row.length + count).to(dtype_));
      }
    }
    return next;
  }

  // The bias [H, n, n] of the trial at the positions of each row: [B, H, count, keys].
  Tensor bias_of(const Rows& counts, Index max_count) const {
    Index longest = 0;
    for (const Row& row : rows_) longest = std::max(longest, row.length);
    const auto batch = static_cast<Index>(rows_.size());
    const DType dtype = dtype_ == DType::bfloat16 ? DType::float32 : dtype_;
    Tensor bias = Tensor::zeros({batch, t_.q.dim(1), max_count, longest + max_count}, dtype);
    for (Index r = 0; r < batch; ++r) {
      const Index from = rows_[static_cast<std::size_t>(r)].length, count = counts[static_cast<std::size_t>(r)];
      if (count > 0)
        bias[r]
            .slice(1, 0, count)
            .slice(2, 0, from + count)
            .copy_(t_.call.bias.slice(-2, from, from + count).slice(-1, 0, from + count).to(dtype));
    }
    return bias;
  }
  void check_lengths() {
    std::vector<double> lengths;
    for (const Row& row : rows_) lengths.push_back(static_cast<double>(row.length));
    f_.expect(state_.lengths().to_vector<double>() == lengths, "lengths() of the state is " +
                                                                   describe(state_.lengths()) + " after " + about_ +
                                                                   "; its rows have other lengths");
  }
};

// Few positions and many rows: every operation in sequence.
void many_rows(Subject& s, Finding& f, const Trial& t, DType dtype, Wholes& wholes) {
  Program p(s, f, t, dtype, wholes);
  const bool ragged = s.can().key_mask;
  p.begin(5);
  if (ragged) {
    p.step({7, 3, 0, 12, 5});
    p.step({1, 1, 1, 1, 1});
    p.step({0, 0, 0, 0, 0}, 1);  // no row gets a position
    p.step({1, 0, 2, 1, 0});
    p.pick({4, 0, 3, 2, 1});  // the same number of rows, of different lengths
  } else {
    p.step({7, 7, 7, 7, 7});
    p.step({1, 1, 1, 1, 1});
    p.pick({4, 0, 3, 2, 1});
  }
  p.step({1, 1, 1, 1, 1});
  p.pick({1, 3, 1, 0});  // two picks in a row, one row repeated
  p.step({2, 2, 2, 2});
  p.copy();
  p.step({1, 1, 1, 1});
  p.pick({2, 2, 0, 1, 3, 0});
  p.step({1, 1, 1, 1, 1, 1});
  p.resume();
  if (ragged) p.step({3, 0, 1, 2, 1, 1});
  p.pick({0, 1, 2, 3, 4, 5});
  p.step({3, 3, 3, 3, 3, 3});
  p.finish();
}

// Many positions: chunks, single positions and picks at the ends of blocks, past 600 if the mechanism supports them.
void many_positions(Subject& s, Finding& f, const Trial& t, DType dtype, Wholes& wholes) {
  const Index n = t.q.dim(2);
  const auto share = [&](Index of_700) { return static_cast<std::int32_t>(std::max<Index>(1, of_700 * n / 700)); };
  const bool ragged = s.can().key_mask;
  Program p(s, f, t, dtype, wholes);
  p.begin(2);
  const std::int32_t first = share(300), second = share(205);
  p.step({first, first});
  if (ragged)
    p.step({second, share(130)});
  else
    p.step({second, second});
  for (int i = 0; i < 9; ++i) p.step({1, 1});  // crosses position 512
  p.pick({1, 0, 1});
  const std::int32_t third = share(95);
  p.step({third, third, third});
  p.step({1, 1, 1});
  if (ragged) p.step({share(40), 1, 0});
  p.pick({2, 1, 0});
  p.step({2, 2, 2});
  p.finish();
}

}  // namespace

void check_state_programs(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state")) return;
  std::vector<DType> dtypes = {DType::float64, DType::float32};
  if (s.can().bfloat16) dtypes.push_back(DType::bfloat16);
  // Runs a program in each dtype. bfloat16 has a separate cache of outputs, because its inputs are rounded.
  const auto run = [&](auto program, Subject& of, Index n, Index batch, Index shared, bool bias) {
    Trial t = of.trial({n, n, batch, shared});
    if (bias) {
      t.call.bias = Rng(s.options.seed, 107).normal({of.options.heads, n, n}).to(DType::float64);
      t.name = "with bias";
    }
    Wholes wholes, of_bfloat16;
    for (const DType dtype : dtypes) {
      const Trial posed = dtype == DType::bfloat16 ? rounded_to_bfloat16(t) : t;
      program(of, f, posed, dtype, dtype == DType::bfloat16 ? of_bfloat16 : wholes);
    }
  };
  if (s.takes(40, f))
    for (const Index shared : s.sharings())
      for (const bool bias : s.can().bias ? std::vector<bool>{false, true} : std::vector<bool>{false})
        run(many_rows, s, 40, 4, shared, bias);
  if (const Index n = s.at_most(700); n >= 100)
    run(many_positions, s.of_few_heads(), n, 3, s.of_few_heads().sharings().back(), false);
  else
    s.takes(700, f);
}

}  // namespace heed::detail::conformance
