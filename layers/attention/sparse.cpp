// Softmax attention with fixed patterns: window, strided and fixed. The decode state of window attention.
#include <algorithm>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

using detail::checked_pairs;

using Keys = std::vector<std::int32_t>;

// Appends first, first + step, ... up to last.
void append(Keys& seen, Index first, Index last, Index step = 1) {
  for (Index j = first; j <= last; j += step) seen.push_back(static_cast<std::int32_t>(j));
}

// x modulo n, in [0, n).
Index modulo(Index x, Index n) { return (x % n + n) % n; }

// The lists of one query per row of a batch, at the last position of the row.
template <class Pattern>
KeyLists last_lists(const Pattern& pattern, const Tensor& lengths, Index heads) {
  std::vector<Keys> offsets, seen;
  for (Index b = 0; b < lengths.numel(); ++b) {
    const Index length = lengths.ptr<std::int32_t>()[b];
    pattern.see(length - 1, length, true, seen.emplace_back());
    offsets.push_back({0, checked_pairs(seen.back().size())});
  }
  return detail::lists_of_rows(offsets, seen, heads);
}

}  // namespace

namespace detail {

// The lists of T queries at positions i + S - T.
template <class Pattern, class PatternOptions>
KeyLists ByPlace<Pattern, PatternOptions>::lists(Index queries, Index keys, bool causal) const {
  Keys offsets = {0}, seen;
  offsets.reserve(static_cast<std::size_t>(queries) + 1);
  for (Index i = 0; i < queries; ++i) {
    pattern().see(query_position(i, queries, keys), keys, causal, seen);
    offsets.push_back(checked_pairs(seen.size()));
  }
  return lists_from(offsets, seen, {queries + 1});
}

template <class Pattern, class PatternOptions>
Tensor ByPlace<Pattern, PatternOptions>::apply(In q, In k, In v, const AttentionCall& call) const {
  return sparse_attention(q, k, v, lists(q.dim(2), k.dim(2), call.causal), call, options_.scale);
}

template <class Pattern, class PatternOptions>
AttentionState ByPlace<Pattern, PatternOptions>::make_state() const {
  return KeyValueState([self = pattern()](In q, In k, In v, const AttentionCall& call) {
    const bool ragged = call.key_lengths.defined() && q.dim(2) == 1;
    if (!ragged) return self.apply(q, k, v, call);
    return sparse_attention(q, k, v, last_lists(self, call.key_lengths, q.dim(1)), call, self.options().scale);
  });
}

template class ByPlace<WindowAttention, WindowAttentionOptions>;
template class ByPlace<StridedAttention, StridedAttentionOptions>;
template class ByPlace<FixedAttention, FixedAttentionOptions>;

}  // namespace detail

WindowAttention::WindowAttention(const WindowAttentionOptions& options) : ByPlace(options) {
  std::vector<Index>& globals = options_.globals;
  std::sort(globals.begin(), globals.end());
  globals.erase(std::unique(globals.begin(), globals.end()), globals.end());
  require(options.window > 0 && options.dilation > 0, "window attention: window is ", options.window,
          " and dilation is ", options.dilation, "; both must be 1 or more");
  require(globals.empty() || globals.front() >= 0, "window attention: a global position is ",
          globals.empty() ? 0 : globals.front(), "; it must be 0 or more");
}

void WindowAttention::see(Index p, Index keys, bool causal, Keys& seen) const {
  const std::vector<Index>& globals = options_.globals;
  const Index step = options_.dilation, last = (causal ? causal_end(p, keys) : keys) - 1;
  if (std::binary_search(globals.begin(), globals.end(), p)) return append(seen, 0, last);
  const Index before = causal ? options_.window - 1 : options_.window / 2, after = causal ? 0 : before;
  Index j = p - before * step;
  if (j < 0) j = modulo(j, step);  // the smallest position of this sequence that is not negative
  const Index end = std::min(last, p + after * step);
  for (const Index g : globals) {
    if (g > last) break;
    for (; j <= end && j < g; j += step) seen.push_back(static_cast<std::int32_t>(j));
    if (j == g) j += step;
    seen.push_back(static_cast<std::int32_t>(g));
  }
  append(seen, j, end, step);
}

