// Elementary functions of single numbers that give the same bits on every machine and with every C library. (The last
// bit of a library's functions differs between releases and processors.) They serve everything that may affect a
// weight: initial values, schedules, bias corrections of optimizers, tables of positions. They use only sums, products,
// quotients and roots, which IEEE 754 rounds in one way. Infinities and NaN are handled as in the C library.
#pragma once

namespace heed::scalar {

double exp(double x);            // error at most 0.6 ulp
double exp2(double x);           // 0.5 ulp, exact for integers
double log(double x);            // 0.53 ulp
double pow(double x, double y);  // 0.5 ulp
double cos(double x);            // 0.5 ulp
double quick_sin(double x);      // 0.8 ulp, three times as fast as cos(); for tables
double quick_cos(double x);
double normal_cdf(double x);       // of the standard normal distribution, relative error 1e-14
double normal_quantile(double p);  // inverse of normal_cdf(), error 1e-15 * max(|result|, 0.1); -inf at 0, inf at 1

// pow() that caches its last result, for a power that all chunks of a step need. Use one object per thread.
class LastPower {
 public:
  double operator()(double x, double y) {
    if (x != x_ || y != y_) x_ = x, y_ = y, power_ = pow(x, y);
    return power_;
  }

 private:
  double x_ = 1, y_ = 0, power_ = 1;
};

}  // namespace heed::scalar
