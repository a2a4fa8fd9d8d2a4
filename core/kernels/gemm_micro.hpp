// Products of small blocks inside other kernels (attention): serial, no allocation, float or double.
// Included only by *.kernel.cpp. Blocks are row-major: element (i, j) is data[i * ld + j]. They may have any size;
// they are meant for up to about 128 rows and columns, whose operands stay in the nearest caches.
#pragma once
#include "gemm_pack.hpp"

namespace heed::kernels::HEED_LEVEL {

template <class T>
struct Block {
  T* data;
  long ld;
};

enum class Into { set, add };  // c = ..., or c += ...

inline constexpr int kMicroDepth = 256;  // of the panel that block_abt turns on the stack

template <class T, Order kOrder>
inline void block_panels(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c) {
  for (long j = 0; j < n; j += kPanel<T>) {
    const int some = static_cast<int>(n - j < kPanel<T> ? n - j : kPanel<T>);
    const TileOut<T> out{c.data + j, c.ld, into == Into::add, alpha, nullptr};
    panel<T, kOrder, false>(m, some, k, a.data, a.ld, b.data + j, b.ld, out);
  }
}

// c[m, n] = or += alpha * a[m, k] b[k, n]
template <class T>
inline void block_ab(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c) {
  block_panels<T, Order::by_row>(into, m, n, k, alpha, a, b, c);
}

// c[m, n] = or += alpha * a^T b for a[k, m], b[k, n]
template <class T>
inline void block_atb(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c) {
  block_panels<T, Order::by_column>(into, m, n, k, alpha, a, b, c);
}

// c[m, n] = or += alpha * a b^T for a[m, k], b[n, k]. b is turned panel by panel: to reuse one b for many a, keep many
// rows in a call.
template <class T>
inline void block_abt(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c) {
  alignas(64) T turned[kMicroDepth * kPanel<T>];
  for (long j = 0; j < n; j += kPanel<T>) {
    const int some = static_cast<int>(n - j < kPanel<T> ? n - j : kPanel<T>);
    long p = 0;
    do {  // once even for k = 0, which sets c to 0
      const long depth = k - p < kMicroDepth ? k - p : kMicroDepth;
      pack_transposed(b.data + j * b.ld + p, b.ld, some, kPanel<T>, depth, turned);
      const TileOut<T> out{c.data + j, c.ld, into == Into::add || p > 0, alpha, nullptr};
      panel<T, Order::by_row, true>(m, some, depth, a.data + p, a.ld, turned, kPanel<T>, out);
      p += kMicroDepth;
    } while (p < k);
  }
}

}  // namespace heed::kernels::HEED_LEVEL
