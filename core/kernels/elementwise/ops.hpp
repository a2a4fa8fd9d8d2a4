// Every elementwise op is one row here: its name, its formula on vectors V of the level, and its derivatives.
//
//   row<"log">([](auto x) { return log(x); },                          // y
//              [](auto x, Unread, auto dy) { return dy / x; }),        // dx from (x, y, dy)
//
// A derivative takes (x, y, dy) or (a, b, dy). Parameters that it does not read have the type Unread. An op keeps for
// backward exactly the values that its derivatives read. An op's constants, if any, are the last parameter, s. A
// formula for int32, which wraps around as in PyTorch, may follow the derivatives.
//
// Kernel sources include functions.hpp first and instantiate the rows at each level. All other sources use only the
// names of the rows.
#pragma once
#include <stdint.h>

#include "../../kernel_interface.hpp"
#include "elementwise.hpp"

#ifndef HEED_LEVEL
#define HEED_LEVEL names
#endif

namespace heed::kernels::HEED_LEVEL {

struct Unread {};
struct IsDy {  // the derivative is dy itself
  template <class V>
  V operator()(Unread, Unread, V dy) const {
    return dy;
  }
};

template <OpName op, class... Formula>
struct Row {
  static constexpr OpName name = op;
};
template <OpName op, class... Formula>
constexpr Row<op, Formula...> row(Formula...) {
  return {};
}

template <class... R>
struct Rows {
  static constexpr OpName names[sizeof...(R)] = {R::name...};

