// Encoder-decoder Transformers: configurations in JSON, and errors.
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/model.hpp>

#include "tests/layers/translating.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("a translating transformer is copied, and is described in JSON and built again") {
  for (const auto& [title, options] : stored_options()) {
    TransformerSeq2SeqConfig config{.options = options, .encoder_attention = "window", .decoder_attention = "lsh"};
    config.cross_attention = "luong-local-p";
    config.encoder_mechanism.window = 3, config.cross_mechanism.radius = 3;
    config.options.blocks.dropout = 0.2, config.options.label_smoothing = 0.05;
    const std::string text = to_json(config);
    CHECK(contains(text, "\"encoder_window\":3,"));
    CHECK(contains(text, "\"decoder_window\":64,"));  // the settled value
    const auto same = from_json<TransformerSeq2SeqConfig>(text, "t.h5");
    CHECK(to_json(same) == text);
    CHECK(same.options.label_smoothing == 0.05);
    TransformerSeq2Seq model = built(same);
    CHECK(model.encoder.blocks[0].attention.mechanism.name() == "window");
    CHECK(model.decoder.blocks[0].attention.mechanism.name() == "lsh");
    CHECK(model.decoder.blocks[1].cross->mechanism.name() == "luong-local-p");
    TransformerSeq2Seq copy = clone(model);
    CHECK(copy.target.tokens.has_value() == !options.joined);
    CHECK(same_bits(copy(stored_pairs()), model(stored_pairs())));
    copy.source.tokens->weight.fill_(1);
    CHECK(!same_bits(copy(stored_pairs()), model(stored_pairs())));
  }
  TransformerSeq2SeqConfig config{.options = small(PositionKind::relative)};
  config.options.source_vocabulary = 22, config.options.joined = true;
  const std::string text = to_json(config);
  const auto with = [&](const std::string& from, const std::string& into) {
    std::string other = text;
    const std::size_t at = other.find(from);
    REQUIRE(at != std::string::npos);
    return error_of(
        [&, changed = other.replace(at, from.size(), into)] { from_json<TransformerSeq2SeqConfig>(changed, "t.h5"); });
  };
  CHECK(with("\"transformer-seq2seq\"", "\"seq2seq\"") ==
        "t.h5: the configuration has \"seq2seq\" for model; it must be transformer-seq2seq");
  CHECK(with("\"heads\":2", "\"heads\":3") ==
        "t.h5: the configuration has 3 for heads; it must be a divisor of the width, 16");
  CHECK(with("\"decoder_layers\":2", "\"decoder_layers\":0") ==
        "t.h5: the configuration has 0 for decoder_layers; it must be a whole number from 1 to 16777216");
  CHECK(
      with("\"target_vocabulary\":22", "\"target_vocabulary\":21") ==
      "t.h5: the configuration has 21 for target_vocabulary; it must be 22, the source_vocabulary, as joined is true");
  CHECK(with("\"relative_clip\":16", "\"relative_clip\":0") ==
        "t.h5: the configuration has 0 for relative_clip; it must be a whole number from 1 to 16777216");
  CHECK(with("\"norm_first\":false,", "") == "t.h5: the configuration lacks norm_first");
}

