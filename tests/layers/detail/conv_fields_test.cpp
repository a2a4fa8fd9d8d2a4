// The JSON of ConvS2S and ByteNet: common fields around those of one model.
#include <doctest/doctest.h>

#include <heed/layers/conv_seq2seq.hpp>
#include <heed/layers/detail/conv_fields.hpp>
#include <string>

#include "tests/support.hpp"

using namespace heed;
using heed::test::contains, heed::test::error_of;

TEST_CASE("conv_fields: ConvS2S and ByteNet have their own fields between the common ones") {
  const ConvS2SConfig conv{.options = {.source_vocabulary = 7, .target_vocabulary = 8, .layers = 2, .context = 9}};
  CHECK(to_json(conv) ==
        R"({"model":"convs2s","source_vocabulary":7,"target_vocabulary":8,"width":512,"hidden":512,"kernel":3,)"
        R"("encoder_layers":2,"decoder_layers":2,"context":9,"dropout":0.1,"label_smoothing":0.0})");
  const ByteNetConfig bytes{.options = {.source_vocabulary = 7, .target_vocabulary = 8, .layers = 2}};
  const std::string json = to_json(bytes);
  CHECK(contains(json, R"("decoder_layers":2,"dilations":5,"length_ratio":1.2,"extra_length":0,"dropout":0.1)"));
  CHECK(to_json(from_json<ByteNetConfig>(json)) == json);
  CHECK(contains(error_of([&] { from_json<ConvS2SConfig>(json, "a.h5"); }), "bytenet"));
  std::string even = json;
  even.replace(even.find("\"kernel\":3"), 10, "\"kernel\":4");
  CHECK(contains(error_of([&] { from_json<ByteNetConfig>(even, "a.h5"); }), "an odd number"));
}
