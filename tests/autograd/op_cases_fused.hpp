// The second part of the table of op_cases.hpp: shape ops, products, fused ops, attention, members of Tensor.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/gated_attention.hpp>

#include "tests/autograd/op_cases.hpp"
#include "tests/autograd/op_cases_convolution.hpp"

namespace heed::test {

inline std::vector<OpCase> shape_cases() {
  const std::vector<Shape> rows = {{3, N}}, pair = {{2, N}, {2, N}};
  return {
      {"gather", rows,
       [](const List& x) {
         const Index n = axis_size(x[0], 1);
         return gather(x[0], 1, places({3, 2 * n}, n));
       },
       kNoScalar | kAnyType | kHidesNan},
      {"scatter_add", pair,
       [](const List& x) { return scatter_add(x[0], 1, places(x[1].shape(), axis_size(x[0], 1)), x[1]); }, kNoScalar},
      {"index_select", rows,
       [](const List& x) {
         const Index n = axis_size(x[0], 1);
         return index_select(x[0], -1, places({n + 2}, n));
       },
       kNoScalar | kAnyType | kNotEmpty | kHidesNan},
      {"index_select of rows", rows, [](const List& x) { return index_select(x[0], 0, places({5}, 3)); },
       kNoScalar | kAnyType},
      {"concatenate", pair,
       [](const List& x) {
         return concatenate({x[0], x[1], x[0]}, -1);
       },
       kNoScalar | kAnyType},
      {"stack", pair,
       [](const List& x) {
         return stack({x[0], x[1]}, -1);
       },
       kAnyType},
      {"split", rows, [](const List& x) { return split(x[0], 2, 0)[1]; }, kNoScalar | kAnyType | kHidesNan},
      {"tril", {{N, N}}, [](const List& x) { return tril(x[0], 1); }, kNoScalar | kAnyType},
      {"triu", {{2, 3, N}}, [](const List& x) { return triu(x[0]); }, kNoScalar | kAnyType},
      {"repeat", rows,
       [](const List& x) {
         return repeat(x[0], {2, 1, 3});
       },
       kAnyType},
      {"flip", rows, [](const List& x) { return flip(x[0], {-1}); }, kAnyType},
  };
}

inline std::vector<OpCase> product_cases() {
  return {
      {"linear", {{3, N}, {5, N}, {5}}, [](const List& x) { return linear(x[0], x[1], x[2]); }, kNoScalar, -2, 2, 2},
      {"linear to many",
       {{2, 2, 3}, {N, 3}, {N}},
       [](const List& x) { return linear(x[0], x[1], x[2]); },
       kNoScalar,
       -2,
       2,
       2},
      {"feed_forward",
       {{3, N}, {5, N}, {5}, {4, 5}, {4}},
       [](const List& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4], Activation::gelu); },
       kNoScalar,
       -2,
       2,
       2},
      {"feed_forward by way of many",
       {{2, 2, 3}, {N, 3}, {N}, {4, N}, {4}},
       [](const List& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4], Activation::silu); },
       kNoScalar,
       -1,
       1,
       2},
      {"add_low_rank",
       {{3, 7}, {3, N}, {4, N}, {5, 2}},
       [](const List& x) {
         return add_low_rank(x[0], x[1], x[2], x[3], {{0, 2}, {4, 3}}, 0.5);
       },
       kNoScalar},
      {"add_low_rank to many",
       {{2, 2, N}, {2, 2, 3}, {2, 3}, {N, 2}},
       [](const List& x) {
         return add_low_rank(x[0], x[1], x[2], x[3], {{0, axis_size(x[3], 0)}}, -2);
       },
       kNoScalar},
      {"gated", {{3, N}}, [](const List& x) { return gated(x[0], Activation::silu); }, kNoScalar | kEven},
      {"gated by gelu",
       {{2, 3, N}},
       [](const List& x) { return gated(x[0], Activation::gelu_tanh); },
       kNoScalar | kEven},
      {"matmul", {{3, N}, {N, 4}}, [](const List& x) { return matmul(x[0], x[1]); }, kNoScalar},
      {"matmul to many", {{2, 3, 4}, {4, N}}, [](const List& x) { return matmul(x[0], x[1]); }, kNoScalar},
      {"matmul of many", {{N, 4}, {2, 4, 3}}, [](const List& x) { return matmul(x[0], x[1]); }, kNoScalar},
      {"linear by a weight that is used again",
       {{3, N}, {N, N}, {N}},
       [](const List& x) {
         const WeightReuse reuse;
         return linear(linear(x[0], x[1], x[2]), x[1], x[2]);
       },
       kNoScalar,
       -2,
       2,
       2},
      {"matmul of vectors", {{N}, {N}}, [](const List& x) { return matmul(x[0], x[1]); }, kNoScalar},
      {"matmul of a vector", {{N}, {2, N, 3}}, [](const List& x) { return matmul(x[0], x[1]); }, kNoScalar},
  };
}

