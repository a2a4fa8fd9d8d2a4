// Softmax attention with a function of the scores and a mask of one's own, as PyTorch's flex_attention (Dong et al., "Flex
// attention: a programming model for generating optimized attention kernels", 2024): ALiBi, soft caps, relative biases,
// sliding windows, documents side by side. In blocks as attention(), forward and backward, without a matrix of queries by
// keys; blocks that the mask excludes are skipped.
//
//   const std::vector<float> slopes = {0.5f, 0.25f};
//   const auto alibi = [slopes](auto s, int, int h, int q, int k) { return s - slopes[h] * (q - k); };
//   const BlockMask window = create_block_mask([](int, int, int q, int k) { return q - k < 256; }, 1, 1, T, S);
//   const Tensor y = flex_attention(q, k, v, {.score_mod = alibi, .block_mask = window}, {.causal = true});
//
// A score is a number of any type, hence `auto s`: backward calls the same function with a number that knows its
// derivatives. Of functions it knows exp, log, sqrt, tanh, sin, cos, abs, pow, max and min, without std:: before them.
// Functions that are ready are in autograd/score_mods.hpp; docs/score_functions.md explains all.
#pragma once
#include <heed/autograd/attention_call.hpp>
#include <heed/autograd/record.hpp>
#include <heed/autograd/score_value.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace heed {

namespace detail {

struct ScoreModAccess;

// A function of any type, as loops over tiles. Eight scores at a time, kept aside until all are known: what the function
// reads may not lie where they go, and so the compiler can compute them in vectors.
inline constexpr int kScoresAtOnce = 8;

template <class F>
void each_score(const ScoreTile& at, const F& f) {  // f(j, first, count): of key j, lanes [first, first + count)
  for (int j = 0; j < at.keys; ++j) {
    int i = 0;
    for (; i + kScoresAtOnce <= at.queries; i += kScoresAtOnce) f(j, i, std::integral_constant<int, kScoresAtOnce>());
    for (; i < at.queries; ++i) f(j, i, std::integral_constant<int, 1>());
  }
}

template <class F, int kParameters>
struct ScoreLoops {
  // f of the score of key j and lane i, with N derivatives: by the score, and by what is read of parameters.
  template <int N, class T>
  static ScoreValue<T, N> value(const ScoreContext<T>& x, const ScoreTile& at, T s, int j, int i, ScoreReads& reads) {
    ScoreValue<T, N> score(s);
    if constexpr (N > 0) score.by[0] = 1;
    return [&]<std::size_t... P>(std::index_sequence<P...>) -> ScoreValue<T, N> {
      return (*static_cast<const F*>(x.function))(score, int{at.batch}, int{at.head}, at.query + i, at.key + j,
                                                  ScoreTable<T, N>(x.parameters[P], reads)...);
    }(std::make_index_sequence<kParameters>());
  }
  template <class T>
  static void apply(const ScoreContext<T>& x, const ScoreTile& at, T* s, T* slope) {
    ScoreReads none;
    each_score(at, [&](int j, int first, auto count) {
      T y[count], d[count];
      T* to = s + j * at.lanes + first;
      if (slope == nullptr) {
        for (int i = 0; i < count; ++i) y[i] = value<0>(x, at, to[i], j, first + i, none).value;
      } else {
        for (int i = 0; i < count; ++i) {
          const ScoreValue<T, 1> v = value<1>(x, at, to[i], j, first + i, none);
          y[i] = v.value, d[i] = v.by[0];
        }
        for (int i = 0; i < count; ++i) slope[j * at.lanes + first + i] = d[i];
      }
      for (int i = 0; i < count; ++i) to[i] = y[i] * static_cast<T>(kScoreUnit);
    });
  }
  template <class T>
  static void sum(const ScoreContext<T>& x, const ScoreTile& at, const T* s, const T* df) {
    each_score(at, [&](int j, int first, auto count) {
      for (int i = first; i < first + count; ++i) {
        const T d = df[j * at.lanes + i];
        if (d == 0) continue;
        ScoreReads reads;
        const auto v = value<1 + kMostScoreReads>(x, at, s[j * at.lanes + i], j, i, reads);
        for (int n = 0; n < reads.count; ++n) *reads.to[n] += static_cast<double>(d * v.by[static_cast<std::size_t>(n + 1)]);
      }
    });
  }
  template <class T>
  static ScoreFunction<T> function() {
    return {apply<T>, sum<T>, true};
  }
};

template <class F>
struct MaskLoops {
  static bool allowed(const void* f, const ScoreTile& at, int j, int i) {
    return (*static_cast<const F*>(f))(int{at.batch}, int{at.head}, at.query + i, at.key + j);
  }
  template <class T>
  static void apply(const void* f, const ScoreTile& at, T* s) {
    each_score(at, [&](int j, int first, auto count) {
      T y[count];
      T* to = s + j * at.lanes + first;
      for (int i = 0; i < count; ++i) y[i] = allowed(f, at, j, first + i) ? to[i] : -std::numeric_limits<T>::infinity();
      for (int i = 0; i < count; ++i) to[i] = y[i];
    });
  }
  static int count(const void* f, const ScoreTile& at) {
    int n = 0;
    each_score(at, [&](int j, int first, auto count) {
      for (int i = 0; i < count; ++i) n += allowed(f, at, j, first + i) ? 1 : 0;
    });
    return n;
  }
};

}  // namespace detail

