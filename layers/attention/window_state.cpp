#include <algorithm>
#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/indexing.hpp>
#include <heed/autograd/key_lists.hpp>
#include <heed/layers/attention/window_state.hpp>

namespace heed {

Index WindowState::globals_before(Index position) const {
  const std::vector<Index>& globals = mechanism_.options().globals;
  return std::lower_bound(globals.begin(), globals.end(), position) - globals.begin();
}

// The first position that is not global and that a query from `length` on sees.
Index WindowState::first_needed(Index length) const {
  const WindowAttentionOptions& o = mechanism_.options();
  if (!o.globals.empty() && length <= o.globals.back()) return 0;
  return std::max<Index>(0, length - (o.window - 1) * o.dilation);
}

// What the queries [before, length) see, as places among what is held.
KeyLists WindowState::lists(Index before, Index length) const {
  std::vector<std::int32_t> offsets = {0}, seen;
  const Index first = start(), front = globals_before(first);
  for (Index p = before; p < length; ++p) {
    const std::size_t begin = seen.size();
    mechanism_.see(p, length, true, seen);
    for (std::size_t n = begin; n < seen.size(); ++n)
      seen[n] = static_cast<std::int32_t>(seen[n] < first ? globals_before(seen[n]) : seen[n] - first + front);
    offsets.push_back(detail::checked_pairs(seen.size()));
  }
  return detail::lists_from(offsets, seen, {length - before + 1});
}

// Moves what is needed of [0, length) to storage for `capacity` positions.
void WindowState::make_room(In k, In v, Index length, Index capacity) {
  const Index old_start = start(), start = std::max(old_start, first_needed(length));
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

// The columns of a bias [.., length] for the positions that are held.
Tensor WindowState::bias_of_held(const Tensor& bias, Index length) const {
  if (!bias.defined() || bias.rank() == 0 || bias.dim(-1) != length) return bias;
  const Index first = start(), front = globals_before(first);
  std::vector<std::int32_t> columns;
  for (Index g = 0; g < front; ++g)
    columns.push_back(static_cast<std::int32_t>(mechanism_.options().globals[static_cast<std::size_t>(g)]));
  for (Index j = first; j < length; ++j) columns.push_back(static_cast<std::int32_t>(j));
  return index_select(bias, -1, Tensor::from(columns, {static_cast<Index>(columns.size())}));
}

Tensor WindowState::apply(In q, In k, In v, const Tensor& bias) {
  detail::check_heads("window attention", q, k, v);
  const auto follows = [](const Tensor& held, const Tensor& x) {
    return !held.defined() || (held.dtype() == x.dtype() && held.shape().with(2, 0) == x.shape().with(2, 0));
  };
  check(follows(keys_, k) && follows(values_, v), k.where(), "window attention: k is ", k.tensor(), " and v is ",
        v.tensor(), " but the state holds ", keys_, " and ", values_, "; all but the positions must stay the same");
  const NoTape guard;  // decoding is not trained through
  const Index before = length(), after = before + k.dim(2);
  const auto least_room = [&](Index length) { return 2 * held(first_needed(length), length) + 64; };
  if (!keys_.defined() || held(start(), after) > keys_.dim(2))
    make_room(k, v, before,
              std::max(least_room(before), held(std::max(start(), first_needed(before)), before) + k.dim(2)));
  const Index used = held(start(), before), end = held(start(), after);
  Tensor new_keys = keys_.slice(2, used, end), new_values = values_.slice(2, used, end);
  detail::copy_values(new_keys, k);
  detail::copy_values(new_values, v);
  const Tensor y = sparse_attention(q, keys_.slice(2, 0, end), values_.slice(2, 0, end), lists(before, after),
                                    {.bias = bias_of_held(bias, after)}, mechanism_.options().scale);
  length_ = Tensor::full({}, static_cast<double>(after), DType::int32);
  if (end > least_room(after)) make_room(k, v, after, least_room(after));
  return y;
}

}  // namespace heed
