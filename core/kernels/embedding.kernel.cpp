// The gradient of an embedding: rows of dy are added to the rows of the table that indices name.
#include "embedding.hpp"

#include "simd/simd.hpp"
//
#include "simd/sweep.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
void add_rows(const EmbeddingGradient<T>& x, int64_t begin, int64_t end) {
  const auto [dweight, dy, indices, n, d, skip] = x;
  for (int64_t i = 0; i < n; ++i) {
    if (indices[i] == skip) continue;
    T* to = dweight + indices[i] * d + begin;
    const T* from = dy + i * d + begin;
    sweep<T>(end - begin, [&](int64_t j, auto at) { at.store(to + j, at.load(to + j) + at.load(from + j)); });
  }
}

}  // namespace

extern const EmbeddingTable embedding_table;
const EmbeddingTable embedding_table = {add_rows<float>, add_rows<double>};

}  // namespace heed::kernels::HEED_LEVEL
