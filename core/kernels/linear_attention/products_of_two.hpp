// The products of two elements of a row, as features whose dot product is the square of the rows' dot product:
//
//   f(x) = x_a x_b for a = b, sqrt(2) x_a x_b for a < b, ordered by a, then b      f(q) . f(k) = (q . k)^2
//
// In float64, since f(q) . f(k) is a sum of terms of both signs that may nearly cancel.
#pragma once
#include <stdint.h>

namespace heed::kernels {

inline constexpr int64_t products_of_width(int64_t width) { return width * (width + 1) / 2; }

struct ProductsOfTwoTable {
  // f(x) [rows, features] for x [rows, width].
  void (*forward)(const double* x, int64_t rows, int64_t width, double* f);
  // dx [rows, width] += the derivative of f(x), times d + factor shared^T. d is [rows, features], factor [rows] (null:
  // ones), shared [features].
  void (*backward)(const double* x, int64_t rows, int64_t width, const double* d, const double* factor,
                   const double* shared, double* dx);
};

const ProductsOfTwoTable& products_of_two_table();  // for the level in use

}  // namespace heed::kernels
