// Elementary functions of single numbers, with the same bits on every machine and with every C library: the last bit of
// the library's is not promised, and differs between releases and processors. For whatever may reach a weight: initial
// values, schedules, corrections of optimizers, tables of positions. Made of sums, products, quotients and roots, which
// IEEE 754 rounds in one way. Infinities and NaN are taken as the C library takes them.
#pragma once

namespace heed::scalar {

double exp(double x);              // to 0.6 ulp
double exp2(double x);             // to 0.5 ulp, exact for integers
double log(double x);              // to 0.53 ulp
double pow(double x, double y);    // to 0.5 ulp
double cos(double x);              // to 0.5 ulp
double quick_sin(double x);        // to 0.8 ulp, in a third of the time: for tables
double quick_cos(double x);
double normal_cdf(double x);       // of the standard normal distribution, to 1e-14 of itself
double normal_quantile(double p);  // its inverse, to 1e-15 of itself or of 0.1; of 0 and 1: infinities

// pow() that keeps its last result, for a number that all chunks of a step ask for: one for each thread.
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
