// Softmax attention with a custom function of the scores and a custom mask, as PyTorch's flex_attention (Dong et al.,
// "Flex attention: a programming model for generating optimized attention kernels", 2024). Examples are ALiBi, soft
// caps, relative biases, sliding windows, and several documents in one sequence. Computed in blocks, as attention(),
// without a matrix of queries by keys. Blocks that the mask excludes are skipped. Above 400 lines: numbers with
// derivatives, loops over tiles that call a function with them, and ready-made functions are one subject.
//
// A score is a number of any type, hence `auto s`: backward calls the same function with a number that carries
// derivatives. Such numbers have exp, log, sqrt, tanh, sin, cos, abs, pow, max and min, called without std::. See
// docs/score_functions.md.
//
// Example:
//
//   Rng rng(1);
//   const Tensor q = rng.normal({1, 2, 300, 16}), k = rng.normal({1, 2, 300, 16}), v = rng.normal({1, 2, 300, 16});
//   const std::vector<float> slopes = {0.5f, 0.25f};
//   const auto mine = [slopes](auto s, int, int h, int query, int key) {
//     return s - slopes[static_cast<std::size_t>(h)] * static_cast<float>(query - key);
//   };
//   const auto near = [](int, int, int query, int key) { return query - key < 256; };
//   const BlockMask window = create_block_mask(near, 1, 1, 300, 300);
//   const Tensor y = flex_attention(q, k, v, {.score_mod = mine, .block_mask = window}, {.causal = true});
//   const Tensor faster = flex_attention(q, k, v, {.score_mod = alibi(Tensor::from(slopes))}, {.causal = true});
#pragma once
#include <array>
#include <cmath>
#include <concepts>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/record.hpp>
#include <heed/core/check.hpp>
#include <heed/core/kernel_interface.hpp>
#include <memory>
#include <optional>
#include <vector>

namespace heed::detail {

// ---- Numbers with derivatives ----

// The numbers that a function of scores computes with. They carry derivatives, so that one function serves forward and
// backward.

template <class A>
concept Number = std::is_arithmetic_v<A>;

// A value and its derivatives with respect to N variables. Plain numbers are constants. Comparisons compare the values.
template <class T, int N>
struct ScoreValue {
  T value;
  std::array<T, N> by{};

  template <Number A>
  constexpr ScoreValue(A x) : value(static_cast<T>(x)) {}

  // A value whose derivatives are da times those of a, or the sum of da times those of a and db times those of b.
  static constexpr ScoreValue of(T value, const ScoreValue& a, T da) {
    ScoreValue y(value);
    for (std::size_t n = 0; n < N; ++n) y.by[n] = da * a.by[n];
    return y;
  }
  static constexpr ScoreValue of(T value, const ScoreValue& a, T da, const ScoreValue& b, T db) {
    ScoreValue y(value);
    for (std::size_t n = 0; n < N; ++n) y.by[n] = da * a.by[n] + db * b.by[n];
    return y;
  }

  using V = ScoreValue;
  friend constexpr V operator-(const V& a) { return of(-a.value, a, -1); }
  friend constexpr V operator+(const V& a, const V& b) { return of(a.value + b.value, a, 1, b, 1); }
  friend constexpr V operator-(const V& a, const V& b) { return of(a.value - b.value, a, 1, b, -1); }
  friend constexpr V operator*(const V& a, const V& b) { return of(a.value * b.value, a, b.value, b, a.value); }
  friend constexpr V operator/(const V& a, const V& b) {
    return of(a.value / b.value, a, 1 / b.value, b, -a.value / (b.value * b.value));
  }
  friend constexpr V operator+(const V& a, Number auto b) { return of(a.value + static_cast<T>(b), a, 1); }
  friend constexpr V operator+(Number auto a, const V& b) { return of(static_cast<T>(a) + b.value, b, 1); }
  friend constexpr V operator-(const V& a, Number auto b) { return of(a.value - static_cast<T>(b), a, 1); }
  friend constexpr V operator-(Number auto a, const V& b) { return of(static_cast<T>(a) - b.value, b, -1); }
  friend constexpr V operator*(const V& a, Number auto b) {
    return of(a.value * static_cast<T>(b), a, static_cast<T>(b));
  }
  friend constexpr V operator*(Number auto a, const V& b) { return b * a; }
  friend constexpr V operator/(const V& a, Number auto b) {
    return of(a.value / static_cast<T>(b), a, 1 / static_cast<T>(b));
  }
  friend constexpr V operator/(Number auto a, const V& b) {
    const T y = static_cast<T>(a) / b.value;
    return of(y, b, -y / b.value);
  }
  friend constexpr V& operator+=(V& a, const auto& b) { return a = a + b; }
  friend constexpr V& operator-=(V& a, const auto& b) { return a = a - b; }
  friend constexpr V& operator*=(V& a, const auto& b) { return a = a * b; }
  friend constexpr V& operator/=(V& a, const auto& b) { return a = a / b; }