inline std::vector<OpCase> fused_cases() {
  const std::vector<Shape> rows = {{3, N}}, pair = {{3, N}, {3, N}};
  std::vector<OpCase> list = {
      {"layer_norm",
       {{3, N}, {N}, {N}},
       [](const List& x) { return layer_norm(x[0], x[1], x[2]); },
       kNoScalar | kNotEmpty,
       -2,
       2,
       1},
      {"layer_norm bare", rows, [](const List& x) { return layer_norm(x[0], Tensor(), Tensor()); },
       kNoScalar | kNotEmpty},
      {"rms_norm", {{3, N}, {N}}, [](const List& x) { return rms_norm(x[0], x[1]); }, kNoScalar | kNotEmpty, -2, 2, 1},
      {"normalize", rows, [](const List& x) { return normalize(x[0]); }, kNoScalar | kNotEmpty},
      {"embedding",
       {{5, N}},
       [](const List& x) { return embedding(places({4}, axis_size(x[0], 0)), x[0]); },
       kNoScalar | kHidesNan},
      {"dropout", rows, [](const List& x) { return dropout(x[0], 0.3); }, kHidesNan},
      {"recompute", pair,
       [](const List& x) { return recompute([](const List& y) { return dropout(exp(y[0]) * y[1], 0.3); }, x); },
       kAnyName | kHidesNan},
      {"rope", {{2, 3, N}}, [](const List& x) { return rope(x[0], {.offset = 2}); }, kNoScalar | kEven},
      {"rope interleaved",
       {{2, 3, N}},
       [](const List& x) { return rope(x[0], {.base = 100, .interleaved = true}); },
       kNoScalar | kEven},
  };
  constexpr std::pair<const char*, RecurrentKind> kinds[] = {{"tanh", RecurrentKind::rnn_tanh},
                                                             {"relu", RecurrentKind::rnn_relu},
                                                             {"gru", RecurrentKind::gru},
                                                             {"original gru", RecurrentKind::gru_original},
                                                             {"lstm", RecurrentKind::lstm}};
  for (const auto& [name, kind] : kinds) {
    const Index gates = recurrent_gates(kind) * 2, states = recurrent_states(kind) * 2;
    list.push_back({std::string("recurrent_cell ") + name,
                    {{N, gates}, {gates, 2}, {N, states}, {gates}},
                    [k = kind](const List& x) { return recurrent_cell(k, x[0], x[2], x[1], x[3]); },
                    kNoScalar,
                    -2,
                    2,
                    2});
    list.push_back({std::string("recurrent_sequence ") + name,
                    {{2, N, gates}, {gates, 2}, {2, states}, {gates}},
                    [k = kind](const List& x) { return recurrent_sequence(k, x[0], x[2], x[1], x[3]); },
                    kNoScalar,
                    -2,
                    2,
                    2});
  }
  // Three targets; the last may be ignored.
  const auto targets = [](const Tensor& x) { return places({axis_size(x, 0)}, axis_size(x, -1)); };
  for (const bool plain : {true, false}) {
    const std::string how = plain ? "" : " smoothed and weighted";
    const auto options = [plain](const Tensor& x, Reduction reduction) -> CrossEntropyOptions {
      if (plain) return {.reduction = reduction};
      return {.ignore_index = 2,
              .label_smoothing = 0.1,
              .weight = spread({axis_size(x, -1)}, 0.5, 2).to(x.dtype()),
              .reduction = reduction};
    };
    list.push_back({"cross_entropy" + how, rows,
                    [=](const List& x) { return cross_entropy(x[0], targets(x[0]), options(x[0], Reduction::mean)); },
                    kNoScalar | kNotEmpty});
    list.push_back({"cross_entropy of rows" + how, rows,
                    [=](const List& x) { return cross_entropy(x[0], targets(x[0]), options(x[0], Reduction::none)); },
                    kNoScalar | kNotEmpty});
    for (const Reduction reduction : {Reduction::mean, Reduction::none}) {
      list.push_back({"linear_cross_entropy" + how,
                      {{3, 2}, {N, 2}, {N}},
                      [=](const List& x) {
                        const Tensor like = Tensor::empty({3, axis_size(x[1], 0)}, x[0].dtype());
                        return linear_cross_entropy(x[0], x[1], x[2], places({3}, axis_size(x[1], 0)),
                                                    options(like, reduction));
                      },
                      kNoScalar | kNotEmpty,
                      -2,
                      2,
                      2});
    }
  }
  list.push_back({"weighted_mean",
                  {{2, N}},
                  [](const List& x) { return weighted_mean(x[0], spread({axis_size(x[0], -1)}, 0.5, 2)); },
                  kNoScalar | kAnyType | kDots});
  for (const Reduction r : {Reduction::mean, Reduction::none}) {
    const std::string how = r == Reduction::none ? " of elements" : "";
    list.push_back({"mse_loss" + how, pair, [r](const List& x) { return mse_loss(x[0], x[1], r); }});
    list.push_back({"l1_loss" + how, pair, [r](const List& x) { return l1_loss(x[0], x[1], r); }});
    list.push_back({"huber_loss" + how, pair,
                    [r](const List& x) { return huber_loss(x[0], x[1], {.delta = 0.7, .reduction = r}); }});
    list.push_back({"binary_cross_entropy_with_logits" + how, pair,
                    [r](const List& x) {
                      const DType t = is_floating(x[0].dtype()) ? x[0].dtype() : DType::float32;  // bool8 cannot hold 2
                      return binary_cross_entropy_with_logits(x[0], x[1],
                                                              {.pos_weight = Tensor::scalar(2, t), .reduction = r});
                    },
                    0, 0.1, 0.9});
    list.push_back(
        {"kl_div" + how, pair, [r](const List& x) { return kl_div(x[0], x[1], {.reduction = r}); }, 0, 0.1, 0.9});
    list.push_back({"kl_div log" + how, pair,
                    [r](const List& x) { return kl_div(x[0], x[1], {.log_target = true, .reduction = r}); }});
  }
  return list;
}

