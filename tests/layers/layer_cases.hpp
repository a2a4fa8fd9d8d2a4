// A table of all layers, for the tests that all layers share: layer_cases_test.cpp.
#pragma once
#include <algorithm>
#include <functional>
#include <heed/heed.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/model.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heed::test {

using List = std::vector<Tensor>;

std::vector<std::string> names_of(auto& model) {  // names of parameters
  std::vector<std::string> list;
  for (const NamedParameter& p : named_parameters(model)) list.push_back(p.name);
  return list;
}

// A layer of any type, and a call of it with inputs.
struct AnyLayer {
  std::function<void(DType)> convert;
  std::function<std::vector<NamedParameter>()> parameters;
  std::function<Tensor(const List&)> call;
};

template <class L, class F>
AnyLayer any_layer(L layer, F call) {
  const auto shared = std::make_shared<L>(std::move(layer));
  return {[shared](DType t) { to(*shared, t); }, [shared] { return named_parameters(*shared); },
          [shared, call](const List& x) { return call(*shared, x); }};
}
template <class L>
AnyLayer any_layer(L layer) {
  return any_layer(std::move(layer), [](const L& l, const List& x) { return l(x[0]); });
}

struct LayerCase {
  std::string name;
  std::function<std::vector<Shape>(Index n)> inputs;  // shapes of the floating inputs; n is the varying width
  std::function<AnyLayer(Index n, Rng& rng)> make;
  Index step = 1;         // n is a multiple of this
  bool per_batch = true;  // sequences of a batch do not affect each other
};

// A user-defined mechanism: the mean of the values, times a learned factor.
struct MeanAttention {
  Parameter factor{Tensor::full({1}, 2)};

  std::string name() const { return "mean"; }
  AttentionCapabilities capabilities() const { return {.cross = true, .why = "a mean has no order"}; }
  Tensor apply(In q, In, In v, const AttentionCall&) const {
    return mean(v, 2, true).expand(v.shape().with(2, q.dim(2))) * factor;
  }
  void members(auto&& visit) { visit("factor", factor); }
};

// int32 [2, 3] with values below n, the same each time.
inline Tensor words(Index n) { return Rng(9).integers({2, 3}, 0, n); }

// Lengths for x [B, T, ...]: `second` for the second sequence (at most T), T for the others.
inline Tensor lengths(const Tensor& x, double second) {
  Tensor n = Tensor::full({x.dim(0)}, static_cast<double>(x.dim(1)), DType::int32);
  n.slice(0, 1, 2).fill_(std::min(second, static_cast<double>(x.dim(1))));
  return n;
}