StridedAttention::StridedAttention(const StridedAttentionOptions& options) : ByPlace(options) {
  require(options.stride > 0, "strided attention: stride is ", options.stride, "; it must be 1 or more");
}

void StridedAttention::see(Index p, Index keys, bool causal, Keys& seen) const {
  const Index l = options_.stride, last = (causal ? causal_end(p, keys) : keys) - 1;
  const Index near = std::max<Index>(0, p - l + 1), near_end = std::min(last, p + l - 1);
  append(seen, modulo(p, l), std::min(last, p - l), l);
  append(seen, near, near_end);
  append(seen, p + l >= 0 ? p + l : modulo(p, l), last, l);
}

FixedAttention::FixedAttention(const FixedAttentionOptions& options) : ByPlace(options) {
  require(options.summary > 0 && options.block >= options.summary, "fixed attention: block is ", options.block,
          " and summary is ", options.summary, "; summary must be 1 or more and at most block");
}

void FixedAttention::see(Index p, Index keys, bool causal, Keys& seen) const {
  const Index l = options_.block, c = options_.summary, last = (causal ? causal_end(p, keys) : keys) - 1;
  for (Index begin = 0; begin <= last; begin += l)
    append(seen, p >= begin && p < begin + l ? begin : begin + l - c, std::min(last, begin + l - 1));
}

// ---- The decode state of window attention ----

namespace {

// Stores the global positions below `start`, and all positions from `start` on. Positions that no later query sees are
// dropped from time to time, so time per token and memory are O(window * dilation + globals) for any length. Until the
// last global position has been a query, all positions are kept, because that query sees them. All rows have the same
// `start`, which the shortest row determines.
class WindowState {
 public:
  explicit WindowState(const WindowAttention& mechanism) : mechanism_(mechanism) {}
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    detail::check_heads("window attention", q, k, v);
    check(detail::follows(keys_, k) && detail::follows(values_, v), k.where(), "window attention: k is ", k.tensor(),
          " and v is ", v.tensor(), " but the state holds ", keys_, " and ", values_,
          "; only the positions may differ");
    const Tensor after = detail::lengths_after("window attention", lengths_, k, call);
    const bool ragged = !detail::all_alike(lengths_);
    if (ragged && k.dim(2) > 1)
      return detail::one_at_a_time(q, k, v, call, lengths_, [&](In q1, In k1, In v1, const AttentionCall& one) {
        return apply(q1, k1, v1, one);
      });
    const NoTape guard;                                                           // no gradient passes through decoding
    const Index count = k.dim(2), length = detail::longest_of(lengths_) + count;  // including the padding of this step
    // Twice the positions that rows of these lengths need, plus 64.
    const auto min_room = [&](const Tensor& lengths) {
      return 2 * held(first_needed(detail::shortest_of(lengths)), detail::longest_of(lengths)) + 64;
    };
    if (!keys_.defined() || held(start(), length) > keys_.dim(2)) {
      const Index from = std::max(start(), first_needed(detail::shortest_of(lengths_)));
      make_room(k, v, std::max(min_room(lengths_), held(from, length)));
    }
    const Index start_index = held(start(), 0), end = held(start(), length);
    detail::append_rows(keys_, k, lengths_, start_index);
    detail::append_rows(values_, v, lengths_, start_index);
    AttentionCall all{.bias = bias_of_held(call.bias, length)};
    if (detail::shortest_of(after) < length) all.key_lengths = after + static_cast<double>(start_index);
    const Tensor y = sparse_attention(q, keys_.slice(2, 0, end), values_.slice(2, 0, end),
                                      lists(q.dim(1), count, ragged), all, mechanism_.options().scale);
    lengths_ = after;
    if (held(start(), detail::longest_of(after)) > min_room(after)) make_room(k, v, min_room(after));
    return y;
  }
  const Tensor& lengths() const { return lengths_; }
  void members(auto&& visit) {
    visit.buffer("lengths", lengths_);
    visit.shared("start", start_);
    visit.buffer("keys", keys_);
    visit.buffer("values", values_);
  }

