// Computations whose results must have the same bits on every level with fma and on every machine: trainings of models
// that cover every mechanism and optimizer, and ops with many rows. Each computation gives a hash, which is stored in
// tests/reference/training_bits.txt.
#pragma once
#include <algorithm>
#include <functional>
#include <heed/heed.hpp>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace heed::test {

struct Training {
  std::string optimizer = "adamw";
  DType dtype = DType::float32;  // of parameters
  double dropout = 0, clip = 0;
  DType products = DType::float32;
  Index steps = 3;
  bool gradients = false;  // also hashes the gradients, because the weights of a step hide most of their bits
};

// FNV-1a over the bytes of tensors.
class Hash {
 public:
  void add(const Tensor& given) {
    const Tensor x = given.contiguous();
    const auto* bytes = static_cast<const unsigned char*>(x.raw());
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.numel()) * size_of(x.dtype()); ++i)
      hash_ = (hash_ ^ bytes[i]) * 0x100000001b3;
  }
  std::string text() const {
    std::ostringstream out;
    out << std::hex << hash_;
    return out.str();
  }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

// Trains a model of tokens for some steps and returns the hash.
template <class Model, class Loss>
std::string trained(Model& model, const Training& t, const Loss& loss) {
  if (t.dtype != DType::float32) to(model, t.dtype);
  const MatmulPrecision products(t.products == DType::bfloat16 ? DType::bfloat16 : DType::float32);
  const auto optimizer =
      make_optimizer(t.optimizer, named_parameters(model), {.lr = 3e-3, .weight_decay = t.clip > 0 ? 0.1 : 0});
  const Schedule schedule("cosine", {.lr = 3e-3, .min_lr = 3e-4, .warmup = 1, .steps = 5});
  manual_seed(11);
  Hash hash;
  for (Index step = 0; step < t.steps; ++step) {
    optimizer->set_lr(schedule(step + 1));
    Tape tape;
    tape.backward(loss(step));
    if (t.gradients)
      for (const NamedParameter& p : named_parameters(model))
        if (p.parameter->grad().defined()) hash.add(p.parameter->grad());
    if (t.clip > 0) clip_grad_norm_(named_parameters(model), t.clip);
    optimizer->step();
    optimizer->zero_grad();
  }
  for (const NamedParameter& p : named_parameters(model)) hash.add(*p.parameter);
  return hash.text();
}

inline const MechanismOptions kOptions{
    .heads = 2, .head_size = 18, .context = 24, .window = 8, .stride = 4, .radius = 2};
inline constexpr Index kWords = 37, kBatch = 2, kLength = 21;
inline Tensor words(Index seed, Index length = kLength, Index batch = kBatch) {
  return Rng(static_cast<std::uint64_t>(seed) + 50).integers({batch, length}, 0, kWords);
}

inline Batch pairs(Index seed, Index length, Index batch) {
  return {.inputs = words(seed, length, batch),
          .targets = words(seed + 9, length, batch),
          .others = {{"source", words(seed + 20, length - 4, batch)}}};
}

struct Rows {
  Index batch = kBatch, length = kLength;
};

inline const TransformerOptions kBlock{.layers = 1, .attention = {.width = 36, .heads = 2}};

inline std::string language_model(const std::string& mechanism, bool causal, const Training& t,
                                  const TransformerOptions& blocks = kBlock, Rows rows = {}) {
  Rng rng(3);
  GPTOptions o{.vocabulary = kWords, .context = std::max<Index>(24, rows.length), .blocks = blocks};
  o.blocks.dropout = t.dropout;
  o.causal = causal;
  MechanismOptions options = kOptions;
  options.causal = causal, options.context = o.context, options.heads = blocks.attention.heads;
  options.head_size = blocks.attention.head_size();
  GPT model(o, rng, mechanism_by_name(mechanism, options));
  return trained(model, t, [&](Index step) {
    return model.loss(words(step, rows.length, rows.batch), words(step + 9, rows.length, rows.batch));
  });
}