inline std::vector<LayerCase> simple_layers() {
  const auto sequence = [](Index n) { return std::vector<Shape>{{2, 3, n}}; };
  const auto none = [](Index) { return std::vector<Shape>{}; };
  std::vector<LayerCase> list = {
      {"Linear", sequence, [](Index n, Rng& rng) { return any_layer(Linear(n, 5, rng)); }},
      {"NextSentence", sequence,
       [](Index n, Rng& rng) {
         return any_layer(NextSentence(n, rng), [n](const NextSentence& l, const List& x) {  // of each position
           const Index rows = x[0].dim(0), length = x[0].dim(1);
           return l(x[0].reshape({rows * length, 1, n})).view({rows, length, 2});
         });
       }},
      {"Linear to many",
       [](Index) {
         return std::vector<Shape>{{2, 3, 4}};
       },
       [](Index n, Rng& rng) { return any_layer(Linear(4, n, rng, {.bias = false})); }},
      {"Embedding", none,
       [](Index n, Rng& rng) {
         return any_layer(Embedding(7, n, rng), [](const Embedding& l, const List&) { return l(words(7)); });
       }},
      {"LayerNorm", sequence, [](Index n, Rng&) { return any_layer(LayerNorm(n)); }},
      {"LayerNorm without bias", sequence, [](Index n, Rng&) { return any_layer(LayerNorm(n, 1e-5, false)); }},
      {"RMSNorm", sequence, [](Index n, Rng&) { return any_layer(RMSNorm(n)); }},
      {"Norm, layer", sequence, [](Index n, Rng&) { return any_layer(Norm({NormKind::layer}, n)); }},
      {"Norm, rms", sequence, [](Index n, Rng&) { return any_layer(Norm({NormKind::rms}, n)); }},
      {"Dropout", sequence, [](Index, Rng&) { return any_layer(Dropout{0.4}); }},
      {"LearnedPositions", sequence,
       [](Index n, Rng& rng) {
         return any_layer(LearnedPositions(6, n, rng),
                          [](const LearnedPositions& l, const List& x) { return x[0] + l(x[0].dim(1), 2); });
       }},
      {"SinusoidalPositions", sequence,
       [](Index n, Rng&) {
         return any_layer(SinusoidalPositions(6, n), [](const SinusoidalPositions& l, const List& x) {
           return x[0] + l(x[0].dim(1), 1, x[0].dtype());
         });
       }},
      {"Sequential", sequence,
       [](Index n, Rng& rng) {
         return any_layer(Sequential(
             Linear(n, 7, rng), gelu, LayerNorm(7), [](In x) { return elu(x, 0.5); }, Linear(7, n, rng)));
       }},
  };
  list.push_back({"GRU", sequence, [](Index n, Rng& rng) {
                    return any_layer(
                        GRU({.input = n, .hidden = 3, .layers = 2, .bidirectional = true, .dropout = 0.2}, rng),
                        [](const GRU& l, const List& x) { return l(x[0], {.lengths = lengths(x[0], 2)}).y; });
                  }});
  list.push_back({"LSTM", sequence, [](Index n, Rng& rng) {
                    return any_layer(LSTM({.input = n, .hidden = 3}, rng),
                                     [](const LSTM& l, const List& x) { return l(x[0]).y; });
                  }});
  list.push_back({"LSTMN", sequence, [](Index n, Rng& rng) {
                    return any_layer(LSTMN({.input = n, .hidden = 3}, rng), [](const LSTMN& l, const List& x) {
                      return l(x[0], {.lengths = lengths(x[0], 2)}).y;
                    });
                  }});
  for (const FeedForwardKind kind : {FeedForwardKind::relu, FeedForwardKind::gelu, FeedForwardKind::gelu_tanh,
                                     FeedForwardKind::silu, FeedForwardKind::swiglu, FeedForwardKind::relu_squared}) {
    list.push_back({"FeedForward " + std::to_string(static_cast<int>(kind)), sequence, [kind](Index n, Rng& rng) {
                      return any_layer(FeedForward(n, rng, {.hidden = n + 2, .activation = kind, .dropout = 0.2}));
                    }});
  }
  return list;
}

