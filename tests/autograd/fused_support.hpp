// Shared by the tests of fused ops: PyTorch's values, a run with gradients, and bits at any number of threads.
#pragma once
#include <functional>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

namespace heed::test {

// The tensors of tests/reference/losses_torch.json.
inline const Named& torch_values() {
  static const Named all = stored_tensors("losses_torch.json");
  return all;
}

inline Tensor torch(const std::string& name, DType dtype = DType::float64) {
  const auto found = torch_values().find(name);
  REQUIRE_MESSAGE(found != torch_values().end(), name);
  return found->second.to(dtype);
}

// f(inputs), and the gradients of dy * f(inputs). If f returns a scalar, dy is 1.
struct Run {
  Tensor y;
  std::vector<Tensor> gradients;  // undefined for inputs without a gradient
};

inline Run run(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
               const Tensor& dy = {}) {
  Tape tape;
  std::vector<Tensor> watched;
  for (const Tensor& x : inputs) watched.push_back(is_floating(x.dtype()) ? tape.watch(x) : x);
  Run r;
  const Tensor y = f(watched);
  r.y = y.detach();
  if (y.rank() == 0)
    tape.backward(y);
  else
    tape.backward(y, dy);
  for (const Tensor& x : watched) r.gradients.push_back(is_floating(x.dtype()) ? tape.grad(x) : Tensor());
  return r;
}

// Calls f() at 1, 2, 3 and 8 threads. Its tensors must have the same bits each time.
inline void same_at_any_threads(const std::function<std::vector<Tensor>()>& f) {
  set_threads(1);
  const std::vector<Tensor> first = f();
  for (int n : {2, 3, 8}) {
    set_threads(n);
    const std::vector<Tensor> again = f();
    for (std::size_t i = 0; i < first.size(); ++i)
      CHECK_MESSAGE(same_bits(first[i], again[i]), "tensor ", i, " at ", n, " threads");
  }
  set_threads(0);
}

}  // namespace heed::test
