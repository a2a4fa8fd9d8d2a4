// What kernels and the templates of public headers both know: the names of elementwise ops, and how a kernel of softmax
// attention calls a function of scores. C headers only: kernels include this.
//
// Example:
//
//   constexpr OpName name = "sin";  // as in detail::unary<"sin">(x)
//   static_assert(name == OpName("sin"));
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace heed {

struct OpName {
  char text[16] = {};

  template <size_t N>
  consteval OpName(const char (&name)[N]) {
    static_assert(N <= sizeof(text), "the name of an op has at most 15 letters");
    for (size_t i = 0; i < N; ++i) text[i] = name[i];
  }
  constexpr bool operator==(const OpName&) const = default;
};

// ---- Functions of scores ----

// How a kernel of softmax attention calls a function of scores: tile by tile, through a pointer, so that a program's
// own function is a loop in the program, and kernels know no more of it than this. autograd/flex_attention.hpp makes
// such loops of functions of one score. C headers only: kernels include this.

// Scores of queries [query, query + queries) and keys [key, key + keys) of head (batch, head): s[j * lanes + i] is that
// of query + i and key + j; lanes from `queries` on are of no query. Queries are counted as keys are: the last is keys
// - 1.
struct ScoreTile {
  int32_t batch, head, query, queries, key, keys, lanes;
};

inline constexpr int kMostScoreParameters = 4;
inline constexpr double kScoreUnit = 1.4426950408889634074;  // log2(e): weights are powers of two

// A tensor that a function of scores reads.
template <class T>
struct ScoreParameter {
  const T* data;
  int64_t sizes[4];  // of its axes, 1 beyond its rank
  int64_t numel;
  double* sums;  // [numel], its gradient so far; null: not wanted
};

template <class T>
struct ScoreContext {
  const void* function;
  ScoreParameter<T> parameters[kMostScoreParameters];
};

template <class T>
struct ScoreFunction {
  // s = kScoreUnit * f(s), and slope = f'(s) where it is not null.
  void (*apply)(const ScoreContext<T>& x, const ScoreTile& at, T* s, T* slope);
  // Of df, the derivative by f(s), to the sums of the parameters: sums += df * (derivative of f by the parameter).
  // Where df is 0, s may be anything.
  void (*sum)(const ScoreContext<T>& x, const ScoreTile& at, const T* s, const T* df);
  bool sloped;  // f' may be other than 1
};

// s = -inf where the function says that a query may not see a key.
template <class T>
using MaskFunction = void (*)(const void* function, const ScoreTile& at, T* s);

// Which part of a block of pairs may be seen.
enum class BlockKind : uint8_t { none, part, all };
inline constexpr int kBlockQueries = 32, kBlockKeys = 64;  // of a block: whole tiles of every kernel

}  // namespace heed