  static consteval int index(OpName name) {  // -1 if no row has the name
    for (int i = 0; i < int{sizeof...(R)}; ++i)
      if (names[i] == name) return i;
    return -1;
  }
};
template <class... R>
constexpr Rows<R...> rows(R...) {
  return {};
}

inline int32_t wrap(uint32_t x) { return static_cast<int32_t>(x); }

inline constexpr auto kUnaryOps = rows(
    row<"neg">([](auto x) { return neg(x); }, [](Unread, Unread, auto dy) { return neg(dy); },
               [](int32_t x) { return wrap(0u - uint32_t(x)); }),
    row<"abs">([](auto x) { return abs(x); }, [](auto x, Unread, auto dy) { return dy * sign_of(x); },
               [](int32_t x) { return x < 0 ? wrap(0u - uint32_t(x)) : x; }),
    row<"sign">([](auto x) { return sign_of(x); }, []<class V>(Unread, Unread, V) { return V(0); },
                [](int32_t x) { return (x > 0) - (x < 0); }),
    row<"square">([](auto x) { return x * x; }, [](auto x, Unread, auto dy) { return (x + x) * dy; },
                  [](int32_t x) { return wrap(uint32_t(x) * uint32_t(x)); }),
    row<"sqrt">([](auto x) { return sqrt(x); }, [](Unread, auto y, auto dy) { return dy / (y + y); }),
    row<"rsqrt">([](auto x) { return rsqrt(x); },
                 []<class V>(Unread, V y, V dy) { return V(-0.5) * dy * (y * y * y); }),
    row<"exp">([](auto x) { return exp(x); }, [](Unread, auto y, auto dy) { return dy * y; }),
    row<"expm1">([](auto x) { return expm1(x); }, []<class V>(Unread, V y, V dy) { return dy * (y + V(1)); }),
    row<"log">([](auto x) { return log(x); }, [](auto x, Unread, auto dy) { return dy / x; }),
    row<"log1p">([](auto x) { return log1p(x); }, []<class V>(V x, Unread, V dy) { return dy / (x + V(1)); }),
    row<"sin">([](auto x) { return sine(x); },
               [](auto x, Unread, auto dy) { return dy * cosine(x); }),
    row<"cos">([](auto x) { return cosine(x); },
               [](auto x, Unread, auto dy) { return neg(dy) * sine(x); }),
    row<"erf">([](auto x) { return erf(x); },  // erf' = 2 / sqrt(pi) e^(-x^2)
               []<class V>(V x, Unread, V dy) { return dy * V(1.1283791670955125739) * exp(-(x * x)); }),
    row<"pow">([](auto x, auto s) { return power(x, s.number_a, s.a); },  // x^a
               []<class V>(V x, Unread, V dy, auto s) {
                 return s.number_a == 0 ? V(0) : dy * (s.a * power(x, s.number_a - 1, s.a - V(1)));
               }),
    // min(max(x, a), b). The gradient passes where a <= x <= b. float64 holds every int32, and an infinite limit means
    // no limit.
    row<"clamp">([](auto x, auto s) { return min(max(x, s.a), s.b); },
                 []<class V>(V x, Unread, V dy, auto s) { return select((x >= s.a) & (x <= s.b), dy, V(0)); },
                 [](int32_t x, const ElementwiseOptions& s) {
                   const double above = x < s.a ? s.a : x;
                   return static_cast<int32_t>(above > s.b ? s.b : above);
                 }),

    // Activations.
    row<"sigmoid">([](auto x) { return sigmoid(x); }, []<class V>(Unread, V y, V dy) { return dy * (V(1) - y) * y; }),
    row<"tanh">([](auto x) { return tanh(x); }, []<class V>(Unread, V y, V dy) { return dy * fnma(y, y, V(1)); }),
    row<"relu">([]<class V>(V x) { return select(x <= V(0), V(0), x); },  // NaN stays
                []<class V>(Unread, V y, V dy) { return select(y <= V(0), V(0), dy); }),
    row<"relu_squared">([]<class V>(V x) { return select(x <= V(0), V(0), x * x); },  // NaN stays
                        []<class V>(V x, Unread, V dy) { return select(x <= V(0), V(0), (x + x) * dy); }),
    row<"leaky_relu">([]<class V>(V x, auto s) { return select(x > V(0), x, s.a * x); },  // a x below 0
                      []<class V>(V x, Unread, V dy, auto s) { return select(x > V(0), dy, s.a * dy); }),
    row<"elu">([]<class V>(V x, auto s) { return select(x > V(0), x, s.a * expm1(x)); },  // a (e^x - 1) below 0
               []<class V>(V x, Unread, V dy, auto s) { return select(x > V(0), dy, dy * (s.a * exp(x))); }),
    // x P(x) with P(x) = (1 + erf(x / sqrt 2)) / 2; the derivative is P(x) + x e^(-x^2 / 2) / sqrt(2 pi).
    row<"gelu">([](auto x) { return gelu_exact(x); },
                []<class V>(V x, Unread, V dy) {
                  V density;
                  const V cdf = normal_cdf(x, density);
                  return dy * fma(x, density, cdf);
                }),
    // x s(u) with s the sigmoid and u = 2 sqrt(2/pi) (x + 0.044715 x^3); the derivative is s + x s (1 - s) u'. Beyond
    // |x| = 30 the second term is 0: clamping x there avoids 0 * infinity.
    row<"gelu_tanh">([](auto x) { return gelu_tanh(x); },
                     []<class V>(V x, Unread, V dy) {
                       constexpr double c = 2 * 0.79788456080286535588, k = 0.044715;
                       const V z = quick_min(V(30), quick_max(V(-30), x)), z2 = z * z;
                       V rest;
                       const V s = sigmoid_and_rest(z * fma(z2, V(c * k), V(c)), rest);
                       return dy * fma(z * fma(z2, V(3 * c * k), V(c)), s * rest, s);
                     }),
    // x s(x); the derivative is s (1 + x (1 - s)).
    row<"silu">([]<class V>(V x) { return x / (V(1) + exp(-x)); },
                []<class V>(V x, Unread, V dy) {
                  V rest;
                  const V s = sigmoid_and_rest(x, rest);
                  return dy * s * fma(x, rest, V(1));
                }),
    row<"softsign">([]<class V>(V x) { return x / (V(1) + abs(x)); },
                    []<class V>(V x, Unread, V dy) { return dy / ((V(1) + abs(x)) * (V(1) + abs(x))); }),
    // log(1 + e^(a x)) / a = max(x, 0) + log(1 + e^(-|a x|)) / a for a > 0; the derivative is s(a x).
    row<"softplus">([]<class V>(V x, auto s) { return max(x, V(0)) + log1p(exp(-abs(s.a * x))) / s.a; },
                    [](auto x, Unread, auto dy, auto s) { return dy * sigmoid(s.a * x); }));

inline constexpr auto kBinaryOps = rows(
    row<"add">([](auto a, auto b) { return a + b; }, IsDy{}, IsDy{},
               [](int32_t a, int32_t b) { return wrap(uint32_t(a) + uint32_t(b)); }),
    row<"sub">([](auto a, auto b) { return a - b; }, IsDy{}, [](Unread, Unread, auto dy) { return neg(dy); },
               [](int32_t a, int32_t b) { return wrap(uint32_t(a) - uint32_t(b)); }),
    row<"mul">([](auto a, auto b) { return a * b; },  //
               [](Unread, auto b, auto dy) { return dy * b; }, [](auto a, Unread, auto dy) { return dy * a; },
               [](int32_t a, int32_t b) { return wrap(uint32_t(a) * uint32_t(b)); }),
    row<"div">([](auto a, auto b) { return a / b; }, [](Unread, auto b, auto dy) { return dy / b; },
               [](auto a, auto b, auto dy) { return neg(dy) * ((a / b) / b); }),
    // Where a = b, a and b get half of dy each.
    row<"maximum">([](auto a, auto b) { return max(a, b); },
                   []<class V>(V a, V b, V dy) { return select(a == b, V(0.5) * dy, select(a < b, V(0), dy)); },
                   []<class V>(V a, V b, V dy) { return select(a == b, V(0.5) * dy, select(a > b, V(0), dy)); },
                   [](int32_t a, int32_t b) { return a > b ? a : b; }),
    row<"minimum">([](auto a, auto b) { return min(a, b); },
                   []<class V>(V a, V b, V dy) { return select(a == b, V(0.5) * dy, select(a > b, V(0), dy)); },
                   []<class V>(V a, V b, V dy) { return select(a == b, V(0.5) * dy, select(a < b, V(0), dy)); },
                   [](int32_t a, int32_t b) { return a < b ? a : b; }),
    // a^b. da = b a^(b - 1), 0 for b = 0; db = a^b log(a), 0 for a = 0 and b >= 0.
    row<"pow">([](auto a, auto b) { return pow_lanes(a, b); },
               []<class V>(V a, V b, V dy) { return select(b == V(0), V(0), dy * (b * pow_lanes(a, b - V(1)))); },
               []<class V>(V a, V b, V dy) {
                 return select((a == V(0)) & (b >= V(0)), V(0), dy * (pow_lanes(a, b) * log(a)));
               }));

// The element types for which a row below has kernels.
struct OfAll {};
struct OfFloats {};
struct OfMasks {};

// bool8 from two numbers or masks. Plain loops, which the compiler vectorizes at each level.
inline constexpr auto kComparisons = rows(
    row<"eq">(OfAll{}, [](auto a, auto b) { return a == b; }),
    row<"ne">(OfAll{}, [](auto a, auto b) { return a != b; }),
    row<"lt">(OfAll{}, [](auto a, auto b) { return a < b; }),
    row<"le">(OfAll{}, [](auto a, auto b) { return a <= b; }),
    row<"gt">(OfAll{}, [](auto a, auto b) { return a > b; }),
    row<"ge">(OfAll{}, [](auto a, auto b) { return a >= b; }),
    row<"logical_and">(OfMasks{}, [](auto a, auto b) { return (a != 0) & (b != 0); }),
    row<"logical_or">(OfMasks{}, [](auto a, auto b) { return (a != 0) | (b != 0); }),
    row<"logical_xor">(OfMasks{}, [](auto a, auto b) { return (a != 0) != (b != 0); }));

// bool8 from one number or mask.
inline constexpr auto kTests = rows(
    row<"logical_not">(OfMasks{}, [](auto x) { return x == 0; }),
    row<"isnan">(OfFloats{}, [](auto x) { return x != x; }),
    row<"isfinite">(OfFloats{}, [](auto x) { return x - x == 0; }));

// One of two numbers, chosen by a mask, and its derivatives: dy for the chosen number, 0 for the other.
inline constexpr auto kChoices = rows(
    row<"where">(OfAll{}, [](bool mask, auto a, auto b) { return mask ? a : b; }),
    row<"where_a">(OfFloats{}, []<class T>(bool mask, T dy, T) { return mask ? dy : T(0); }),
    row<"where_b">(OfFloats{}, []<class T>(bool mask, T, T dy) { return mask ? T(0) : dy; }));

}  // namespace heed::kernels::HEED_LEVEL

