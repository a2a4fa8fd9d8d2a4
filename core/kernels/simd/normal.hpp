// Cumulative distribution function and density of the standard normal distribution, used by GELU. Included by simd.hpp.
#pragma once

namespace heed::kernels::HEED_LEVEL {

// table[i mod 16] for each lane's i.
inline Batch<float> look_up(const float (&table)[16], Batch<int32_t> i) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(i, _mm512_load_ps(table));
#elif defined(__AVX2__)
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(table), i),
               high = _mm256_permutevar8x32_ps(_mm256_load_ps(table + 8), i);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));  // selects by bit 3
#else
  alignas(64) int32_t at[kWidth<float>];
  alignas(64) float found[kWidth<float>];
  i.store_aligned(at);
  for (int lane = 0; lane < kWidth<float>; ++lane) found[lane] = table[at[lane] & 15];
  return load_aligned(found);
#endif
}

// e^-y for 0 <= y < 60, at compile time.
constexpr double exp_of_minus(double y) {
  double e = 1;
  for (int k = 20; k > 0; --k) e = 1 - y / 64 / k * e;
  for (int k = 0; k < 6; ++k) e *= e;
  return e;
}

// A power series in x / reach, where `reach` is half the width of the interval.
struct Series {
  static constexpr int terms = 26;
  double c[terms] = {};

  // Removes the powers above `degree` by subtracting multiples of the Chebyshev polynomials that have these powers as
  // their highest.
  constexpr void shorten(int degree) {
    double chebyshev[terms][terms] = {{1}, {0, 1}};
    for (int n = 2; n < terms; ++n)
      for (int k = 0; k <= n; ++k) chebyshev[n][k] = (k > 0 ? 2 * chebyshev[n - 1][k - 1] : 0) - chebyshev[n - 2][k];
    for (int n = terms - 1; n > degree; --n) {
      const double share = c[n] / chebyshev[n][n];
      for (int k = 0; k <= n; ++k) c[k] -= share * chebyshev[n][k];
    }
  }
  constexpr double operator()(double x) const {
    double y = 0;
    for (int k = terms - 1; k >= 0; --k) y = y * x + c[k];
    return y;
  }
};

// The distribution function below 0, in pieces of width kPiece. Entry c[k][-p mod 16] is the coefficient of r^k in
// piece p. The variable r = x + p kPiece is the distance of x from the middle of the piece. Piece 15 is not tabulated:
// its coefficients are 0.
inline constexpr float kPiece = 0.390625f;
template <int degree>
struct NormalPieces {
  alignas(64) float c[degree + 1][16] = {};

  constexpr NormalPieces() {
    constexpr double reach = double{kPiece} / 2;
    double function = 2.323062274434527e-9;  // at -15 kPiece
    for (int p = 15; p >= 0; --p) {
      // The k-th derivative of the density d(x) is (-1)^k He_k(x) d(x).
      const double x = -p * double{kPiece};
      Series series = {{function}};
      double factor = 0.39894228040143267794 * exp_of_minus(x * x / 2), he = 1, he_before = 0;
      for (int k = 1; k < Series::terms; ++k) {
        factor *= reach / k;
        series.c[k] = factor * he;
        const double next = x * he - (k - 1) * he_before;
        he_before = he, he = next, factor = -factor;
      }
      function = series(2);  // at the next middle
      if (p == 15) continue;
      series.shorten(degree);
      double unit = 1;
      for (int k = 0; k <= degree; ++k, unit *= reach) c[k][-p & 15] = static_cast<float>(series.c[k] / unit);
    }
  }
};
template <int degree>
inline constexpr NormalPieces<degree> kNormalPieces;

// Returns the distribution function at x and sets `density`, its derivative.
template <int degree>
inline Batch<float> normal_cdf_pieces(Batch<float> x, Batch<float>& density) {
  const auto& c = kNormalPieces<degree>.c;
  const Batch<float> magic(ExpConstants<float>::magic);
  const Batch<float> below = quick_max(Batch<float>(-15 * kPiece), neg(xsimd::abs(x)));  // keeps NaN
  const Batch<float> t = fma(below, Batch<float>(1 / kPiece), magic), r = fnma(t - magic, Batch<float>(kPiece), below);
  const Batch<int32_t> piece = bits_as<int32_t>(t);
  density = look_up(c[degree], piece);
  Batch<float> lower = fma(density, r, look_up(c[degree - 1], piece));
  unroll<degree - 1>([&](auto k) {
    density = fma(density, r, lower);
    lower = fma(lower, r, look_up(c[degree - 2 - k], piece));
  });
  if (const Mask<float> far = below < Batch<float>(-14.5f * kPiece); any(far)) {
    // density(x) (1 / |x| - 1 / |x|^3), an asymptotic series. The next term is at most 0.3% of the result, which is at
    // most 8e-9 here.
    const Batch<float> d = Batch<float>(0.39894228040143267794f) * exp(Batch<float>(-0.5f) * (x * x)),
                       one_over = Batch<float>(1.f) / xsimd::abs(x);
    density = select(far, d, density);
    lower = select(far, d * fnma(one_over * one_over, one_over, one_over), lower);
  }
  return select(x > Batch<float>(0.f), Batch<float>(1.f) - lower, lower);
}
inline Batch<float> normal_cdf(Batch<float> x, Batch<float>& density) { return normal_cdf_pieces<6>(x, density); }
inline Batch<double> normal_cdf(Batch<double> x, Batch<double>& density) {
  density = Batch<double>(0.39894228040143267794) * exp(Batch<double>(-0.5) * (x * x));
  return fma(Batch<double>(0.5), erf(x * Batch<double>(0.70710678118654752440)), Batch<double>(0.5));
}

// A vector whose results will be rounded to bf16. Formulas with an overload for this type use shorter polynomials, with
// errors below a sixteenth of that rounding.
struct Bf16Bound : Batch<float> {
  using Batch<float>::Batch;
  Bf16Bound() = default;
  Bf16Bound(const Batch<float>& x) : Batch<float>(x) {}
};
inline Bf16Bound normal_cdf(Bf16Bound x, Bf16Bound& density) { return normal_cdf_pieces<4>(x, density); }

// The exact form of GELU: x * (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel, 2016).
template <class V>
inline V gelu_exact(V x) {
  V density;
  return x * normal_cdf(x, density);
}
inline Batch<double> gelu_exact(Batch<double> x) {
  const Batch<double> half = Batch<double>(0.5) * x;
  return fma(half, erf(x * Batch<double>(0.70710678118654752440)), half);
}

}  // namespace heed::kernels::HEED_LEVEL
