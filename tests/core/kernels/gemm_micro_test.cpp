#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/core/levels.hpp"
#include "tests/kernels/block_products.hpp"

using namespace heed;
using heed::test::on_each_level;

namespace {

template <class T>
const kernels::BlockProduct<T>& block_product() {
  if constexpr (sizeof(T) == 4)
    return kernels::block_products().f32;
  else
    return kernels::block_products().f64;
}

double pseudo(unsigned& state) {
  state = state * 1664525u + 1013904223u;
  return static_cast<double>(state >> 8) / (1 << 23) - 1;
}

// The worst |c - want| over (k + 2) eps sum |a||b|, and no element beside the block touched.
template <class T>
double worst(char kind, bool add, long m, long n, long k) {
  const bool a_turned = kind == 'a', b_turned = kind == 'b';
  const long lda = (a_turned ? m : k) + 3, ldb = (b_turned ? k : n) + 1, ldc = n + 5;
  // Exactly as long as the blocks reach, so that a sanitizer sees a read beyond.
  const auto length = [](long rows, long columns, long ld) { return rows > 0 ? (rows - 1) * ld + columns : 0; };
  std::vector<T> a(a_turned ? length(k, m, lda) : length(m, k, lda)), c(m * ldc, T(0.5));
  std::vector<T> b(b_turned ? length(n, k, ldb) : length(k, n, ldb));
  unsigned seed = 7;
  for (T& x : a) x = static_cast<T>(pseudo(seed));
  for (T& x : b) x = static_cast<T>(pseudo(seed));
  const auto f = a_turned ? block_product<T>().atb : b_turned ? block_product<T>().abt : block_product<T>().ab;
  const T alpha = T(0.75);
  f(add, m, n, k, alpha, a.data(), lda, b.data(), ldb, c.data(), ldc);
  double w = 0;
  for (long i = 0; i < m; ++i)
    for (long j = 0; j < ldc; ++j) {
      double sum = 0, size = 1;
      for (long p = 0; j < n && p < k; ++p) {
        const double x = a_turned ? a[p * lda + i] : a[i * lda + p], y = b_turned ? b[j * ldb + p] : b[p * ldb + j];
        sum += x * y;
        size += std::abs(x * y);
      }
      const double want = j >= n ? 0.5 : 0.75 * sum + (add ? 0.5 : 0.0);
      w = std::max(w, std::abs(c[i * ldc + j] - want) / (static_cast<double>(k + 2) * size));
    }
  return w / std::numeric_limits<T>::epsilon();
}

template <class T>
void check_blocks() {
  for (const long m : {0L, 1L, 2L, 3L, 5L, 6L, 7L, 8L, 9L, 13L, 64L})
    for (const long n : {0L, 1L, 3L, 4L, 5L, 7L, 8L, 9L, 15L, 16L, 17L, 31L, 32L, 33L, 64L, 65L})
      for (const long k : {0L, 1L, 2L, 15L, 16L, 17L, 33L, 256L, 300L}) {
        if (k > 33 && m * n > 64 * 9) continue;
        for (const char kind : {'-', 'a', 'b'})
          for (const bool add : {false, true}) {
            const double w = worst<T>(kind, add, m, n, k);
            if (w >= 1) {
              CAPTURE(m);
              CAPTURE(n);
              CAPTURE(k);
              CAPTURE(kind);
              CAPTURE(add);
              CHECK(w < 1);
            }
          }
      }
  CHECK(worst<T>('b', true, 64, 65, 300) < 1);
}

}  // namespace

TEST_CASE("gemm_micro: small float32 blocks agree with float64 loops") { on_each_level(check_blocks<float>); }
TEST_CASE("gemm_micro: small float64 blocks agree with plain loops") { on_each_level(check_blocks<double>); }
