// Tokenizers inside GGUF files: tokens of llama.cpp and of the tokenizer.json from which a file was made, and refused
// metadata.
#include <heed/io/tokenizer_gguf.hpp>

#include <cstdlib>
#include <filesystem>
#include <limits>

#include "tests/data/temporary_folder.hpp"
#include "tests/io/stored_tokenizers.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::error_of;
using test::TemporaryFolder;

namespace {

// The kinds of tests/reference/tokenizers_gguf.py, and their names in tokenizer.ggml.pre. Null: SentencePiece.
const std::pair<const char*, const char*> kGgufKinds[] = {{"gpt2", "gpt-2"},       {"smollm", "smollm"},
                                                          {"llama3", "llama-bpe"}, {"qwen2", "qwen2"},
                                                          {"llama2", nullptr},     {"mistral", nullptr}};

// The metadata of a GGUF file with the vocabulary, merges and added tokens of a kind, as the script writes them.
GgufMetadata gguf_metadata(const std::string& kind, const char* pre) {
  const auto file = nlohmann::json::parse(test::tokenizer_file(kind));
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  const auto set = [&](const std::string& token, std::size_t id, std::int32_t type) {
    if (id >= tokens.size()) tokens.resize(id + 1), types.resize(id + 1, 1);
    tokens[id] = token, types[id] = type;
  };
  for (const auto& token : file["model"]["vocab"].items()) set(token.key(), token.value().get<std::size_t>(), 1);
  for (const auto& token : file["added_tokens"])
    set(token["content"], token["id"].get<std::size_t>(), token["special"].get<bool>() ? 3 : 4);
  GgufMetadata made = {{"general.architecture", "llama"}};
  std::map<std::string, float> scores;
  for (const auto& pair : file["model"]["merges"]) {
    const auto left = pair[0].get<std::string>(), right = pair[1].get<std::string>();
    scores.emplace(left + right, -static_cast<float>(merges.size()));
    merges.push_back(left + " " + right);
  }
  made["tokenizer.ggml.tokens"] = GgufArray(tokens);
  if (pre != nullptr) {
    made["tokenizer.ggml.model"] = "gpt2";
    made["tokenizer.ggml.pre"] = pre;
    made["tokenizer.ggml.merges"] = GgufArray(merges);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] == "<|begin_of_text|>") made["tokenizer.ggml.bos_token_id"] = static_cast<std::uint32_t>(i);
  } else {
    std::vector<float> all;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto found = scores.find(tokens[i]);
      all.push_back(found != scores.end() ? found->second : -1e6f - static_cast<float>(i));
      if (types[i] == 1 && tokens[i].starts_with("<0x") && tokens[i].size() == 6) types[i] = 6;
    }
    types[0] = 2;
    made["tokenizer.ggml.model"] = "llama";
    made["tokenizer.ggml.scores"] = GgufArray(all);
    made["tokenizer.ggml.unknown_token_id"] = std::uint32_t{0};
    made["tokenizer.ggml.bos_token_id"] = std::uint32_t{1};
    made["tokenizer.ggml.eos_token_id"] = std::uint32_t{2};
  }
  made["tokenizer.ggml.token_type"] = GgufArray(types);
  return made;
}

JsonTokenizer tokenizer_from(const GgufMetadata& metadata) {
  const TemporaryFolder folder;
  const auto path = folder.path / "model.gguf";
  save_gguf(path, metadata, {});
  return tokenizer_of(GgufFile(path));
}

// The metadata of BERT's tokenizer.
GgufMetadata bert_metadata() {
  const auto file = nlohmann::json::parse(test::tokenizer_file("bert"));
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  for (const auto& token : file["model"]["vocab"].items()) {
    const auto id = token.value().get<std::size_t>();
    if (id >= tokens.size()) tokens.resize(id + 1), types.resize(id + 1, 1);
    const std::string& text = token.key();
    const bool name = text.size() > 2 && text.starts_with('[') && text.ends_with(']');
    tokens[id] = name ? text : text.starts_with("##") ? text.substr(2) : "▁" + text;
    types[id] = name ? 3 : 1;
  }
  return {{"general.architecture", "bert"},
          {"tokenizer.ggml.model", "bert"},
          {"tokenizer.ggml.tokens", GgufArray(tokens)},
          {"tokenizer.ggml.token_type", GgufArray(types)},
          {"tokenizer.ggml.unknown_token_id", std::uint32_t{1}},
          {"tokenizer.ggml.cls_token_id", std::uint32_t{2}},
          {"tokenizer.ggml.seperator_token_id", std::uint32_t{3}}};
}