namespace heed::kernels {

// The index of an op's row. A name without a row does not compile.
template <OpName op, class Rows>
consteval int index_in(Rows) {
  constexpr int i = Rows::index(op);
  static_assert(i >= 0, "no row of core/kernels/elementwise/ops.hpp has this name");
  return i;
}
template <OpName op>
inline constexpr int kUnaryIndex = index_in<op>(HEED_LEVEL::kUnaryOps);
template <OpName op>
inline constexpr int kBinaryIndex = index_in<op>(HEED_LEVEL::kBinaryOps);

// The kernels of an op at the level in use.
template <OpName op>
const UnaryKernel& unary() {
  return elementwise_table().unary[kUnaryIndex<op>];
}
template <OpName op>
const BinaryKernel& binary() {
  return elementwise_table().binary[kBinaryIndex<op>];
}
template <OpName op>
const MaskKernel& comparison() {
  return elementwise_table().comparison[index_in<op>(HEED_LEVEL::kComparisons)];
}
template <OpName op>
const MaskKernel& test() {
  return elementwise_table().test[index_in<op>(HEED_LEVEL::kTests)];
}
template <OpName op>
const MaskKernel& choice() {
  return elementwise_table().choice[index_in<op>(HEED_LEVEL::kChoices)];
}

}  // namespace heed::kernels
