// Checkpoints between heed, h5py and PyTorch, by the examples of docs/python. Skipped, with a message, where Python or
// its packages (python3-h5py, python3-torch) are missing. HEED_PYTHON names another interpreter.
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>
#include <heed/layers/gpt.hpp>
#include <limits>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed;
using heed::test::bytes_of, heed::test::close, heed::test::python_with, heed::test::quoted, heed::test::Ran,
    heed::test::run, heed::test::same_bits;
using test::contains;
using test::error_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;

static const fs::path kSource = test::in_source();

static void exchange(const std::string& python, const std::string& verb, const fs::path& folder) {
  const Ran ran =
      run("exec " + python + " -B " + quoted((kSource / "tests/reference/checkpoint_exchange.py").string()) + " " +
          verb + " " + quoted(folder.string()));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
}

// The content that checkpoint_exchange.py checks and makes.
static Checkpoint exchanged() {
  Checkpoint c;
  const float inf = std::numeric_limits<float>::infinity();
  c.counters = {{"step", 12}, {"seed", std::numeric_limits<std::uint64_t>::max()}};
  c.texts["config"] = R"({"name": "für Elise"})";
  c.blobs = {{"tokenizer", std::string("\0\1\xff\n\0", 5)}, {"nothing", ""}};
  c.tensors["model/f32"] = Tensor::from<float>({1.5, -0.0, inf, -inf, 1e-45, 3}, {2, 3});
  c.tensors["model/f64"] = Tensor::from<double>({0.1, -1e308, 5e-324}, {3, 1});
  c.tensors["model/i32"] = Tensor::from<std::int32_t>({-2147483647 - 1, 0, 2147483647}, {3});
  c.tensors["model/b8"] = Tensor::from<bool>({1, 0, 0, 1}, {2, 2});
  c.tensors["model/bf16"] = Tensor::from<float>({1, -2.5}, {2}).to(DType::bfloat16);
  c.tensors["model/scalar"] = Tensor::scalar(2.5);
  c.tensors["model/empty"] = Tensor::zeros({3, 0, 2});
  return c;
}

TEST_CASE("checkpoint Python: h5py reads what heed writes") {
  const std::string python = python_with("h5py");
  if (python.empty()) return;
  const TemporaryFolder folder;
  save_checkpoint(folder.path / "every.h5", exchanged());
  exchange(python, "h5py_reads", folder.path);
}

TEST_CASE("checkpoint Python: heed reads what h5py writes and the script seals") {
  const std::string python = python_with("h5py");
  if (python.empty()) return;
  const TemporaryFolder folder;
  exchange(python, "h5py_writes", folder.path);
  Checkpoint wanted = exchanged();
  wanted.texts["fixed"] = "abc";
  wanted.tensors["model/nested/deep/x"] = Tensor::scalar(1);
  for (int i = 0; i < 100; ++i)
    wanted.tensors["model/many/" + std::to_string(i)] = Tensor::scalar(i, DType::int32);
  for (const char* name : {"written.h5", "latest.h5", "v108.h5", "v110.h5", "ordered.h5"}) {
    INFO(name);
    const Checkpoint c = load_checkpoint(folder.path / name);
    CHECK(c.counters == wanted.counters);
    CHECK(c.texts == wanted.texts);
    CHECK(c.blobs == wanted.blobs);
    REQUIRE(c.tensors.size() == wanted.tensors.size());
    for (const auto& item : wanted.tensors) {
      INFO(item.first);
      CHECK(same_bits(c.tensor(item.first), item.second));
    }
  }
}

