// Tutorial 8: the Transformer of "Attention is all you need" (Vaswani et al. 2017), piece by piece: each part is a few
// lines of matmul, softmax and layer_norm, and all of them together are held against the library's TransformerSeq2Seq,
// of which they take the weights. At the end it learns to write words in reverse.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

constexpr Index kWords = 12, kWidth = 32, kHeads = 4, kSize = kWidth / kHeads, kHidden = 64, kLayers = 2;
constexpr std::int32_t kBegin = 10, kEnd = 11;  // words 0 to 9, and what begins and ends a text

// ---- 1. Positions. Attention sees a set; where a word stands must be told. Each position p has waves of its own:
//      PE(p, 2i) = sin(p / 10000^(2i / width)), PE(p, 2i + 1) = cos of the same. A shift by k turns each pair by an
//      angle that depends on k alone, so that a layer can learn to look k words back, wherever it is.
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

// [B, T] words -> [B, T, width]. Embeddings are scaled so that the waves, of size 1, do not drown them.
Tensor embed(const Tensor& words, const Tensor& table) {
  return embedding(words, table) * std::sqrt(static_cast<double>(kWidth)) + waves(words.dim(1));
}

// ---- 2. Attention. Queries ask, keys answer, values are what is handed over: softmax(q k^T / sqrt(size)) v, in
//      several heads side by side, each with projections of its own. `hidden` is true where a query must not look.
Tensor heads_of(const Tensor& x) {  // [B, T, width] -> [B, heads, T, size]
  return x.view({x.dim(0), x.dim(1), kHeads, kSize}).transpose(1, 2);
}
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& hidden) {
  Tensor scores = matmul(heads_of(q), heads_of(k).transpose(2, 3)) / std::sqrt(static_cast<double>(kSize));
  if (hidden.defined()) scores = masked_fill(scores, hidden, -INFINITY);
  const Tensor mixed = matmul(softmax(scores, -1), heads_of(v));  // [B, heads, T, size]
  return mixed.transpose(1, 2).reshape(q.shape());
}

// Positions among themselves. One product makes queries, keys and values; a last one joins the heads.
Tensor self_attention(const Tensor& x, const MultiHeadAttention& m, const Tensor& hidden = {}) {
  const Tensor all = linear(x, m.qkv->weight, m.qkv->bias);  // [B, T, 3 width]
  const auto third = [&](Index i) { return all.slice(2, i * kWidth, (i + 1) * kWidth).contiguous(); };
  return linear(attend(third(0), third(1), third(2), hidden), m.proj.weight, m.proj.bias);
}
// Of the decoder to what the encoder made of the source: queries from the one, keys and values from the other.
Tensor cross_attention(const Tensor& x, const Tensor& memory, const MultiHeadAttention& m) {
  const Tensor q = linear(x, m.q->weight, m.q->bias), both = linear(memory, m.kv->weight, m.kv->bias);
  const auto half = [&](Index i) { return both.slice(2, i * kWidth, (i + 1) * kWidth).contiguous(); };
  return linear(attend(q, half(0), half(1), {}), m.proj.weight, m.proj.bias);
}

// ---- 3. A block: attention mixes positions, a network thinks about each by itself, and around each part stand a
//      residual sum and a norm: norm(x + part(x)).
Tensor feed_forward(const Tensor& x, const FeedForward& f) {
  return linear(relu(linear(x, f.up.weight, f.up.bias)), f.down.weight, f.down.bias);
}
Tensor encoder_block(const Tensor& x, const TransformerBlock& b) {
  const Tensor h = b.norm1(x + self_attention(x, b.attention));
  return b.norm2(h + feed_forward(h, b.mlp));
}
// A position of the decoder must not see later ones, which it is to predict.
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

// ---- 4. The whole. All words of source and target at once: no step waits for the one before, as a recurrent network's
//      would. The output's weights are the target's embedding.
Tensor logits(const Batch& batch, const TransformerSeq2Seq& model) {
  Tensor memory = embed(batch.at("source"), model.source.weight);
  for (const TransformerBlock& b : model.encoder.blocks) memory = encoder_block(memory, b);
  Tensor h = embed(batch.inputs, model.target->weight);
  for (const TransformerBlock& b : model.decoder.blocks) h = decoder_block(h, memory, b);
  return matmul(h, model.target->weight.t());
}

// ---- 5. Something to learn: eight words, in reverse. inputs are the target one to the right.
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
  std::printf("positions 5 and 8 have the product %.4f, 85 and 88 %.4f: it depends on the distance alone\n\n",
              product(5, 8), product(85, 88));

  manual_seed(1);
  Rng rng(1);
  TransformerSeq2SeqOptions options{.source_vocabulary = kWords, .target_vocabulary = kWords, .width = kWidth};
  options.heads = kHeads, options.hidden = kHidden, options.encoder_layers = options.decoder_layers = kLayers;
  options.dropout = 0;
  TransformerSeq2Seq model(options, rng);
  const Batch held_out = WordsInReverse().batch(2, 0);
  const Tensor by_hand = logits(held_out, model), by_library = model(held_out);
  std::printf("by hand and TransformerSeq2Seq agree to 1e-4: %s\n",
              max(abs(by_hand - by_library)).item() < 1e-4 ? "yes" : "no");

  // The rate rises for so many steps and then falls as 1 / sqrt(step): section 5.3. Labels are smoothed: section 5.4.
  Adam adam(named_parameters(model), {.betas = {0.9, 0.98}, .eps = 1e-9});
  Schedule schedule("inverse-sqrt", {.lr = 5e-3, .warmup = 60});
  run(model, adam, schedule, WordsInReverse(), {}, {.steps = 200});
  std::printf("and when it has learned, too: %s\n\n",
              max(abs(logits(held_out, model) - model(held_out))).item() < 1e-3 ? "yes" : "no");

  // Greedy decoding: the source is read once; then a word at a time, each step reading only the newest.
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
