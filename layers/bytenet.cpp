// ByteNet: construction, forward pass, decoding and configuration.
#include <cmath>
#include <heed/autograd/convolution.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/conv_seq2seq.hpp>
#include <heed/layers/detail/conv_fields.hpp>

namespace heed {
namespace {

constexpr const char* kByteNet = "ByteNet";

ByteNetOptions settled(ByteNetOptions o) {
  if (o.decoder_layers == 0) o.decoder_layers = o.layers;
  require(o.layers > 0 && o.decoder_layers > 0 && o.kernel > 0 && o.kernel % 2 == 1, kByteNet, ": layers is ", o.layers,
          ", decoder_layers is ", o.decoder_layers, " and kernel is ", o.kernel,
          "; layers and decoder_layers must be 1 or more, and kernel must be odd");
  require(o.dilations > 0 && o.dilations <= 20 && o.length_ratio >= 1 && o.length_ratio <= 100 && o.extra_length >= 0,
          kByteNet, ": dilations is ", o.dilations, ", length_ratio is ", o.length_ratio, " and extra_length is ",
          o.extra_length, "; they must be from 1 to 20, from 1 to 100, and 0 or more");
  require(o.dropout >= 0 && o.dropout < 1 && o.label_smoothing >= 0 && o.label_smoothing < 1, kByteNet, ": dropout is ",
          o.dropout, " and label_smoothing is ", o.label_smoothing, "; both must be at least 0 and below 1");
  return o;
}

std::vector<ByteNetBlock> blocks_of(const ByteNetOptions& o, Index count, bool causal, Rng& rng) {
  std::vector<ByteNetBlock> blocks;
  for (Index i = 0; i < count; ++i) blocks.emplace_back(o, Index{1} << (i % o.dilations), causal, rng);
  return blocks;
}

Conv1dLayerOptions of_block(const ByteNetOptions& o, Index dilation, bool causal) {
  return {.padding = causal ? 0 : dilation * (o.kernel - 1) / 2, .dilation = dilation, .causal = causal};
}

// The positions of each encoded source, for sources of these lengths: int32 [B].
Tensor encoded_lengths(const ByteNetOptions& o, const Tensor& lengths) {
  std::vector<std::int32_t> counts;
  for (const std::int32_t n : detail::row_lengths(lengths))
    counts.push_back(static_cast<std::int32_t>(std::ceil(o.length_ratio * n)) +
                     static_cast<std::int32_t>(o.extra_length));
  return Tensor::from(counts);
}

// x [B, S, C] with zeros after it, or cut, to [B, count, C].
Tensor to_length(const Tensor& x, Index count) { return count == x.dim(1) ? x : pad(x, {0, 0, 0, count - x.dim(1)}); }

}  // namespace

ByteNetBlock::ByteNetBlock(const ByteNetOptions& o, Index dilation, bool causal, Rng& rng)
    : norm1(o.width),
      down(o.width, o.hidden, rng),
      norm2(o.hidden),
      conv(o.hidden, o.hidden, o.kernel, rng, of_block(o, dilation, causal)),
      norm3(o.hidden),
      up(o.hidden, o.width, rng) {}

ByteNet::ByteNet(const ByteNetOptions& o, Rng& rng)
    : options_(settled(o)),
      source(o.source_vocabulary, o.width, rng),
      target(o.target_vocabulary, o.width, rng),
      encoder(blocks_of(options_, options_.layers, false, rng)),
      decoder(blocks_of(options_, options_.decoder_layers, true, rng)),
      encoder_norm(o.width),
      condition(o.width, o.width, rng),
      decoder_norm(o.width),
      hidden(o.width, o.width, rng),
      output(o.width, o.target_vocabulary, rng) {}

// ---- Reading ----

// h [B, T, width] through all blocks. convolve(i, x) is the convolution of block i.
template <class Convolve>
Tensor ByteNet::through(const std::vector<ByteNetBlock>& blocks, Tensor h, const Convolve& convolve) const {
  const Dropout drop{options_.dropout};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const ByteNetBlock& b = blocks[i];
    const Tensor narrow = relu(b.norm2(b.down(relu(b.norm1(h)))));
    h = h + drop(b.up(relu(b.norm3(convolve(i, narrow)))));
  }
  return h;
}

// C s: [B, L, width], where row b is 0 from its encoded length on, and L is the largest encoded length.
Tensor ByteNet::encode(In words, const Tensor& given) const {
  check(words.rank() == 2 && words.dtype() == DType::int32, words.where(), kByteNet, ": the source is ", words.tensor(),
        "; it must be int32 [batch, positions]");
  const Index rows = words.dim(0);
  check(!given.defined() || (given.shape() == Shape{rows} && given.dtype() == DType::int32), words.where(), kByteNet,
        ": source_lengths are ", given, "; they must be int32 [", rows, "]");
  const Tensor own =
      given.defined() ? given.dense() : Tensor::full({rows}, static_cast<double>(words.dim(1)), DType::int32);
  const Tensor lengths = encoded_lengths(options_, own);
  const Tensor e = detail::rows_without_padding(kByteNet, Dropout{options_.dropout}(source(words)), own);
  const Tensor h = through(encoder, to_length(e, detail::longest_of(lengths)), [&](std::size_t i, const Tensor& x) {
    return encoder[i].conv(detail::rows_without_padding(kByteNet, x, lengths).t()).t();
  });
  return detail::rows_without_padding(kByteNet, condition(relu(encoder_norm(h))), lengths);
}

