// The checks "ragged state" and "state programs": steps of equal and ragged counts, picks, copies and resumption, in
// sequence. Each row is compared with its own sequence at once.
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>
#include <limits>

namespace heed::detail::conformance {
namespace {

using Rows = std::vector<std::int32_t>;
using Pieces = std::vector<std::pair<Index, Index>>;  // (drawn sequence, number of its positions)

// Outputs of whole sequences in one dtype, computed once each.
struct Wholes {
  DType dtype = DType::float64;
  std::map<Pieces, Tensor> outputs = {};
};

// One row of a state: the drawn sequences that its positions are taken from, and its outputs.
struct Row {
  Index from = 0;  // the sequence of the next positions
  Pieces pieces = {};
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

  // Feeds the next counts[r] positions of row r, padded with NaN to the max count. If `padded` is above 0, the step has
  // at least that number of positions and always key_lengths, else key_lengths only if counts differ.
  void step(const Rows& counts, Index padded = 0) {
    note("steps", counts);
    const NoTape guard;
    const auto batch = static_cast<Index>(rows_.size());
    const Index max_count = std::max<Index>(padded, *std::max_element(counts.begin(), counts.end()));
    const bool equal = std::all_of(counts.begin(), counts.end(), [&](std::int32_t n) { return n == max_count; });
    Trial next = next_positions(counts, max_count);
    AttentionCall call;
    if (padded > 0 || !equal) call.key_lengths = Tensor::from(counts, {batch});
    if (t_.call.bias.defined()) call.bias = bias_of(counts, max_count);
    const Arguments inputs(parts(next));
    const Tensor y = state_.apply(next.q, next.k, next.v, call, next.inputs);
    f_.finite("the output of a step, with its padding", y);
    inputs.check(f_, y);
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
    check_lengths(state_, rows_);
  }

  // Picks rows and checks their lengths. The program continues with the original state, which must not change.
  AttentionState picked(const Rows& rows) const {
    AttentionState some = state_.rows(Tensor::from(rows, {static_cast<Index>(rows.size())}));
    check_lengths(some, rows_at(rows));
    return some;
  }

  // Picks rows and continues with them.
  void pick(const Rows& rows) {
    note("rows", rows);
    state_ = picked(rows);
    std::vector<Row> some = rows_at(rows);
    for (std::size_t r = 0; r < some.size(); ++r)  // copies of one row continue with different sequences
      some[r].from = static_cast<Index>((r + 1 + rows_.size()) % static_cast<std::size_t>(t_.q.dim(0)));
    rows_ = some;
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
    state_ = resumed(s_, f_, state_, dtype_);
  }

  // Compares each row with its whole sequence at once.
  void finish() {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      if (row.length == 0) continue;
      Trial whole = s_.with_call(t_, {t_.name, {.causal = true}});
      for (const NamedBuffer& p : parts(whole)) {
        std::vector<Tensor> pieces;
        Index at = 0;
        for (const auto& [from, count] : row.pieces) {
          pieces.push_back(p.buffer->slice(0, from, from + 1).slice(2, at, at + count));
          at += count;
        }
        *p.buffer = concatenate(pieces, 2);
      }
      if (t_.call.bias.defined())
        whole.call.bias = t_.call.bias.slice(-2, 0, row.length).slice(-1, 0, row.length).contiguous();
      f_.about(whole);
      const std::string what = std::string(name_of(dtype_)) + ", row " + std::to_string(r) + " of a state (" + about_ +
                               ") against its sequence all at once";
      Tensor& expected = wholes_.outputs[row.pieces];
      if (!expected.defined()) expected = s_.out(whole, wholes_.dtype);
      close_in(s_, f_, what, {dtype_, {concatenate(row.out, 2), {}}, {expected, {}}}, whole);
    }
  }

 private:
  Subject& s_;
  Finding& f_;
  const Trial& t_;
  DType dtype_;
  Wholes& wholes_;  // expected outputs of these sequences
  AttentionState state_;
  std::vector<Row> rows_;
  std::string about_;  // the steps so far, for failures

