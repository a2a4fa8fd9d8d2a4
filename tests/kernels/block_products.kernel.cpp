#include "block_products.hpp"

#include "core/kernels/gemm_micro.hpp"
#include "core/kernels/simd.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
void ab(bool add, long m, long n, long k, T alpha, const T* a, long lda, const T* b, long ldb, T* c, long ldc) {
  block_ab<T>(add ? Into::add : Into::set, m, n, k, alpha, {a, lda}, {b, ldb}, {c, ldc});
}
template <class T>
void atb(bool add, long m, long n, long k, T alpha, const T* a, long lda, const T* b, long ldb, T* c, long ldc) {
  block_atb<T>(add ? Into::add : Into::set, m, n, k, alpha, {a, lda}, {b, ldb}, {c, ldc});
}
template <class T>
void abt(bool add, long m, long n, long k, T alpha, const T* a, long lda, const T* b, long ldb, T* c, long ldc) {
  block_abt<T>(add ? Into::add : Into::set, m, n, k, alpha, {a, lda}, {b, ldb}, {c, ldc});
}

}  // namespace

extern const BlockProducts block_products;
const BlockProducts block_products = {{ab<float>, atb<float>, abt<float>}, {ab<double>, atb<double>, abt<double>}};

}  // namespace heed::kernels::HEED_LEVEL
