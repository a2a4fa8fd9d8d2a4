// The small block products on pointers, so that tests can check them on every level.
#pragma once

namespace heed::kernels {

template <class T>
struct BlockProduct {
  using Function = void (*)(bool add, long m, long n, long k, T alpha, const T* a, long lda, const T* b, long ldb, T* c,
                            long ldc);
  Function ab, atb, abt;
};

struct BlockProducts {
  BlockProduct<float> f32;
  BlockProduct<double> f64;
};

const BlockProducts& block_products();  // of the level that runs

}  // namespace heed::kernels