TEST_CASE("checkpoint Python: what no checkpoint may hold is refused by name") {
  const std::string python = python_with("h5py");
  if (python.empty()) return;
  const TemporaryFolder folder;
  exchange(python, "h5py_oddities", folder.path);
  const std::string types =
      "; tensors must be float32, float64, int32, bool, or uint16 with the attribute dtype = bfloat16";
  const std::string roots = "; outside of groups may stand only whole numbers, strings and rows of bytes";
  const std::string links = "/model/x is a link to elsewhere; all must lie in the file itself";
  const std::string again = " is one more link to what has a name already; each object must have one";
  const std::string counted = " is linked 2 times; each object must be linked once";
  const std::string chunks = "/model/x keeps its values in chunks or compressed; a checkpoint must hold them as they are, "
                             "in one piece";
  const std::string elsewhere = "/model/x keeps its values in other files or data sets; a checkpoint must hold its data "
                                "itself";
  const std::pair<const char*, std::string> cases[] = {
      {"int64", "/model/x is int64" + types},
      {"uint8", "/model/x is uint8" + types},
      {"uint16", "/model/x is uint16" + types},
      {"uint32", "/model/x is uint32" + types},
      {"attribute", "/model/x is uint16" + types},
      {"attributes", "/model/x is uint16" + types},
      {"no_attribute", "/model/x is uint16" + types},
      {"ascii_attribute", "/model/x is uint16" + types},
      {"maybe", "/model/x has values that are neither true nor false"},
      {"float16", "/model/x is float16" + types},
      {"complex", "/model/x is a compound" + types},
      {"string", "/model/x is a string" + types},
      {"null", "/model/x has no shape; a checkpoint holds arrays and single values"},
      {"axes", "/model/x has 9 axes; tensors have at most 8"},
      {"root", "/x is of rank 1 and float32" + roots},
      {"real", "/x is of rank 0 and float64" + roots},
      {"negative", "/step is negative; counters must be 0 or more"},
      {"type", "/model/x is neither a group nor a data set"},
      {"soft", links},
      {"external", links},
      {"deep", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q lies 17 groups deep; a checkpoint has at most 16"},
      {"cycle", "/model" + counted},
      {"twice", "/model/x" + counted},
      {"elsewhere", elsewhere},
      {"virtual", elsewhere},
      {"chunks", chunks},
      {"compressed", chunks},
      {"unwritten", "/model/x has no values in the file; a checkpoint must hold them"},
      {"endless", "/model/x is 1099511627776 long on an axis, and larger than any file"},
      {"committed", "/model/x shares a part with other objects; it must have its own"},
      {"attribute_table", "/model/x has a table of attributes; a checkpoint has none but dtype"},
      {"control", "/model/\\x1B[2J is int64" + types},
  };
  const std::size_t handles = detail::open_hdf5_handles();
  for (const auto& item : cases) {
    const std::string name = item.first, sentence = item.second;
    const fs::path file = folder.path / (name + ".h5");
    const std::string message = error_of([&] { load_checkpoint(file); });
    INFO(name);
    CHECK(message == "load_checkpoint: " + file.string() + ": " + sentence);
  }
  CHECK(detail::open_hdf5_handles() == handles);
}

static GPT small_gpt(const GPTOptions& options) {
  Rng rng(7);
  GPT model(options, rng);
  double seed = 0;
  for (const NamedParameter& p : named_parameters(model))
    p.parameter->copy_(test::some_values(p.parameter->shape(), seed += 1));
  return model;
}

// A model with its configuration as a checkpoint keeps it.
struct NamedGPT {
  std::string name, activation, norm;
  GPTOptions options;
  double scale = 1;  // of the embeddings, and so of the logits
  std::string model = "gpt", attention = "softmax";

  std::string config() const {
    return R"({"model": ")" + model + R"(", "attention": ")" + attention +
           R"(", "vocabulary": 10, "context": 8, "layers": 2, "heads": 2, "width": 16, "hidden": )" +
           std::to_string(options.hidden) + R"(, "activation": ")" + activation + R"(", "norm": ")" + norm +
           R"(", "bias": )" + (options.bias ? "true" : "false") + "}";
  }
};

static std::vector<NamedGPT> named_gpts() {
  const GPTOptions o{.vocabulary = 10, .context = 8, .layers = 2, .heads = 2, .width = 16};
  std::vector<NamedGPT> all{{"relu", "relu", "layer", o},
                            {"gelu", "gelu", "layer", o},
                            {"gelu-tanh", "gelu-tanh", "layer", o},
                            {"silu", "silu", "rms", o},
                            {"gpt2", "gelu-tanh", "layer", o}};
  const FeedForwardKind kinds[] = {FeedForwardKind::relu, FeedForwardKind::gelu, FeedForwardKind::gelu_tanh,
                                   FeedForwardKind::silu, FeedForwardKind::gelu_tanh};
  for (std::size_t i = 0; i < all.size(); ++i) all[i].options.activation = kinds[i];
  all[1].options.hidden = 24;
  all[2].options.bias = false;
  all[3].options.norm = NormKind::rms;
  all[4].scale = 0.02;  // as GPT-2 begins: the variance is near the epsilon of its norms, 1e-5
  return all;
}

TEST_CASE("checkpoint Python: PyTorch computes the same logits from heed's file") {
  const std::string python = python_with("h5py, torch");
  if (python.empty()) return;
  const TemporaryFolder folder;
  const Tensor x = Tensor::from<std::int32_t>({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, {2, 6});
  std::map<std::string, Tensor> logits;
  for (const NamedGPT& gpt : named_gpts()) {
    GPT model = small_gpt(gpt.options);
    for (Parameter* p : {&model.tokens.weight, &model.positions->weight}) p->copy_(p->detach() * gpt.scale);
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
    return run("exec " + python + " -B " + quoted((kSource / "docs/python/gpt.py").string()) + " " +
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

TEST_CASE("checkpoint Python: heed computes the same logits from PyTorch's weights") {
  const std::string python = python_with("h5py, torch");
  if (python.empty()) return;
  const TemporaryFolder folder;
  exchange(python, "from_pytorch", folder.path);
  const Checkpoint c = load_checkpoint(folder.path / "gpt.h5"), expected = load_checkpoint(folder.path / "logits.h5");
  GPT model = small_gpt({.vocabulary = 23, .context = 12, .layers = 2, .heads = 2, .width = 16});
  const LoadReport report = load_model(c, model);
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  CHECK(close(model(expected.tensor("data/x")).detach(), expected.tensor("data/logits"), 1e-4, 1e-4));
  CHECK(contains(c.text("config"), "\"width\": 16"));

  const Checkpoint kinds = load_checkpoint(folder.path / "kinds.h5");
  CHECK(same_bits(kinds.tensor("model/half"), Tensor::from<float>({1, -2.5}, {2}).to(DType::bfloat16)));
  CHECK(same_bits(kinds.tensor("model/count"), Tensor::scalar(7, DType::int32)));
  CHECK(same_bits(kinds.tensor("model/mask"), Tensor::from<bool>({1, 0}, {2})));
}
