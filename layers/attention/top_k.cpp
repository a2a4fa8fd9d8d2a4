// Top-k attention: the choice of the keys with the largest scores.
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/sparse.hpp>

namespace heed {
namespace {

using detail::PairMasks;

constexpr Index kTopKScores = Index{1} << 20;  // scores in memory at a time, unless one query has more

// The best keys so far, as a heap with the worst key on top.
template <class T>
class Best {
 public:
  explicit Best(Index max_keys) : max_keys_(static_cast<std::size_t>(max_keys)) { heap_.reserve(max_keys_); }
  void clear() { heap_.clear(); }
  // Call in ascending order of keys, so that of equal scores the lower key is kept.
  void offer(T score, std::int32_t key) {
    if (std::isnan(score)) score = static_cast<T>(detail::kInfinity);  // chosen, so that the result shows the NaN
    if (heap_.size() == max_keys_) {
      if (!(score > heap_.front().score)) return;
      std::pop_heap(heap_.begin(), heap_.end(), better);
      heap_.pop_back();
    }
    heap_.push_back({score, key});
    std::push_heap(heap_.begin(), heap_.end(), better);
  }
  Index take(std::int32_t* keys) const {
    for (std::size_t n = 0; n < heap_.size(); ++n) keys[n] = heap_[n].key;
    std::sort(keys, keys + heap_.size());
    return static_cast<Index>(heap_.size());
  }

 private:
  struct Entry {
    T score;
    std::int32_t key;
  };
  static bool better(const Entry& a, const Entry& b) {
    return a.score > b.score || (a.score == b.score && a.key < b.key);
  }
  std::size_t max_keys_;
  std::vector<Entry> heap_;
};

struct Choice {
  Index max_keys;                    // maximum number of keys per query
  std::vector<std::int32_t> keys;    // [B, H, T, max_keys]
  std::vector<std::int32_t> counts;  // [B, H, T]
};

// Chooses keys for queries [first, first + rows) of all heads from their products, scores [B, H, rows, S].
template <class T>
void choose(const Tensor& scores, Index first, Index queries, const PairMasks& masks, const Tensor& bias, T scale,
            Choice& choice) {
  const Index batch = scores.dim(0), heads = scores.dim(1), rows = scores.dim(2), keys = scores.dim(3);
  const Tensor grid = bias.defined() ? bias.expand({batch, heads, queries, keys}) : bias;
  const T* biases = grid.defined() ? grid.ptr<T>() : nullptr;
  parallel_for(batch * heads * rows, std::max<Index>(1, 8192 / std::max<Index>(1, keys)), [&](Index begin, Index end) {
    Best<T> best(choice.max_keys);
    for (Index n = begin; n < end; ++n) {
      const Index b = n / rows / heads, h = n / rows % heads, i = first + n % rows;
      const T *row = scores.ptr<T>() + n * keys, *bias_row = nullptr;
      if (biases != nullptr) bias_row = biases + b * grid.strides()[0] + h * grid.strides()[1] + i * grid.strides()[2];
      best.clear();
      for (Index j = 0; j < masks.end(b, i); ++j) {
        if (!masks.allows(b, h, i, j)) continue;
        const T score = row[j] * scale;
        best.offer(bias_row == nullptr ? score : score + bias_row[j * grid.strides()[3]], static_cast<std::int32_t>(j));
      }
      const auto at = static_cast<std::size_t>((b * heads + h) * queries + i);
      choice.counts[at] =
          static_cast<std::int32_t>(best.take(choice.keys.data() + at * static_cast<std::size_t>(choice.max_keys)));
    }
  });
}

// Removes the gaps between the keys of a choice, in place.
KeyLists compressed(Choice& choice, Index heads, Index queries, const Shape& shape) {
  std::vector<std::int32_t> offsets;
  offsets.reserve(static_cast<std::size_t>(heads * (queries + 1)));
  std::size_t used = 0;
  for (Index h = 0; h < heads; ++h) {
    offsets.push_back(detail::checked_pairs(used));
    for (Index i = 0; i < queries; ++i) {
      const auto n = static_cast<std::size_t>(h * queries + i);
      const auto from = choice.keys.begin() + static_cast<std::ptrdiff_t>(n) * choice.max_keys;
      std::copy_n(from, choice.counts[n], choice.keys.begin() + static_cast<std::ptrdiff_t>(used));  // to a lower index
      used += static_cast<std::size_t>(choice.counts[n]);
      offsets.push_back(detail::checked_pairs(used));
    }
  }
  choice.keys.resize(used);
  return detail::lists_from(offsets, choice.keys, shape);
}

}  // namespace

TopKAttention::TopKAttention(Exactly<Index> count, std::optional<double> scale) : count_(count), scale_(scale) {
  require(count > 0, "top-k attention: k is ", count, "; it must be 1 or more");
}

KeyLists TopKAttention::lists(In q_in, In k_in, const AttentionCall& call) const {
  detail::check_heads("top-k attention", q_in, k_in, k_in);
  detail::check_pairs("top-k attention", q_in, k_in, call, scale_.value_or(1));
  const NoTape guard;
  const MatmulPrecision exact(DType::float32);
  const Tensor q = q_in->detach(), k = k_in->detach();
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), keys = k.dim(2), groups = k.dim(1);
  const PairMasks masks(call, {batch, heads, queries, keys});
  Choice choice{std::min(count_, keys), {}, {}};
  choice.counts.resize(static_cast<std::size_t>(batch * heads * queries));
  choice.keys.resize(choice.counts.size() * static_cast<std::size_t>(choice.max_keys));
  const Index block = std::max<Index>(1, kTopKScores / std::max<Index>(1, batch * heads * keys));
  const double scale = scale_.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
  const Tensor transposed = k.unsqueeze(2).transpose(-1, -2);  // [B, Hk, 1, D, S]
  const bool empty = batch * heads * keys == 0;
  for (Index i = 0; i < queries && !empty; i += block) {
    const Index end = std::min(queries, i + block);
    const Tensor rows = q.slice(2, i, end).view({batch, groups, heads / groups, end - i, q.dim(3)});
    const Tensor scores = matmul(rows, transposed).view({batch, heads, end - i, keys});
    detail::with_float(
        q.dtype(), [&]<class T>(T) { choose<T>(scores, i, queries, masks, call.bias, static_cast<T>(scale), choice); });
  }
  return compressed(choice, batch * heads, queries, {batch, heads, queries + 1});
}

Tensor TopKAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return sparse_attention(q, k, v, lists(q, k, call), call, scale_);
}

}  // namespace heed
