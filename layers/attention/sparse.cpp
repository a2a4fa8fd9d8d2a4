// Softmax attention with fixed patterns: window, strided and fixed.
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/layers/attention/detail/window_state.hpp>
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

AttentionState WindowAttention::make_state() const { return WindowState(*this); }

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

}  // namespace heed
