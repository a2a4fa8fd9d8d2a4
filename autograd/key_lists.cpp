// Lists of keys per query: checks, and transposition to lists of queries per key.
#include <algorithm>
#include <atomic>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/core/parallel.hpp>

namespace heed::detail {

void check_lists(const char* op, In q, In k, const KeyLists& lists) {
  const Where& at = q.where();
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), keys = k.dim(2), n = lists.keys.numel();
  const Shape shared = {queries + 1}, own = {batch, heads, queries + 1};
  const Tensor& o = lists.offsets;
  check(o.dtype() == DType::int32 && (o.shape() == shared || o.shape() == own), at, op, ": offsets is ", o,
        "; it must be ", shared, " or ", own, " int32");
  check(lists.keys.dtype() == DType::int32 && lists.keys.rank() == 1, at, op, ": keys is ", lists.keys,
        "; it must be [pairs] int32");
  const Index rows = o.numel(), row = queries + 1;
  const std::int32_t *offset = o.ptr<std::int32_t>(), *key = lists.keys.ptr<std::int32_t>();
  std::atomic<Index> bad = rows;
  parallel_for(rows, 1024, [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Index from = offset[r], to = r + 1 < rows ? offset[r + 1] : n;
      bool good = from >= 0 && from <= to && to <= n && (r > 0 || from == 0);
      good = good && (r % row != queries || from == to);  // the next head's lists begin where this head's end
      for (Index e = from; good && e < to; ++e)
        good = key[e] >= 0 && key[e] < keys && (e == from || key[e - 1] < key[e]);
      if (good) continue;
      Index first_bad = bad;
      while (r < first_bad && !bad.compare_exchange_weak(first_bad, r)) {
      }
      break;
    }
  });
  const Index r = bad;
  check(r == rows, at, op, ": the list of query ", r % row, (o.rank() == 3 ? " of head " : ""),
        (o.rank() == 3 ? std::to_string(r / row) : std::string()),
        " is wrong; offsets must rise from 0 to the number of keys, and each list must ascend within [0, ", keys, ")");
}

Index longest_list(const KeyLists& lists) {
  const std::int32_t* offset = lists.offsets.ptr<std::int32_t>();
  Index max_length = 0;
  for (Index i = 1; i < lists.offsets.numel(); ++i) max_length = std::max<Index>(max_length, offset[i] - offset[i - 1]);
  return max_length;
}

static Index pairs_between(const KeyLists& lists, Index first, Index heads, bool shared) {
  if (shared) return lists.keys.numel();
  const Index row = lists.offsets.dim(-1);
  const std::int32_t* offset = lists.offsets.ptr<std::int32_t>();
  return offset[(first + heads) * row - 1] - offset[first * row];
}

TransposedLists::TransposedLists(const KeyLists& lists, Index keys, Index first, Index heads)
    : keys_(keys),
      rows_(lists.offsets.dim(-1)),
      shared_(lists.offsets.rank() == 1),
      starts_(static_cast<std::size_t>(heads * (keys + 1))),
      queries_(static_cast<std::size_t>(pairs_between(lists, first, heads, shared_))),
      places_(queries_.size()) {
  const std::int32_t* offset = lists.offsets.ptr<std::int32_t>() + (shared_ ? 0 : first * rows_);
  parallel_for_each(heads, 1, [&](Index n) {
    transpose(offset + n * rows_, lists.keys.ptr<std::int32_t>(), offset[n * rows_] - offset[0],
              starts_.data() + n * (keys_ + 1));
  });
}

// A counting sort by key.
void TransposedLists::transpose(const std::int32_t* offsets, const std::int32_t* listed, Index base, Index* starts) {
  const Index queries = rows_ - 1;
  std::fill_n(starts, keys_ + 1, Index{0});
  for (Index e = offsets[0]; e < offsets[queries]; ++e) ++starts[listed[e] + 1];
  starts[0] = base;
  for (Index j = 0; j < keys_; ++j) starts[j + 1] += starts[j];
  for (Index i = 0; i < queries; ++i)
    for (Index e = offsets[i]; e < offsets[i + 1]; ++e) {
      const auto to = static_cast<std::size_t>(starts[listed[e]]++);
      queries_[to] = static_cast<std::int32_t>(i);
      places_[to] = static_cast<std::int32_t>(e - offsets[0]);
    }
  // Each start was advanced to its end, which is the start of the next list.
  for (Index j = keys_; j > 0; --j) starts[j] = starts[j - 1];
  starts[0] = base;
}

}  // namespace heed::detail
