// A small model for the tests of checkpoints: two layers, a matrix that may be tied to the second layer, and a buffer.
#pragma once
#include <cmath>
#include <filesystem>
#include <fstream>
#include <heed/data/checkpoint.hpp>
#include <iterator>

#include "tests/support.hpp"

namespace heed::test {

inline Tensor some_values(const Shape& shape, double seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i)));
  return Tensor::from(values, shape);
}

struct MlpLayer {
  Parameter weight;  // [out, in]
  Parameter bias;    // [out]

  MlpLayer(Index in, Index out, double seed)
      : weight(some_values({out, in}, seed)), bias(some_values({out}, seed + 0.5)) {}
  void members(auto&& visit) {
    visit("weight", weight);
    visit("bias", bias);
  }
};

struct Mlp {
  std::vector<MlpLayer> layers;
  Parameter head;  // [classes, width], the shape of layers[1].weight
  Tensor steps;    // [] int32

  Mlp(Index in, Index width, Index classes, double seed)
      : head(some_values({classes, width}, seed + 3)), steps(Tensor::full({}, 7 * seed, DType::int32)) {
    layers.emplace_back(in, width, seed);
    layers.emplace_back(width, classes, seed + 1);
  }
  void members(auto&& visit) {
    visit("layers", layers);
    visit("head", head);
    visit.buffer("steps", steps);
  }
};

inline bool same_model(Mlp& a, Mlp& b) {
  const auto p = named_parameters(a), q = named_parameters(b);
  bool same = p.size() == q.size() && same_bits(a.steps, b.steps);
  for (std::size_t i = 0; same && i < p.size(); ++i) same = same_bits(*p[i].parameter, *q[i].parameter);
  return same;
}

}  // namespace heed::test