inline std::vector<LayerCase> attention_layers() {
  const auto self = [](Index n) { return std::vector<Shape>{{2, 3, n}}; };
  const auto cross = [](Index n) { return std::vector<Shape>{{2, 3, n}, {2, 5, 6}}; };
  const Tensor mask = Tensor::from<bool>({1, 0, 1, 1, 1, 0}, {2, 3});
  std::vector<LayerCase> list;
  const auto add = [&](const char* name, auto inputs, Index step, MultiHeadAttentionOptions o,
                       const std::function<AttentionMechanism()>& mechanism, auto call) {
    list.push_back({std::string("MultiHeadAttention ") + name, inputs,
                    [=](Index n, Rng& rng) mutable {
                      o.width = n;
                      return any_layer(MultiHeadAttention(o, rng, mechanism()), call);
                    },
                    step});
  };
  using Layer = MultiHeadAttention;
  const auto softmax = [] { return AttentionMechanism(SoftmaxAttention{}); };
  add("of one head", self, 1, {.dropout = 0.2}, softmax, [](const Layer& l, const List& x) { return l(x[0]); });
  add("causal", self, 2, {.heads = 2}, softmax,
      [](const Layer& l, const List& x) { return l(x[0], {.causal = true}); });
  add("rotary, causal", self, 4, {.heads = 2, .rope = true}, softmax,
      [](const Layer& l, const List& x) { return l(x[0], {.causal = true}); });
  add("of normed queries and keys", self, 4, {.heads = 2, .rope = true, .qk_norm = true}, softmax,
      [](const Layer& l, const List& x) { return l(x[0], {.causal = true}); });
  add("grouped, masked", self, 2, {.heads = 2, .kv_heads = 1, .bias = false}, softmax,
      [=](const Layer& l, const List& x) {
        return l(x[0], {.key_mask = mask.slice(0, 0, x[0].dim(0)).slice(1, 0, x[0].dim(1))});
      });
  add("to a memory", cross, 2, {.heads = 2, .memory_width = 6}, softmax,
      [=](const Layer& l, const List& x) { return l(x[0], x[1], {.key_lengths = lengths(x[1], 2)}); });
  add(
      "to keys and values",
      [](Index n) {
        return std::vector<Shape>{{2, 3, n}, {2, 5, 6}, {2, 5, 4}};
      },
      2, {.heads = 2, .kv_heads = 1, .memory_width = 6, .value_width = 4}, softmax,
      [=](const Layer& l, const List& x) { return l(x[0], x[1], x[2], {.key_lengths = lengths(x[1], 2)}); });
  const auto linear = [] { return AttentionMechanism(LinearAttention{}); };
  add("linear, causal", self, 2, {.heads = 2}, linear,
      [](const Layer& l, const List& x) { return l(x[0], {.causal = true}); });
  add("linear, to a memory", cross, 2, {.heads = 2, .memory_width = 6}, linear,
      [=](const Layer& l, const List& x) { return l(x[0], x[1], {.key_lengths = lengths(x[1], 2)}); });
  add(
      "by a user's mechanism", self, 2, {.heads = 2}, [] { return AttentionMechanism(MeanAttention{}); },
      [](const Layer& l, const List& x) { return l(x[0]); });
  return list;
}

// Mechanisms with parameters, made for the sizes of heads.
inline std::vector<LayerCase> mechanism_layers() {
  using Layer = MultiHeadAttention;
  using Make = std::function<AttentionMechanism(Index size, Rng & rng)>;
  std::vector<LayerCase> list;
  const auto add = [&](const char* name, const Make& make) {
    list.push_back({std::string("MultiHeadAttention ") + name,
                    [](Index n) {
                      return std::vector<Shape>{{2, 3, n}};
                    },
                    [=](Index n, Rng& rng) {
                      return any_layer(Layer({.width = n, .heads = 2}, rng, make(n / 2, rng)),
                                       [](const Layer& l, const List& x) {
                                         return l(x[0], {.causal = true, .key_lengths = lengths(x[0], 2)});
                                       });
                    },
                    2});
  };
  add("luong-dot", [](Index, Rng&) { return LuongDot{}; });
  add("luong-general", [](Index size, Rng& rng) { return LuongGeneral(2, size, rng); });
  add("luong-concat", [](Index size, Rng& rng) { return LuongConcat(2, size, rng, {.units = 5}); });
  add("luong-location", [](Index size, Rng& rng) { return LuongLocation(2, size, rng, {.positions = 4}); });
  add("bahdanau", [](Index size, Rng& rng) { return BahdanauAttention(2, size, rng); });
  add("bahdanau, normalized",
      [](Index size, Rng& rng) { return BahdanauAttention(2, size, rng, {.units = 3, .normalized = true}); });
  add("cosine", [](Index size, Rng& rng) { return CosineAttention(2, size, rng); });
  return list;
}

