// Helpers of the tests. Functions that are not templates are compiled once, in support.cpp.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <heed/core/tensor.hpp>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace heed::test {

// Builds with a sanitizer look for accesses out of bounds, undefined behaviour and races, and make a test four to ten
// times slower. They run each code path, but do not repeat it at many sizes, seeds or moments.
#if defined(HEED_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// Whether a test takes repetition `number`: every one, or with sanitizers every `part`-th.
inline bool is_taken(long number, long part) { return !kSanitized || number % part == 0; }
// `many`, or with sanitizers `few`: a number of steps or repetitions, or a size.
template <class T>
constexpr T thinned(T many, T few) {
  return kSanitized ? few : many;
}

// A test case that the address sanitizer leaves out, because other test cases run the same code of the library. It is
// compiled, but not registered.
#if defined(HEED_SANITIZED_ADDRESS)
#define RELEASE_TEST_CASE(name) [[maybe_unused]] static void DOCTEST_ANONYMOUS(heed_left_out_)()
#else
#define RELEASE_TEST_CASE(name) TEST_CASE(name)
#endif

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

std::string error_of_call(void (*call)(void*), void* f);

// The message of the Error that f throws; empty if it throws none.
template <class F>
std::string error_of(F&& f) {
  return error_of_call([](void* any) { (*static_cast<std::remove_reference_t<F>*>(any))(); },
                       const_cast<void*>(static_cast<const void*>(&f)));
}

// Whether `part` is in `text`.
bool contains(const std::string& text, const std::string& part);

// A function that must throw an Error, and a part of its message.
struct ErrorCase {
  std::string text;
  std::function<void()> f;
};
// Checks that each function throws its Error.
void check_errors(const std::vector<ErrorCase>& cases);

// The largest |a - b| / (atol + rtol |b|): values up to 1 pass. 1e300 if shapes differ or only one value is NaN.
double worst(const Tensor& a, const Tensor& b, double rtol, double atol);

// Whether worst() is at most 1.
bool close(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-6);

// The weights [B, H, T, S] of an attention for keys k [B, Hk, S, D]: attend(v) for one-hot values v.
Tensor weights_by(const std::function<Tensor(In v)>& attend, const Tensor& k);

// Normally distributed values.
Tensor normal(const Shape& shape, std::uint64_t seed = 1, DType dtype = DType::float64);

// Random token ids below `vocabulary`.
Tensor random_ids(const Shape& shape, Index vocabulary, std::uint64_t seed);
std::vector<std::int32_t> ids_of(const Tensor& x);

// Whether values, shape and dtype are bitwise the same.
bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace heed::test
