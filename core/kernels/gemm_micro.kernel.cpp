// Products of small blocks, instantiated once for all kernels of this level.
#include "gemm_micro.hpp"

#include "gemm_pack.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

constexpr int kMicroDepth = 256;  // of the panel that block_abt transposes on the stack

template <class T, Order kOrder>
void block_panels(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c,
                  Fetch* fetch) {
  for (long j = 0; j < n; j += kPanel<T>) {
    const int columns = static_cast<int>(n - j < kPanel<T> ? n - j : kPanel<T>);
    const TileOut<T> out{c.data + j, c.ld, into == Into::add, alpha, nullptr, fetch};
    panel<T, kOrder, false>(m, columns, k, a.data, a.ld, b.data + j, b.ld, out);
  }
}

}  // namespace

template <class T>
void block_ab(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c,
              Fetch* fetch) {
  block_panels<T, Order::by_row>(into, m, n, k, alpha, a, b, c, fetch);
}

template <class T>
void block_atb(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c,
               Fetch* fetch) {
  block_panels<T, Order::by_column>(into, m, n, k, alpha, a, b, c, fetch);
}

template <class T>
void block_abt(Into into, long m, long n, long k, T alpha, Block<const T> a, Block<const T> b, Block<T> c,
               Fetch* fetch) {
  alignas(64) T transposed[kMicroDepth * kPanel<T>];
  for (long j = 0; j < n; j += kPanel<T>) {
    const int columns = static_cast<int>(n - j < kPanel<T> ? n - j : kPanel<T>);
    long p = 0;
    do {  // once even for k = 0, which sets c to 0
      const long depth = k - p < kMicroDepth ? k - p : kMicroDepth;
      pack_transposed(b.data + j * b.ld + p, b.ld, columns, kPanel<T>, depth, transposed);
      const TileOut<T> out{c.data + j, c.ld, into == Into::add || p > 0, alpha, nullptr, fetch};
      panel<T, Order::by_row, true>(m, columns, depth, a.data + p, a.ld, transposed, kPanel<T>, out);
      p += kMicroDepth;
    } while (p < k);
  }
}

// For the other kernels of this level.
template void block_ab<float>(Into, long, long, long, float, Block<const float>, Block<const float>, Block<float>,
                              Fetch*);
template void block_atb<float>(Into, long, long, long, float, Block<const float>, Block<const float>, Block<float>,
                               Fetch*);
template void block_abt<float>(Into, long, long, long, float, Block<const float>, Block<const float>, Block<float>,
                               Fetch*);
template void block_ab<double>(Into, long, long, long, double, Block<const double>, Block<const double>, Block<double>,
                               Fetch*);
template void block_atb<double>(Into, long, long, long, double, Block<const double>, Block<const double>, Block<double>,
                                Fetch*);
template void block_abt<double>(Into, long, long, long, double, Block<const double>, Block<const double>, Block<double>,
                                Fetch*);

}  // namespace heed::kernels::HEED_LEVEL
