// Functions of scores, windows and sinks: values and gradients against PyTorch (tests/reference/flex_torch.py).
#include <heed/heed.hpp>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

ScoreMod mod_of(const std::string& name, Named& x) {
  if (name == "alibi") return alibi(x["slopes"]);
  if (name == "soft cap") return soft_cap(x["cap"]);
  if (name == "relative") return relative_bias(x["table"]);
  const auto own = [](auto s, int, int h, int q, int k, auto c, auto by) {
    return c(h) * sin(s) + by(h, std::clamp(k - q, -3, 3) + 3) * s;
  };
  return {own, x["cap"], x["table"]};
}

}  // namespace

TEST_CASE("flex_attention: values and gradients are PyTorch's") {
  const StoredCases& reference = stored_cases("flex_torch.json");
  int compared = 0;
  for (const auto& item : reference.cases) {
    const std::string &title = item.first, name = title.substr(0, title.find(','));
    CAPTURE(title);
    const Named& wanted = item.second;
    const auto attend = [&](Named& x) {
      const bool window = contains(title, "window");
      FlexAttentionOptions o{.score_mod = mod_of(name, x)};
      if (window) o.block_mask = create_block_mask(sliding_window(3), 1, 1, 5, 7);
      if (contains(title, "sinks")) o.sinks = x["sinks"];
      return flex_attention(x["q"], x["k"], x["v"], o, {.causal = window});
    };
    Tape tape;
    Named watched, floats;
    for (const auto& [key, x] : reference.inputs) watched[key] = tape.watch(x), floats[key] = x.to(DType::float32);
    const Tensor y = attend(watched);
    tape.backward(y, reference.inputs.at("dy"));
    CHECK(close(y.detach(), wanted.at("y"), 1e-12, 1e-13));
    for (const auto& [key, gradient] : wanted) {
      if (key == "y") continue;
      CAPTURE(std::string(key));
      CHECK(close(tape.grad(watched[key]), gradient, 1e-11, 1e-13));
    }
    CHECK(close(attend(floats), wanted.at("y"), 1e-5, 2e-6));
    ++compared;
  }
  CHECK(compared == 12);
}