// The result of the decoder's blocks -> the input of the output layer.
Tensor ByteNet::last_layers(const Tensor& h) const {
  return Dropout{options_.dropout}(relu(hidden(relu(decoder_norm(h)))));
}

Tensor ByteNet::features(const Batch& batch) const {
  const Tensor& words = batch.inputs;
  require(words.defined() && words.rank() == 2 && words.dtype() == DType::int32, kByteNet, ": the inputs are ", words,
          "; they must be int32 [batch, positions]");
  const Tensor s = encode(batch.at("source"), batch.get("source_lengths"));
  require(s.dim(0) == words.dim(0), kByteNet, ": the inputs are ", words, " and the source has ", s.dim(0),
          " rows; they must have the same number of rows");
  const Tensor h = Dropout{options_.dropout}(target(words)) + to_length(s, words.dim(1));
  return last_layers(through(decoder, h, [&](std::size_t i, const Tensor& x) { return decoder[i].conv(x.t()).t(); }));
}

Tensor ByteNet::operator()(const Batch& batch) const { return output(features(batch)); }

Tensor ByteNet::loss(const Batch& batch) const {
  require(batch.inputs.shape() == batch.targets.shape(), kByteNet, ": the inputs are ", batch.inputs,
          " and the targets are ", batch.targets, "; the shapes must be the same");
  return linear_cross_entropy(features(batch), output.weight, output.bias, batch.targets,
                              {.label_smoothing = is_training() ? options_.label_smoothing : 0});
}

std::vector<Tensor> ByteNet::attention_weights(const Batch&) const {
  fail(kByteNet, ": the model has no attention, so it has no attention weights");
}

// ---- Decoding ----

struct ByteNet::State {
  const ByteNet* model;
  Tensor encoded;                   // [sources, L + 1, width]: the result of encode(), and a position of zeros
  Tensor sources;                   // int32 [B]: the row of `encoded` of each row
  Tensor seen;                      // int32 [B]: tokens read
  std::vector<Conv1dState> layers;  // of the decoder

  void members(MemberVisitor& visit) {
    visit.shared("encoded", encoded), visit.buffer("sources", sources), visit.buffer("seen", seen);
    visit("layers", layers);
  }

  // The next `count` positions of each row's source: [B, count, width].
  Tensor next_positions(Index count) const {
    const Index last = encoded.dim(1) - 1, rows = seen.dim(0);
    std::vector<std::int32_t> at;
    for (Index b = 0; b < rows; ++b)
      for (Index t = 0; t < count; ++t)
        at.push_back(static_cast<std::int32_t>(sources.ptr<std::int32_t>()[b] * (last + 1) +
                                               std::min(seen.ptr<std::int32_t>()[b] + t, last)));
    const Tensor all = encoded.view({encoded.dim(0) * (last + 1), encoded.dim(2)});
    return index_select(all, 0, Tensor::from(at)).view({rows, count, encoded.dim(2)});
  }

  Tensor read(const Tensor& tokens, const Tensor& lengths) {
    const Index rows = seen.dim(0);
    require(tokens.rank() == 2 && tokens.dtype() == DType::int32 && tokens.dim(0) == rows && tokens.dim(1) > 0,
            kByteNet, ": tokens are ", tokens, "; they must be int32 [", rows, ", 1 or more]");
    const AttentionCall call{.key_lengths = lengths};
    const Tensor h = model->target(tokens) + next_positions(tokens.dim(1));
    const Tensor y = model->through(model->decoder, h, [&](std::size_t i, const Tensor& x) {
      return model->decoder[i].conv.decode(x, layers[i], lengths);
    });
    seen = detail::lengths_after(kByteNet, seen, tokens, call);
    return model->output(model->last_layers(detail::last_of_rows(y, call)));
  }
};

DecodeState ByteNet::make_state(In words, const Tensor& lengths) const {
  const NoTape no_tape;
  const Evaluation evaluation;
  const Tensor encoded = encode(words, lengths);
  return State{this, to_length(encoded, encoded.dim(1) + 1).contiguous(), Tensor::arange(words.dim(0)),
               Tensor::zeros({words.dim(0)}, DType::int32), std::vector<Conv1dState>(decoder.size())};
}

void ByteNetBlock::members(MemberVisitor& visit) {
  visit("norm1", norm1);
  visit("down", down);
  visit("norm2", norm2);
  visit("conv", conv);
  visit("norm3", norm3);
  visit("up", up);
}

void ByteNet::members(MemberVisitor& visit) {
  visit("source", source);
  visit("target", target);
  visit("encoder", encoder);
  visit("decoder", decoder);
  visit("encoder_norm", encoder_norm);
  visit("condition", condition);
  visit("decoder_norm", decoder_norm);
  visit("hidden", hidden);
  visit("output", output);
}

// ---- Config ----

void ByteNetConfig::fields(OptionFields& f) {
  ByteNetOptions& o = options;
  detail::conv_fields(f, "bytenet", o, [&] {
    f("dilations", o.dilations, 1), f("length_ratio", o.length_ratio, OptionField::positive);
    f("extra_length", o.extra_length);
    f.ensure(o.dilations <= 20 && o.length_ratio >= 1 && o.length_ratio <= 100, "dilations",
             "at most 20, with a length_ratio from 1 to 100");
  });
}

}  // namespace heed
