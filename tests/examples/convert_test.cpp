// Runs convert: formats, files of a folder, errors in flags, kills, and models that train_lm trained in other programs.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <heed/heed.hpp>
#include <heed/io/pretrained.hpp>

#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

std::string tiny(const std::string& name) { return test::in_source("tests/reference/pretrained/" + name); }

std::string convert(const std::string& model, const fs::path& out, const std::string& flags = "") {
  return test::program("convert") + " --threads 1 --model " + test::quoted(model) + " --out " +
         test::quoted(out.string()) + " " + flags;
}

// Models that train_lm trains here: a name and flags.
const std::pair<const char*, const char*> kTrained[] = {
    {"gpt2", "--activation gelu-tanh --bias true"},
    {"gpt2", ""},  // without biases, with the exact gelu
    {"gpt2", "--activation gelu-tanh --tokenizer byte"},
    {"llama", "--norm rms --activation swiglu --positions rope --tokenizer byte"},
    {"llama", "--norm rms --activation swiglu --positions rope --tokenizer bpe.model"},
    {"llama", "--norm rms --activation swiglu --positions rope --tokenizer unigram.model"}};

// Texts of at most 16 tokens, with characters of the training text.
const std::vector<std::string> kShortTexts = {"the ", " a", "and so", "\n", "on  it"};

void train_pieces(const test::Training& t) {
  const std::string text = bytes_of(t.file("text.txt"));
  for (const std::string model : {"bpe", "unigram"})
    SentencePieceTokenizer::train_on_text(text, {.vocabulary = 310, .model = model}).save(t.file(model + ".model"));
}

// The log probabilities of the token after the ids.
std::vector<double> last_of(const LanguageModel& lm, const Tokens& ids) {
  const Evaluation evaluation;
  const Tensor logits = lm.model(Tensor::from(ids, {1, static_cast<Index>(ids.size())}));
  std::vector<double> last = logits[0][logits.dim(1) - 1].to(DType::float64).to_vector<double>();
  double sum = 0;
  for (const double x : last) sum += std::exp(x);
  for (double& x : last) x -= std::log(sum);
  return last;
}

// Compares a written model in another program with heed's. `file`: a folder or a GGUF file.
void compare_with(const std::string& python, const std::string& program, const TemporaryFolder& t, const fs::path& file,
                  const LanguageModel& lm, double tolerance) {
  INFO(program);
  std::ofstream(t.path / "texts.json") << nlohmann::json(kShortTexts).dump();
  const Ran ran = test::run(python + " -B " + test::quoted(test::in_source("tests/reference/written_models.py")) + " " +
                            program + " " + test::quoted(file.string()) + " " + (t.path / "texts.json").string() + " " +
                            (t.path / "out.json").string());
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const nlohmann::json made = test::json_file(t.path / "out.json");
  for (std::size_t i = 0; i < kShortTexts.size(); ++i) {
    INFO(printable(kShortTexts[i]));
    const Tokens ids = lm.tokenizer.encode(kShortTexts[i]);
    CHECK(made[i]["ids"].get<Tokens>() == ids);
    CHECK(made[i]["text"].get<std::string>() == kShortTexts[i]);
    const std::vector<double> ours = last_of(lm, ids);
    REQUIRE(made[i]["last"].size() == ours.size());
    double worst = 0;
    for (std::size_t k = 0; k < ours.size(); ++k)
      if (!made[i]["last"][k].is_null()) worst = std::max(worst, std::abs(ours[k] - made[i]["last"][k].get<double>()));
    CHECK(worst < tolerance);
  }
}

}  // namespace

TEST_CASE("convert: models that train_lm trained, with their tokenizers, to folders and GGUF files and back") {
  const test::Training t;
  train_pieces(t);
  for (const auto& trained : kTrained) {
    const std::string family = trained.first, flags = trained.second;
    INFO(family << " " << flags);
    REQUIRE(t.run("--steps 3 --overwrite " + flags).exit_code == 0);
    const Pretrained own = load_pretrained(t.file("lm.h5"));
    const std::string text = bytes_of(t.file("text.txt")).substr(0, 300);
    for (const std::string out : {"folder", "model.gguf"}) {
      INFO(out);
      const Ran ran = test::run(convert(t.file("lm.h5"), t.file(out)));
      INFO(ran.output);
      if (flags.empty() && out == "model.gguf") {
        test::check_refused(ran, 1, "activation_function is gelu; GGUF has no field for the activation");
        continue;
      }
      REQUIRE(ran.exit_code == 0);
      const Pretrained written = load_pretrained(t.file(out));
      CHECK(written.family == family);
      CHECK(written.lm.tokenizer.encode(text) == own.lm.tokenizer.encode(text));
      const Tokens ids = own.lm.tokenizer.encode("the ");
      const std::vector<double> a = last_of(own.lm, ids), b = last_of(written.lm, ids);
      for (std::size_t k = 0; k < a.size(); ++k) CHECK(a[k] == doctest::Approx(b[k]).epsilon(1e-6));
      fs::remove_all(t.file(out));
    }
  }
  REQUIRE(t.run("--steps 1 --overwrite --activation relu-squared").exit_code == 0);
  test::check_refused(test::run(convert(t.file("lm.h5"), t.file("folder"))), 1,
                      "no family of published models has the options of this model; folders can hold GPT-2, Llama");
}

