// Softmax, linear, Efficient and Taylor attention: values and gradients against PyTorch
// (tests/reference/attention_torch.py).
#include <heed/heed.hpp>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const StoredCases& reference() { return stored_cases("attention_torch.json"); }

// As PyTorch's cases are called: a mechanism or a feature map.
Tensor attend(const std::string& name, Named& x, const AttentionCall& call) {
  const In q = x["q"], k = x["k"], v = x["v"];
  if (name == "softmax") return attention(q, k, v, {.causal = call.causal, .key_lengths = call.key_lengths});
  if (name == "efficient") return efficient_attention(q, k, v, call);
  if (name == "taylor") return TaylorAttention{}.apply(q, k, v, call);
  return linear_attention(q, k, v, call, {.feature_map = feature_map(name)});
}

}  // namespace

TEST_CASE("softmax, linear, Efficient and Taylor attention: values and gradients are PyTorch's") {
  const Named& inputs = reference().inputs;
  int compared = 0;
  for (const auto& item : reference().cases) {
    const std::string &title = item.first, name = title.substr(0, title.find(','));
    CAPTURE(title);
    const Named& wanted = item.second;
    AttentionCall call{.causal = contains(title, "causal")};
    if (contains(title, "lengths")) call.key_lengths = Tensor::from<std::int32_t>({7, 4});
    Tape tape;
    Named watched;
    for (const auto& [key, x] : inputs) watched[key] = tape.watch(x);
    const Tensor y = attend(name, watched, call);
    tape.backward(y, inputs.at("dy"));
    CHECK(close(y.detach(), wanted.at("y"), 1e-12, 1e-13));
    for (const std::string key : {"q", "k", "v"}) {
      CAPTURE(key);
      CHECK(close(tape.grad(watched[key]), wanted.at(key), 1e-11, 1e-13));
    }
    Named floats;
    for (const auto& [key, x] : inputs) floats[key] = x.to(DType::float32);
    CHECK(close(attend(name, floats, call), wanted.at("y"), 1e-5, 2e-6));
    ++compared;
  }
  CHECK(compared == 24);
}
