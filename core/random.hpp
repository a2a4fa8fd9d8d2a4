// Random numbers by counting: value i of a stream is a function of (seed, stream, i), so that it depends neither on the
// thread that draws it nor on what was drawn before. Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011.
//
// Example:
//
//   Rng rng(1);
//   const Tensor weight = rng.normal({3, 4}, 0, 0.02);  // the same bits on every machine
//   manual_seed(7);                                     // what dropout draws from
#pragma once
#include <array>
#include <heed/core/tensor.hpp>

namespace heed {

// Four random words for a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high);

// What dropout multiplies the rest by. Of p = 1 there is none, though the mask, of 32 bits, may leave something.
inline double dropout_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

class Rng {
 public:
  explicit Rng(std::uint64_t seed = 0, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  std::uint64_t seed() const { return seed_; }
  std::uint64_t stream() const { return stream_; }
  std::uint64_t position() const { return position_; }  // blocks of four words drawn so far
  void set_position(std::uint64_t position) { position_ = position; }
  // Takes `blocks` counters for an op that computes its own values from (seed, stream, position).
  std::uint64_t advance(std::uint64_t blocks) { const std::uint64_t p = position_; position_ += blocks; return p; }

  std::uint64_t next();                  // 64 random bits
  double uniform();                      // [0, 1), 53 bits
  double normal();                       // mean 0, deviation 1 (Box-Muller)
  Index integer(Exactly<Index> n);       // [0, n), unbiased; Error unless n > 0
  std::vector<Index> permutation(Exactly<Index> n);

  // Filled on all threads; element i is what the i-th of so many calls of uniform() or normal() would give, whatever
  // the instruction set. float32, float64 or bfloat16; [low, high) in each of them. Error for another dtype and for
  // limits out of order.
  Tensor uniform(const Shape& shape, double low = 0, double high = 1, DType dtype = DType::float32);
  Tensor normal(const Shape& shape, double mean = 0, double deviation = 1, DType dtype = DType::float32);
  // The same numbers into a tensor that is there.
  void uniform_(Tensor& x, double low = 0, double high = 1);
  void normal_(Tensor& x, double mean = 0, double deviation = 1);
  // int32 in [low, high); Error where int32 lacks these.
  Tensor integers(const Shape& shape, Exactly<Index> low, Exactly<Index> high);

 private:
  std::uint64_t seed_, stream_, position_ = 0;
};

// What dropout and the like draw from: one generator a thread, set by manual_seed. Its position goes into checkpoints.
Rng& default_rng();
void manual_seed(std::uint64_t seed);

}  // namespace heed