// Compares a tokenizer with the tokens of llama.cpp. Reports at most five differences.
void check_llama_cpp(const JsonTokenizer& t, const nlohmann::json& kind) {
  int wrong = 0;
  for (const auto& row : kind.at("texts")) {
    const auto text = row[0].get<std::string>();
    const auto ids = row[1].get<Tokens>(), plain = row[2].is_null() ? ids : row[2].get<Tokens>();
    if (t.encode(text) == ids && t.encode_as_text(text) == plain) continue;
    INFO(printable(text));
    if (++wrong > 5) continue;
    CHECK(t.encode(text) == ids);
    CHECK(t.encode_as_text(text) == plain);
  }
  CHECK(wrong == 0);
  CHECK(t.with_special_tokens({}) == kind.at("around").get<Tokens>());
}

}  // namespace

TEST_CASE("tokenizers in GGUF: tokens are those of llama.cpp") {
  const auto stored = test::json_file(test::in_source("tests/reference/tokenizers_gguf.json"));
  for (const auto& kind : kGgufKinds) {
    INFO(kind.first);
    CHECK(stored.at(kind.first).at("texts").size() > 40);
    check_llama_cpp(tokenizer_from(gguf_metadata(kind.first, kind.second)), stored.at(kind.first));
  }
}

// HEED_GGUF_TEXTS names a folder that tests/reference/tokenizers_gguf.py wrote.
TEST_CASE("tokenizers in GGUF: many texts") {
  const char* const folder = std::getenv("HEED_GGUF_TEXTS");
  if (folder == nullptr) {
    MESSAGE("HEED_GGUF_TEXTS is not set: no texts to compare");
    return;
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path().string());
    const auto kind = test::json_file(entry.path());
    check_llama_cpp(tokenizer_of(GgufFile(kind.at("gguf").get<std::string>())), kind);
    ++files;
  }
  CHECK(files > 0);
}

TEST_CASE("tokenizers in GGUF: tokens and texts are those of the tokenizer.json") {
  const auto compare = [](const GgufMetadata& metadata, const std::string& kind) {
    INFO(kind);
    const JsonTokenizer gguf = tokenizer_from(metadata),
                        published = JsonTokenizer::from_state(test::tokenizer_file(kind));
    CHECK(gguf.vocabulary_size() == published.vocabulary_size());
    CHECK(gguf.with_special_tokens({9}) == published.with_special_tokens({9}));
    for (const auto& row : test::stored_tokenizers().at(kind).at("texts")) {
      const auto text = row[0].get<std::string>();
      const auto ids = row[1].get<Tokens>();
      INFO(printable(text));
      CHECK(gguf.encode(text) == ids);
      CHECK(gguf.decode(ids) == published.decode(ids));
      CHECK(gguf.decode_without_special(ids) == published.decode_without_special(ids));
    }
    CHECK(JsonTokenizer::from_state(gguf.state()).encode("a b") == gguf.encode("a b"));
  };
  for (const auto& kind : kGgufKinds)
    if (std::string(kind.first) != "mistral") compare(gguf_metadata(kind.first, kind.second), kind.first);
  compare(bert_metadata(), "bert");
}

TEST_CASE("tokenizers in GGUF: written metadata") {
  const auto llama_cpp = test::json_file(test::in_source("tests/reference/tokenizers_gguf.json"));
  for (const char* kind : {"gpt2", "smollm", "llama3", "qwen2", "llama2", "mistral", "bert"}) {
    INFO(kind);
    const JsonTokenizer published = JsonTokenizer::from_state(test::tokenizer_file(kind));
    GgufMetadata metadata = tokenizer_metadata(published, {}, Tokens{1, 0});
    metadata["general.architecture"] = "llama";
    const JsonTokenizer gguf = tokenizer_from(metadata);
    CHECK(gguf.vocabulary_size() == published.vocabulary_size());
    CHECK(gguf.with_special_tokens({9}) == published.with_special_tokens({9}));
    CHECK(gguf.special("<unk>") == published.special("<unk>"));
    for (std::int32_t id = 0; id < 20; ++id) {
      CHECK(gguf.token(id) == published.token(id));
      CHECK(gguf.is_special(id) == published.is_special(id));
    }
    if (llama_cpp.contains(kind)) {
      check_llama_cpp(gguf, llama_cpp.at(kind));
      const TemporaryFolder folder;
      save_gguf(folder.path / "model.gguf", metadata, {});
      CHECK(end_tokens_of(GgufFile(folder.path / "model.gguf")) == Tokens{1, 0});
    } else {
      for (const auto& row : test::stored_tokenizers().at(kind).at("texts"))
        CHECK(gguf.encode(row[0].get<std::string>()) == row[1].get<Tokens>());
    }
  }
}

