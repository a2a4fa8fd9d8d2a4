// What a function of scores computes with: a number that knows its derivatives, so that one function serves forward and
// backward. For autograd/flex_attention.hpp, which makes loops over tiles of it.
#pragma once
#include <array>
#include <cmath>
#include <concepts>
#include <heed/core/check.hpp>
#include <heed/core/score_tile.hpp>

namespace heed::detail {

template <class A>
concept Number = std::is_arithmetic_v<A>;

// A value, and its derivatives by N things. Numbers are constants. Comparisons are of values.
template <class T, int N>
struct ScoreValue {
  T value;
  std::array<T, N> by{};

  template <Number A>
  constexpr ScoreValue(A x) : value(static_cast<T>(x)) {}

  // A value whose derivatives are da times those of a; or with those of b beside.
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
  friend constexpr V operator*(const V& a, Number auto b) { return of(a.value * static_cast<T>(b), a, static_cast<T>(b)); }
  friend constexpr V operator*(Number auto a, const V& b) { return b * a; }
  friend constexpr V operator/(const V& a, Number auto b) { return of(a.value / static_cast<T>(b), a, 1 / static_cast<T>(b)); }
  friend constexpr V operator/(Number auto a, const V& b) {
    const T y = static_cast<T>(a) / b.value;
    return of(y, b, -y / b.value);
  }
  template <class B>
  constexpr V& operator+=(const B& b) { return *this = *this + b; }
  template <class B>
  constexpr V& operator-=(const B& b) { return *this = *this - b; }
  template <class B>
  constexpr V& operator*=(const B& b) { return *this = *this * b; }
  template <class B>
  constexpr V& operator/=(const B& b) { return *this = *this / b; }

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

// What a function of scores reads of its parameters for one score: at most so many entries whose gradient is wanted.
inline constexpr int kMostScoreReads = 4;
struct ScoreReads {
  int count = 0;
  double* to[kMostScoreReads];  // the sums of their gradients

  std::size_t place_of(double* sum) {
    int n = 0;
    while (n < count && to[n] != sum) ++n;
    require(n < kMostScoreReads, "flex_attention: a score depends on more than ", kMostScoreReads,
            " entries of parameters that are trained; it must be at most so many");
    if (n == count) to[count++] = sum;
    return static_cast<std::size_t>(n);
  }
};

// A parameter as the function sees it: table(h, c) is its entry of these places, as many as it has axes. Error for a place
// that it does not have. Where there are more than one, derivative n + 1 is by the n-th entry that was read.
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

  // Entries of one place of the first axes.
  std::int64_t at_rest(std::size_t axes) const {
    std::int64_t n = 1;
    for (std::size_t axis = axes; axis < 4; ++axis) n *= p_.sizes[axis];
    return n;
  }
  [[noreturn, gnu::noinline]] void refuse(const std::int64_t* places, std::size_t count) const {
    Shape given, sizes(p_.sizes, p_.sizes + 4);
    for (std::size_t axis = 0; axis < count; ++axis) given.push_back(places[axis]);
    fail("flex_attention: a function of scores reads entry ", given, " of a parameter of ", sizes,
         " (1 for axes that it does not have); it must be inside, with a place for each axis");
  }
};

}  // namespace heed::detail
