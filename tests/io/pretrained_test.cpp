// Published models: each family against tiny models of transformers (tests/reference/pretrained_models.py), conversions
// from and to every format, and what is refused.
#include <fstream>
#include <heed/heed.hpp>
#include <heed/io/json.hpp>
#include <heed/io/pretrained.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/io/published.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::published::check_gradients;
using test::published::close_to_largest;
using test::published::config_json_of;
using test::published::Fields;
using test::published::load_error;
using test::published::reference;
using test::published::with_fields;

namespace {

namespace fs = std::filesystem;

const char* const kDecoders[] = {"gpt2", "llama", "llama_tied", "mistral", "qwen2", "qwen3", "gemma3_text"};

Tensor logits_of(const Pretrained& p, const Tensor& x) {
  const Evaluation evaluation;
  return p.lm.model(x);
}

// A tokenizer that GGUF can describe; those of the references have no name there.
JsonTokenizer tokenizer_for_gguf() {
  return JsonTokenizer::from_state(R"({"version": "1.0", "pre_tokenizer": {"type": "ByteLevel",
    "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE",
    "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
}

// A folder with the reference of Gemma 3 as GGUF can hold it: every sixth layer without a window, and the numbers that
// engines have in their code.
fs::path gemma3_for_gguf(const fs::path& parent, const std::string& local_base = "10000.0",
                         const std::string& scalar = "8",
                         const std::string& layers = R"(["sliding_attention", "sliding_attention",
                                                         "sliding_attention", "sliding_attention"])") {
  const std::string rope = R"({"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 100000.0},
                               "sliding_attention": {"rope_type": "default", "rope_theta": )" +
                           local_base + "}}";
  return with_fields(parent, "gemma3_text",
                     {{"layer_types", layers}, {"rope_parameters", rope}, {"query_pre_attn_scalar", scalar}});
}

}  // namespace

TEST_CASE("pretrained: logits, loss and gradients are those of transformers") {
  for (const std::string name : kDecoders) {
    CAPTURE(name);
    Pretrained p = load_pretrained(reference(name));
    const TensorsByName expected = load_safetensors(reference(name) / "reference.safetensors");
    const Tensor &x = expected.at("x"), &y = expected.at("y");
    CHECK(close_to_largest(logits_of(p, x), expected.at("logits"), 1e-5));
    Tape tape;
    const Evaluation evaluation;  // no dropout
    const Tensor loss = p.lm.model.loss(x, y);
    CHECK(loss.item() == doctest::Approx(expected.at("loss").to_vector<double>()[0]).epsilon(1e-6));
    tape.backward(loss);
    check_gradients(p, expected, 2e-5);
  }
}

TEST_CASE("pretrained: a saved folder is the same model") {
  for (const std::string name : kDecoders) {
    CAPTURE(name);
    Pretrained p = load_pretrained(reference(name));
    const Tensor x = load_safetensors(reference(name) / "reference.safetensors").at("x");
    const test::TemporaryFolder temporary;
    const fs::path folder = temporary.path / "saved", h5 = temporary.path / "saved.h5";
    save_pretrained(folder, p);
    Pretrained again = load_pretrained(folder);
    CHECK(to_json(again.config) == to_json(p.config));
    CHECK(test::same_bits(logits_of(again, x), logits_of(p, x)));
    save_pretrained(h5, again);
    CHECK(test::same_bits(logits_of(load_pretrained(h5), x), logits_of(p, x)));
    CHECK(load_pretrained(h5).family == p.family);
  }
}

TEST_CASE("pretrained: the tokenizer of a folder is written to a GGUF file") {
  const test::TemporaryFolder temporary;
  Pretrained p = load_pretrained(reference("llama"), {.tokenizer = tokenizer_for_gguf()});
  save_pretrained(temporary.path / "llama.gguf", p);
  const Pretrained again = load_pretrained(temporary.path / "llama.gguf");
  CHECK(again.lm.tokenizer.encode("abba") == Tokens{2, 1, 0});
  CHECK(again.lm.tokenizer.vocabulary_size() == p.config.options.vocabulary);
  Pretrained words = load_pretrained(reference("llama"), {.tokenizer = WordTokenizer("a b c")});
  for (const char* name : {"words.gguf", "words"})
    CHECK(test::error_of([&] { save_pretrained(temporary.path / name, words); }) ==
          "tokenizer.json: the tokenizer is of the kind word; it must be byte, char, sentencepiece or tokenizer.json");
}

