#include <algorithm>
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

// The lists of T queries at positions i + S - T, row by row.
template <class See>
KeyLists lists_of(Index queries, Index keys, const See& see) {
  Keys offsets = {0}, seen;
  offsets.reserve(static_cast<std::size_t>(queries) + 1);
  for (Index i = 0; i < queries; ++i) {
    see(i + keys - queries, seen);
    offsets.push_back(checked_pairs(seen.size()));
  }
  return detail::lists_from(offsets, seen, {queries + 1});
}

// x modulo n, in [0, n).
Index modulo(Index x, Index n) { return (x % n + n) % n; }

// The lists of one query for each row of a batch, at its last position.
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

template <class Pattern>
AttentionState key_value_state(const Pattern& pattern, std::optional<double> scale) {
  return KeyValueState([pattern, scale](In q, In k, In v, const AttentionCall& call) {
    const bool ragged = call.key_lengths.defined() && q.dim(2) == 1;
    if (!ragged) return pattern.apply(q, k, v, call);
    return sparse_attention(q, k, v, last_lists(pattern, call.key_lengths, q.dim(1)), call, scale);
  });
}

}  // namespace

WindowAttention::WindowAttention(const WindowAttentionOptions& options) : options_(options) {
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
  const Index step = options_.dilation, last = causal ? std::min(p, keys - 1) : keys - 1;
  if (std::binary_search(globals.begin(), globals.end(), p)) return append(seen, 0, last);
  const Index before = causal ? options_.window - 1 : options_.window / 2, after = causal ? 0 : before;
  Index j = p - before * step;
  if (j < 0) j = modulo(j, step);  // the first of these steps that is a position
  const Index end = std::min(last, p + after * step);
  for (const Index g : globals) {
    if (g > last) break;
    for (; j <= end && j < g; j += step) seen.push_back(static_cast<std::int32_t>(j));
    if (j == g) j += step;
    seen.push_back(static_cast<std::int32_t>(g));
  }
  append(seen, j, end, step);
}

KeyLists WindowAttention::lists(Index queries, Index keys, bool causal) const {
  return lists_of(queries, keys, [&](Index p, Keys& seen) { see(p, keys, causal, seen); });
}

Tensor WindowAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return sparse_attention(q, k, v, lists(q.dim(2), k.dim(2), call.causal), call, options_.scale);
}

AttentionState WindowAttention::make_state() const { return WindowState(*this); }

StridedAttention::StridedAttention(const StridedAttentionOptions& options) : options_(options) {
  require(options.stride > 0, "strided attention: stride is ", options.stride, "; it must be 1 or more");
}

void StridedAttention::see(Index p, Index keys, bool causal, Keys& seen) const {
  const Index l = options_.stride, last = causal ? std::min(p, keys - 1) : keys - 1;
  const Index near = std::max<Index>(0, p - l + 1), near_end = std::min(last, p + l - 1);
  append(seen, modulo(p, l), std::min(last, p - l), l);
  append(seen, near, near_end);
  append(seen, p + l >= 0 ? p + l : modulo(p, l), last, l);
}

KeyLists StridedAttention::lists(Index queries, Index keys, bool causal) const {
  return lists_of(queries, keys, [&](Index p, Keys& seen) { see(p, keys, causal, seen); });
}

Tensor StridedAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return sparse_attention(q, k, v, lists(q.dim(2), k.dim(2), call.causal), call, options_.scale);
}

AttentionState StridedAttention::make_state() const { return key_value_state(*this, options_.scale); }

FixedAttention::FixedAttention(const FixedAttentionOptions& options) : options_(options) {
  require(options.summary > 0 && options.block >= options.summary, "fixed attention: block is ", options.block,
          " and summary is ", options.summary, "; summary must be 1 or more and at most block");
}

void FixedAttention::see(Index p, Index keys, bool causal, Keys& seen) const {
  const Index l = options_.block, c = options_.summary, last = causal ? std::min(p, keys - 1) : keys - 1;
  for (Index begin = 0; begin <= last; begin += l)
    append(seen, p >= begin && p < begin + l ? begin : begin + l - c, std::min(last, begin + l - 1));
}

KeyLists FixedAttention::lists(Index queries, Index keys, bool causal) const {
  return lists_of(queries, keys, [&](Index p, Keys& seen) { see(p, keys, causal, seen); });
}

Tensor FixedAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return sparse_attention(q, k, v, lists(q.dim(2), k.dim(2), call.causal), call, options_.scale);
}

AttentionState FixedAttention::make_state() const { return key_value_state(*this, options_.scale); }

}  // namespace heed
