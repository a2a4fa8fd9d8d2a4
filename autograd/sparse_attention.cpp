// sparse_attention(): the op, and how its work is split among threads. Derivation in core/kernels/attention/sparse.hpp.
#include <heed/autograd/attention.hpp>
//
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/core/kernels/attention/sparse.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <optional>

namespace heed {
namespace {

using detail::AttentionInputs;
using detail::AttentionTargets;
using detail::pointer;
using detail::rows_of;
using detail::TransposedLists;
using kernels::HeadRows;
using kernels::ScoreGrid;
using kernels::SparseColumns;
using kernels::SparseGradients;
using kernels::SparseKernels;
using kernels::SparseProblem;

constexpr Index kWavePairs = Index{1} << 22;  // pairs (two numbers each) that backward holds at once, or one head's

template <class T>
SparseProblem<T> sparse_problem(const AttentionInputs& x, const KeyLists& lists) {
  SparseProblem<T> p{};
  set_pairs<T>(p, x);
  p.offsets = lists.offsets.ptr<std::int32_t>();
  p.offsets_of_head = lists.offsets.rank() == 1 ? 0 : p.queries + 1;
  p.listed = lists.keys.ptr<std::int32_t>();
  p.longest = detail::longest_list(lists);
  return p;
}

// The number of pairs of head n = b * H + h.
template <class T>
Index pairs_of(const SparseProblem<T>& p, Index n) {
  const std::int32_t* offsets = p.offsets + n * p.offsets_of_head;
  return offsets[p.queries] - offsets[0];
}

// Rows per chunk of about 10 microseconds, if each row does `products` products of two rows per pair.
template <class T>
Index grain_of(const SparseProblem<T>& p, double pairs_per_row, double products) {
  const double flops = products * (pairs_per_row + 1) * static_cast<double>(p.width + p.value_width);
  return grain_for_flops(2 * flops);  // rows are scattered over the cache
}

template <class T>
double pairs_per_query(const SparseProblem<T>& p, const KeyLists& lists) {
  const double rows = static_cast<double>(lists.offsets.numel() / (p.queries + 1) * p.queries);
  return static_cast<double>(lists.keys.numel()) / std::max(rows, 1.0);
}

template <class T>
void forward(const AttentionInputs& x, const KeyLists& lists, const Tensor& out, const Tensor& lse) {
  const SparseKernels<T>& kernel = kernels::of<T>(kernels::sparse_attention_table());
  const SparseProblem<T> p = sparse_problem<T>(x, lists);
  const HeadRows<T> y = rows_of<T>(out);
  T* sums = pointer<T>(lse);
  ThreadScratch<T> scratch(static_cast<Index>(kernel.scratch(p)));
  parallel_for_each(p.batch * p.heads * p.queries, grain_of(p, pairs_per_query(p, lists), 2), [&](Index n) {
    kernel.forward(p, y, sums, n / p.queries / p.heads, n / p.queries % p.heads, n % p.queries, scratch.mine());
  });
}

// dbias += ds for query rows [from, to) of head (b, h), whose pairs begin at `dscore`.
template <class T>
void add_bias(const SparseProblem<T>& p, const ScoreGrid<T>& dbias, const T* dscore, Index b, Index h, Index from,
              Index to) {
  const std::int32_t* offsets = p.offsets + (b * p.heads + h) * p.offsets_of_head;
  for (Index i = from; i < to; ++i) {
    T* row = dbias.data + b * dbias.batch + h * dbias.head + i * dbias.query;
    for (Index e = offsets[i]; e < offsets[i + 1]; ++e) row[p.listed[e] * dbias.key] += dscore[e - offsets[0]];
  }
}

// The key-value heads [first, first + count), counted as b * Hk + g, whose pairs backward holds at once: few enough to
// limit memory, enough to keep the threads busy.
template <class T>
struct Wave {
  const SparseProblem<T>& p;
  Index first, count = 0, pairs = 0;
  Scratch<Index> bases;  // first pair of each query head

  Index shared() const { return p.heads / p.kv_heads; }

