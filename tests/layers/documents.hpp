// Two rows that hold four documents.
#pragma once
#include <heed/core/tensor.hpp>
#include <vector>

namespace heed::test {

// Two rows of 12 tokens: documents of 5, 3 and 4 tokens, and of 12.
struct Document {
  Index row, first, last;
};
inline const std::vector<Document> kDocuments = {{0, 0, 5}, {0, 5, 8}, {0, 8, 12}, {1, 0, 12}};

inline Tensor begins_of_documents() {
  Tensor begins = Tensor::empty({2, 12}, DType::int32);
  for (const Document& d : kDocuments)
    for (Index i = d.first; i < d.last; ++i)
      begins.ptr<std::int32_t>()[d.row * 12 + i] = static_cast<std::int32_t>(d.first);
  return begins;
}

inline Tensor part_of(const Tensor& x, const Document& d) {
  return x.slice(0, d.row, d.row + 1).slice(1, d.first, d.last);
}

}  // namespace heed::test
