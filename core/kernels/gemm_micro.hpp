// Products of small blocks inside other kernels (attention): serial, no allocation, float or double.
// Included only by *.kernel.cpp; compiled once a level, in gemm_micro.kernel.cpp, for all that call them. Blocks are
// row-major: element (i, j) is data[i * ld + j]. They may have any size; they are meant for up to about 128 rows and
// columns, whose operands stay in the nearest caches.
#pragma once

namespace heed::kernels::HEED_LEVEL {

template <class T>
struct Block {
  T* data;
  long ld;
};

enum class Into { set, add };  // c = ..., or c += ...

// c[m, n] = or += alpha * a[m, k] b[k, n]
template <class T>
void block_ab(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c);

// c[m, n] = or += alpha * a^T b for a[k, m], b[k, n]
template <class T>
void block_atb(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c);

// c[m, n] = or += alpha * a b^T for a[m, k], b[n, k]. b is turned panel by panel: to reuse one b for many a, keep many
// rows in a call.
template <class T>
void block_abt(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c);

}  // namespace heed::kernels::HEED_LEVEL
