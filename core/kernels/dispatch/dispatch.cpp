// Chooses the instruction set level at first use: the best available one, or the one that HEED_ARCH names.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <heed/core/check.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/parallel.hpp>
#include <iterator>
#include <string>

namespace heed::kernels {
namespace {

#if defined(__aarch64__)
constexpr const char* kBaseline = "neon";
#else
constexpr const char* kBaseline = "baseline";
#endif
constexpr const char* kNames[kLevels] = {kBaseline, "avx2", "avx512", "avx512_bf16"};
const std::string kFused[] = {"avx2", "avx512", "avx512_bf16", "neon"};
std::atomic<int> chosen{-1};

std::string available_names() {
  std::string names;
  for (int i = 0; i < kLevels; ++i)
    if (available(static_cast<Level>(i))) names += (names.empty() ? "" : ", ") + std::string(kNames[i]);
  return names;
}

int choose() {
  if (const char* requested = std::getenv("HEED_ARCH"); requested != nullptr && *requested != '\0') {
    for (int i = 0; i < kLevels; ++i)
      if (std::string(requested) == kNames[i] && available(static_cast<Level>(i))) return i;
    fail("HEED_ARCH is '", requested, "'; on this machine it must be one of ", available_names());
  }
  for (int i = kLevels - 1; i >= 0; --i)
    if (available(static_cast<Level>(i))) return i;
  fail(
      "this build of heed has no kernels for this machine, because it was configured with HEED_LEVELS=NATIVE "
      "elsewhere");
}

}  // namespace

const char* name_of(Level l) { return kNames[static_cast<int>(l)]; }

bool available(Level l) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  switch (l) {
#ifdef HEED_HAS_baseline
    case Level::baseline: return true;
#endif
#ifdef HEED_HAS_avx2
    case Level::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef HEED_HAS_avx512
    case Level::avx512: return avx512;
#endif
#ifdef HEED_HAS_avx512_bf16
    case Level::avx512_bf16: return avx512 && __builtin_cpu_supports("avx512bf16");
#endif
    default: return false;
  }
#else
  return l == Level::baseline;
#endif
}

bool fuses(Level l) { return same_bits(name_of(l), "avx2"); }

bool same_bits(const char* name, const char* other) {
  const auto fused = [](const char* n) { return std::count(std::begin(kFused), std::end(kFused), n) > 0; };
  return std::string(name) == other || (fused(name) && fused(other));
}

Level level() {
  int l = chosen.load(std::memory_order_relaxed);
  if (l < 0) chosen = l = choose();
  return static_cast<Level>(l);
}

void set_level(Level l) {
  require(available(l), "set_level: ", name_of(l), " is not available; on this machine it must be one of ",
          available_names());
  chosen = static_cast<int>(l);
}

}  // namespace heed::kernels

namespace heed {
const char* arch() { return kernels::name_of(kernels::level()); }
}  // namespace heed