inline std::string translator(const std::string& mechanism, const Training& t, Rows rows = {}) {
  Rng rng(4);
  MechanismOptions options = kOptions;
  options.causal = false, options.memory = true;
  TransformerSeq2Seq model({.source_vocabulary = kWords,
                            .target_vocabulary = kWords,
                            .blocks = {.layers = 1, .attention = {.width = 36, .heads = 2}, .dropout = t.dropout}},
                           rng, {.cross = mechanism_by_name(mechanism, options)});
  return trained(model, t, [&](Index step) {
    return model.loss(pairs(step, rows.length, rows.batch));
  });
}

inline std::string recurrent_translator(DecoderAttention attention, RecurrentKind cell, const Training& t,
                                 Rows rows = {3, 6}) {
  Rng rng(5);
  Seq2Seq model({.source_vocabulary = kWords,
                 .target_vocabulary = kWords,
                 .embedding = 19,
                 .hidden = 26,
                 .cell = cell,
                 .attention = attention,
                 .dropout = t.dropout},
                rng);
  return trained(model, t, [&](Index step) {
    return model.loss(pairs(step, rows.length, rows.batch));
  });
}

// M: ConvS2S or ByteNet.
template <class M, class Options>
std::string convolutional_translator(Options o, const Training& t) {
  Rng rng(6);
  o.source_vocabulary = o.target_vocabulary = kWords, o.width = 36, o.hidden = 22, o.layers = 2, o.dropout = t.dropout;
  M model(o, rng);
  return trained(model, t, [&](Index step) { return model.loss(pairs(step, kLength, kBatch)); });
}

using BitsCases = std::map<std::string, std::function<std::string()>>;

// Hashes an op's result and gradients for inputs of these shapes, drawn from a normal distribution.
struct BitsOp {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(const std::vector<Tensor>&)> f;
  bool bfloat16 = false;  // also runs with bfloat16 inputs; inputs of rank 1 stay float32, as biases do
};

inline std::string bits_of(const BitsOp& op, DType type) {
  Rng rng(9);
  Tape tape;
  std::vector<Tensor> in;
  for (const Shape& shape : op.shapes) {
    const bool bias = type == DType::bfloat16 && shape.rank() == 1;
    in.push_back(tape.watch(rng.normal(shape).to(bias ? DType::float32 : type)));
  }
  manual_seed(5);
  const Tensor y = op.f(in);
  tape.backward(y, rng.normal(y.shape()).to(y.dtype() == DType::bfloat16 ? DType::float32 : y.dtype()));
  Hash hash;
  hash.add(y.detach());
  for (const Tensor& x : in) hash.add(tape.grad(x));
  return hash.text();
}

