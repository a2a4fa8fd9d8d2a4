// Lengths of the rows of a decode state, and caches with rows of different lengths.
#include <heed/layers/attention/detail/row_lengths.hpp>

namespace heed::detail {

Tensor lengths_after(const char* op, const Tensor& lengths, In x, const AttentionCall& call) {
  const Index batch = x.dim(0), count = x.dim(x.rank() == 2 ? 1 : 2);
  if (call.key_lengths.defined())
    check(call.key_lengths.shape() == Shape{batch} && call.key_lengths.dtype() == DType::int32, x.where(), op,
          ": key_lengths is ", call.key_lengths, "; it must be [", batch, "] int32");
  const Tensor more = call.key_lengths.defined() ? call.key_lengths.dense() : Tensor();
  Tensor after = Tensor::empty({batch}, DType::int32);
  for (Index b = 0; b < batch; ++b) {
    const Index before = lengths.numel() == 0 ? 0 : lengths.ptr<std::int32_t>()[b];
    const Index added = more.defined() ? more.ptr<std::int32_t>()[b] : count;
    check(added >= 0 && added <= count, x.where(), op, ": key_lengths[", b, "] is ", added,
          "; it must be from 0 to the number of new positions, ", count);
    after.ptr<std::int32_t>()[b] = static_cast<std::int32_t>(before + added);
  }
  return after;
}

Index end_of_rows(const char* op, const Tensor& lengths, In x, const AttentionCall& call) {
  if (call.documents.defined()) {
    check(call.documents.shape() == x.shape() && lengths.numel() == 0, x.where(), op, ": x is ", x.tensor(),
          ", documents is ", call.documents, " and rows have seen ", lengths.numel() == 0 ? "no" : "earlier",
          " positions; documents must have the shape of x, and no positions may have been seen");
    return longest_of(positions_in_documents(call.documents)) + 1;
  }
  if (call.key_lengths.defined()) return longest_of(lengths_after(op, lengths, x, call));
  return longest_of(lengths) + x.dim(x.rank() == 2 ? 1 : 2);
}

Tensor last_of_rows(const Tensor& h, const AttentionCall& call) {
  const Index batch = h.dim(0), count = h.dim(1);
  if (!call.key_lengths.defined()) return h.select(1, count - 1);
  const Tensor lengths = call.key_lengths.dense();
  std::vector<std::int32_t> places;
  for (Index b = 0; b < batch; ++b)
    places.push_back(static_cast<std::int32_t>(b * count + std::max(lengths.ptr<std::int32_t>()[b] - 1, 0)));
  return index_select(h.reshape({batch * count, h.dim(2)}), 0, Tensor::from(places, {batch}));
}

Tensor rows_without_padding(const char* op, In x, const Tensor& lengths) {
  const Tensor by_head = x->unsqueeze(1);
  return without_padding({by_head, x.where()}, {.key_lengths = lengths}, op).squeeze(1);
}

Tensor rows_after(const Tensor& cache, const Tensor& lengths, Index count) {
  const Index first = longest_of(lengths);
  if (all_alike(lengths)) return cache.slice(2, first, first + count);
  std::vector<Tensor> rows;
  for (const std::int32_t length : row_lengths(lengths)) {
    const auto b = static_cast<Index>(rows.size());
    rows.push_back(cache.slice(0, b, b + 1).slice(2, length, length + count));
  }
  return concatenate(rows, 0);
}

Tensor bias_of_query(const Tensor& bias, Index t, Index keys) {
  Tensor x = bias;
  if (x.defined() && x.rank() > 1 && x.dim(-2) > 1) x = x.slice(-2, t, t + 1);
  if (x.defined() && x.rank() > 0 && x.dim(-1) > 1) x = x.slice(-1, 0, keys);
  return x;
}

bool follows(const Tensor& cache, const Tensor& x) {
  return !cache.defined() || (cache.dtype() == x.dtype() && cache.shape().with(2, 0) == x.shape().with(2, 0));
}

void append_rows(Tensor& cache, const Tensor& x, const Tensor& lengths, Index start) {
  const Index rows = x.dim(0);
  const auto at = [&](Index b) { return lengths.numel() == 0 ? 0 : lengths.ptr<std::int32_t>()[b] + start; };
  for (Index b = 0, end; b < rows; b = end) {  // adjacent rows of the same length together
    for (end = b + 1; end < rows && at(end) == at(b);) ++end;
    Tensor to = cache.slice(0, b, end).slice(2, at(b), at(b) + x.dim(2));
    copy_values(to, x.slice(0, b, end));
  }
}

}  // namespace heed::detail
