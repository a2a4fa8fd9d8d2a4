// Correct mechanisms of unusual kinds, for tests that these mechanisms pass the conformance kit.
#pragma once
#include "tests/layers/attention/wrong_mechanisms.hpp"

namespace heed::test {

using Apply = Composed::Apply;

// A correct mechanism with the options of its checks.
struct Right {
  const char* what;
  MechanismFactory make;
  ConformanceOptions options = {};
};

// A mechanism that attends with f.
inline Right composed(const char* what, const AttentionCapabilities& can, const Apply& f,
                      ConformanceOptions options = {}) {
  return {what, factory({can, f}), options};
}
// Applies f to each row with its own number of keys, given by key_lengths. The query is aligned with the last key.
// Calls without key_lengths or with T != 1 apply f directly.
inline Apply row_by_row(const Apply& f) {
  return [f](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
    if (!call.key_lengths.defined() || q.dim(2) != 1) return f(q, k, v, call);
    std::vector<Tensor> rows;
    for (Index b = 0; b < q.dim(0); ++b) {
      const auto n = static_cast<Index>(call.key_lengths.at({b}));
      const auto row = [&](const Tensor& x) { return x.slice(0, b, b + 1); };
      AttentionCall own{.causal = true};
      if (call.bias.defined())
        own.bias = (call.bias.rank() == 4 && call.bias.dim(0) > 1 ? row(call.bias) : call.bias).slice(-1, 0, n);
      rows.push_back(n == 0 ? Tensor::zeros(row(q).shape().with(3, v.dim(3)), q.dtype())
                            : f(row(q), row(k).slice(2, 0, n), row(v).slice(2, 0, n), own));
    }
    return concatenate(rows, 0);
  };
}
// As composed(), with a state that attends to all keys in each step.
inline Right decoded(const char* what, AttentionCapabilities can, const Apply& f, ConformanceOptions options = {}) {
  can.state = true;
  return {what, factory({can, f, [at = row_by_row(f)] { return AttentionState(KeyValueState(at)); }}), options};
}

// Capabilities of composed mechanisms, and of those that depend on positions.
inline const AttentionCapabilities kAll = [] {
  AttentionCapabilities can = AttentionCapabilities::of_pairs();
  can.weights = can.dropout = can.state = can.grouped = false;
  return can;
}();
inline const AttentionCapabilities kPlaced = [] {
  AttentionCapabilities can = kAll;
  can.aligned = true;
  can.why = "positions count";
  return can;
}();

// Distances j - (i + S - T) of queries i and keys j: [T, S].
inline Tensor distances(const Tensor& q, const Tensor& k) {
  const Index T = q.dim(2), S = k.dim(2);
  const Tensor places = Tensor::arange(T).view({T, 1}).to(q.dtype()) + static_cast<double>(S - T);
  return Tensor::arange(S).view({1, S}).to(q.dtype()) - places;
}
// Checks that the kit passes each mechanism.
inline void check_pass(const std::vector<Right>& mechanisms) {
  int number = 0;
  for (Right right : mechanisms) {
    const int at = number++;
    if (!is_taken(at, 6)) continue;
    // Varies the number of positions. Mechanisms must also pass with few positions, where little is checked.
    right.options.longest = at % 3 == 0 ? 70 : at % 3 == 1 ? 9 : 40;
    right.options.seed = static_cast<std::uint64_t>(number);
    const ConformanceReport report = check_conformance(right.make, right.options);
    std::ostringstream text;
    text << right.what << ", number " << number << "\n" << report;
    INFO(text.str());
    CHECK(report.failed() == Names{});
    CHECK(report.checks.size() > 4);
  }
}

}  // namespace heed::test
