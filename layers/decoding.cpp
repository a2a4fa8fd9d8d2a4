#include <algorithm>
#include <cmath>
#include <heed/layers/decoding.hpp>
#include <numeric>

namespace heed {

void check_sampling(const SamplingOptions& o) {
  require(o.temperature >= 0, "sampling: temperature is ", o.temperature, "; it must be 0 or more");
  require(o.top_k >= 0, "sampling: top_k is ", o.top_k, "; it must be 0 (all) or more");
  require(o.top_p > 0 && o.top_p <= 1, "sampling: top_p is ", o.top_p, "; it must lie in (0, 1]");
}

std::int32_t sample(const Tensor& logits, const SamplingOptions& o, Rng& rng) {
  check_sampling(o);
  require(logits.rank() == 1 && logits.numel() > 0, "sample: logits are ", logits, "; they must be [vocabulary]");
  const std::vector<double> values = logits.to_vector<double>();
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const double u = rng.uniform();
  for (std::size_t i = 0; i < values.size(); ++i)
    require(values[i] < INFINITY, "sample: logit ", i, " is ", values[i], "; it must be a number, or -inf");
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const double x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (o.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  std::sort(order.begin(), order.end(), likelier);
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(o.top_k)));

  const double most = values[static_cast<std::size_t>(order[0])];
  require(most > -INFINITY, "sample: all logits are -inf; one must be a number");
  std::vector<double> weights;
  for (std::int32_t i : order)
    weights.push_back(std::exp((values[static_cast<std::size_t>(i)] - most) / o.temperature));
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (o.top_p < 1) {
    double reached = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && reached < o.top_p * sum) reached += weights[kept++];
    weights.resize(kept);
    sum = reached;
  }
  double rest = u * sum;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[weights.size() - 1];
}

std::vector<std::int32_t> generate(const GPT& model, std::span<const std::int32_t> prompt, Index count,
                                   const SamplingOptions& o, Rng& rng,
                                   const std::function<bool(std::int32_t)>& on_token) {
  check_sampling(o);
  require(!prompt.empty(), "generate: the prompt is empty; it needs one token or more");
  const NoTape no_tape;
  const Evaluation evaluation;
  const std::size_t context = static_cast<std::size_t>(model.options().context);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end()), made;
  std::vector<AttentionState> states;
  std::size_t read = text.size() > context ? text.size() - context : 0;  // tokens before it are not seen any more
  std::size_t begin = read;
  while (static_cast<Index>(made.size()) < count) {
    if (text.size() - begin > context) {
      states.clear();
      begin = read = text.size() - std::max<std::size_t>(1, context / 2);
    }
    const Index n = static_cast<Index>(text.size() - read);
    const Tensor logits = model.decode(Tensor::from_values(text.data() + read, n, {1, n}), states);
    read = text.size();
    const std::int32_t next = sample(logits[0], o, rng);
    text.push_back(next);
    made.push_back(next);
    if (on_token && !on_token(next)) break;
  }
  return made;
}

}  // namespace heed
