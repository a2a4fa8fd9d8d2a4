// Reading heed's checkpoints with h5py and PyTorch.
#include <heed/data/checkpoint.hpp>
#include <map>

#include "tests/data/checkpoint_exchange.hpp"

using namespace heed;
using namespace heed::test;
namespace fs = std::filesystem;

namespace {

// A model with the configuration that its checkpoint stores.
struct NamedGPT {
  std::string name, activation, norm;
  GPTOptions options;
  double scale = 1;  // of the embeddings, and thus of the logits
  std::string model = "gpt", attention = "softmax";

  std::string config() const {
    return R"({"model": ")" + model + R"(", "attention": ")" + attention +
           R"(", "vocabulary": 10, "context": 8, "layers": 2, "heads": 2, "width": 16, "hidden": )" +
           std::to_string(options.blocks.hidden) + R"(, "activation": ")" + activation + R"(", "norm": ")" + norm +
           R"(", "bias": )" + (options.blocks.attention.bias ? "true" : "false") +
           (options.blocks.reversible ? R"(, "reversible": true)" : "") +
           (options.blocks.attention.qk_norm ? R"(, "qk_norm": true})" : "}");
  }
};

std::vector<NamedGPT> named_gpts() {
  const GPTOptions o{.vocabulary = 10, .context = 8, .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2}}};
  std::vector<NamedGPT> all{{"relu", "relu", "layer", o},
                            {"gelu", "gelu", "layer", o},
                            {"gelu-tanh", "gelu-tanh", "layer", o},
                            {"silu", "silu", "rms", o},
                            {"gpt2", "gelu-tanh", "layer", o},
                            {"qk-norm", "relu-squared", "rms", o}};
  const FeedForwardKind kinds[] = {FeedForwardKind::relu, FeedForwardKind::gelu, FeedForwardKind::gelu_tanh,
                                   FeedForwardKind::silu, FeedForwardKind::gelu_tanh, FeedForwardKind::relu_squared};
  for (std::size_t i = 0; i < all.size(); ++i) all[i].options.blocks.activation = kinds[i];
  all[1].options.blocks.hidden = 24;
  all[2].options.blocks.attention.bias = false;
  all[3].options.blocks.norm = NormKind::rms, all[3].options.blocks.reversible = true;
  all[5].options.blocks.norm = NormKind::rms, all[5].options.blocks.attention.qk_norm = true;
  all[4].scale = 0.02;  // as in a new GPT-2, where the variance is near the eps of the norms, 1e-5
  return all;
}

}  // namespace

TEST_CASE("checkpoint Python: h5py reads what heed writes") {
  const std::string python = python_with("h5py");
  if (python.empty()) return;
  const TemporaryFolder folder;
  save_checkpoint(folder.path / "every.h5", exchanged());
  exchange(python, "h5py_reads", folder.path);
}

TEST_CASE("checkpoint Python: PyTorch computes the same logits from heed's file") {
  const std::string python = python_with("h5py, torch");
  if (python.empty()) return;
  const TemporaryFolder folder;
  const Tensor x = Tensor::from<std::int32_t>({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, {2, 6});
  std::map<std::string, Tensor> logits;
  for (const NamedGPT& gpt : named_gpts()) {
    GPT model = small_gpt(gpt.options);
    for (Parameter* p : {&model.input.tokens->weight, &model.input.positions->weight})
      p->copy_(p->detach() * gpt.scale);
    Checkpoint c;
    store_model(c, model);
    c.tensors["data/x"] = x;
    c.texts["config"] = gpt.config();
    save_checkpoint(folder.path / (gpt.name + ".h5"), c);
    logits[gpt.name] = model(x).detach();
  }
  exchange(python, "to_pytorch", folder.path);
  for (const NamedGPT& gpt : named_gpts()) {
    INFO(gpt.name);
    const Tensor theirs = load_checkpoint(folder.path / (gpt.name + "_logits.h5")).tensor("data/logits");
    CHECK(close(logits.at(gpt.name), theirs, 1e-4, 1e-4 * gpt.scale));
  }
}

TEST_CASE("checkpoint Python: PyTorch's GPT refuses masked models and other attention, though their weights fit") {
  const std::string python = python_with("h5py, torch");
  if (python.empty()) return;
  const TemporaryFolder folder;
  NamedGPT gpt = named_gpts().front();
  GPT model = small_gpt(gpt.options);
  const auto logits = [&](const std::string& kind, const std::string& attention) {
    gpt.model = kind, gpt.attention = attention;
    Checkpoint c;
    store_model(c, model);
    c.texts["config"] = gpt.config();
    save_checkpoint(folder.path / "lm.h5", c);
    return run("exec " + python + " -B " + quoted(test::in_source("docs/python/gpt.py")) + " " +
               quoted((folder.path / "lm.h5").string()) + " 5 1 3");
  };
  const std::string knows = "ValueError: this example knows gpt with softmax attention; this is ";
  for (const auto& other : {std::pair("mlm", "softmax"), std::pair("gpt", "linear"), std::pair("mlm", "linformer")}) {
    const Ran ran = logits(other.first, other.second);
    INFO(ran.output);
    CHECK(ran.exit_code == 1);
    CHECK(contains(ran.output, knows + other.first + " with " + other.second + " attention"));
  }
  const Ran good = logits("gpt", "softmax");
  INFO(good.output);
  CHECK(good.exit_code == 0);
  CHECK(good.output.rfind("tensor([", 0) == 0);
}