inline std::vector<LayerCase> transformer_layers() {
  const auto encoded = [](Index n) { return std::vector<Shape>{{2, 3, n}}; };
  const auto decoded = [](Index n) { return std::vector<Shape>{{2, 3, n}, {2, 4, n}}; };
  std::vector<LayerCase> list;
  for (const bool first : {false, true}) {
    for (const NormKind norm : {NormKind::layer, NormKind::rms}) {
      TransformerOptions o = {.layers = 2,
                              .attention = {.heads = 2},
                              .hidden = 5,
                              .dropout = 0.1,
                              .activation = FeedForwardKind::gelu,
                              .norm = norm,
                              .norm_first = first};
      const std::string how =
          std::string(first ? ", norms first" : ", norms last") + (norm == NormKind::rms ? ", rms" : "");
      list.push_back({"Transformer encoder" + how, encoded,
                      [o](Index n, Rng& rng) mutable {
                        o.attention.width = n;
                        return any_layer(Transformer(o, rng), [](const Transformer& l, const List& x) {
                          return l(x[0], {.key_lengths = lengths(x[0], 2)});
                        });
                      },
                      4});
      list.push_back({"Transformer decoder" + how, decoded,
                      [o](Index n, Rng& rng) mutable {
                        o.attention.width = o.attention.memory_width = n;
                        o.layers = 1, o.causal = true;
                        return any_layer(Transformer(o, rng), [](const Transformer& l, const List& x) {
                          return l(x[0], x[1], {}, {.key_lengths = lengths(x[1], 1)});
                        });
                      },
                      4});
    }
  }
  list.push_back({"TransformerBlock, recomputed", encoded,
                  [](Index n, Rng& rng) {
                    return any_layer(
                        TransformerBlock(
                            {.attention = {.width = n, .heads = 2}, .hidden = 6, .dropout = 0.2, .causal = true}, rng),
                        [](const TransformerBlock& l, const List& x) {
                          return recompute([&](const List& v) { return l(v[0]); }, x);
                        });
                  },
                  4});
  const auto none = [](Index) { return std::vector<Shape>{}; };
  GPTOptions o = {.vocabulary = 11, .context = 6, .blocks = {.layers = 2, .attention = {.heads = 2}, .dropout = 0.1}};
  const auto add_gpt = [&](const char* name, Index step) {
    list.push_back({name, none,
                    [o](Index n, Rng& rng) mutable {
                      o.blocks.attention.width = n;
                      return any_layer(GPT(o, rng),
                                       [](const GPT& l, const List&) { return l.loss(words(11), words(10)); });
                    },
                    step});
  };
  add_gpt("GPT", 4);
  o.blocks.norm = NormKind::rms, o.positions = PositionKind::rope, o.blocks.activation = FeedForwardKind::swiglu,
  o.blocks.attention.kv_heads = 1, o.tied = false;
  add_gpt("GPT, rotary, swiglu, grouped, untied", 4);
  o.positions = PositionKind::sinusoidal, o.blocks.activation = FeedForwardKind::silu, o.blocks.attention.bias = false,
  o.blocks.dropout = 0;
  add_gpt("GPT, sinusoidal, without bias", 4);
  list.push_back({"BERT, padded", none,
                  [](Index n, Rng& rng) {
                    return any_layer(
                        BERT({.vocabulary = 11,
                              .context = 6,
                              .blocks = {.layers = 2, .attention = {.width = n, .heads = 2}, .dropout = 0.1}},
                             rng),
                        [](const BERT& l, const List&) { return l.loss(words(11), words(10), lengths(words(11), 2)); });
                  },
                  4});
  TransformerSeq2SeqOptions t = {
      .source_vocabulary = 11, .target_vocabulary = 11, .blocks = {.attention = {.heads = 2}, .hidden = 6}};
  t.blocks.layers = t.decoder_layers = 1, t.joined = true, t.blocks.activation = FeedForwardKind::gelu;
  const auto add_translator = [&](const char* name) {
    list.push_back({name, none,
                    [t](Index n, Rng& rng) mutable {
                      t.blocks.attention.width = n;
                      return any_layer(TransformerSeq2Seq(t, rng), [](const TransformerSeq2Seq& l, const List&) {
                        Batch b;
                        b["source"] = words(10), b["source_lengths"] = lengths(words(10), 2);
                        b.inputs = words(11), b.targets = words(9);
                        return l.loss(b);
                      });
                    },
                    4});
  };
  add_translator("TransformerSeq2Seq, joined, norms last");
  t.blocks.norm_first = true, t.positions = PositionKind::learned, t.joined = t.tied = t.scaled_embedding = false;
  add_translator("TransformerSeq2Seq, untied, norms first, learned positions");
  return list;
}