RELEASE_TEST_CASE("convert: transformers and llama.cpp compute tokens and logits of models that train_lm trained") {
  const std::string transformers = test::python_with("transformers, torch"), llama_cpp = test::python_with("xllamacpp");
  if (transformers.empty() && llama_cpp.empty()) return;
  const test::Training t;
  train_pieces(t);
  for (const auto& trained : kTrained) {
    const std::string flags = trained.second;
    INFO(flags);
    REQUIRE(t.run("--steps 20 --lr 1e-2 --overwrite " + flags).exit_code == 0);
    const LanguageModel lm = load_pretrained(t.file("lm.h5")).lm;
    const TemporaryFolder made;
    REQUIRE(test::run(convert(t.file("lm.h5"), made.path / "folder", "--max-file-size 0.00001")).exit_code == 0);
    if (!transformers.empty()) compare_with(transformers, "transformers", made, made.path / "folder", lm, 1e-5);
    if (llama_cpp.empty() || flags.empty()) continue;
    REQUIRE(test::run(convert(t.file("lm.h5"), made.path / "x.gguf")).exit_code == 0);
    compare_with(llama_cpp, "llama.cpp", made, made.path / "x.gguf", lm, 1e-3);
  }
}

TEST_CASE("convert: a folder in several files, and wrong sizes") {
  const TemporaryFolder t;
  const fs::path out = t.path / "model";
  CHECK(test::run(convert(tiny("llama"), out)).exit_code == 0);
  CHECK(fs::exists(out / "model.safetensors"));
  const Ran ran = test::run(convert(tiny("llama"), out, "--max-file-size 0.000005"));
  CHECK(ran.output == "Wrote " + out.string() + ", a model of the family llama.\n");
  CHECK_FALSE(fs::exists(out / "model.safetensors"));
  CHECK(fs::exists(out / "model.safetensors.index.json"));
  CHECK(fs::exists(out / "model-00001-of-00008.safetensors"));
  CHECK(load_pretrained(out).family == "llama");
  test::check_refused(test::run(convert(tiny("llama"), out, "--max-file-size 0")), 2, "--max-file-size");
  test::check_refused(test::run(convert(tiny("llama"), out, "--max-file-size 1e-12")), 1, "it must be positive");
  t.write("model/notes.txt", "mine");
  test::check_refused(test::run(convert(tiny("qwen2"), out)), 1, "contains notes.txt, which would be lost");
  CHECK(load_pretrained(out).family == "llama");
}

RELEASE_TEST_CASE("convert: killed or failing at each write and rename, a folder is the old or the new model") {
  const TemporaryFolder t;
  const fs::path old = t.path / "old", out = t.path / "model", log = t.path / "calls";
  REQUIRE(test::run(convert(tiny("llama"), old, "--max-file-size 0.00001")).exit_code == 0);
  const auto write_old = [&] {
    fs::remove_all(out);
    fs::copy(old, out);
  };
  const std::string next = convert(tiny("qwen2"), out, "--max-file-size 0.000008");
  write_old();
  REQUIRE(test::run(next, {.prefix = t.path / "model", .log = log}).exit_code == 0);
  const std::string lines = bytes_of(log);
  const auto calls = static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
  CHECK(calls > 20);
  CHECK(contains(lines, " renameat2 " + out.string() + "\n"));
  int before = 0, after = 0;
  for (const std::string mode : {"kill", "enospc", "eio"}) {
    for (int at = 1; at <= calls; ++at) {
      if (!test::is_taken(at, 8)) continue;
      write_old();
      const Ran ran = test::run(next, {.prefix = t.path / "model", .mode = mode, .at = at});
      INFO(mode << " at call " << at << ": " << ran.output);
      if (mode == "kill") CHECK(ran.signal == 9);
      const std::string family = load_pretrained(out).family;
      CHECK((family == "llama" || family == "qwen2"));
      ++(family == "llama" ? before : after);
      CHECK(test::run(next).exit_code == 0);
      CHECK(load_pretrained(out).family == "qwen2");
      CHECK_FALSE(fs::exists(t.path / "model.tmp"));
    }
  }
  CHECK(before > 20);
  CHECK(after > 3);
}
