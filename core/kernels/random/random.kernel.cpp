// Uniform and normal numbers from Philox blocks. Every level gives the same bits, since all operations are on integers
// or are sums, products, quotients and roots of doubles, which are rounded one by one (never fma).
#include "random.hpp"

#include "philox.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

using Double = Batch<double>;

// n as a double, for n < 2^53. Gap: xsimd's conversion of 64-bit integers is not exact on all levels.
inline Double to_double(Words n) {
#if defined(__AVX512DQ__)
  return _mm512_cvtepu64_pd(n);
#else
  // The upper half as 2^84 + 2^32 upper, the lower half as 2^52 + lower: each is joined with the bits of an exponent.
  const Words upper = (n >> 32) | Words(uint64_t{0x4530000000000000});
  const Words lower = (n & Words(uint64_t{0xffffffff})) | Words(uint64_t{0x4330000000000000});
  return (bits_as<double>(upper) - Double(0x1p84 + 0x1p52)) + bits_as<double>(lower);
#endif
}

// The first 53 of 64 random bits as a number in [0, 1).
inline Double unit(Words upper, Words lower) {
  const Words bits = ((upper << 32) | (lower & Words(uint64_t{0xffffffff}))) >> 11;
  return to_double(bits) * Double(0x1p-53);
}

// log(x) for normal x in (0, 1], to 1 ulp: the formula of simd/math.hpp, without fma.
inline Double log_unit(Double x) {
  using K = LogConstants<double>;
  Double k;
  const Double f = log_reduced(x, k), s = f / (Double(2.) + f), z = s * s, w = z * z;
  const Double even = w * (Double(3.999999999940941908e-01) +
                           w * (Double(2.222219843214978396e-01) + w * Double(1.531383769920937332e-01)));
  const Double odd = z * (Double(6.666666666666735130e-01) +
                          w * (Double(2.857142874366239149e-01) +
                               w * (Double(1.818357216161805012e-01) + w * Double(1.479819860511658591e-01))));
  const Double half = Double(0.5) * f * f;
  return k * Double(K::ln2_high) - ((half - (s * (half + (even + odd)) + k * Double(K::ln2_low))) - f);
}

// cos(x) for x in [0, 2 pi), as sin(r) with r = |x - pi| - pi/2, to 1.5 ulp. Near its zeros the result is as exact as
// r, whose differences are exact there (Sterbenz 1974). pi is high + low. sin(r) = r + r^3 P(r^2), minimax on
// [-pi/2, pi/2], to 3e-19.
inline Double cos_turn(Double x) {
  constexpr double kHigh = 3.141592653589793, kLow = 1.2246467991473532e-16;
  const Double from_pi = x - Double(kHigh);
  const Double low = select(from_pi < Double(0.), Double(0.5 * kLow), Double(-1.5 * kLow));
  const Double r = (xsimd::abs(from_pi) - Double(0.5 * kHigh)) + low, z = r * r;
  static constexpr double kHighest[] = {2.721174928542744e-15,  -7.64299148570257e-13, 1.6058939705739278e-10,
                                        -2.505210687279861e-08, 2.755731921113723e-06, -0.00019841269841209218,
                                        0.008333333333333194,   -0.16666666666666666};
  Double p(kHighest[0]);
  unroll<7>([&](auto i) { p = p * z + Double(kHighest[i + 1]); });
  return r + r * z * p;
}

inline Double normal_of(const Words (&word)[4]) {
  const Double radius = sqrt(Double(-2.) * log_unit(Double(1.) - unit(word[0], word[1])));
  return radius * cos_turn(Double(6.283185307179586) * unit(word[2], word[3]));
}

inline void round_to(float& y, double x) { y = static_cast<float>(x); }
inline void round_to(double& y, double x) { y = x; }
inline void round_to(uint16_t& y, double x) { y = float_to_bf16(static_cast<float>(x)); }

// y[i] = value(words of counter position + i), in groups that stay in L1.
template <class T, class Value>
inline void fill(const RandomBlocks& blocks, int64_t n, T* y, const Value& value) {
  constexpr int w = kWidth<double>, kVectors = 2, kGroup = 128;
  const PhiloxKeys keys(blocks.seed);
  const Words lanes = lane_numbers<uint64_t>();
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    const int size = n - begin < kGroup ? static_cast<int>(n - begin) : kGroup;
    alignas(64) double x[kGroup];
    for (int i = 0; i < size; i += kVectors * w) {
      Words counter[kVectors], word[kVectors][4];
      unroll<kVectors>([&](auto v) {
        counter[v] = Words(blocks.position + static_cast<uint64_t>(begin + i + v * w)) + lanes;
      });
      philox(keys, blocks.stream, counter, word);
      unroll<kVectors>([&](auto v) { store_aligned(x + i + v * w, value(word[v])); });
    }
    if (size == kGroup)
      for (int i = 0; i < kGroup; ++i) round_to(y[begin + i], x[i]);
    else
      for (int i = 0; i < size; ++i) round_to(y[begin + i], x[i]);
  }
}

template <class T>
void uniform(const RandomBlocks& blocks, int64_t n, double low, double range, double max, T* y) {
  fill(blocks, n, y, [=](const Words(&word)[4]) {
    return quick_min(Double(low) + Double(range) * unit(word[0], word[1]), Double(max));
  });
}

template <class T>
void normal(const RandomBlocks& blocks, int64_t n, double mean, double deviation, T* y) {
  fill(blocks, n, y,
       [=](const Words(&word)[4]) { return Double(mean) + Double(deviation) * normal_of(word); });
}

template <class T>
constexpr RandomFills<T> fills = {uniform<T>, normal<T>};

}  // namespace

extern const RandomTable random_table;
const RandomTable random_table = {fills<float>, fills<double>, fills<uint16_t>};

}  // namespace heed::kernels::HEED_LEVEL
