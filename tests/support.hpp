// Helpers of the tests; what is no template is compiled once, in support.cpp.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <heed/core/tensor.hpp>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace heed::test {

// Sanitizers look for accesses out of bounds and for races, and make a test four to six times slower: tests that repeat
// one thing at many sizes, seeds or moments take fewer of them there.
#if defined(HEED_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// Whether a test takes repetition `number`: every one, or under sanitizers the first of `part`.
inline bool is_taken(long number, long part) { return !kSanitized || number % part == 0; }
// ConformanceOptions::longest of mechanisms that are right.
inline constexpr Index kLongest = kSanitized ? 100 : 1000;

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

std::string error_of_call(void (*call)(void*), void* f);

// The message of the Error that f throws; empty if it throws none.
template <class F>
std::string error_of(F&& f) {
  return error_of_call([](void* any) { (*static_cast<std::remove_reference_t<F>*>(any))(); },
                       const_cast<void*>(static_cast<const void*>(&f)));
}

bool contains(const std::string& text, const std::string& part);

// Each function throws an Error that contains its text.
struct ErrorCase {
  std::string text;
  std::function<void()> f;
};
void check_errors(const std::vector<ErrorCase>& cases);

// The largest |a - b| / (atol + rtol |b|), so that <= 1 passes; 1e300 where shapes differ or only one is NaN.
double worst(const Tensor& a, const Tensor& b, double rtol, double atol);

bool close(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-6);

// The weights [B, H, T, S] of an attention: what attend(v) makes of values of which each has one element of 1 at a
// place of its own. For keys k [B, Hk, S, D].
Tensor weights_by(const std::function<Tensor(In v)>& attend, const Tensor& k);

// Of a normal distribution.
Tensor normal(const Shape& shape, std::uint64_t seed = 1, DType dtype = DType::float64);

Tensor random_ids(const Shape& shape, Index vocabulary, std::uint64_t seed);
std::vector<std::int32_t> ids_of(const Tensor& x);

// Bitwise the same values, shape and dtype.
bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace heed::test
