// Checkpoints exchanged between heed, h5py and PyTorch, with the examples of docs/python and
// tests/reference/checkpoint_exchange.py. Tests are skipped with a message if Python or its packages (python3-h5py,
// python3-torch) are missing. HEED_PYTHON names another interpreter.
#pragma once
#include <heed/data/checkpoint.hpp>
#include <heed/layers/gpt.hpp>
#include <limits>
#include <string>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

namespace heed::test {

inline void exchange(const std::string& python, const std::string& verb, const std::filesystem::path& folder) {
  const Ran ran = run("exec " + python + " -B " + quoted(in_source("tests/reference/checkpoint_exchange.py")) + " " +
                      verb + " " + quoted(folder.string()));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
}

// The contents that checkpoint_exchange.py checks and writes.
inline Checkpoint exchanged() {
  Checkpoint c;
  const float inf = std::numeric_limits<float>::infinity();
  c.counters = {{"step", 12}, {"seed", std::numeric_limits<std::uint64_t>::max()}};
  c.texts["config"] = R"({"name": "für Elise"})";
  c.blobs = {{"tokenizer", std::string("\0\1\xff\n\0", 5)}, {"nothing", ""}};
  c.tensors["model/f32"] = Tensor::from<float>({1.5, -0.0, inf, -inf, 1e-45, 3}, {2, 3});
  c.tensors["model/f64"] = Tensor::from<double>({0.1, -1e308, 5e-324}, {3, 1});
  c.tensors["model/i32"] = Tensor::from<std::int32_t>({-2147483647 - 1, 0, 2147483647}, {3});
  c.tensors["model/b8"] = Tensor::from<bool>({1, 0, 0, 1}, {2, 2});
  c.tensors["model/bf16"] = Tensor::from<float>({1, -2.5}, {2}).to(DType::bfloat16);
  c.tensors["model/scalar"] = Tensor::scalar(2.5);
  c.tensors["model/empty"] = Tensor::zeros({3, 0, 2});
  return c;
}

inline GPT small_gpt(const GPTOptions& options) {
  Rng rng(7);
  GPT model(options, rng);
  double seed = 0;
  for (const NamedParameter& p : named_parameters(model))
    p.parameter->copy_(some_values(p.parameter->shape(), seed += 1));
  return model;
}

}  // namespace heed::test
