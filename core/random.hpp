// Counter-based random numbers. Value i of a stream is a function of (seed, stream, i). So it depends neither on the
// thread that draws it nor on earlier draws. The generator is Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011.
//
// Example:
//
//   Rng rng(1);
//   const Tensor weight = rng.normal({3, 4}, 0, 0.02);  // the same bits on every machine
//   manual_seed(7);                                     // seeds the generator of dropout
#pragma once
#include <array>
#include <heed/core/tensor.hpp>

namespace heed {

// Four random words as a function of a 64-bit key and a 128-bit counter.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high);

// The factor of values that dropout with probability p keeps: 1 / (1 - p). It is 0 for p = 1, where the mask, which
// compares 32 random bits, may still keep a value.
inline double dropout_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

// A random generator: a seed, a stream, and a position in the stream that each draw advances.
class Rng {
 public:
  // Begins at position 0 of the stream. Generators with the same seed and stream draw the same numbers.
  explicit Rng(std::uint64_t seed = 0, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  // The arguments of the constructor.
  std::uint64_t seed() const { return seed_; }
  std::uint64_t stream() const { return stream_; }
  std::uint64_t position() const { return position_; }  // blocks of four words drawn so far
  void set_position(std::uint64_t position) { position_ = position; }  // continues there, as after a resume
  // Reserves `blocks` counters for an op that computes its own values from (seed, stream, position). Returns the first.
  std::uint64_t advance(std::uint64_t blocks) { const std::uint64_t p = position_; position_ += blocks; return p; }

  std::uint64_t next();                  // 64 random bits
  double uniform();                      // [0, 1), 53 bits
  double normal();                       // mean 0, standard deviation 1 (Box-Muller)
  Index integer(Exactly<Index> n);       // [0, n), unbiased; throws Error unless n > 0
  // The numbers 0 to n - 1 in random order. Throws Error unless 0 <= n < 2^48.
  std::vector<Index> permutation(Exactly<Index> n);

  // New tensors of float32, float64 or bfloat16, filled on all threads. Element i has the value that call i of
  // uniform() or normal() would return, scaled and rounded to the dtype, on every level. Uniform values are in
  // [low, high), also after rounding. Throw Error for another dtype, low > high, a negative deviation, or limits that
  // are not finite.
  Tensor uniform(const Shape& shape, double low = 0, double high = 1, DType dtype = DType::float32);
  Tensor normal(const Shape& shape, double mean = 0, double deviation = 1, DType dtype = DType::float32);
  // Write the same numbers to an existing tensor. Throw Error also if x is undefined.
  void uniform_(Tensor& x, double low = 0, double high = 1);
  void normal_(Tensor& x, double mean = 0, double deviation = 1);
  // A new tensor of int32 in [low, high). Throws Error unless low < high and int32 holds these values.
  Tensor integers(const Shape& shape, Exactly<Index> low, Exactly<Index> high);

 private:
  std::uint64_t seed_, stream_, position_ = 0;
};

// The generator of this thread, from which dropout draws. A checkpoint stores its position.
Rng& default_rng();
// Sets default_rng() of this thread to Rng(seed).
void manual_seed(std::uint64_t seed);

}  // namespace heed