TEST_CASE("tokenizers in GGUF: a larger vocabulary is padded") {
  const JsonTokenizer published = JsonTokenizer::from_state(test::tokenizer_file("smollm"));
  GgufMetadata metadata = tokenizer_metadata(published, {}, {}, 443);
  metadata["general.architecture"] = "llama";
  const JsonTokenizer gguf = tokenizer_from(metadata);
  CHECK(gguf.vocabulary_size() == 443);
  CHECK(gguf.token(442) == "[PAD442]");
  CHECK(gguf.encode("[PAD442] the") == published.encode("[PAD442] the"));
}

TEST_CASE("tokenizers in GGUF: tokenizers that GGUF cannot describe") {
  const auto refuses = [](const char* kind, const std::string& message) {
    const JsonTokenizer t = JsonTokenizer::from_state(test::tokenizer_file(kind));
    CHECK(error_of([&] { tokenizer_metadata(t); }) == "tokenizer.json: " + message);
  };
  refuses("unigram", "normalizer.normalizers[0] has no counterpart in a GGUF file");
  refuses("word_level", "model.type is \"WordLevel\"; a GGUF file can have it for words of one character");
  refuses("prefix_space", "added_tokens[2].lstrip is true; a GGUF file cannot say so");
  refuses("clip", "normalizer.normalizers[1].type has no name in tokenizer.ggml.pre");
  refuses("unknowns", "pre_tokenizer.pretokenizers[0] has no name in tokenizer.ggml.pre");
  refuses("cased_bert", "normalizer.type is \"Sequence\"; it must be one of BertNormalizer");
  const JsonTokenizer t = JsonTokenizer::from_state(test::tokenizer_file("smollm"));
  CHECK(error_of([&] { tokenizer_metadata(t, {}, Tokens{440}); }) ==
        "tokenizer_metadata: token 440 is not in the vocabulary of 440 tokens");
  const auto changed = [](const char* kind, const char* pointer, const char* value) {
    auto file = nlohmann::json::parse(test::tokenizer_file(kind));
    file[nlohmann::json::json_pointer(pointer)] = nlohmann::json::parse(value);
    return error_of([&] { tokenizer_metadata(JsonTokenizer::from_state(file.dump())); });
  };
  CHECK(changed("llama2", "/normalizer/normalizers/0/prepend", "\"x\"") ==
        "tokenizer.json: normalizer.normalizers[0] has no counterpart in a GGUF file");
  CHECK(changed("llama2", "/normalizer", "null") == "tokenizer.json: model needs a stage that writes spaces as \"▁\"");
  CHECK(changed("mistral", "/pre_tokenizer/replacement", "\"_\"") ==
        "tokenizer.json: pre_tokenizer has no counterpart in a GGUF file");
  CHECK(changed("gpt2", "/pre_tokenizer/add_prefix_space", "true") ==
        "tokenizer.json: pre_tokenizer has no name in tokenizer.ggml.pre");
  CHECK(changed("smollm", "/pre_tokenizer", "null") == "tokenizer.json: model has no name in tokenizer.ggml.pre");
  CHECK(changed("bert", "/normalizer/clean_text", "false") ==
        "tokenizer.json: normalizer.clean_text is false; a GGUF file requires true");
  CHECK(changed("bert", "/post_processor", "null") ==
        "tokenizer.json: post_processor must add one token before and one after a text");
  CHECK(changed("smollm", "/added_tokens/0/lstrip", "true") ==
        "tokenizer.json: added_tokens[0].lstrip is true; a GGUF file cannot say so");
  const char* twice =
      R"({"type": "TemplateProcessing", "pair": [], "single": [{"SpecialToken": {"id": "a", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"a": {"id": "a", "ids": [0, 0], "tokens": ["a", "a"]}}})";
  CHECK(changed("smollm", "/post_processor", twice) ==
        "tokenizer.json: post_processor adds several tokens at one end of a text; a GGUF file can have one");
}