// A function of scores: f(s, batch, head, query, key, parameters...) -> the score that the softmax takes, for s = scale *
// q . k + bias. Query and key are positions among the keys: the last query of T stands at the last key, S - 1, as in causal
// attention, so that the same function serves a whole sequence and a token that follows a cache.
//
// Parameters are tensors of up to 4 axes, at most 4 of them. The function gets an argument for each, `auto table`, of which
// table(i, j) is an entry; gradients flow to those that want them. It may be asked for pairs that are masked, and what it
// then returns does not matter. It is called from several threads at once and must not keep anything.
class ScoreMod {
 public:
  ScoreMod() = default;  // the score itself

  template <class F, class... P>
  requires(!std::is_same_v<F, ScoreMod> && (std::is_convertible_v<const P&, const Tensor&> && ...)) ScoreMod(F f, const P&... parameters)
      : function_(std::make_shared<const F>(std::move(f))),
        f32_(detail::ScoreLoops<F, sizeof...(P)>::template function<float>),
        f64_(detail::ScoreLoops<F, sizeof...(P)>::template function<double>) {
    static_assert(sizeof...(P) <= kMostScoreParameters, "a function of scores has at most 4 parameters");
    static_assert(std::is_invocable_v<const F&, detail::ScoreValue<float, 0>, int, int, int, int,
                                      std::conditional_t<true, detail::ScoreTable<float, 0>, P>...>,
                  "a function of scores takes (auto s, int batch, int head, int query, int key), and `auto table` for each parameter");
    (add_parameter(parameters), ...);
  }

  bool defined() const { return f32_ != nullptr; }
  std::vector<Tensor> parameters() const { return {parameters_.begin(), parameters_.begin() + count_}; }
  // The same function of other parameters, as many: tensors, or Parameters.
  template <class List>
  ScoreMod with(const List& parameters) const {
    ScoreMod f = *this;
    f.count_ = 0;
    for (const Tensor& x : parameters) f.add_parameter(x);
    require(f.count_ == count_, "ScoreMod: ", f.count_, " parameters for a function of ", count_, "; they must be as many");
    return f;
  }

 private:
  friend detail::ScoreModAccess;
  std::shared_ptr<const void> function_;
  ScoreFunction<float> (*f32_)() = nullptr;
  ScoreFunction<double> (*f64_)() = nullptr;
  std::array<Tensor, kMostScoreParameters> parameters_;
  int count_ = 0;
  bool by_head_ = false;  // the first parameter has a row for each head, or one for all

  void add_parameter(const Tensor& x);
};

// A mask: f(batch, head, query, key) -> whether the query may attend to the key; positions as of ScoreMod.
class MaskMod {
 public:
  MaskMod() = default;
  template <class F>
  requires std::is_invocable_r_v<bool, const F&, int, int, int, int> MaskMod(F f)
      : function_(std::make_shared<const F>(std::move(f))),
        f32_(detail::MaskLoops<F>::template apply<float>),
        f64_(detail::MaskLoops<F>::template apply<double>),
        count_(detail::MaskLoops<F>::count) {}
  bool defined() const { return count_ != nullptr; }