TEST_CASE("pretrained: both spellings of rope are read") {
  const test::TemporaryFolder temporary;
  const std::string old = R"({"type": "linear", "factor": 2.0})";
  const auto base = load_pretrained(reference("llama_tied")).config;
  const auto spelled = [&](const std::string& name, Fields fields) {
    fields.emplace_back("rope_parameters", "");
    return load_pretrained(with_fields(temporary.path, name, fields)).config;
  };
  CHECK(to_json(spelled("llama_tied", {{"rope_theta", "10000.0"}, {"rope_scaling", old}})) == to_json(base));
  const std::string llama3 = R"({"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                 "high_freq_factor": 4.0, "original_max_position_embeddings": 16})";
  CHECK(to_json(spelled("llama", {{"rope_theta", "5000"}, {"rope_scaling", llama3}})) ==
        to_json(load_pretrained(reference("llama")).config));
  CHECK(to_json(spelled("gemma3_text", {{"rope_theta", "100000.0"},
                                        {"rope_local_base_freq", "1000.0"},
                                        {"rope_scaling", R"({"rope_type": "linear", "factor": 8.0})"},
                                        {"layer_types", ""},
                                        {"sliding_window_pattern", "2"}})) ==
        to_json(load_pretrained(reference("gemma3_text")).config));
}

TEST_CASE("pretrained: what would change results is refused by name") {
  const test::TemporaryFolder temporary;
  const auto error_with = [&](const std::string& name, const Fields& fields) {
    return load_error(with_fields(temporary.path, name, fields));
  };
  const auto refused = [&](const std::string& name, const std::string& key, const std::string& value) {
    const std::string error = error_with(name, {{key, value}});
    INFO(error);
    CHECK(error.find(key) != std::string::npos);
    return error.find("config.json: ") != std::string::npos;
  };
  CHECK(refused("llama", "attention_bias", "true"));
  CHECK(refused("llama", "hidden_act", "\"gelu\""));
  CHECK(refused("llama", "new_field", "1"));
  CHECK(refused("llama", "rope_parameters", R"({"rope_type": "yarn", "rope_theta": 1.0})"));
  CHECK(refused("llama", "model_type", "\"mamba\""));
  CHECK(refused("llama", "hidden_size", "0"));
  CHECK(refused("llama", "num_hidden_layers", "\"two\""));
  CHECK(refused("qwen2", "use_sliding_window", "true"));
  CHECK(refused("qwen2", "layer_types", "[\"full_attention\", \"sliding_attention\"]"));
  CHECK(refused("gemma3_text", "final_logit_softcapping", "30.0"));
  CHECK(refused("gemma3_text", "layer_types", R"(["full_attention", "sliding_attention"])"));
  CHECK(refused("gpt2", "scale_attn_by_inverse_layer_idx", "true"));
  CHECK(refused("gpt2", "embd_pdrop", "0.5"));
  CHECK(refused("bert", "is_decoder", "true"));
  CHECK(error_with("llama", {{"intermediate_size", "32"}}).find("gate_proj.weight is [24, 16]") != std::string::npos);
  CHECK(error_with("llama", {{"num_hidden_layers", "3"}}).find("layers.2.") != std::string::npos);
  CHECK(error_with("llama", {{"num_hidden_layers", "1"}}).find("heed does not know the tensor") != std::string::npos);
}

TEST_CASE("pretrained: fields that config.json lacks have the values of transformers' classes") {
  const test::TemporaryFolder temporary;
  const auto config_without = [&](const std::string& name, const std::string& field) {
    const fs::path folder = with_fields(temporary.path, name, {});
    const detail::JsonValue json = config_json_of(folder);
    detail::JsonValue kept = detail::JsonValue::object();
    for (std::size_t i = 0; i < json.keys.size(); ++i)
      if (json.keys[i] != field) kept.set(json.keys[i], json.items[i]);
    std::ofstream(folder / "config.json") << detail::json_text(kept);
    return folder;
  };
  // The window of 4096 tokens is longer than the context, so that it has no effect here.
  CHECK(load_pretrained(config_without("mistral", "sliding_window")).config.attention != "window");
  CHECK(load_pretrained(with_fields(temporary.path, "mistral", {{"sliding_window", "null"}})).config.attention !=
        "window");
  CHECK(load_error(config_without("qwen3", "head_dim")).find("[512, 16]") != std::string::npos);
  const Pretrained gemma = load_pretrained(config_without("gemma3_text", "rope_parameters"));
  CHECK(gemma.config.options.blocks.attention.rope_base == 1e6);
  CHECK(gemma.config.options.blocks.attention.window_rope_base == 10000);
}

