#include "attention_backward.hpp"
#include "attention_decode.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
constexpr AttentionKernels<T> kernels_of() {
  using namespace attention;
  return {{kLanes<T>, kTiles * kLanes<T>, kBackLanes<T>, kBackKeys, kDecodeKeys},
          scratch_size<T, ForwardScratch<T>>,
          scratch_size<T, BackwardScratch<T>>,
          forward<T>,
          backward<T>,
          combine<T>,
          partial_size<T>,
          decode<T>,
          join<T>};
}

}  // namespace

extern const AttentionTable attention_table;
const AttentionTable attention_table = {kernels_of<float>(), kernels_of<double>()};

}  // namespace heed::kernels::HEED_LEVEL