// The score decides which pair is merged first, not the order of tokens.
TEST_CASE("tokenizers in GGUF: scores of SentencePiece") {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "a", "b", "c", "ab", "bc", "aba", "ba", "▁"};
  std::vector<float> scores = {0, 0, 0, -9, -9, -9, -2, -1, -3, -4, -5};
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[0] = 2, types[1] = types[2] = 3;
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(detail::formatted("<0x%02X>", b));
    scores.push_back(0);
    types.push_back(6);
  }
  GgufMetadata metadata = {{"general.architecture", "llama"},
                           {"tokenizer.ggml.model", "llama"},
                           {"tokenizer.ggml.tokens", GgufArray(tokens)},
                           {"tokenizer.ggml.scores", GgufArray(scores)},
                           {"tokenizer.ggml.token_type", GgufArray(types)},
                           {"tokenizer.ggml.add_bos_token", false},
                           {"tokenizer.ggml.add_space_prefix", false}};
  const JsonTokenizer t = tokenizer_from(metadata);
  CHECK(t.encode("abc") == Tokens{3, 7});
  CHECK(t.encode("ab c") == Tokens{6, 10, 5});
  CHECK(t.encode("é") == Tokens{11 + 0xC3, 11 + 0xA9});
  CHECK(t.decode(t.encode(" abé")) == " abé");
  CHECK(t.encode("aba") == Tokens{8});
  CHECK(t.with_special_tokens({3}) == Tokens{3});
  CHECK(t.encode("<s>").size() == 1);
  CHECK(t.encode_as_text("<s>").size() == 3);
  scores[6] = -0.5f;
  metadata["tokenizer.ggml.scores"] = GgufArray(scores);
  metadata["tokenizer.ggml.add_space_prefix"] = true;
  CHECK(tokenizer_from(metadata).encode("abc") == Tokens{10, 6, 5});
  CHECK(tokenizer_from(metadata).decode(Tokens{10, 6, 5}) == "abc");
  const auto refuses = [&](const char* key, GgufValue value, const std::string& message) {
    GgufMetadata other = metadata;
    other.insert_or_assign(key, std::move(value));
    CHECK(test::contains(error_of([&] { tokenizer_from(other); }), message));
  };
  refuses("tokenizer.ggml.scores", GgufArray(std::vector<float>{1}),
          "model.gguf: tokenizer.ggml.scores has 1 values; it must have one per token, 267");
  scores[8] = std::numeric_limits<float>::quiet_NaN();
  refuses("tokenizer.ggml.scores", GgufArray(scores), "model.gguf: tokenizer.ggml.scores is not finite at index 8");
  tokens[8] = std::string(300, 'a');
  refuses("tokenizer.ggml.tokens", GgufArray(tokens),
          "model.gguf: tokenizer.ggml.tokens has a text of 300 bytes at index 8; it must have at most 256");
  tokens[11] = "x";
  refuses("tokenizer.ggml.tokens", GgufArray(tokens),
          "model.gguf: tokenizer.ggml.tokens has no token <0x00> of the type \"byte\", which is needed");
}

// Tokens of which each is two others in many ways would make a tokenizer.json hundreds of times as large.
TEST_CASE("tokenizers in GGUF: the merges of a file take memory in proportion to its tokens") {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  for (int b = 0; b < 256; ++b) tokens.push_back(detail::formatted("<0x%02X>", b)), types.push_back(6);
  for (std::size_t n = 1; n <= 200; ++n) tokens.push_back(std::string(n, 'a')), types.push_back(1);
  const GgufMetadata metadata = {{"general.architecture", "llama"},
                                 {"tokenizer.ggml.model", "llama"},
                                 {"tokenizer.ggml.tokens", GgufArray(tokens)},
                                 {"tokenizer.ggml.scores", GgufArray(std::vector<float>(tokens.size(), 0.0f))},
                                 {"tokenizer.ggml.token_type", GgufArray(types)},
                                 {"tokenizer.ggml.bos_token_id", std::uint32_t{0}}};
  CHECK(test::contains(error_of([&] { tokenizer_from(metadata); }),
                       "model.gguf: tokenizer.ggml.tokens has texts that are two other tokens in too many ways: these "
                       "have more than 16 times the bytes of all tokens"));
}

