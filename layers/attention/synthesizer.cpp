// Synthetic scores, as softmax attention to learned keys, or as a bias of pairs.
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/names.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/states.hpp>
#include <heed/layers/attention/synthesizer.hpp>

namespace heed {
namespace {

constexpr const char* kSynthesizer = "synthesizer attention";

struct NamedKind {
  std::string_view name;
  SynthesizerKind kind;
};
constexpr NamedKind kKinds[] = {{"dense", SynthesizerKind::dense},
                                {"random", SynthesizerKind::random},
                                {"factorized-dense", SynthesizerKind::factorized_dense},
                                {"factorized-random", SynthesizerKind::factorized_random}};

Index root_of(Index n) { return static_cast<Index>(std::ceil(std::sqrt(static_cast<double>(n)))); }

// [relu(q), 1], for maps with biases.
Tensor hidden_layer(In q) { return concatenate({relu(q), Tensor::ones(q.shape().with(3, 1), q.dtype())}, -1); }

// The rows of x [H, n, m] at the positions of the queries: [B or 1, H, T, m]. `last`: int32 [B], the position of the
// only query of each row; undefined: queries are aligned with the end of the keys.
Tensor rows_of_queries(const Tensor& x, Index queries, Index keys, const Tensor& last) {
  if (last.defined()) return index_select(x, 1, last).transpose(0, 1).unsqueeze(2);
  const Index first = query_position(0, queries, keys);
  if (first >= 0) return x.slice(1, first, first + queries).unsqueeze(0);
  std::vector<std::int32_t> at;
  for (Index i = 0; i < queries; ++i) at.push_back(static_cast<std::int32_t>(std::max<Index>(0, first + i)));
  return index_select(x, 1, Tensor::from(at)).unsqueeze(0);
}

// The scores, [B or 1, H, T, S], of the kinds that hold them.
Tensor scores_of(SynthesizerKind kind, const std::vector<Tensor>& maps, In q, Index keys, const Tensor& last) {
  if (kind == SynthesizerKind::random) return rows_of_queries(maps[0], q.dim(2), keys, last).slice(3, 0, keys);
  const Tensor hidden = hidden_layer(q), a = detail::project_heads(kSynthesizer, hidden, maps[0]),
               b = detail::project_heads(kSynthesizer, hidden, maps[1]);
  const Tensor products = b.unsqueeze(4) * a.unsqueeze(3);  // [B, H, T, n / m, m]
  return products.reshape(q.shape().with(3, a.dim(3) * b.dim(3))).slice(3, 0, keys);
}

Tensor attend_synthetic(In q, In k, In v, AttentionCall call, const SynthesizerOptions& o,
                        const std::vector<Tensor>& maps, const Tensor& last) {
  const Index batch = q.dim(0), heads = q.dim(1), keys = k.dim(2);
  check(keys <= o.positions, q.where(), kSynthesizer, ": k is ", k.tensor(), "; there may be at most ", o.positions,
        " keys");
  check(maps[0].dim(0) == heads && maps[0].dtype() == q.dtype(), q.where(), kSynthesizer, ": q is ", q.tensor(),
        " and its scores are made by ", maps[0], "; heads and dtype must be the same");
  const Tensor values = detail::repeat_heads(v, heads);
  const auto of_keys = [&](const Tensor& x) {  // [H, n, m] as keys
    return x.slice(1, 0, keys).unsqueeze(0).expand({batch, heads, keys, x.dim(2)});
  };
  if (o.kind == SynthesizerKind::dense) {
    check(maps[0].dim(2) == q.dim(3) + 1, q.where(), kSynthesizer, ": q is ", q.tensor(),
          "; the size of a head must be ", maps[0].dim(2) - 1);
    return attention({hidden_layer(q), q.where()}, of_keys(maps[0]), values, call, 1.0);
  }
  if (o.kind == SynthesizerKind::factorized_random) {
    const Tensor rows = rows_of_queries(maps[0], q.dim(2), keys, last);
    return attention({rows.expand(q.shape().with(3, rows.dim(3))), q.where()}, of_keys(maps[1]), values, call, 1.0);
  }
  const Tensor scores = scores_of(o.kind, maps, q, keys, last);
  call.bias = call.bias.defined() ? scores + call.bias : scores;
  const Tensor nothing = Tensor::zeros({batch, heads, 1, 1}, q.dtype());
  return attention({nothing.expand(q.shape().with(3, 1)), q.where()}, nothing.expand({batch, heads, keys, 1}), values,
                   call, 1.0);
}

std::vector<Tensor> tensors_of(const std::vector<Parameter>& maps) {
  std::vector<Tensor> all;
  for (const Parameter& p : maps) all.emplace_back(p);
  return all;
}

}  // namespace

SynthesizerKind synthesizer_kind(std::string_view name) {
  return detail::row_named(name, "synthesizer: the kind", kKinds, &NamedKind::name).kind;
}

SynthesizerAttention::SynthesizerAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng,
                                           const SynthesizerOptions& o)
    : options_(o) {
  const Index n = o.positions, rank = o.rank == 0 ? 8 : o.rank;
  require(heads > 0 && size > 0 && n > 0 && rank > 0, "SynthesizerAttention: heads is ", heads, ", size is ", size,
          ", positions is ", n, " and rank is ", o.rank, "; all must be 1 or more, or 0 for the default rank");
  const auto add = [&](Index rows, Index columns, Index fan_in) {
    maps.push_back(detail::uniform_parameter({heads, rows, columns}, fan_in, rng));
  };
  const Index m = root_of(n);
  if (o.kind == SynthesizerKind::dense)
    add(n, size + 1, size);
  else if (o.kind == SynthesizerKind::random)
    add(n, n, n);
  else if (o.kind == SynthesizerKind::factorized_dense)
    add(m, size + 1, size), add((n + m - 1) / m, size + 1, size);
  else
    add(n, rank, rank), add(n, rank, rank);
}

Tensor SynthesizerAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  detail::check_heads(kSynthesizer, q, k, v);
  detail::check_pairs(kSynthesizer, q, k, call);
  return attend_synthetic(q, k, v, call, options_, tensors_of(maps), {});
}

AttentionState SynthesizerAttention::make_state() const {
  return KeyValueState([o = options_, all = tensors_of(maps)](In q, In k, In v, const AttentionCall& call) {
    // If rows have different lengths, the only query of a row is its last position.
    const bool ragged = call.key_lengths.defined() && q.dim(2) == 1;
    return attend_synthetic(q, k, v, call, o, all, ragged ? maximum(call.key_lengths - 1.0, 0.0) : Tensor());
  });
}

}  // namespace heed