  void note(const char* what, const Rows& rows) {
    about_ += std::string(", ") + what;
    for (const std::int32_t r : rows) about_ += " " + std::to_string(r);
  }
  std::vector<Row> rows_at(const Rows& rows) const {
    std::vector<Row> some;
    for (const std::int32_t r : rows) some.push_back(rows_[static_cast<std::size_t>(r)]);
    return some;
  }
  // The next counts[r] positions of row r, padded to `max_count`: keys and values with NaN.
  Trial next_positions(const Rows& counts, Index max_count) const {
    const auto batch = static_cast<Index>(rows_.size());
    Trial next = t_;
    const auto fill = [&](Tensor& part, double padding) {
      const Tensor x = part;
      // Heads are side by side in memory, as a projection returns them.
      part = Tensor::full({batch, max_count, x.dim(1), x.dim(3)}, padding, dtype_).transpose(1, 2);
      for (Index r = 0; r < batch; ++r) {
        const Row& row = rows_[static_cast<std::size_t>(r)];
        const Index count = counts[static_cast<std::size_t>(r)];
        if (count > 0)
          part[r].slice(1, 0, count).copy_(x[row.from].slice(1, row.length, row.length + count).to(dtype_));
      }
    };
    for (const NamedBuffer& p : query_parts(next)) fill(*p.buffer, 0.5);
    for (const NamedBuffer& p : key_parts(next)) fill(*p.buffer, std::numeric_limits<double>::quiet_NaN());
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
  void check_lengths(const AttentionState& state, const std::vector<Row>& rows) const {
    std::vector<double> lengths;
    for (const Row& row : rows) lengths.push_back(static_cast<double>(row.length));
    const Tensor given = state.lengths();
    f_.expect(given.rank() == 1 && given.to_vector<double>() == lengths,
              "lengths() of a state is " + describe(given) + " after " + about_ + "; its rows have other lengths");
  }
};

// Few positions and many rows: every operation in sequence.
void many_rows(Subject& s, Finding& f, const Trial& t, DType dtype, Wholes& wholes) {
  Program p(s, f, t, dtype, wholes);
  const bool ragged = s.can().key_mask;
  p.begin(5);
  p.step(ragged ? Rows{7, 3, 0, 12, 5} : Rows{7, 7, 7, 7, 7});
  p.step({1, 1, 1, 1, 1});
  if (ragged) {
    p.step({0, 0, 0, 0, 0}, 1);  // no row gets a position
    p.step({1, 0, 2, 1, 0});
  }
  p.pick({4, 0, 3, 2, 1});  // the same number of rows, if ragged of different lengths
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
  p.step({second, ragged ? share(130) : second});
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

void check_ragged_state(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state") || !f.declared(s.can().key_mask, "key mask") || !s.takes(20, f))
    return;
  const auto n = static_cast<std::int32_t>(s.at_most(60));
  const auto check = [&](const Trial& t, DType dtype) {
    f.about(t);
    Wholes wholes{dtype};
    Program p(s, f, t, dtype, wholes);
    p.begin(3);
    p.step({n / 2, n / 4, 0}, 1);  // prompts
    for (int i = 0; i < 3; ++i) p.step({1, 1, 1}, 1);
    p.step({1, 0, 1}, 1);  // one row gets no position
    p.step({1, 3, 2}, 1);
    p.picked({2, 0});
    p.step({2, 2, 2}, 1);
    p.finish();
  };
  for (const Index shared : s.sharings())
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Trial t = s.trial({n, n, 3, shared});
      check(t, dtype);
      if (!s.can().bias) continue;
      const Tensor bias = Rng(s.options.seed, 98).normal({s.options.heads, n, n}).to(DType::float64);
      check(s.with_call(t, {"with bias", {.bias = bias}}), dtype);
    }
}

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
