// Published models with quantized weights: kept as in GGUF files, rounded to q8_0, and written as they are.
#include <algorithm>
#include <heed/io/gguf.hpp>
#include <heed/io/pretrained.hpp>
#include <heed/io/tokenizer_json.hpp>
#include <heed/layers/model.hpp>
#include <map>
#include <string>

#include "tests/core/quantized_samples.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;

namespace {

namespace fs = std::filesystem;

// A model of the family with rows of whole blocks, and random weights.
Pretrained model_with_blocks(const std::string& name, Index vocabulary = 40) {
  const JsonTokenizer tokenizer = JsonTokenizer::from_state(R"({"version": "1.0", "pre_tokenizer": {"type": "ByteLevel",
    "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE",
    "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
  Pretrained p =
      load_pretrained(fs::path(test::in_source("tests/reference/pretrained")) / name, {.tokenizer = tokenizer});
  TransformerOptions& blocks = p.config.options.blocks;
  p.config.options.vocabulary = vocabulary;
  blocks.layers = 2, blocks.hidden = 96;
  blocks.attention.width = 64;
  blocks.attention.key_size = blocks.attention.key_size > 0 ? 16 : 0;
  Rng rng(3);
  p.lm.model = GPT(p.config.options, rng, p.config.factory());
  return p;
}

Parameter& parameter_named(GPT& model, const std::string& name) {
  for (const NamedParameter& p : named_parameters(model))
    if (p.name == name) return *p.parameter;
  fail("no parameter ", name);
}

Tensor logits_of_ids(const Pretrained& p) {
  const Evaluation evaluation;
  return p.lm.model(test::random_ids({2, 12}, p.config.options.vocabulary, 4));
}

// Whether two GGUF files have the same tensors, with the same bytes.
bool same_tensors(const fs::path& first, const fs::path& second) {
  const GgufFile a(first), b(second);
  return std::ranges::equal(a.tensors(), b.tensors(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.type == y.second.type && x.second.shape == y.second.shape &&
           std::ranges::equal(x.second.bytes, y.second.bytes);
  });
}

// Writes the tensors of a GGUF file again, each in the type that type_of(name) gives.
void change_types(const fs::path& from, const fs::path& to, const std::map<std::string, DType>& types) {
  const GgufFile file(from);
  std::vector<GgufTensor> tensors;
  for (const auto& [name, stored] : file.tensors()) {
    const auto type = types.find(name);
    if (type == types.end())
      tensors.push_back({name, load(stored, DType::float32), stored.type});
    else if (is_quantized(type->second))
      tensors.push_back({name, test::random_blocks(stored.shape, type->second, 5), stored_type_for(type->second)});
    else
      tensors.push_back({name, load(stored, type->second), stored_type_for(type->second)});
  }
  save_gguf(to, file.metadata(), tensors);
}

}  // namespace

TEST_CASE("pretrained: quantized weights of a GGUF file stay as they are, and are written as they are") {
  const test::TemporaryFolder temporary;
  const fs::path file = temporary.path / "model.gguf", again = temporary.path / "again.gguf";
  for (const std::string name : {"gpt2", "llama", "llama_tied", "qwen3"}) {
    CAPTURE(name);
    Pretrained p = model_with_blocks(name);
    save_pretrained(file, p, {.type = StoredType::q8_0});
    const Pretrained numbers = load_pretrained(file);
    Pretrained kept = load_pretrained(file, {.as_stored = true});
    CHECK(parameter_named(kept.lm.model, "tokens.weight").dtype() == DType::q8_0);
    CHECK(parameter_named(kept.lm.model, "blocks.1.attention.qkv.weight").dtype() == DType::q8_0);
    CHECK(parameter_named(kept.lm.model, "norm.weight").dtype() == DType::float32);
    CHECK(kept.quantized.stored > 0);
    CHECK(kept.quantized.rounded == 0);
    CHECK(test::close(logits_of_ids(kept), logits_of_ids(numbers), 1e-4, 1e-5));
    save_pretrained(again, kept);
    CHECK(same_tensors(file, again));
  }
}

TEST_CASE("pretrained: Q4_0 and Q4_1 stay, and maps of one matrix that differ become q8_0") {
  const test::TemporaryFolder temporary;
  const fs::path file = temporary.path / "model.gguf", changed = temporary.path / "changed.gguf",
                 again = temporary.path / "again.gguf";
  Pretrained p = model_with_blocks("llama");
  save_pretrained(file, p, {.type = StoredType::q8_0});
  change_types(file, changed,
               {{"blk.0.attn_q.weight", DType::q4_1},
                {"blk.0.attn_k.weight", DType::q4_1},
                {"blk.0.attn_v.weight", DType::q4_1},
                {"blk.0.ffn_down.weight", DType::q4_0},
                {"blk.1.attn_q.weight", DType::q4_1},
                {"blk.1.attn_k.weight", DType::float32},
                {"blk.1.ffn_down.weight", DType::float32}});
  const Pretrained numbers = load_pretrained(changed);
  Pretrained kept = load_pretrained(changed, {.as_stored = true});
  CHECK(parameter_named(kept.lm.model, "blocks.0.attention.qkv.weight").dtype() == DType::q4_1);
  CHECK(parameter_named(kept.lm.model, "blocks.0.mlp.down.weight").dtype() == DType::q4_0);
  CHECK(parameter_named(kept.lm.model, "blocks.1.attention.qkv.weight").dtype() == DType::q8_0);
  CHECK(parameter_named(kept.lm.model, "blocks.1.mlp.down.weight").dtype() == DType::float32);
  CHECK(kept.quantized.rounded > 0);
  CHECK(kept.quantized.error > 1e-5);
  CHECK(kept.quantized.error < 0.01);
  CHECK(test::close(logits_of_ids(kept), logits_of_ids(numbers), 2e-2, 2e-2));
  save_pretrained(again, kept);
  const GgufFile written(again);
  CHECK(written.tensor("blk.0.attn_k.weight").type == StoredType::q4_1);
  CHECK(test::same_bits(load(written.tensor("blk.0.attn_k.weight")),
                        load(GgufFile(changed).tensor("blk.0.attn_k.weight"))));
  CHECK(written.number("general.file_type") == 7);
}

TEST_CASE("pretrained: weights of any file are rounded to q8_0, and the error is told") {
  const test::TemporaryFolder temporary;
  Pretrained given = model_with_blocks("llama"), few_tokens = model_with_blocks("llama", 3);
  const auto compare = [](Pretrained& p, const fs::path& path) {
    CAPTURE(path.string());
    const Tensor exact = logits_of_ids(p);
    save_pretrained(path, p);
    const Pretrained rounded = load_pretrained(path, {.dtype = DType::q8_0});
    CHECK(rounded.quantized.stored == 0);
    CHECK(rounded.quantized.rounded > 60000);
    CHECK(rounded.quantized.error > 1e-3);
    CHECK(rounded.quantized.error < 0.01);
    CHECK(test::close(logits_of_ids(rounded), exact, 0.05, 0.02));
    GPT model = clone(p.lm.model);
    to(model, DType::q8_0);
    const Evaluation evaluation;
    CHECK(test::same_bits(logits_of_ids(rounded), model(test::random_ids({2, 12}, p.config.options.vocabulary, 4))));
  };
  compare(given, temporary.path / "folder");
  compare(given, temporary.path / "model.gguf");
  compare(few_tokens, temporary.path / "model.h5");
}

TEST_CASE("pretrained: a folder holds the numbers of quantized weights, and checkpoints refuse them") {
  const test::TemporaryFolder temporary;
  Pretrained p = model_with_blocks("llama");
  to(p.lm.model, DType::q8_0);
  save_pretrained(temporary.path / "folder", p);
  CHECK(test::close(logits_of_ids(load_pretrained(temporary.path / "folder")), logits_of_ids(p), 1e-4, 1e-5));
  CHECK(test::contains(test::error_of([&] { save_pretrained(temporary.path / "model.h5", p); }),
                       "checkpoints have no quantized values"));
}
