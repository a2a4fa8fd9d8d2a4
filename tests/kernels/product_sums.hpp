// Matrix products within a chunk of linear attention as functions of pointers, so that tests can check them on every
// level. Rows of all matrices are aligned and `stride` elements apart; the stride is a multiple of every vector length.
#pragma once

namespace heed::kernels {

template <class T>
struct ProductSum {
  // t [n, n] = tril(x y^T + u 1^T) for x, y [n, depth]; u null: zeros. `scratch`: depth rows for y^T
  void (*lower)(long n, long depth, const T* x, const T* y, const T* u, T* t, long stride, T* scratch);
  // c [n, columns] = x y for x [n, depth], y [depth, columns]; + t z for 'l' and + t^T z for 'u', with t of lower() and
  // z [n, columns]
  void (*with_triangle)(char part, long n, long columns, long depth, const T* x, const T* y, const T* t, const T* z,
                        T* c, long stride);
  // c [width, columns] += x^T y for x [n, width], y [n, columns]
  void (*add)(long n, long width, long columns, const T* x, const T* y, T* c, long stride);
};

struct ProductSums {
  ProductSum<float> f32;
  ProductSum<double> f64;
};

const ProductSums& product_sums();  // of the current level

}  // namespace heed::kernels