TEST_CASE("a translating transformer: errors, with the mechanisms that each place excludes") {
  const auto with = [](auto change) {
    return [change] {
      TransformerSeq2SeqOptions o = small();
      change(o);
      model_of(o);
    };
  };
  const auto build = [](TransformerSeq2SeqMechanisms mechanisms) {
    return [mechanisms] { model_of(small(), mechanisms); };
  };
  const auto of = [](const std::string& name, bool causal) {
    return mechanism_by_name(name, {.causal = causal, .heads = 2, .head_size = 8, .context = 9});
  };
  struct Mean {  // the mean of all values: no masks, no order
    std::string name() const { return "mean"; }
    AttentionCapabilities capabilities() const { return {.cross = true, .why = "a mean leaves nothing out"}; }
    Tensor apply(In q, In, In v, const AttentionCall&) const {
      return mean(v, 2, true).expand(v.shape().with(2, q.dim(2)));
    }
    void members(MemberVisitor&) {}
  };
  struct Stateless {  // causal, but without a decode state
    std::string name() const { return "stateless"; }
    AttentionCapabilities capabilities() const { return {.causal = true, .key_mask = true, .cross = true}; }
    Tensor apply(In q, In k, In v, const AttentionCall& call) const { return attention(q, k, v, call); }
    void members(MemberVisitor&) {}
  };
  const MechanismFactory means = [](Index, Rng&) { return Mean(); };
  const TransformerSeq2Seq model = model_of(small());
  const Batch b = random_sentences();
  Batch uneven = b, no_words = b;
  uneven.targets = b.targets.slice(1, 0, 3);
  no_words.inputs = Tensor();
  DecodeState state = model.make_state(b.at("source"));
  check_errors({
      {"TransformerSeq2Seq: layers is -1, decoder_layers is 2 and context is 9; layers must be 0 or more,"
       " decoder_layers and context 1 or more",
       with([](auto& o) { o.blocks.layers = -1, o.decoder_layers = 2; })},
      {"decoder_layers is 0", with([](auto& o) { o.blocks.layers = 0; })},
      {"TransformerSeq2Seq: source_vocabulary is 20 and target_vocabulary is 22; they must be equal if joined is true",
       with([](auto& o) { o.joined = true; })},
      {"MultiHeadAttention: relative_clip is -1", with([](auto& o) { o.blocks.attention.relative_clip = -1; })},
      {"TransformerSeq2Seq: label_smoothing is 1; it must be at least 0 and below 1",
       with([](auto& o) { o.label_smoothing = 1; })},
      {"TransformerSeq2Seq: forgetting attention cannot be used in the encoder, as it is causal only: ",
       build({.encoder = of("forgetting", true)})},
      {"TransformerSeq2Seq: mean attention cannot be used in the encoder, as it cannot mask padding: a mean leaves "
       "nothing out",
       build({.encoder = means})},
      {"TransformerSeq2Seq: linformer attention cannot be used in the decoder, as it has no causal form: ",
       build({.decoder = of("linformer", false)})},
      {"TransformerSeq2Seq: stateless attention cannot be used in the decoder, as it has no decode state",
       build({.decoder = [](Index, Rng&) { return Stateless(); }})},
      {"TransformerSeq2Seq: window attention cannot be used for cross-attention, as it cannot attend to another "
       "sequence: which keys a query sees depends on its position",
       build({.cross = of("window", true)})},
      {"TransformerSeq2Seq: forgetting attention cannot be used for cross-attention",
       build({.cross = of("forgetting", true)})},
      {"TransformerSeq2Seq: mean attention cannot be used for cross-attention, as it cannot mask padding",
       build({.cross = means})},
      {"attention: the mechanism is 'windows'; it must be one of softmax, linear, efficient, taylor, luong-dot, "
       "luong-general, luong-concat, luong-location, bahdanau, cosine, rbf, polynomial, talking-heads, top-k, favor, "
       "linformer, luna, luong-local-m, "
       "luong-local-p",
       [] { config_with("cross", "windows").factory(); }},
      {"TransformerSeq2Seq: the source is [2, 3] float64; it must be int32 [batch, positions]",
       [&] {
         model.make_state(normal({2, 3}));
       }},
      {"TransformerSeq2Seq: the inputs are ", [&] { model(no_words); }},
      {"the shapes must be the same", [&] { model.loss(uneven); }},
      {"TransformerSeq2Seq: tokens are [2, 1] int32; they must be int32 [5, 1 or more]",
       [&] {
         state.read(Tensor::zeros({2, 1}, DType::int32));
       }},
  });
}