// Ops that sum over many rows, or whose work is divided into blocks.
inline std::vector<BitsOp> bits_ops() {
  using List = std::vector<Tensor>;
  const std::vector<Shape> heads = {{1, 2, 530, 8}, {1, 2, 530, 8}, {1, 2, 530, 12}}, rows = {{1041, 65}, {65}, {65}};
  std::vector<BitsOp> ops = {
      {"linear", {{1040, 65}, {97, 65}, {97}}, [](const List& x) { return linear(x[0], x[1], x[2]); }, true},
      {"linear_cross_entropy",
       {{1030, 33}, {211, 33}, {211}},
       [](const List& x) { return linear_cross_entropy(x[0], x[1], x[2], Tensor::full({1030}, 7, DType::int32)); },
       true},
      {"layer_norm", rows, [](const List& x) { return layer_norm(x[0], x[1], x[2]); }},
      {"rms_norm", {{1041, 65}, {65}}, [](const List& x) { return rms_norm(x[0], x[1]); }},
      {"sums of columns", {{4097, 24}}, [](const List& x) { return variance(x[0], 0); }},
      {"softmax of columns", {{1500, 33}}, [](const List& x) { return softmax(x[0], 0); }},
      {"conv1d",
       {{3, 24, 301}, {35, 24, 3}, {35}},
       [](const List& x) { return conv1d(x[0], x[1], x[2], {.dilation = 2, .causal = true}); },
       true},
      {"conv1d strided, of groups",
       {{3, 24, 301}, {36, 8, 4}, {36}},
       [](const List& x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .groups = 3}); },
       true},
      {"conv1d of channels",
       {{3, 33, 701}, {33, 1, 4}, {33}},
       [](const List& x) { return conv1d(x[0], x[1], x[2], {.groups = 33, .causal = true}); }},
      {"avg_pool1d", {{3, 33, 301}}, [](const List& x) { return avg_pool1d(x[0], 3, {.stride = 2}); }},
      {"group_norm", {{3, 32, 301}, {32}, {32}}, [](const List& x) { return group_norm(x[0], 4, x[1], x[2]); }},
      {"cumsum of columns", {{1500, 33}}, [](const List& x) { return cumsum(x[0], 0); }},
      {"recurrent_sequence",
       {{129, 9, 132}, {132, 33}, {129, 66}, {132}},
       [](const List& x) { return recurrent_sequence(RecurrentKind::lstm, x[0], x[2], x[1], x[3]); }},
      {"attention", heads, [](const List& x) { return attention(x[0], x[1], x[2], {.causal = true}); }, true},
      {"attention, all keys, dropout", heads,
       [](const List& x) { return attention(x[0], x[1], x[2], {.dropout = 0.2}); }, true},
      {"efficient_attention", heads,
       [](const List& x) { return efficient_attention(x[0], x[1], x[2], {.causal = true}); }},
      {"additive_attention", {{1, 2, 300, 8}, {1, 2, 300, 8}, {1, 2, 300, 12}, {2, 8}}, [](const List& x) {
         return additive_attention(x[0], x[1], x[2], x[3], {.causal = true});
       }}};
  using std::pair;
  for (const auto& [name, a] :
       {pair{"relu", Activation::relu}, {"gelu", Activation::gelu}, {"silu", Activation::silu}})
    for (const Index n : {513, 1040, 1500})
      ops.push_back({std::string("feed_forward ") + name + " " + std::to_string(n),
                     {{n, 24}, {128, 24}, {128}, {20, 128}, {20}},
                     [a = a](const List& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4], a); },
                     true});
  for (const auto& [name, map] :
       {pair{"elu", FeatureMap::elu}, {"exp", FeatureMap::exp}, {"poly2", FeatureMap::poly2}})
    ops.push_back({std::string("linear_attention ") + name, heads, [m = map](const List& x) {
                     return linear_attention(x[0], x[1], x[2], {.causal = true}, {.feature_map = m});
                   }});
  for (const bool by_channel : {false, true})
    for (const bool delta : {false, true})
      ops.push_back({std::string("gated_attention") + (by_channel ? " by channels" : "") + (delta ? " with rates" : ""),
                     {{1, 2, 150, 20},
                      {1, 2, 150, 20},
                      {1, 4, 150, 12},
                      by_channel ? Shape{1, 4, 150, 20} : Shape{1, 4, 150},
                      {1, 4, 150}},
                     [delta](const List& x) {
                       const Tensor rate = sigmoid(x[4]);
                       return gated_attention(x[0], x[1] * 0.3, x[2] + (delta ? 0 : 1) * rate.unsqueeze(3),
                                              {.log_gate = -softplus(x[3]), .beta = delta ? rate : Tensor()});
                     }});
  // The biases jump by more than logarithms may rise within a chunk, and the keys subtract the jumps. In padding lanes
  // beyond the width only the biases would count, and the number of such lanes depends on the level.
  for (const Index width : {4, 8, 20})
    ops.push_back({"linear_attention exp of jumping biases, width " + std::to_string(width),
                   {{1, 2, 150, width}, {1, 2, 150, width}, {1, 2, 150, 12}},
                   [](const List& x) {
                     std::vector<float> of_key;
                     for (int j = 0; j < 150; ++j) of_key.push_back(80.f * static_cast<float>(j % 3));
                     const Tensor jumps = Tensor::from(of_key, {150}).to(x[0].dtype());
                     return linear_attention(x[0], x[1] - jumps.unsqueeze(1), x[2], {.causal = true, .bias = jumps},
                                             {.feature_map = FeatureMap::exp});
                   }});
  return ops;
}

inline BitsCases op_bits() {
  BitsCases list;
  for (const BitsOp& op : bits_ops())
    for (const auto& [of, type] :
         {std::pair{" f32", DType::float32}, {" f64", DType::float64}, {" bf16", DType::bfloat16}})
      if (op.bfloat16 || type != DType::bfloat16)
        list["op " + op.name + of] = [op, t = type] { return bits_of(op, t); };
  return list;
}