// A translation model of convolutions, with a padded source.
template <class M, class Options>
LayerCase translator_case(const char* name, Options o) {
  const auto make = [o](Index n, Rng& rng) mutable {
    o.source_vocabulary = o.target_vocabulary = 11, o.width = n, o.hidden = 5;
    return any_layer(M(o, rng), [](const M& l, const List&) {
      Batch b;
      b["source"] = words(10), b["source_lengths"] = lengths(words(10), 2);
      b.inputs = words(11), b.targets = words(9);
      return l.loss(b);
    });
  };
  return {name, [](Index) { return std::vector<Shape>{}; }, make, 4};
}

// Layers of channels [N, C, ...], on sequences [B, T, C].
inline std::vector<LayerCase> channel_layers() {
  const auto sequence = [](Index n) { return std::vector<Shape>{{2, 3, n}}; };
  const auto turned = [](const auto& layer, const List& x) { return layer(x[0].t()).t(); };
  return {
      {"Conv1d", sequence, [=](Index n, Rng& rng) { return any_layer(Conv1d(n, 5, 3, rng, {.padding = 1}), turned); }},
      {"Conv1d, causal, of channels", sequence,
       [=](Index n, Rng& rng) {
         return any_layer(Conv1d(n, n, 4, rng, {.groups = n, .bias = false, .causal = true}), turned);
       }},
      {"Conv2d", sequence,
       [](Index n, Rng& rng) {
         return any_layer(Conv2d(n, 5, {3, 1}, rng, {.padding = {1, 0}}),
                          [](const Conv2d& l, const List& x) { return l(x[0].t().unsqueeze(-1)).squeeze(-1).t(); });
       }},
      {"GroupNorm", sequence, [=](Index n, Rng&) { return any_layer(GroupNorm(1, n), turned); }},
      {"BatchNorm, evaluated", sequence,
       [](Index n, Rng&) {
         return any_layer(BatchNorm(n), [](const BatchNorm& l, const List& x) {
           const Evaluation evaluation;
           return l(x[0].t()).t();
         });
       }},
      translator_case<ConvS2S>("ConvS2S", ConvS2SOptions{.layers = 1, .decoder_layers = 2, .context = 6}),
      translator_case<ByteNet>("ByteNet", ByteNetOptions{.layers = 1, .decoder_layers = 2, .dilations = 2}),
  };
}

// Blocks on images [N, C, H, W], on sequences [B, T, C] as images of one column.
inline std::vector<LayerCase> image_layers() {
  const auto sequence = [](Index n) { return std::vector<Shape>{{2, 3, n}}; };
  const auto turned = [](const auto& layer, const List& x) {
    const Evaluation evaluation;  // keeps the bases of EMAttention
    return layer(x[0].t().unsqueeze(-1)).squeeze(-1).t();
  };
  std::vector<LayerCase> list = {
      {"DoubleAttention", sequence,
       [=](Index n, Rng& rng) { return any_layer(DoubleAttention(n, rng, {.features = 3, .maps = 2}), turned); }},
      {"EMAttention", sequence,
       [=](Index n, Rng& rng) { return any_layer(EMAttention(n, rng, {.bases = 2}), turned); }}};
  for (const NonLocalKind kind :
       {NonLocalKind::gaussian, NonLocalKind::embedded, NonLocalKind::dot, NonLocalKind::concatenation})
    list.push_back({"NonLocalBlock, kind " + std::to_string(static_cast<int>(kind)), sequence,
                    [=](Index n, Rng& rng) { return any_layer(NonLocalBlock(n, rng, {.kind = kind}), turned); }});
  list.push_back({"NonLocalBlock, pyramid", sequence, [=](Index n, Rng& rng) {
                    return any_layer(NonLocalBlock(n, rng, {.pyramid = {1, 2}}), turned);
                  }});
  return list;
}

inline const std::vector<LayerCase>& layer_cases() {
  static const std::vector<LayerCase> all = [] {
    std::vector<LayerCase> list;
    for (auto part : {simple_layers(), channel_layers(), image_layers(), attention_layers(), mechanism_layers(),
                      transformer_layers()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

}  // namespace heed::test