  friend constexpr bool operator<(const V& a, const V& b) { return a.value < b.value; }
  friend constexpr bool operator>(const V& a, const V& b) { return a.value > b.value; }
  friend constexpr bool operator<=(const V& a, const V& b) { return a.value <= b.value; }
  friend constexpr bool operator>=(const V& a, const V& b) { return a.value >= b.value; }

  friend V exp(const V& a) {
    const T y = std::exp(a.value);
    return of(y, a, y);
  }
  friend V log(const V& a) { return of(std::log(a.value), a, 1 / a.value); }
  friend V sqrt(const V& a) {
    const T y = std::sqrt(a.value);
    return of(y, a, T(0.5) / y);
  }
  friend V tanh(const V& a) {
    const T y = std::tanh(a.value);
    return of(y, a, 1 - y * y);
  }
  friend V sin(const V& a) { return of(std::sin(a.value), a, std::cos(a.value)); }
  friend V cos(const V& a) { return of(std::cos(a.value), a, -std::sin(a.value)); }
  friend V pow(const V& a, Number auto b) {
    const T e = static_cast<T>(b);
    return of(std::pow(a.value, e), a, e * std::pow(a.value, e - 1));
  }
  friend V abs(const V& a) { return a.value < 0 ? -a : a; }
  friend V max(const V& a, const V& b) { return a.value < b.value ? b : a; }
  friend V min(const V& a, const V& b) { return b.value < a.value ? b : a; }
};

// The entries of parameters that a function of scores reads for one score, if their gradients are needed.
inline constexpr int kMaxScoreReads = 4;
struct ScoreReads {
  int count = 0;
  double* to[kMaxScoreReads];  // the sums of their gradients

  std::size_t place_of(double* sum) {
    int n = 0;
    while (n < count && to[n] != sum) ++n;
    require(n < kMaxScoreReads, "flex_attention: a score depends on more than ", kMaxScoreReads,
            " entries of trained parameters; it must be at most that many");
    if (n == count) to[count++] = sum;
    return static_cast<std::size_t>(n);
  }
};

// A parameter as the function sees it: table(h, c) is the entry at these positions, one per axis. Throws Error for a
// position outside of the parameter. If N > 1, derivative n + 1 is with respect to entry n of the entries read, counted
// from 0.
template <class T, int N>
class ScoreTable {
 public:
  ScoreTable(const ScoreParameter<T>& parameter, ScoreReads& reads) : p_(parameter), reads_(reads) {}

  template <std::integral... I>
  ScoreValue<T, N> operator()(I... place) const {
    static_assert(sizeof...(I) <= 4, "a parameter of a function of scores has at most 4 axes");
    const std::int64_t places[] = {place..., 0};
    std::int64_t at = 0;
    bool inside = true;
    for (std::size_t axis = 0; axis < sizeof...(I); ++axis) {
      inside = inside && places[axis] >= 0 && places[axis] < p_.sizes[axis];
      at = at * p_.sizes[axis] + places[axis];
    }
    if (!inside || at >= p_.numel || (sizeof...(I) < 4 && at_rest(sizeof...(I)) != 1)) refuse(places, sizeof...(I));
    ScoreValue<T, N> y(p_.data[at]);
    if constexpr (N > 1) {
      if (p_.sums != nullptr) {
        y.by[1 + reads_.place_of(p_.sums + at)] = 1;
      }
    }
    return y;
  }

 private:
  const ScoreParameter<T>& p_;
  ScoreReads& reads_;

