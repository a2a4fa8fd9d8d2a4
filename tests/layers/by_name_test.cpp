// Mechanisms by their names, and the options that go with a name.
#include <algorithm>
#include <fstream>
#include <heed/heed.hpp>
#include <iterator>

#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::contains;
using test::error_of;

TEST_CASE("mechanisms are made by their names") {
  Rng rng(1);
  for (const std::string& name : mechanism_names())
    CHECK(mechanism_by_name(name, {.heads = 4, .head_size = 8, .context = 64})(0, rng).name() == name);
  CHECK(contains(error_of([] { mechanism_by_name("linaer"); }),
                 "the mechanism is 'linaer'; it must be one of softmax, linear, efficient, taylor"));
  CHECK(contains(error_of([] { mechanism_by_name("bahdanau", {.head_size = 8}); }),
                 "bahdanau needs the number of heads; it is 0"));
  CHECK(contains(error_of([] { mechanism_by_name("strided"); }), "strided needs a stride or the context; it is 0"));
  CHECK(contains(error_of([] { mechanism_by_name("linear", {.feature_map = "sine"}); }),
                 "the feature map is 'sine'; it must be one of elu, relu, softplus, exp, poly2, identity"));
  for (const FeatureMap map : {FeatureMap::elu, FeatureMap::relu, FeatureMap::softplus, FeatureMap::exp,
                               FeatureMap::poly2, FeatureMap::identity})
    CHECK(feature_map(name_of(map)) == map);
}

TEST_CASE("mechanisms for encoders are made by their names") {
  Rng rng(1);
  const MechanismOptions options{.causal = false, .heads = 4, .head_size = 8, .context = 64, .rows = 12};
  const auto has = [](const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  CHECK((!has(mechanism_names(), "linformer") && has(mechanism_names(false), "linformer")));
  CHECK((has(mechanism_names(), "forgetting") && !has(mechanism_names(false), "forgetting")));
  CHECK(all_mechanism_names().size() == mechanism_names().size() + 1);
  CHECK(contains(error_of([&] { mechanism_by_name("forgetting", options); }),
                 "attention: forgetting is causal only: it is for language models"));
  for (const std::string& name : mechanism_names(false)) CHECK(mechanism_by_name(name, options)(0, rng).name() == name);
  CHECK(!mechanism_by_name("efficient", options)(0, rng).capabilities().causal);
  CHECK(mechanism_by_name("efficient")(0, rng).capabilities().causal);
  AttentionMechanism linformer = mechanism_by_name("linformer", options)(0, rng);
  CHECK(named_parameters(linformer)[0].parameter->shape() == Shape{12, 64});
  CHECK(contains(error_of([] { mechanism_by_name("linformer", {.context = 64}); }),
                 "linformer has no causal form: its rows of keys mix all positions; it is for encoders"));
  CHECK(contains(error_of([] { mechanism_by_name("linaer", {.causal = false}); }), "favor, linformer"));
}

TEST_CASE(
    "options of named mechanisms: each is of mechanisms that are there, changes them, and stands in "
    "docs/attention.md") {
  std::ifstream page(test::in_source("docs/attention.md"));
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  Rng rng(1);
  for (const MechanismOption& option : mechanism_options()) {
    CAPTURE(option.name);
    std::string names;
    for (const std::string& name : option.mechanisms) {
      CAPTURE(name);
      names += (names.empty() ? "`" : ", `") + name + "`";
      CHECK(std::count(mechanism_names(false).begin(), mechanism_names(false).end(), name) == 1);
      // Keys or parameters are others by another value, and a value that makes no sense is refused.
      MechanismOptions usual{.causal = false, .heads = 2, .head_size = 4, .context = 400}, other = usual;
      if (option.name == "linformer-rows") CHECK(settled_options(name, usual).rows == 256);
      if (const auto* number = std::get_if<Index MechanismOptions::*>(&option.member)) {
        const auto size_of = [&](const MechanismOptions& o) {
          AttentionMechanism m = mechanism_by_name(name, o)(0, rng);
          Index size = 0;
          for (const NamedParameter& p : named_parameters(m)) size += p.parameter->numel();
          for (const NamedBuffer& b : named_buffers(m)) size += b.buffer->numel();
          return static_cast<double>(size) + m.keys_per_query(1 << 20, 4);
        };
        other.*(*number) = 2;
        if (name != "top-k") CHECK(size_of(usual) != size_of(other));
        other.*(*number) = -1;
        CHECK(contains(
            error_of([&] { mechanism_by_name(name, other); }),
            "attention: " + option.name + " of " + name + " is -1; it must be 1 or more, or 0 for its default"));
      }
    }
    CHECK(contains(text, "| `--" + option.name + "` | " + names + " | " + option.text + " |"));
  }
  // None grows with the context, but for the stride.
  for (const std::string& name : mechanism_names(false)) {
    if (name == "strided" || name == "fixed") continue;
    const auto keys = [&](Index context) {
      const MechanismOptions o{.causal = false, .heads = 1, .head_size = 4, .context = context};
      return mechanism_by_name(name, o)(0, rng).keys_per_query(300, 4);
    };
    CHECK(keys(1000) == keys(4000));
  }
  CHECK(mechanism_by_name("top-k")(0, rng)
            .get<TopKAttention>()
            ->lists(Tensor::zeros({1, 1, 1, 2}), Tensor::zeros({1, 1, 30, 2}), {})
            .keys.numel() == 16);
}

TEST_CASE("estimates of work count the keys that a mechanism needs, not all positions") {
  Rng rng(1);
  const auto keys = [&](const std::string& name, Index positions) {
    const MechanismOptions options{
        .causal = false, .heads = 2, .head_size = 8, .context = 4096, .window = 32, .stride = 64, .rows = 16};
    return mechanism_by_name(name, options)(0, rng).keys_per_query(positions, 8);
  };
  for (const std::string name : {"softmax", "luong-general", "bahdanau", "cosine", "top-k"})
    CHECK(keys(name, 1000) == 1000);
  CHECK(keys("linear", 1000) == 8);
  CHECK(keys("efficient", 1000) == 8);
  CHECK(keys("taylor", 1000) == 9);
  CHECK(keys("favor", 1000) == 17);  // 8 log 8 features
  CHECK(keys("linformer", 1000) == 32);
  CHECK(keys("window", 1000) == 32);
  CHECK(keys("window", 20) == 20);
  CHECK(keys("strided", 4096) == 128);
  CHECK(keys("fixed", 4096) == 128);
  CHECK(keys("lsh", 1000) == 128);  // 4 rounds
  const GPTOptions o{.vocabulary = 10, .context = 64, .layers = 3, .heads = 2, .width = 16};
  const GPT softmax(o, rng), linear(o, rng, mechanism_by_name("linear"));
  CHECK(softmax.flops_per_token(64) - softmax.flops_per_token(32) == 12 * 3 * 16 * 32);
  CHECK(linear.flops_per_token(64) == linear.flops_per_token(32));
  CHECK(softmax.flops_per_token(8) == linear.flops_per_token(8));
}
