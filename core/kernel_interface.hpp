// Declarations that kernels share with public headers: names of elementwise ops, positions of queries among keys,
// feature maps of linear attention, and the interface by which softmax attention calls functions of scores. Includes C
// headers only, because kernels include this file.
//
// Example:
//
//   constexpr OpName name = "sin";  // as in detail::unary<"sin">(x)
//   static_assert(name == OpName("sin"));
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace heed {

// The name of an elementwise op, as a template argument.
struct OpName {
  char text[16] = {};  // padded with zeros

  // From a string literal of at most 15 characters. A longer literal does not compile.
  template <size_t N>
  consteval OpName(const char (&name)[N]) {
    static_assert(N <= sizeof(text), "the name of an op has at most 15 letters");
    for (size_t i = 0; i < N; ++i) text[i] = name[i];
  }
  constexpr bool operator==(const OpName&) const = default;
};

// The feature map of queries and keys in linear attention, applied to each element; poly2 is applied to each row.
//  - identity: for features that were computed before.
//  - elu: elu(x) + 1, computed as exp(min(x, 0)) + max(x, 0), which does not cancel.
//  - exp: computed through logarithms, so that no x is too large. It also serves features that are known by their
//    logarithms (core/kernels/linear_attention/log_attention.hpp).
//  - poly2: all products of two elements, each pair once: D (D + 1) / 2 features with f(q) . f(k) = (q . k)^2. They are
//    float64 for float32 too, because they cancel where q and k are nearly orthogonal. For short sequences, by a rule
//    on the shapes, the scores themselves are squared.
enum class FeatureMap { identity, elu, relu, softplus, exp, poly2 };

// ---- Positions of queries ----

// Queries are aligned with the end of the keys: the last query has the position of the last key. So query i of
// `queries` has this position among the keys; below 0: before the first key. Always inlined, so that kernels leave no
// symbol.
[[gnu::always_inline]] constexpr int64_t query_position(int64_t i, int64_t queries, int64_t keys) {
  return i + keys - queries;
}

// The end of the keys that the query at `position` sees by the causal rule: keys up to its own position, 0 to `keys`.
[[gnu::always_inline]] constexpr int64_t causal_end(int64_t position, int64_t keys) {
  return position < 0 ? 0 : position < keys ? position + 1 : keys;
}

// The two sides of a causal problem. Queries before `keyless` see no key. The others all see the keys before `prefix`;
// with the keys from there on they form a triangle.
struct CausalSides {
  int64_t prefix = 0, keyless = 0;  // one of them is 0
};
[[gnu::always_inline]] constexpr CausalSides causal_sides(int64_t queries, int64_t keys) {
  const int64_t first = query_position(0, queries, keys);
  return first < 0 ? CausalSides{0, -first} : CausalSides{first, 0};
}

// ---- Functions of scores ----

// A kernel of softmax attention calls a function of scores through a pointer, once per tile. The loop over the scores
// of a tile is compiled with the program that defines the function. autograd/flex_attention.hpp generates such loops
// from functions of one score.

// The scores of queries [query, query + queries) and keys [key, key + keys) of head (batch, head). s[j * lanes + i] is
// the score of query + i and key + j. Lanes from `queries` on belong to no query. `query` is a position among the
// keys.
struct ScoreTile {
  int32_t batch, head, query, queries, key, keys, lanes;  // lanes: numbers per key in s
};

inline constexpr int kMaxScoreParameters = 4;                // of one function
inline constexpr double kScoreUnit = 1.4426950408889634074;  // log2(e): kernels compute weights as powers of two

// A tensor that a function of scores reads.
template <class T>
struct ScoreParameter {
  const T* data;     // row-major
  int64_t sizes[4];  // of the axes; 1 beyond the rank
  int64_t numel;     // product of the sizes
  double* sums;  // [numel], the gradient so far; null if no gradient is needed
};

// The function object of the program and its parameters, passed to each call.
template <class T>
struct ScoreContext {
  const void* function;                               // the function object; the loops know its type
  ScoreParameter<T> parameters[kMaxScoreParameters];  // those beyond the function's number of parameters are unused
};

// A function f of scores, as a pair of loops over a tile.
template <class T>
struct ScoreFunction {
  // s = kScoreUnit * f(s). Also slope = f'(s), unless slope is null.
  void (*apply)(const ScoreContext<T>& x, const ScoreTile& at, T* s, T* slope);
  // Adds to the gradients of the parameters: sums += df * (derivative of f with respect to the parameter), where df is
  // the gradient of f(s). Where df is 0, s may hold any value.
  void (*sum)(const ScoreContext<T>& x, const ScoreTile& at, const T* s, const T* df);
  bool sloped;  // false: f' is 1 everywhere
};

// Sets s to -inf for every pair of query and key that the mask excludes.
template <class T>
using MaskFunction = void (*)(const void* function, const ScoreTile& at, T* s);

// How many of the pairs of query and key in a block may be attended to.
enum class BlockKind : uint8_t { none, part, all };
inline constexpr int kBlockQueries = 32, kBlockKeys = 64;  // size of a block: whole tiles of every kernel

}  // namespace heed