 private:
  friend detail::ScoreModAccess;
  std::shared_ptr<const void> function_;
  MaskFunction<float> f32_ = nullptr;
  MaskFunction<double> f64_ = nullptr;
  int (*count_)(const void* function, const ScoreTile& at) = nullptr;
};

// Which pairs both masks allow, or any of them.
template <class A, class B>
auto and_masks(A a, B b) {
  return [a, b](int batch, int h, int q, int k) { return bool(a(batch, h, q, k) & b(batch, h, q, k)); };
}
template <class A, class B>
auto or_masks(A a, B b) {
  return [a, b](int batch, int h, int q, int k) { return bool(a(batch, h, q, k) | b(batch, h, q, k)); };
}

// A mask, and what it leaves of each block of 32 queries by 64 keys: all, nothing, or a part, for which the mask is asked
// again when attention comes there. To be made once and used in every layer and step; what the mask refers to must not
// change meanwhile. A handle: copies share it.
class BlockMask {
 public:
  BlockMask() = default;  // all pairs
  bool defined() const { return state_ != nullptr; }
  const Shape& shape() const;  // [B or 1, H or 1, T, S]
  double sparsity() const;     // the share of blocks that are skipped

 private:
  friend detail::ScoreModAccess;
  struct State;
  std::shared_ptr<const State> state_;

  friend BlockMask create_block_mask(const MaskMod&, Index, Index, Index, Index, const Tensor&);
};

// Asks the mask for every pair. A batch or heads of 1 serve any number: the mask then gets 0 for them here, and must not
// depend on them. Positions as of FlexAttentionOptions. Error for sizes below 0, or a batch or heads below 1.
BlockMask create_block_mask(const MaskMod& mask_mod, Index batch, Index heads, Index queries, Index keys,
                            const Tensor& positions = {});

struct FlexAttentionOptions {
  ScoreMod score_mod = {};
  BlockMask block_mask = {};  // of this number of queries and keys
  // [H]: a logit for each head that takes part in the sum of the softmax and has no value (attention sinks of gpt-oss;
  // 0: "softmax one"). A head may so attend to nothing. It has a gradient.
  Tensor sinks = {};
  Tensor positions = {};               // int32 [B]: where the first query stands among the keys; undefined: S - T
  std::optional<double> scale = {};  // 1 / sqrt(D) unless given
};

// attention() of scores f(scale * q k^T + bias): q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv], whose
// heads lie side by side in memory. float32 or float64. A pair takes part where the block mask and all of the call allow
// it; a bias of -infinity hides a pair whatever f makes of it. A query without any key gets zeros, also where there is a
// sink. The same bits at any number of threads. Errors: those of attention(); parameters that are not floating, or have no
// row for a head; another shape of mask, sinks or positions; what f or the mask throws.
Tensor flex_attention(In q, In k, In v, const FlexAttentionOptions& options = {}, const AttentionCall& call = {});

namespace detail {

// What only heed's own sources see of these.
struct ScoreModAccess {
  template <class T>
  static auto function(const ScoreMod& f) {
    if constexpr (sizeof(T) == 4)
      return f.f32_ != nullptr ? f.f32_() : ScoreFunction<T>{};
    else
      return f.f64_ != nullptr ? f.f64_() : ScoreFunction<T>{};
  }
  template <class T>
  static MaskFunction<T> function(const MaskMod& m) {
    if constexpr (sizeof(T) == 4)
      return m.f32_;
    else
      return m.f64_;
  }
  static auto& parameters(auto& f) { return f.parameters_; }
  static const void* context(const auto& f) { return f.function_.get(); }
  static bool by_head(const ScoreMod& f) { return f.by_head_; }
  static int count(const MaskMod& m, const ScoreTile& at) { return m.count_(m.function_.get(), at); }
  static const MaskMod& mask(const BlockMask& m);
  static const BlockKind* blocks(const BlockMask& m);
  // One whose loops are kernels.
  static ScoreMod of_kernels(std::shared_ptr<const void> function, ScoreFunction<float> (*f32)(), ScoreFunction<double> (*f64)(),
                             const Tensor& by_head);
};

}  // namespace detail
}  // namespace heed
