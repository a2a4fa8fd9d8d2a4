// The JSON of ConvS2S and ByteNet.
#pragma once
#include <heed/layers/model_config.hpp>
#include <string>

namespace heed::detail {

// Visits the fields of the options `o` of the model of this name. own() visits those that the other model lacks.
template <class Options, class Own>
void conv_fields(OptionFields& f, const std::string& name, Options& o, const Own& own) {
  std::string model = name;
  if (o.decoder_layers == 0) o.decoder_layers = o.layers;
  f("model", model);
  f.ensure(model == name, "model", name);
  f("source_vocabulary", o.source_vocabulary, 1), f("target_vocabulary", o.target_vocabulary, 1);
  f("width", o.width, 1), f("hidden", o.hidden, 1), f("kernel", o.kernel, 1);
  f.ensure(o.kernel % 2 == 1, "kernel", "an odd number");
  f("encoder_layers", o.layers, 1), f("decoder_layers", o.decoder_layers, 1);
  own();
  f("dropout", o.dropout), f("label_smoothing", o.label_smoothing);
}

}  // namespace heed::detail
