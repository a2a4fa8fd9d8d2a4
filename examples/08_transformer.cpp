// Tutorial 8: the Transformer of "Attention is all you need" (Vaswani et al. 2017), piece by piece. Each part is a few
// lines of matmul, softmax and layer_norm. The whole is compared with the library's TransformerSeq2Seq, whose weights
// it uses. At the end the model learns to write words in reverse.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

constexpr Index kWords = 12, kWidth = 32, kHeads = 4, kSize = kWidth / kHeads, kHidden = 64, kLayers = 2;
constexpr std::int32_t kBegin = 10, kEnd = 11;  // words are 0 to 9; these begin and end a text

// ---- 1. Positions. Attention ignores the order of its input, so positions are added. Position p has its own waves:
//      PE(p, 2i) = sin(p / 10000^(2i / width)), PE(p, 2i + 1) = cos of the same. A shift by k rotates each pair by an
//      angle that depends on k only, so a layer can learn to attend k words back from any position.
Tensor waves(Index length) {
  Tensor pe = Tensor::empty({length, kWidth}, DType::float32);
  for (Index p = 0; p < length; ++p)
    for (Index i = 0; i < kWidth; i += 2) {
      const double angle = static_cast<double>(p) / std::pow(10000.0, static_cast<double>(i) / kWidth);
      pe.ptr<float>()[p * kWidth + i] = static_cast<float>(std::sin(angle));
      pe.ptr<float>()[p * kWidth + i + 1] = static_cast<float>(std::cos(angle));
    }
  return pe;
}

// [B, T] words -> [B, T, width]. Embeddings are scaled so that the waves, of size 1, do not dominate.
Tensor embed(const Tensor& words, const Tensor& table) {
  return embedding(words, table) * std::sqrt(static_cast<double>(kWidth)) + waves(words.dim(1));
}

// ---- 2. Attention: softmax(q k^T / sqrt(size)) v. Each query is compared with all keys; the result is a weighted mean
//      of the values. Several heads work in parallel, each with its own projections. `hidden` is true for pairs of a
//      query and a key that it must not attend to.
Tensor heads_of(const Tensor& x) {  // [B, T, width] -> [B, heads, T, size]
  return x.view({x.dim(0), x.dim(1), kHeads, kSize}).transpose(1, 2);
}
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& hidden) {
  Tensor scores = matmul(heads_of(q), heads_of(k).transpose(2, 3)) / std::sqrt(static_cast<double>(kSize));
  if (hidden.defined()) scores = masked_fill(scores, hidden, -INFINITY);
  const Tensor mixed = matmul(softmax(scores, -1), heads_of(v));  // [B, heads, T, size]
  return mixed.transpose(1, 2).reshape(q.shape());
}

// Self-attention. One product computes queries, keys and values. The output projection joins the heads.
Tensor self_attention(const Tensor& x, const MultiHeadAttention& m, const Tensor& hidden = {}) {
  const Tensor all = linear(x, m.qkv->weight, m.qkv->bias);  // [B, T, 3 width]
  const auto third = [&](Index i) { return all.slice(2, i * kWidth, (i + 1) * kWidth).contiguous(); };
  return linear(attend(third(0), third(1), third(2), hidden), m.proj.weight, m.proj.bias);
}
// Cross-attention: queries from the decoder, keys and values from the output of the encoder.
Tensor cross_attention(const Tensor& x, const Tensor& memory, const MultiHeadAttention& m) {
  const Tensor q = linear(x, m.q->weight, m.q->bias), both = linear(memory, m.kv->weight, m.kv->bias);
  const auto half = [&](Index i) { return both.slice(2, i * kWidth, (i + 1) * kWidth).contiguous(); };
  return linear(attend(q, half(0), half(1), {}), m.proj.weight, m.proj.bias);
}

// ---- 3. A block: attention mixes positions, a feed-forward network processes each position alone. Each part has a
//      residual sum and a norm: norm(x + part(x)).
Tensor feed_forward(const Tensor& x, const FeedForward& f) {
  return linear(relu(linear(x, f.up.weight, f.up.bias)), f.down.weight, f.down.bias);
}
Tensor encoder_block(const Tensor& x, const TransformerBlock& b) {
  const Tensor h = b.norm1(x + self_attention(x, b.attention));
  return b.norm2(h + feed_forward(h, b.mlp));
}
// The causal mask of the decoder: true for later positions, which the model must predict.
Tensor later(Index length) {
  Tensor hidden = Tensor::zeros({length, length}, DType::bool8);
  for (Index i = 0; i < length; ++i)
    for (Index j = i + 1; j < length; ++j) hidden.ptr<bool>()[i * length + j] = true;
  return hidden;
}
Tensor decoder_block(const Tensor& x, const Tensor& memory, const TransformerBlock& b) {
  Tensor h = b.norm1(x + self_attention(x, b.attention, later(x.dim(1))));
  h = (*b.norm_cross)(h + cross_attention(h, memory, *b.cross));
  return b.norm2(h + feed_forward(h, b.mlp));
}