// Models whose products have enough rows for several blocks, and one model of GPT-2's width.
inline void add_large(BitsCases& list, const std::string& of, const Training& t) {
  constexpr Rows many{8, 130};
  list["1040 rows" + of] = [=] { return language_model("softmax", true, t, kBlock, many); };
  list["1040 rows, linear attention" + of] = [=] { return language_model("linear", true, t, kBlock, many); };
  list["1040 rows, encoder, ReLU" + of] = [=] {
    return language_model("softmax", false, t,
                          {.layers = 1, .attention = kBlock.attention, .activation = FeedForwardKind::relu}, many);
  };
  list["1040 rows, SwiGLU" + of] = [=] {
    return language_model(
        "softmax", true, t,
        {.layers = 1, .attention = kBlock.attention, .activation = FeedForwardKind::swiglu, .norm = NormKind::rms},
        many);
  };
  list["1040 rows, translator" + of] = [=] { return translator("softmax", t, many); };
  list["1536 rows, recurrent translator" + of] = [=] {
    return recurrent_translator(DecoderAttention::luong, RecurrentKind::lstm, t, {96, 16});
  };
  list["width 768" + of] = [=] {
    Training once = t;
    once.steps = 1;
    return language_model("softmax", true, once, {.layers = 2, .attention = {.width = 768, .heads = 12}}, {2, 36});
  };
}

inline const BitsCases& bits_cases() {
  static const BitsCases all = [] {
    BitsCases list = op_bits();
    const auto add = [&](const std::string& of, DType dtype, DType products) {
      const Training plain{.dtype = dtype, .products = products},
          whole{.dtype = dtype, .dropout = 0.1, .clip = 0.5, .products = products};
      for (const std::string& name : mechanism_names())
        list["causal " + name + of] = [=] { return language_model(name, true, plain); };
      for (const std::string& name : mechanism_names(false))
        list["masked " + name + of] = [=] { return language_model(name, false, plain); };
      for (const std::string& name : memory_mechanism_names())
        list["memory " + name + of] = [=] { return translator(name, plain); };
      for (const std::string& name : optimizer_names())
        list["optimizer " + name + of] = [=] {
          return language_model("softmax", true, {.optimizer = name, .dtype = dtype, .clip = 1, .products = products});
        };
      list["dropout and clipping" + of] = [=] { return language_model("softmax", true, whole); };
      list["dropout and clipping, translator" + of] = [=] { return translator("softmax", whole); };
      list["reversible blocks" + of] = [=] {
        TransformerOptions blocks{.layers = 3, .attention = {.width = 36, .heads = 2}};
        blocks.reversible = true;
        return language_model("softmax", true, whole, blocks);
      };
      list["rotary positions, RMSNorm and SwiGLU" + of] = [=] {
        return language_model("softmax", true, plain,
                              {.layers = 1,
                               .attention = {.width = 36, .heads = 2, .rope = true},
                               .activation = FeedForwardKind::swiglu,
                               .norm = NormKind::rms});
      };
      for (const auto attention : {DecoderAttention::none, DecoderAttention::bahdanau, DecoderAttention::luong})
        for (const auto cell : {RecurrentKind::gru, RecurrentKind::lstm, RecurrentKind::rnn_tanh}) {
          const int kind = static_cast<int>(attention) * 10 + static_cast<int>(cell);
          list["recurrent translator " + std::to_string(kind) + of] = [=] {
            return recurrent_translator(attention, cell, whole);
          };
        }
      list["ConvS2S" + of] = [=] { return convolutional_translator<ConvS2S>(ConvS2SOptions(), whole); };
      list["ByteNet" + of] = [=] { return convolutional_translator<ByteNet>(ByteNetOptions(), whole); };
      Training large = whole;
      large.steps = 2, large.gradients = true;
      add_large(list, of, large);
    };
    add(" f32", DType::float32, DType::float32);
    add(" f64", DType::float64, DType::float64);
    add(" bf16", DType::float32, DType::bfloat16);
    return list;
  }();
  return all;
}

}  // namespace heed::test