  Wave(const SparseProblem<T>& problem, Index begin)
      : p(problem), first(begin), bases(static_cast<std::size_t>((p.batch * p.kv_heads - begin) * shared())) {
    for (; first + count < p.batch * p.kv_heads; ++count) {
      Index more = 0;
      for (Index s = 0; s < shared(); ++s) {
        bases[static_cast<std::size_t>(count * shared() + s)] = pairs + more;
        more += pairs_of(p, (first + count) * shared() + s);
      }
      if (count > 0 && pairs + more > kWavePairs) break;
      pairs += more;
    }
  }
};

template <class T>
void run_wave(Wave<T>& wave, const KeyLists& lists, SparseGradients<T>& g, const ScoreGrid<T>& dbias,
              TransposedLists* columns, ThreadScratch<T>& scratch) {
  const SparseProblem<T>& p = wave.p;
  const SparseKernels<T>& kernel = kernels::of<T>(kernels::sparse_attention_table());
  const Index shared = wave.shared(), first = wave.first * shared, heads = wave.count * shared;
  const double pairs = pairs_per_query(p, lists);
  parallel_for_each(heads * p.queries, grain_of(p, pairs, 3), [&](Index n) {
    const Index h = n / p.queries;
    kernel.backward_query(p, g, (first + h) / p.heads, (first + h) % p.heads, n % p.queries,
                          wave.bases[static_cast<std::size_t>(h)], scratch.mine());
  });
  if (dbias.data != nullptr) {
    // Each task owns some query rows of dbias; all rows if they share a bias.
    const Index grain = dbias.query == 0 ? p.queries : std::max<Index>(1, grain_of(p, pairs, 1) / heads);
    parallel_for(p.queries, grain, [&](Index begin, Index end) {
      for (Index h = 0; h < heads; ++h)
        add_bias(p, dbias, g.dscore + wave.bases[static_cast<std::size_t>(h)], (first + h) / p.heads,
                 (first + h) % p.heads, begin, end);
    });
  }
  if (columns == nullptr) return;
  const double pairs_per_key =
      static_cast<double>(wave.pairs) / std::max(1.0, static_cast<double>(wave.count * p.keys));
  parallel_for_each(wave.count * p.keys, grain_of(p, pairs_per_key, 2), [&](Index n) {
    const Index group = n / p.keys, head = wave.first + group;
    kernel.backward_key(
        p, g, {columns->starts(group * shared), columns->queries(), columns->places(), columns->starts_of_head()},
        head / p.kv_heads, head % p.kv_heads, n % p.keys, wave.bases.data() + group * shared);
  });
}

template <class T>
void backward(const AttentionInputs& x, const KeyLists& lists, const Tensor& out, const Tensor& dout, const Tensor& lse,
              const AttentionTargets& d) {
  const SparseProblem<T> p = sparse_problem<T>(x, lists);
  SparseGradients<T> g{};
  detail::set_gradients<T>(g, out, dout, d);
  g.lse = pointer<const T>(lse);
  ScoreGrid<T> dbias{nullptr, 0, 0, 0, 0};
  if (d.bias.defined()) {
    const Strides& s = d.bias.strides();
    dbias = {d.bias.ptr<T>(), s[0], s[1], s[2], s[3]};
  }
  const bool for_keys = d.k || d.v, share = p.offsets_of_head == 0;
  const Index all = p.batch * p.kv_heads;
  if (all == 0) return;
  std::optional<TransposedLists> columns;
  if (for_keys && share) columns.emplace(lists, p.keys, 0, 1);
  ThreadScratch<T> scratch(static_cast<Index>(kernels::of<T>(kernels::sparse_attention_table()).scratch(p)));
  for (Index first = 0; first < all;) {
    Wave<T> wave(p, first);
    if (for_keys && !share) columns.emplace(lists, p.keys, first * wave.shared(), wave.count * wave.shared());
    Scratch<T> weight(static_cast<std::size_t>(wave.pairs)), dscore(static_cast<std::size_t>(wave.pairs));
    g.weight = weight.data(), g.dscore = dscore.data();
    run_wave(wave, lists, g, dbias, columns ? &*columns : nullptr, scratch);
    first += wave.count;
  }
}

KeyLists checked_lists(In q, In k, const KeyLists& lists) {
  check(lists.offsets.defined() && lists.keys.defined(), q.where(),
        "sparse_attention: the lists are undefined; both offsets and keys must be given");
  note_reads({lists.offsets, lists.keys});
  const KeyLists dense{lists.offsets.dense(), lists.keys.dense()};
  detail::check_lists("sparse_attention", q, k, dense);
  return dense;
}

}  // namespace

Tensor sparse_attention(In q, In k, In v, const KeyLists& given, const AttentionCall& call,
                        std::optional<double> given_scale) {
  detail::check_heads("sparse_attention", q, k, v);
  const double scale = given_scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
  detail::check_pairs("sparse_attention", q, k, call, scale);
  const KeyLists lists = checked_lists(q, k, given);
  const AttentionInputs x = detail::attention_inputs(q, k, v, call, scale);
  Tensor y = detail::attention_output(x), lse;
  if (needs_gradient({x.q, x.k, x.v, call.bias})) lse = Tensor::empty(x.grid().first(3), q.dtype());
  detail::with_float(q.dtype(), [&]<class T>(T) { forward<T>(x, lists, y.transpose(1, 2), lse); });
  record("sparse_attention", q.where(), y, {x.q, x.k, x.v, call.bias}, saved(x, lists, y, lse),
         [](Grads& d, const Tensor& dy, const AttentionInputs& in, const KeyLists& kept, const Tensor& out,
            const Tensor& sums) {
           AttentionTargets to = detail::attention_targets(d);
           Tensor dbias;
           if (in.call.bias.defined() && d.needs(3)) {
             dbias = Tensor::zeros(in.call.bias.shape(), dy.dtype());
             to.bias = dbias.expand(in.grid());
           }
           detail::with_float(dy.dtype(), [&]<class T>(T) {
             backward<T>(in, kept, out.transpose(1, 2), dy.transpose(1, 2), sums, to);
           });
           if (dbias.defined()) d.add(3, dbias);
         });
  return y.transpose(1, 2);
}

}  // namespace heed