// ---- 4. The whole model. All words of source and target are computed at once. A recurrent network would compute them
//      one after another. The target embedding is also the output weight.
Tensor logits(const Batch& batch, const TransformerSeq2Seq& model) {
  Tensor memory = embed(batch.at("source"), model.source.tokens->weight);
  for (const TransformerBlock& b : model.encoder.blocks) memory = encoder_block(memory, b);
  Tensor h = embed(batch.inputs, model.target.tokens->weight);
  for (const TransformerBlock& b : model.decoder.blocks) h = decoder_block(h, memory, b);
  return matmul(h, model.target.tokens->weight.t());
}

// ---- 5. A task: eight words in reverse. The inputs are the targets, shifted right by one.
struct WordsInReverse {
  Batch batch(std::uint64_t seed, std::uint64_t step) const;
};
Batch WordsInReverse::batch(std::uint64_t seed, std::uint64_t step) const {
  constexpr Index rows = 32, length = 8;
  Batch b;
  const Tensor source = Rng(seed, step).integers({rows, length}, 0, 10);
  Tensor inputs = Tensor::full({rows, length + 1}, kBegin, DType::int32),
         targets = Tensor::full({rows, length + 1}, kEnd, DType::int32);
  for (Index r = 0; r < rows; ++r)
    for (Index t = 0; t < length; ++t) {
      const std::int32_t word = source.ptr<std::int32_t>()[r * length + length - 1 - t];
      inputs.ptr<std::int32_t>()[r * (length + 1) + t + 1] = targets.ptr<std::int32_t>()[r * (length + 1) + t] = word;
    }
  b["source"] = source, b.inputs = inputs, b.targets = targets, b.counted = targets.numel();
  return b;
}

void print_words(const char* title, const Tokens& words) {
  std::printf("%s", title);
  for (const std::int32_t w : words) std::printf(w == kEnd ? " end" : " %d", w);
  std::printf("\n");
}

int lesson() {
  const Tensor pe = waves(100);
  const auto product = [&](Index p, Index q) { return sum(pe[p] * pe[q]).item(); };
  std::printf("positions 5 and 8 have the dot product %.4f, 85 and 88 %.4f: it depends on the distance only\n\n",
              product(5, 8), product(85, 88));

  manual_seed(1);
  Rng rng(1);
  const TransformerOptions blocks{
      .layers = kLayers, .attention = {.width = kWidth, .heads = kHeads}, .hidden = kHidden, .dropout = 0};
  TransformerSeq2Seq model({.source_vocabulary = kWords, .target_vocabulary = kWords, .blocks = blocks}, rng);
  const Batch held_out = WordsInReverse().batch(2, 0);
  const Tensor by_hand = logits(held_out, model), by_library = model(held_out);
  std::printf("logits by hand and of TransformerSeq2Seq agree to 1e-4: %s\n",
              max(abs(by_hand - by_library)).item() < 1e-4 ? "yes" : "no");

  // The rate rises during warm-up, then falls as 1 / sqrt(step): section 5.3. Labels are smoothed: section 5.4.
  Adam adam(named_parameters(model), {.betas = {0.9, 0.98}, .eps = 1e-9});
  Schedule schedule("inverse-sqrt", {.lr = 5e-3, .warmup = 60});
  run(model, adam, schedule, WordsInReverse(), {}, {.steps = 200});
  std::printf("after training, they agree to 1e-3: %s\n\n",
              max(abs(logits(held_out, model) - model(held_out))).item() < 1e-3 ? "yes" : "no");

  // Greedy decoding: the source is encoded once. Then each step reads the newest word only and adds one word.
  const Tensor source = held_out.at("source").slice(0, 0, 1);
  DecodeState state = model.make_state(source);
  const std::vector<Tokens> begin = {{kBegin}};
  GenerateOptions greedy{.count = 9, .stop_tokens = {kEnd}};
  greedy.sampling.temperature = 0;
  print_words("source      ", source.to_vector<std::int32_t>());
  print_words("translation ", generate(state, begin, greedy)[0]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 8: the encoder-decoder Transformer, piece by piece", argc, argv, lesson);
}