TEST_CASE("pretrained: a tied output with other values is refused") {
  const test::TemporaryFolder temporary;
  const fs::path folder = with_fields(temporary.path, "llama_tied", {});
  TensorsByName tensors = load_safetensors(folder / "model.safetensors");
  const Tensor tokens = tensors.at("model.embed_tokens.weight");
  const auto save_with = [&](const Tensor& output) {
    tensors["lm_head.weight"] = output;
    save_safetensors(folder / "model.safetensors", tensors);
  };
  save_with(tokens + 0);
  load_pretrained(folder);
  save_with(tokens + 1);
  CHECK(load_error(folder).find("lm_head.weight differs from model.embed_tokens.weight, but the configuration ties "
                                "them") != std::string::npos);
}

TEST_CASE("pretrained: fields of GGUF files that heed does not know are refused") {
  const test::TemporaryFolder temporary;
  Pretrained p = load_pretrained(reference("bert_encoder"), {.tokenizer = tokenizer_for_gguf()});
  p.pooling = SentencePooling{.kind = SentencePooling::Kind::first};
  const fs::path path = temporary.path / "bert.gguf";
  save_pretrained(path, p);
  const GgufFile file(path);
  CHECK(file.number("bert.pooling_type") == 2);
  CHECK(file.number("tokenizer.ggml.token_type_count") == 2);
  const Pretrained again = load_pretrained(path);
  CHECK(again.pooling->kind == SentencePooling::Kind::first);
  const auto with_entry = [&](const std::string& key, const GgufValue& value) {
    GgufMetadata metadata = file.metadata();
    metadata[key] = value;
    std::vector<GgufTensor> tensors;
    for (const auto& [name, stored] : file.tensors()) tensors.push_back({name, load(stored)});
    save_gguf(temporary.path / "other.gguf", metadata, tensors);
    const std::string error = load_error(temporary.path / "other.gguf");
    return error.substr(std::min(error.size(), error.find(": ") + 2));
  };
  CHECK(with_entry("bert.vocab_size", std::uint32_t{40}) == "");
  CHECK(with_entry("bert.attention.scale", 2.0f) ==
        "bert.attention.scale is a field that heed does not know for this model; its effect would be lost");
  CHECK(with_entry("bert.pooling_type", std::uint32_t{3}) ==
        "bert.pooling_type is 3; heed supports 0 (none), 1 (mean) and 2 (first token)");
  CHECK(with_entry("bert.attention.layer_norm_epsilon", 1e300) ==
        "bert.attention.layer_norm_epsilon is inf; it must be a number of at least 0");
  CHECK(with_entry("bert.attention.causal", true) == "bert.attention.causal is true; heed supports only false");
  p.pooling->kind = SentencePooling::Kind::max;
  CHECK(test::contains(test::error_of([&] { save_pretrained(path, p); }), "pools by the maximum"));
}

TEST_CASE("pretrained: a saved GGUF file is the same model") {
  for (const std::string name : {"gpt2", "llama", "llama_tied", "qwen2", "qwen3", "gemma3_text"}) {
    CAPTURE(name);
    const test::TemporaryFolder temporary;
    const fs::path folder = name == "gemma3_text" ? gemma3_for_gguf(temporary.path) : reference(name);
    Pretrained p = load_pretrained(folder, {.tokenizer = tokenizer_for_gguf()});
    save_pretrained(temporary.path / "saved.gguf", p);
    const Pretrained again = load_pretrained(temporary.path / "saved.gguf");
    CHECK(again.family == p.family);
    const Tensor x = load_safetensors(reference(name) / "reference.safetensors").at("x");
    CHECK(close_to_largest(logits_of(again, x), logits_of(p, x), 1e-6));
  }
}