  // Entries per position of the first `axes` axes.
  std::int64_t at_rest(std::size_t axes) const {
    std::int64_t n = 1;
    for (std::size_t axis = axes; axis < 4; ++axis) n *= p_.sizes[axis];
    return n;
  }
  [[noreturn, gnu::noinline]] void refuse(const std::int64_t* places, std::size_t count) const {
    Shape given, sizes(p_.sizes, p_.sizes + 4);
    for (std::size_t axis = 0; axis < count; ++axis) given.push_back(places[axis]);
    fail("flex_attention: a function of scores reads entry ", given, " of a parameter of ", sizes,
         " (1 for missing axes); the entry must exist, with one index per axis");
  }
};

}  // namespace heed::detail

namespace heed {

namespace detail {

struct ScoreModAccess;

// A function of any type, as loops over tiles. Eight scores are computed before any is stored. The stores then cannot
// change values that the function reads, so the compiler can compute the eight in vectors.
inline constexpr int kScoresAtOnce = 8;

template <class F>
void each_score(const ScoreTile& at, const F& f) {  // f(j, first, count): key j, lanes [first, first + count)
  for (int j = 0; j < at.keys; ++j) {
    int i = 0;
    for (; i + kScoresAtOnce <= at.queries; i += kScoresAtOnce) f(j, i, std::integral_constant<int, kScoresAtOnce>());
    for (; i < at.queries; ++i) f(j, i, std::integral_constant<int, 1>());
  }
}

template <class F, int kParameters>
struct ScoreLoops {
  // f of the score of key j and lane i, with N derivatives: by the score, and by the entries read from parameters.
  template <int N, class T>
  static ScoreValue<T, N> value(const ScoreContext<T>& x, const ScoreTile& at, T s, int j, int i, ScoreReads& reads) {
    ScoreValue<T, N> score(s);
    if constexpr (N > 0) score.by[0] = 1;
    return [&]<std::size_t... P>(std::index_sequence<P...>)->ScoreValue<T, N> {
      return (*static_cast<const F*>(x.function))(score, int{at.batch}, int{at.head}, at.query + i, at.key + j,
                                                  ScoreTable<T, N>(x.parameters[P], reads)...);
    }
    (std::make_index_sequence<kParameters>());
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
        const auto v = value<1 + kMaxScoreReads>(x, at, s[j * at.lanes + i], j, i, reads);
        for (int n = 0; n < reads.count; ++n)
          *reads.to[n] += static_cast<double>(d * v.by[static_cast<std::size_t>(n + 1)]);
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
      for (int i = 0; i < count; ++i) y[i] = allowed(f, at, j, first + i) ? to[i] : -static_cast<T>(detail::kInfinity);
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

// A function of scores: f(s, batch, head, query, key, parameters...) returns the score that the softmax takes, for s =
// scale * q . k + bias. Query and key are positions among the keys: the last of T queries is at position S - 1, as in
// causal attention. So the same function serves a whole sequence and a token that follows a cache.
//
// Parameters are up to 4 tensors of up to 4 axes. The function gets an argument `auto table` for each, and table(i, j)
// is an entry. Gradients flow to the parameters that need them. The function may be called for masked pairs; its result
// is then ignored. It is called from several threads at once and must not store anything.
class ScoreMod {
 public:
  ScoreMod() = default;  // returns the score itself

  // A function f(s, batch, head, query, key, tables...) and a tensor per table. Throws Error for a parameter that is
  // not floating, has more than 4 axes or is empty.
  template <class F, class... P>
  requires(!std::is_same_v<F, ScoreMod> && (std::is_convertible_v<const P&, const Tensor&> && ...))
      ScoreMod(F f, const P&... parameters)
      : function_(std::make_shared<const F>(std::move(f))),
        f32_(detail::ScoreLoops<F, sizeof...(P)>::template function<float>),
        f64_(detail::ScoreLoops<F, sizeof...(P)>::template function<double>) {
    static_assert(sizeof...(P) <= kMaxScoreParameters, "a function of scores has at most 4 parameters");
    static_assert(std::is_invocable_v<const F&, detail::ScoreValue<float, 0>, int, int, int, int,
                                      std::conditional_t<true, detail::ScoreTable<float, 0>, P>...>,
                  "a function of scores takes (auto s, int batch, int head, int query, int key), and `auto table` for "
                  "each parameter");
    (add_parameter(parameters), ...);
  }

  bool defined() const { return f32_ != nullptr; }  // false: the score itself
  // Handles, in the order of the tables.
  std::vector<Tensor> parameters() const { return {parameters_.begin(), parameters_.begin() + count_}; }
  // The same function with other parameters: as many tensors, or Parameters. Throws Error for another number.
  template <class List>
  ScoreMod with(const List& parameters) const {
    ScoreMod f = *this;
    f.count_ = 0;
    for (const Tensor& x : parameters) f.add_parameter(x);
    require(f.count_ == count_, "ScoreMod: ", f.count_, " parameters were given to a function with ", count_,
            "; the numbers must be the same");
    return f;
  }

 private:
  friend detail::ScoreModAccess;
  std::shared_ptr<const void> function_;
  ScoreFunction<float> (*f32_)() = nullptr;
  ScoreFunction<double> (*f64_)() = nullptr;
  std::array<Tensor, kMaxScoreParameters> parameters_;
  int count_ = 0;
  bool by_head_ = false;  // the first parameter has a row for each head, or one row for all
  bool by_row_ = false;   // each sequence and head has its own entries in the parameters

  void add_parameter(const Tensor& x);
};

// A mask: f(batch, head, query, key) returns whether the query may attend to the key. Positions as for ScoreMod.
class MaskMod {
 public:
  MaskMod() = default;
  // From a function object. Copies of the MaskMod share it.
  template <class F>
  requires std::is_invocable_r_v<bool, const F&, int, int, int, int> MaskMod(F f)
      : function_(std::make_shared<const F>(std::move(f))),
        f32_(detail::MaskLoops<F>::template apply<float>),
        f64_(detail::MaskLoops<F>::template apply<double>),
        count_(detail::MaskLoops<F>::count) {}
  bool defined() const { return count_ != nullptr; }  // false: no function was given

 private:
  friend detail::ScoreModAccess;
  std::shared_ptr<const void> function_;
  MaskFunction<float> f32_ = nullptr;
  MaskFunction<double> f64_ = nullptr;
  int (*count_)(const void* function, const ScoreTile& at) = nullptr;
};

// The pairs that both masks allow, and the pairs that at least one mask allows.
template <class A, class B>
auto and_masks(A a, B b) {
  return [a, b](int batch, int h, int q, int k) { return bool(a(batch, h, q, k) & b(batch, h, q, k)); };
}
template <class A, class B>
auto or_masks(A a, B b) {
  return [a, b](int batch, int h, int q, int k) { return bool(a(batch, h, q, k) | b(batch, h, q, k)); };
}

// A mask, and its result per block of 32 queries by 64 keys: all pairs, no pair, or a part. For a part, attention
// evaluates the mask again. Make a BlockMask once and use it in every layer and step. Data that the mask refers to must
// not change as long as the BlockMask is used. A handle: copies share the state.
class BlockMask {
 public:
  BlockMask() = default;  // allows all pairs
  bool defined() const { return state_ != nullptr; }  // false: all pairs are allowed
  const Shape& shape() const;  // [B or 1, H or 1, T, S]
  double sparsity() const;     // share of blocks that are skipped

 private:
  friend detail::ScoreModAccess;
  struct State;
  std::shared_ptr<const State> state_;

  friend BlockMask create_block_mask(const MaskMod&, Index, Index, Index, Index, const Tensor&);
};

// Evaluates the mask for every pair. A mask that does not depend on batch or head may be made with a batch or heads of
// 1, which serves any number; it is then called with 0. Positions as in FlexAttentionOptions. Throws Error for sizes
// below 0, and for a batch or heads below 1.
BlockMask create_block_mask(const MaskMod& mask_mod, Index batch, Index heads, Index queries, Index keys,
                            const Tensor& positions = {});

// Options of flex_attention().
struct FlexAttentionOptions {
  ScoreMod score_mod = {};    // default: the score itself
  BlockMask block_mask = {};  // for the numbers of queries and keys of the call
  // [H]: an additional logit per head, which counts in the sum of the softmax and has no value (attention sinks of
  // gpt-oss; 0 is "softmax one"). It allows a head to attend to nothing. It has a gradient.
  Tensor sinks = {};
  Tensor positions = {};             // int32 [B]: position of the first query among the keys; undefined: S - T
  std::optional<double> scale = {};  // 1 / sqrt(D) by default
};

// attention() with scores f(scale * q k^T + bias): q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv].
// The heads of a position are adjacent in memory. Dtypes as for attention(); for bfloat16, scores, parameters and sinks
// are float32. A query attends to a key if the block mask and all of the call allow the pair; a bias of -infinity
// excludes a pair whatever f returns. A query without any allowed key gets zeros, even with a sink. The same bits at
// any number of threads.
// Throws Error as attention(), for parameters that are not floating or have no row for a head, and for other shapes of
// mask, sinks or positions. Passes on exceptions of f and of the mask.
Tensor flex_attention(In q, In k, In v, const FlexAttentionOptions& options = {}, const AttentionCall& call = {});

namespace detail {

// Access to private members, for heed's own sources only.
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
  static bool by_row(const ScoreMod& f) { return f.by_row_; }
  static int count(const MaskMod& m, const ScoreTile& at) { return m.count_(m.function_.get(), at); }
  static const MaskMod& mask(const BlockMask& m);
  static const BlockKind* blocks(const BlockMask& m);
  // A function whose loops are kernels. The parameter has a row per head or one row for all or, if `by_row`, is
  // [B, H, S] or undefined.
  static ScoreMod of_kernels(std::shared_ptr<const void> function, ScoreFunction<float> (*f32)(),
                             ScoreFunction<double> (*f64)(), const Tensor& parameter, bool by_row = false);
};

}  // namespace detail

// ---- Ready-made functions ----

// Functions of scores and masks for flex_attention(). The functions of scores are kernels, and so faster than the same
// functions written as lambdas.
//
//   const Tensor y = flex_attention(q, k, v, {.score_mod = alibi(heads)}, {.causal = true});
//   const BlockMask near = create_block_mask(sliding_window(256, 4), 1, 1, T, S);

// s - slope_h |q - k|, with slopes [H] (Press, Smith, Lewis, "Train short, test long: attention with linear biases
// enables input length extrapolation", 2022). alibi(heads) uses the paper's slopes.
ScoreMod alibi(const Tensor& slopes);
ScoreMod alibi(Index heads);
// The paper's slopes, float32 [H]: 2^(-8/H), 2^(-16/H), ... If H is not a power of 2, these are the slopes of the next
// lower power, followed by every other slope of the next higher power, as in the paper's code.
Tensor alibi_slopes(Index heads);

// c tanh(s / c), which keeps scores within (-c, c) (Gemma 2, 2024: c = 50). A tensor c is [], [1] or [H], and can be
// trained.
ScoreMod soft_cap(double c);
ScoreMod soft_cap(const Tensor& c);

// s + table[h, clip + min(max(k - q, -clip), clip)]: a number per head and clipped distance, as
// relative_position_bias(), but without its matrices. The table is [H, 2 clip + 1], or [1, 2 clip + 1] for all heads.
ScoreMod relative_bias(const Tensor& table);

// s + table[h, bucket(k - q)]: T5's biases (Raffel et al. 2020), whose buckets widen with the distance up to
// max_distance. The table is [H, buckets], or [1, buckets] for all heads. bidirectional: half of the buckets are for
// keys after the query; otherwise all keys after the query are in bucket 0, as in T5's decoder. PyTorch's transformers
// store the table as [buckets, H].
struct T5BiasOptions {
  bool bidirectional = true;  // false: for causal attention, as in T5's decoder
  Index max_distance = 128;   // longer distances are in the bucket of this distance
};
ScoreMod t5_bias(const Tensor& table, const T5BiasOptions& options = {});
Index t5_bucket(Index distance, Index buckets, const T5BiasOptions& options = {});  // bucket of the distance k - q

// ---- Masks: for create_block_mask(), and_masks() and or_masks() ----

// Keys less than `window` positions from the query, before or after it, and the first `sinks` keys for all queries
// (Xiao et al., "Efficient streaming language models with attention sinks", 2024). With causal attention: the last
// `window` keys.
inline auto sliding_window(Index window, Index sinks = 0) {
  return [w = static_cast<int>(window), n = static_cast<int>(sinks)](int, int, int q, int k) {
    return bool(((q - k < w) & (k - q < w)) | (k < n));
  };
}
// All queries see the first `length` keys, and of the other keys those up to their own position. The call is not
// causal.
inline auto prefix_causal(Index length) {
  return [n = static_cast<int>(length)](int, int, int q, int k) { return bool((k < n) | (k <= q)); };
}

}  // namespace heed
