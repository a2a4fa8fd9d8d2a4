// The decode state of window attention.
#include <algorithm>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/detail/window_state.hpp>

namespace heed {

Index WindowState::globals_before(Index position) const {
  const std::vector<Index>& globals = mechanism_.options().globals;
  return std::lower_bound(globals.begin(), globals.end(), position) - globals.begin();
}

// The first position, global positions aside, that a query at or after `length` sees.
Index WindowState::first_needed(Index length) const {
  const WindowAttentionOptions& o = mechanism_.options();
  if (!o.globals.empty() && length <= o.globals.back()) return 0;
  return std::max<Index>(0, length - (o.window - 1) * o.dilation);
}

// The positions that the next `count` queries see, as indices into the stored keys. Each row has its own lists if rows
// are ragged.
KeyLists WindowState::lists(Index heads, Index count, bool ragged) const {
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

// Moves the positions that are still needed to storage for `capacity` positions.
void WindowState::make_room(In k, In v, Index capacity) {
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

// The columns of a bias [.., length] for the stored positions.
Tensor WindowState::bias_of_held(const Tensor& bias, Index length) const {
  if (!bias.defined() || bias.rank() == 0 || bias.dim(-1) != length) return bias;
  const Index first = start(), front = globals_before(first);
  std::vector<std::int32_t> columns;
  for (Index g = 0; g < front; ++g)
    columns.push_back(static_cast<std::int32_t>(mechanism_.options().globals[static_cast<std::size_t>(g)]));
  for (Index j = first; j < length; ++j) columns.push_back(static_cast<std::int32_t>(j));
  return index_select(bias, -1, Tensor::from(columns, {static_cast<Index>(columns.size())}));
}

Tensor WindowState::apply(In q, In k, In v, const AttentionCall& call) {
  detail::check_heads("window attention", q, k, v);
  const auto follows = [](const Tensor& held, const Tensor& x) {
    return !held.defined() || (held.dtype() == x.dtype() && held.shape().with(2, 0) == x.shape().with(2, 0));
  };
  check(follows(keys_, k) && follows(values_, v), k.where(), "window attention: k is ", k.tensor(), " and v is ",
        v.tensor(), " but the state holds ", keys_, " and ", values_, "; only the positions may differ");
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

}  // namespace heed