 private:
  WindowAttention mechanism_;
  Tensor keys_, values_;  // [B, Hk, capacity, D], [B, Hk, capacity, Dv]
  Tensor lengths_ = Tensor::zeros({0}, DType::int32), start_ = Tensor::zeros({}, DType::int32);

  Index start() const { return static_cast<Index>(start_.item()); }
  Index globals_before(Index position) const {
    const std::vector<Index>& globals = mechanism_.options().globals;
    return std::lower_bound(globals.begin(), globals.end(), position) - globals.begin();
  }
  // The index of a position >= start among the stored positions, which is also the number of stored positions before
  // it.
  Index held(Index start, Index position) const { return globals_before(start) + position - start; }
  // The first position, global positions aside, that a query at or after `length` sees.
  Index first_needed(Index length) const {
    const WindowAttentionOptions& o = mechanism_.options();
    if (!o.globals.empty() && length <= o.globals.back()) return 0;
    return std::max<Index>(0, length - (o.window - 1) * o.dilation);
  }

  // The positions that the next `count` queries see, as indices into the stored keys. Each row has its own lists if
  // rows are ragged.
  KeyLists lists(Index heads, Index count, bool ragged) const {
    const Index first = start(), front = globals_before(first), rows = ragged ? lengths_.numel() : 1;
    std::vector<std::vector<std::int32_t>> offsets(static_cast<std::size_t>(rows), {0}), seen(offsets.size());
    for (Index b = 0; b < rows; ++b) {
      std::vector<std::int32_t>& mine = seen[static_cast<std::size_t>(b)];
      const Index before = lengths_.numel() == 0 ? 0 : lengths_.ptr<std::int32_t>()[b];
      for (Index p = before; p < before + count; ++p) {
        const std::size_t begin = mine.size();
        mechanism_.see(p, before + count, true, mine);
        for (std::size_t n = begin; n < mine.size(); ++n)
          mine[n] = static_cast<std::int32_t>(mine[n] < first ? globals_before(mine[n]) : mine[n] - first + front);
        offsets[static_cast<std::size_t>(b)].push_back(detail::checked_pairs(mine.size()));
      }
    }
    if (!ragged) return detail::lists_from(offsets[0], seen[0], {count + 1});
    return detail::lists_of_rows(offsets, seen, heads);
  }

  // The columns of a bias [.., length] for the stored positions.
  Tensor bias_of_held(const Tensor& bias, Index length) const {
    if (!bias.defined() || bias.rank() == 0 || bias.dim(-1) != length) return bias;
    const Index first = start(), front = globals_before(first);
    std::vector<std::int32_t> columns;
    for (Index g = 0; g < front; ++g)
      columns.push_back(static_cast<std::int32_t>(mechanism_.options().globals[static_cast<std::size_t>(g)]));
    for (Index j = first; j < length; ++j) columns.push_back(static_cast<std::int32_t>(j));
    return index_select(bias, -1, Tensor::from(columns));
  }

  // Moves the positions that are still needed to storage for `capacity` positions.
  void make_room(In k, In v, Index capacity) {
    const Index length = detail::longest_of(lengths_), old_start = start();
    const Index start = std::max(old_start, first_needed(detail::shortest_of(lengths_)));
    const Index old_front = globals_before(old_start), front = globals_before(start);
    const auto moved = [&](const Tensor& from, const Tensor& like) {
      Tensor to = Tensor::empty({like.dim(0), like.dim(1), capacity, like.dim(3)}, like.dtype());
      const auto copy = [&](Index at, Index source, Index count) {
        if (count == 0) return;
        Tensor part = to.slice(2, at, at + count);
        detail::copy_values(part, from.slice(2, source, source + count));
      };
      copy(0, 0, old_front);
      for (Index g = old_front; g < front; ++g)
        copy(g, old_front + mechanism_.options().globals[static_cast<std::size_t>(g)] - old_start, 1);
      copy(front, old_front + start - old_start, length - start);
      return to;
    };
    keys_ = moved(keys_, k);
    values_ = moved(values_, v);
    start_ = Tensor::full({}, static_cast<double>(start), DType::int32);
  }
};

}  // namespace

AttentionState WindowAttention::make_state() const { return WindowState(*this); }

}  // namespace heed