TEST_CASE("pretrained: a GGUF file of Gemma 3 has the numbers that engines use") {
  const test::TemporaryFolder temporary;
  const auto error_with = [&](const fs::path& folder) {
    Pretrained p = load_pretrained(folder, {.tokenizer = tokenizer_for_gguf()});
    return test::error_of([&] { save_pretrained(temporary.path / "gemma.gguf", p); });
  };
  CHECK(error_with(gemma3_for_gguf(temporary.path)) == "");
  CHECK(error_with(gemma3_for_gguf(temporary.path, "1000.0")) ==
        "gemma3.rope.freq_base_swa is 1000; a GGUF file of Gemma 3 requires 10000");
  CHECK(error_with(gemma3_for_gguf(temporary.path, "10000.0", "5")) ==
        "gemma3.query_pre_attn_scalar is 5; a GGUF file requires 8 for this model");
  const std::string layers = R"(["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";
  CHECK(error_with(gemma3_for_gguf(temporary.path, "10000.0", "8", layers)) ==
        "gemma3.attention.sliding_window_pattern is 2; a GGUF file of Gemma 3 requires 6");
}

TEST_CASE("pretrained: a Gemma 3 is written with an integer as query_pre_attn_scalar, as transformers requires") {
  const test::TemporaryFolder temporary;
  Pretrained p = load_pretrained(reference("gemma3_text"));
  save_pretrained(temporary.path / "written", p);
  const auto config = test::json_file(temporary.path / "written/config.json");
  CHECK(config.at("query_pre_attn_scalar").is_number_integer());
}

TEST_CASE("pretrained: encoders are written as ONNX files, and decoders are not") {
  const test::TemporaryFolder temporary;
  Pretrained encoder = load_pretrained(reference("bert"));
  save_pretrained(temporary.path / "bert.onnx", encoder);
  CHECK(fs::file_size(temporary.path / "bert.onnx") >
        4 * static_cast<std::uintmax_t>(parameter_count(encoder.lm.model)));
  Pretrained decoder = load_pretrained(reference("llama"));
  CHECK(test::error_of([&] { save_pretrained(temporary.path / "llama.onnx", decoder); }).find("causal") !=
        std::string::npos);
}

TEST_CASE("pretrained: adapters have the names of the family's class") {
  const auto module = [](const std::string& name, const std::string& layer, int part) {
    return peft_names(load_pretrained(reference(name))).module(layer, part).value_or("none");
  };
  CHECK(module("llama", "blocks.1.attention.qkv", 1) == "model.layers.1.self_attn.k_proj");
  CHECK(module("llama", "blocks.0.mlp.down", -1) == "model.layers.0.mlp.down_proj");
  CHECK(module("llama", "blocks.0.attention.qkv", -1) == "none");
  CHECK(module("gpt2", "blocks.0.attention.qkv", -1) == "transformer.h.0.attn.c_attn");
  CHECK(module("gemma3_text", "blocks.3.mlp.up", 0) == "model.layers.3.mlp.gate_proj");
  CHECK(peft_names(load_pretrained(reference("gpt2"))).fan_in_fan_out);
}

TEST_CASE("pretrained: a saved adapter is loaded again, and changes the logits") {
  const test::TemporaryFolder temporary;
  Pretrained p = load_pretrained(reference("llama"));
  Rng rng(1);
  add_lora(p.lm.model, {.rank = 2, .alpha = 4}, rng);
  for (const NamedParameter& q : trainable_parameters(p.lm.model)) init::normal_(*q.parameter, rng);
  const Tensor x = load_safetensors(reference("llama") / "reference.safetensors").at("x");
  const Tensor adapted = logits_of(p, x);
  save_peft(temporary.path / "adapter", p.lm.model, peft_names(p));
  Pretrained other = load_pretrained(reference("llama"));
  const Tensor before = logits_of(other, x);
  load_peft(temporary.path / "adapter", other.lm.model, peft_names(other));
  CHECK(test::same_bits(logits_of(other, x), adapted));
  CHECK_FALSE(close_to_largest(before, adapted, 1e-2));
}

TEST_CASE("pretrained: missing and pickled files") {
  const test::TemporaryFolder temporary;
  const fs::path folder = temporary.path / "pickled";
  fs::copy(reference("llama"), folder, fs::copy_options::recursive);
  fs::rename(folder / "model.safetensors", folder / "pytorch_model.bin");
  CHECK(load_error(folder).find("pickled file, which may contain code") != std::string::npos);
  CHECK(load_error(folder / "pytorch_model.bin").find("pickled file, which may contain code") != std::string::npos);
  CHECK(load_error(folder / "none").find("none") != std::string::npos);
  fs::remove(folder / "config.json");
  CHECK(load_error(folder).find("config.json") != std::string::npos);
}