TEST_CASE("tokenizers in GGUF: added and named tokens") {
  GgufMetadata metadata = gguf_metadata("smollm", "smollm");
  metadata["tokenizer.ggml.add_bos_token"] = true;
  metadata["tokenizer.ggml.bos_token_id"] = std::uint32_t{1};
  metadata["tokenizer.ggml.add_eos_token"] = true;
  metadata["tokenizer.ggml.eos_token_id"] = std::uint32_t{2};
  metadata["tokenizer.ggml.eot_token_id"] = std::uint32_t{2};
  metadata["tokenizer.ggml.eom_token_id"] = std::uint32_t{0};
  metadata["tokenizer.ggml.padding_token_id"] = std::uint32_t{0};
  const JsonTokenizer t = tokenizer_from(metadata);
  CHECK(t.with_special_tokens({9}) == Tokens{1, 9, 2});
  CHECK(t.special("<pad>") == 0);
  CHECK(t.special("<s>") == 1);
  CHECK(t.is_special(1));
  auto types = std::get<std::vector<std::int32_t>>(std::get<GgufArray>(metadata["tokenizer.ggml.token_type"]).values);
  types[1] = 4;
  metadata["tokenizer.ggml.token_type"] = GgufArray(types);
  const JsonTokenizer user = tokenizer_from(metadata);
  CHECK(!user.is_special(1));
  CHECK(user.encode_as_text("<|im_start|>") == Tokens{1});
  const TemporaryFolder folder;
  save_gguf(folder.path / "model.gguf", metadata, {});
  CHECK(end_tokens_of(GgufFile(folder.path / "model.gguf")) == Tokens{2, 0});
}

TEST_CASE("tokenizers in GGUF: BERT's options") {
  GgufMetadata metadata = bert_metadata();
  CHECK(tokenizer_from(metadata).encode("THE the") == tokenizer_from(metadata).encode("the the"));
  metadata["tokenizer.ggml.normalizer.lowercase"] = false;
  CHECK(tokenizer_from(metadata).encode("THE the") != tokenizer_from(metadata).encode("the the"));
  metadata.erase("tokenizer.ggml.cls_token_id");
  CHECK(test::contains(error_of([&] { tokenizer_from(metadata); }), "tokenizer.ggml.bos_token_id"));
}

TEST_CASE("tokenizers in GGUF: refused values") {
  const GgufMetadata whole = gguf_metadata("smollm", "smollm");
  const auto refuses = [&](const char* key, GgufValue value, const std::string& reason) {
    GgufMetadata metadata = whole;
    metadata.insert_or_assign(key, std::move(value));
    const std::string message = error_of([&] { tokenizer_from(metadata); });
    CHECK(message.starts_with("load_tokenizer: "));
    CHECK_MESSAGE(message.ends_with("model.gguf: " + reason), message);
  };
  refuses("tokenizer.ggml.model", "plamo2",
          "tokenizer.ggml.model is \"plamo2\"; it must be gpt2, llama, t5, bert or rwkv");
  refuses("tokenizer.ggml.pre", "viking",
          "tokenizer.ggml.pre is \"viking\"; it must be one of gpt-2, phi-2, mpt, olmo, exaone4, smollm, starcoder, "
          "refact, command-r, codeshell, exaone, llama-bpe, llama3, llama-v3, falcon3, lfm2, dbrx, smaug-bpe, qwen2, "
          "deepseek-r1-qwen, megrez, stablelm2, hunyuan");
  refuses("tokenizer.ggml.token_type", GgufArray(std::vector<std::int32_t>{1}),
          "tokenizer.ggml.token_type has 1 values; it must have one per token, 440");
  refuses("tokenizer.ggml.padding_token_id", std::uint32_t{440},
          "tokenizer.ggml.padding_token_id is 440; the file has 440 tokens");
  refuses("tokenizer.ggml.merges", GgufArray(std::vector<std::string>{"a"}),
          "tokenizer.json: model.merges[0] is \"a\"; it must be two tokens, \"a b\" or [\"a\", \"b\"]");
  refuses("tokenizer.ggml.tokens", GgufArray(std::vector<std::string>(440, "a")),
          "tokenizer.json: model.vocab has the token \"a\" twice");
  refuses("tokenizer.ggml.merges", GgufArray(std::vector<std::string>{"a \xFF"}),
          "tokenizer.ggml.merges has a text that is not UTF-8 at index 0");
  refuses("tokenizer.ggml.tokens", GgufArray(std::vector<std::string>{"a", "\xFF"}),
          "tokenizer.ggml.tokens has a text that is not UTF-8 at index 1");
  GgufMetadata none = whole;
  none.erase("tokenizer.ggml.pre");
  CHECK(test::contains(error_of([&] { tokenizer_from(none); }), "tokenizer.ggml.pre"));
}