// Query i attends to the keys i, i + 2, ...
inline KeyLists every_other_key(const Tensor& q, const Tensor& k) {
  std::vector<std::int32_t> offsets = {0}, keys;
  for (Index i = 0; i < axis_size(q, 2); ++i) {
    for (Index j = i; j < axis_size(k, 2); j += 2) keys.push_back(static_cast<std::int32_t>(j));
    offsets.push_back(static_cast<std::int32_t>(keys.size()));
  }
  return {Tensor::from(offsets, {static_cast<Index>(offsets.size())}),
          Tensor::from(keys, {static_cast<Index>(keys.size())})};
}

inline std::vector<OpCase> attention_cases() {
  const std::vector<Shape> width = {{2, 2, 3, N}, {2, 1, 4, N}, {2, 1, 4, N}},  // grouped-query
      length = {{1, 2, N, 3}, {1, 2, N, 3}, {1, 2, N, 2}}, keys = {{1, 2, 2, 3}, {1, 2, N, 3}, {1, 2, N, 2}};
  return {
      {"attention", width, [](const List& x) { return attention(x[0], x[1], x[2]); }, kNoScalar | kNotEmpty | kDots},
      {"attention causal", length, [](const List& x) { return attention(x[0], x[1], x[2], {.causal = true}, 0.5); },
       kNoScalar | kDots},
      {"attention of keys", keys, [](const List& x) { return attention(x[0], x[1], x[2]); }, kNoScalar | kDots},
      {"attention masked", keys,
       [](const List& x) {
         const Index n = axis_size(x[1], 2);
         return attention(x[0], x[1], x[2],
                          {.key_lengths = Tensor::full({1}, static_cast<double>(n / 2), DType::int32), .dropout = 0.2});
       },
       kNoScalar | kHidesNan | kDots},
      {"additive_attention",
       {{2, 2, 3, N}, {2, 1, 4, N}, {2, 1, 4, N}, {2, N}},
       [](const List& x) { return additive_attention(x[0], x[1], x[2], x[3]); },
       kNoScalar | kNotEmpty},
      {"additive_attention causal",
       {{1, 2, N, 3}, {1, 2, N, 3}, {1, 2, N, 2}, {2, 3}},
       [](const List& x) { return additive_attention(x[0], x[1], x[2], x[3], {.causal = true}); },
       kNoScalar},
      {"additive_attention masked",
       {{1, 2, 2, 3}, {1, 2, N, 3}, {1, 2, N, 2}, {2, 3}},
       [](const List& x) {
         const Index n = axis_size(x[1], 2);
         return additive_attention(
             x[0], x[1], x[2], x[3],
             {.key_lengths = Tensor::full({1}, static_cast<double>(n / 2), DType::int32), .dropout = 0.2});
       },
       kNoScalar | kHidesNan},
      {"gated_attention",
       {{1, 2, 3, N}, {1, 2, 3, N}, {1, 4, 3, 2}, {4, 3}, {1, 4, 3}},
       [](const List& x) { return gated_attention(x[0], x[1] * 0.1, x[2], {.log_gate = x[3], .beta = x[4]}); },
       kNoScalar | kNotEmpty | kHidesNan | kAnyName,
       -2,
       0,
       3},
      {"gated_attention by channels",
       {{1, 1, N, 3}, {1, 1, N, 3}, {1, 2, N, 2}, {1, 2, N, 3}, {2, N}},
       [](const List& x) { return gated_attention(x[0], x[1] * 0.1, x[2], {.log_gate = x[3], .beta = x[4]}); },
       kNoScalar | kHidesNan | kAnyName,
       -2,
       0,
       3},
      {"linear_attention", width, [](const List& x) { return linear_attention(x[0], x[1], x[2]); },
       kNoScalar | kNotEmpty},
      {"linear_attention causal", length,
       [](const List& x) {
         return linear_attention(x[0], x[1], x[2], {.causal = true}, {.feature_map = FeatureMap::softplus});
       },
       kNoScalar},
      {"linear_attention masked", keys,
       [](const List& x) {
         const Index n = axis_size(x[1], 2);
         return linear_attention(x[0], x[1], x[2],
                                 {.key_lengths = Tensor::full({1}, static_cast<double>(n / 2), DType::int32)},
                                 {.eps = 0.1});
       },
       kNoScalar | kHidesNan},
      {"linear_attention biased",
       {{1, 2, 2, 3}, {1, 2, N, 3}, {1, 2, N, 2}, {2, 1, N}},
       [](const List& x) { return linear_attention(x[0], x[1], x[2], {.bias = x[3]}); },
       kNoScalar,
       -2,
       2,
       3},
      {"sparse_attention", width,
       [](const List& x) { return sparse_attention(x[0], x[1], x[2], every_other_key(x[0], x[1])); },
       kNoScalar | kNotEmpty | kHidesNan},
      {"sparse_attention of keys", keys,
       [](const List& x) { return sparse_attention(x[0], x[1], x[2], every_other_key(x[0], x[1]), {.dropout = 0.2}); },
       kNoScalar | kHidesNan},
      {"sparse_attention biased",
       {{1, 2, 2, 3}, {1, 2, N, 3}, {1, 2, N, 2}, {2, N}},
       [](const List& x) { return sparse_attention(x[0], x[1], x[2], every_other_key(x[0], x[1]), {.bias = x[3]}); },
       kNoScalar | kHidesNan,
       -2,
       2,
       3},
      {"attention biased",
       {{1, 2, 2, 3}, {1, 2, N, 3}, {1, 2, N, 2}, {2, N}},
       [](const List& x) { return attention(x[0], x[1], x[2], {.bias = x[3]}); },
       kNoScalar,
       -2,
       2,
       3},
      {"flex_attention",
       {{2, 2, 3, N}, {2, 1, 4, N}, {2, 1, 4, N}, {2, 5}, {2}},
       [](const List& x) {
         return flex_attention(x[0], x[1], x[2], {.score_mod = relative_bias(x[3]), .sinks = x[4]});
       },
       kNoScalar | kNotEmpty | kAnyName},  // errors of a table are those of relative_bias()
      {"flex_attention of a function",
       {{1, 2, N, 3}, {1, 2, N, 3}, {1, 2, N, 2}, {2}},
       [](const List& x) {
         const auto f = [](auto s, int, int h, int q, int k, auto by) { return by(h) * tanh(s) + 0.1 * (q - k); };
         const BlockMask mask = create_block_mask(sliding_window(3), 1, 1, axis_size(x[0], 2), axis_size(x[1], 2));
         return flex_attention(x[0], x[1], x[2], {.score_mod = {f, x[3]}, .block_mask = mask});
       },
       kNoScalar | kAnyName},  // a parameter may have another floating dtype
  };
}

