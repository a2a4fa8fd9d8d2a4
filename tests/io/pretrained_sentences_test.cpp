// Vectors of texts: the files by which sentence-transformers describes them, and what is refused.
#include <heed/io/pretrained.hpp>

#include <filesystem>
#include <fstream>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::error_of;

namespace {

namespace fs = std::filesystem;

// A folder with a tiny encoder and the files of its modules.
struct SentenceFolder {
  test::TemporaryFolder temporary;
  fs::path folder = temporary.path / "model";

  SentenceFolder() {
    fs::copy(test::in_source("tests/reference/pretrained/bert_encoder"), folder, fs::copy_options::recursive);
    write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                              {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                              {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])");
    write("1_Pooling/config.json", R"({"word_embedding_dimension": 16, "pooling_mode_cls_token": false,
                                       "pooling_mode_mean_tokens": true})");
    write("sentence_bert_config.json", R"({"max_seq_length": 5, "do_lower_case": false})");
  }
  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << text;
  }
  SentencePooling pooling() const { return load_pretrained(folder).pooling.value(); }
  // The error after a file was written, without its path.
  std::string refused(const fs::path& file, const std::string& text) const {
    write(file, text);
    const std::string error = error_of([&] { load_pretrained(folder); }), path = (folder / file).string() + ": ";
    return error.starts_with(path) ? error.substr(path.size()) : error;
  }
};

}  // namespace

TEST_CASE("vectors of texts: the files of older models") {
  const SentenceFolder f;
  const SentencePooling p = f.pooling();
  CHECK(p.kind == SentencePooling::Kind::mean);
  CHECK(p.normalized);
  CHECK(p.max_tokens == 5);
  f.write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  CHECK(f.pooling().kind == SentencePooling::Kind::first);
  fs::remove(f.folder / "modules.json");
  CHECK(load_pretrained(f.folder).pooling == std::nullopt);
}

TEST_CASE("vectors of texts: the files that sentence-transformers 6 writes") {
  const SentenceFolder f;
  f.write("modules.json",
          R"([{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
              {"path": "1_Pooling", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"},
              {"path": "2_Normalize", "type": "sentence_transformers.sentence_transformer.modules.Normalize"}])");
  f.write("1_Pooling/config.json", R"({"embedding_dimension": 16, "pooling_mode": "max", "include_prompt": true})");
  f.write("2_Normalize/config.json", R"({"module_input_name": "sentence_embedding"})");
  f.write("sentence_bert_config.json", R"({"transformer_task": "feature-extraction", "unpad_inputs": null,
    "modality_config": {"text": {"method": "forward"}}, "module_output_name": "token_embeddings"})");
  f.write("tokenizer_config.json", R"({"model_max_length": 7})");
  f.write("config_sentence_transformers.json", R"({"prompts": {"query": "q: "}, "default_prompt_name": null})");
  CHECK(f.pooling().kind == SentencePooling::Kind::max);
  CHECK(f.pooling().max_tokens == 7);
  f.write("1_Pooling/config.json", R"({"pooling_mode": ["cls"]})");
  CHECK(f.pooling().kind == SentencePooling::Kind::first);
  f.write("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  CHECK(f.pooling().max_tokens == 0);
}

TEST_CASE("vectors of texts: what heed does not support is refused by its field") {
  const SentenceFolder f;
  const std::string several = " asks for several modes; heed supports one of the mean, the first token and the maximum";
  CHECK(f.refused("1_Pooling/config.json", R"({"pooling_mode": ["mean", "max"]})") == "pooling_mode" + several);
  CHECK(f.refused("1_Pooling/config.json", R"({"pooling_mode_mean_sqrt_len_tokens": true})") ==
        "pooling_mode_mean_sqrt_len_tokens" + several);
  CHECK(f.refused("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})") ==
        "pooling_mode is \"lasttoken\"; it must be one of mean, cls, max");
  CHECK(f.refused("1_Pooling/config.json", R"({"pooling_mode": "mean", "layers": 2})") ==
        "layers is not a field that heed knows");
  CHECK(test::contains(f.refused("1_Pooling/config.json", "{}"), "has no pooling mode"));
  f.write("1_Pooling/config.json", R"({"pooling_mode": "mean"})");
  CHECK(f.refused("sentence_bert_config.json", R"({"do_lower_case": true})") ==
        "do_lower_case is true; heed supports only false");
  CHECK(f.refused("sentence_bert_config.json", R"({"query_length": 32})") ==
        "query_length is set, which heed does not support");
  CHECK(f.refused("sentence_bert_config.json", R"({"transformer_task": "fill-mask"})") ==
        "transformer_task is \"fill-mask\"; it must be one of feature-extraction");
  f.write("sentence_bert_config.json", "{}");
  CHECK(f.refused("config_sentence_transformers.json", R"({"default_prompt_name": "query"})") ==
        "default_prompt_name is set; heed adds no prompts to texts");
  f.write("config_sentence_transformers.json", "{}");
  CHECK(f.refused("2_Normalize/config.json", R"({"module_input_name": "token_embeddings"})") ==
        "module_input_name is \"token_embeddings\"; it must be one of sentence_embedding");
  CHECK(f.refused("modules.json", R"([{"path": "../x", "type": "a.Pooling"}])") ==
        "modules[0].path must be a folder inside the folder of the model");
  CHECK(f.refused("modules.json", R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])") ==
        "modules[0].type is sentence_transformers.models.Dense; heed supports Transformer, Pooling and Normalize");
}
