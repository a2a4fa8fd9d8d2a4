// Decoding from prompts of different length, compared with all positions at once.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/layers/decoding.hpp>

#include "tests/support.hpp"

namespace heed::test {

// The model reads a prompt for each of five rows, and continues with picked rows after the end of each prompt.
template <class M>
void check_prompts(const M& model, const Batch& b, double tolerance) {
  const Tensor whole = model(b);
  DecodeState state = model.make_state(b.at("source"), b.at("source_lengths"));
  const Index counts[] = {3, 1, 2, 3, 2}, rows[] = {3, 1, 4, 3};
  const Tensor first = state.read(b.inputs.slice(1, 0, 3), Tensor::from<std::int32_t>({3, 1, 2, 3, 2}));
  for (Index i = 0; i < 5; ++i) CHECK(close(first[i], whole.select(0, i)[counts[i] - 1], tolerance, tolerance));
  DecodeState picked = state.rows(Tensor::from<std::int32_t>({3, 1, 4, 3}));
  for (Index t = 0; t < 2; ++t) {
    std::vector<std::int32_t> next;
    for (const Index row : rows) next.push_back(static_cast<std::int32_t>(b.inputs.at({row, counts[row] + t})));
    const Tensor y = picked.read(Tensor::from(next, {4, 1}));
    for (Index i = 0; i < 4; ++i) {
      CAPTURE(i);
      CHECK(close(y[i], whole.select(0, rows[i])[counts[rows[i]] + t], tolerance, tolerance));
    }
    CHECK(close(y[3], y[0]));
  }
}

}  // namespace heed::test