// Members of Tensor: views, which are not recorded, and copies, which are.
inline std::vector<OpCase> member_cases() {
  std::vector<OpCase> list;
  const auto one = [&](const char* name, const Shape& shape, Tensor (*f)(const Tensor&), unsigned except = 0) {
    list.push_back({name, {shape}, [f](const List& x) { return f(x[0]); }, except | kAnyType | kAnyName});
  };
  one(
      "select", {3, N}, [](const Tensor& x) { return x.select(0, -1); }, kNoScalar | kHidesNan);
  one(
      "slice", {4, N}, [](const Tensor& x) { return x.slice(0, 0, 4, 2); }, kNoScalar | kHidesNan);
  one(
      "transpose", {2, N}, [](const Tensor& x) { return x.t(); }, kNoScalar);
  one(
      "permute", {2, 3, N},
      [](const Tensor& x) {
        return x.permute({2, 0, 1});
      },
      kNoScalar);
  one("unsqueeze", {N}, [](const Tensor& x) { return x.unsqueeze(-1).squeeze(-1); });
  one("expand", {N}, [](const Tensor& x) { return x.expand(Shape{3} + x.shape()); });
  one("view", {2, N}, [](const Tensor& x) { return x.reshape({x.numel()}).view({1, x.numel()}); });
  one(
      "reshape", {2, N}, [](const Tensor& x) { return x.transpose(0, -1).reshape({x.numel()}); }, kNoScalar);
  one("flatten", {2, 3, N}, [](const Tensor& x) { return x.flatten(); });
  one("clone", {2, N}, [](const Tensor& x) { return x.clone(); });
  one(
      "contiguous", {2, N}, [](const Tensor& x) { return x.transpose(0, -1).contiguous(); }, kNoScalar);
  one(
      "to", {2, N}, [](const Tensor& x) { return x.to(DType::float32).to(x.dtype()); }, kRounds);
  return list;
}

inline const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> list;
    for (auto part : {elementwise_cases(), reduction_cases(), shape_cases(), product_cases(), fused_cases(),
                      convolution_cases(), attention_cases(), member_cases()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

}  // namespace heed::test
