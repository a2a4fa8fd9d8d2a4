// BERT as a published model, with the heads of its pre-training, against tiny models of transformers.
#include <filesystem>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/io/pretrained.hpp>
#include <heed/io/safetensors.hpp>
#include <string>

#include "tests/data/temporary_folder.hpp"
#include "tests/io/published.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::published::check_gradients;
using test::published::close_to_largest;
using test::published::load_error;
using test::published::reference;
using test::published::with_fields;

namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("pretrained: BERT's logits and hidden vectors are those of transformers") {
  const Evaluation evaluation;
  const Pretrained masked = load_pretrained(reference("bert"));
  const TensorsByName expected = load_safetensors(reference("bert") / "reference.safetensors");
  CHECK(close_to_largest(masked.lm.model(expected.at("x")), expected.at("logits"), 1e-5));
  const Pretrained encoder = load_pretrained(reference("bert_encoder"));
  const TensorsByName hidden = load_safetensors(reference("bert_encoder") / "reference.safetensors");
  CHECK(close_to_largest(encoder.lm.model.hidden(hidden.at("x")), hidden.at("hidden"), 1e-5));
}

TEST_CASE("pretrained: BERT's two heads and their gradients are those of transformers") {
  Pretrained p = load_pretrained(reference("bert_pretraining"));
  const TensorsByName expected = load_safetensors(reference("bert_pretraining") / "reference.safetensors");
  REQUIRE(p.next_sentence.has_value());
  Tape tape;
  const Evaluation evaluation;  // no dropout
  const Tensor hidden =
      p.lm.model.hidden(expected.at("x"), {.key_lengths = expected.at("lengths")}, expected.at("types"));
  const Tensor logits = p.lm.model.logits_of(hidden), next = (*p.next_sentence)(hidden);
  for (Index row = 0; row < 2; ++row) {  // logits of padding are not compared
    const Index length = expected.at("lengths")[row].item<Index>();
    CHECK(close_to_largest(logits[row].slice(0, 0, length), expected.at("logits")[row].slice(0, 0, length), 1e-5));
  }
  CHECK(close_to_largest(next, expected.at("next_logits"), 1e-5));
  const Tensor loss = p.lm.model.loss_of(hidden, expected.at("y")) + cross_entropy(next, expected.at("other"));
  CHECK(loss.item() == doctest::Approx(expected.at("loss").to_vector<double>()[0]).epsilon(1e-6));
  tape.backward(loss);
  check_gradients(p, expected, 1e-5);
}

TEST_CASE("pretrained: BERT's head for the next sentence is saved in folders, as the class that has it") {
  const test::TemporaryFolder temporary;
  Pretrained p = load_pretrained(reference("bert_pretraining"));
  const fs::path folder = temporary.path / "saved";
  const auto class_in = [](const fs::path& of) {
    return test::json_file(of / "config.json").at("architectures").at(0).get<std::string>();
  };
  save_pretrained(folder, p);
  CHECK(class_in(folder) == "BertForPreTraining");
  CHECK(test::json_file(folder / "tokenizer_config.json").at("model_input_names").at(1) == "token_type_ids");
  const TensorsByName before = load_safetensors(reference("bert_pretraining") / "model.safetensors"),
                      after = load_safetensors(folder / "model.safetensors");
  CHECK(after.size() == before.size());
  for (const auto& [name, value] : before) CHECK(test::same_bits(after.at(name), value));
  p.next_sentence->pooler.bias = Parameter(Tensor::zeros({17}));
  p.next_sentence->pooler.weight = Parameter(Tensor::zeros({17, 17}));
  CHECK(test::error_of([&] { save_pretrained(temporary.path / "wide", p); }) ==
        "save_pretrained: next_sentence has 17 numbers per position, and the model is an encoder of width 16; it must "
        "be an encoder of the same width");
  CHECK(!fs::exists(temporary.path / "wide"));
  p.next_sentence.reset();
  save_pretrained(folder, p);
  CHECK(class_in(folder) == "BertForMaskedLM");

  TensorsByName tensors = before;  // without the prefix of the class, and without the head of hidden tokens
  for (const auto& [name, value] : before) {
    if (name.starts_with("bert.")) tensors[name.substr(5)] = value;
    if (!name.starts_with("cls.seq_relationship.")) tensors.erase(name);
  }
  const fs::path bare = with_fields(temporary.path, "bert_pretraining", {});
  save_safetensors(bare / "model.safetensors", tensors);
  Pretrained classifier = load_pretrained(bare, {.dtype = DType::bfloat16});
  REQUIRE(classifier.next_sentence.has_value());
  CHECK(classifier.next_sentence->pooler.weight.dtype() == DType::bfloat16);
  save_pretrained(folder, classifier);
  CHECK(class_in(folder) == "BertForNextSentencePrediction");
  tensors["pooler.dense.bias"] = Tensor::zeros({15});
  save_safetensors(bare / "model.safetensors", tensors);
  CHECK(test::contains(load_error(bare), "pooler.dense.bias is [15] but the configuration requires [16]"));
}
