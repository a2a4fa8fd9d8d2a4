// Checkpoints that older programs wrote: tests/reference/checkpoints, with their commands. Today's programs must load
// them with the same results, continue them, and write the same names and keys.
//
// HEED_OLD_CHECKPOINTS=1 makes the first test write values.json, and shared_heads.h5 if it is missing. Do that only for
// new files: a changed value of a stored file means that older checkpoints give other results.
#include <cstdlib>
#include <fstream>
#include <heed/heed.hpp>
#include <set>
#include <sstream>

#include "tests/core/levels.hpp"
#include "tests/examples/programs.hpp"
#include "tests/reference/stored.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using heed::test::quoted, heed::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// Lines of layout() that today's programs add to those of the stored files: options and sections that are newer than
// the files. Lines of a stored file must never be missing. If a default changes, give its old value in commands.txt.
const std::set<std::string> kAdded = {};

fs::path stored_file(const std::string& name) { return test::in_source("tests/reference/checkpoints/" + name); }

void copy_inputs(const fs::path& folder) {  // the files that the commands read
  for (const char* name : {"text.txt", "pieces.model", "words.txt", "numbers.txt"})
    fs::copy_file(stored_file(name), folder / name);
}

// A stored file NAME.h5 and the command that wrote it.
struct Old {
  std::string name, program, flags;
  fs::path file() const { return stored_file(name + ".h5"); }
};

std::vector<Old> old_checkpoints() {
  std::vector<Old> all;
  std::ifstream in(stored_file("commands.txt"));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == ' ') {
      all.back().flags += line;
      continue;
    }
    std::istringstream words(line);
    Old& old = all.emplace_back();
    words >> old.name >> old.program;
    std::getline(words, old.flags);
  }
  return all;
}

// ---- Results of loaded models ----

Tensor fixed_tokens(Index rows, Index columns, Index vocabulary) {
  std::vector<std::int32_t> ids;
  for (Index i = 0; i < rows * columns; ++i)
    ids.push_back(static_cast<std::int32_t>((5 * i * i + 7 * i + 3) % vocabulary));
  return Tensor::from(ids, {rows, columns});
}
Tensor last_of(const Tensor& logits) { return logits.slice(1, logits.dim(1) - 1, logits.dim(1)); }

// The model of classify, by the settings in its checkpoint.
struct Classifier {
  BERT encoder;
  Linear head;

  static BERTOptions options(const nlohmann::json& s) {
    return {.vocabulary = ListOps::kVocabulary,
            .context = s.at("length").get<Index>(),
            .blocks = {.layers = s.at("layers").get<Index>(),
                       .attention = {.width = s.at("width").get<Index>(), .heads = s.at("heads").get<Index>()}}};
  }
  static MechanismFactory mechanism(const nlohmann::json& s) {
    const BERTOptions o = options(s);
    return mechanism_by_name(s.at("attention").get<std::string>(), {.causal = false,
                                                                    .heads = o.blocks.attention.heads,
                                                                    .head_size = o.blocks.attention.head_size(),
                                                                    .context = o.context,
                                                                    .rows = s.at("linformer-rows").get<Index>()});
  }
  Classifier(const nlohmann::json& settings, Rng& rng)
      : encoder(options(settings), rng, mechanism(settings)),
        head(settings.at("width").get<Index>(), ListOps::kValues, rng) {}
  void members(auto&& visit) { visit("encoder", encoder), visit("head", head); }
};

// Calls f with a function that computes the results of a loaded model for fixed tokens: logits [2, 1, vocabulary] of
// the last position, or the scores of classes.
void with_loaded(const Old& old, const std::function<void(const std::function<Tensor()>&)>& f) {
  if (old.program == "translate") {
    const Translator t = load_translator(old.file());
    Batch batch;
    batch["source"] = fixed_tokens(2, 5, text_marks(t.source).vocabulary);
    batch["source_lengths"] = Tensor::from<std::int32_t>({5, 3});
    batch.inputs = fixed_tokens(2, 4, text_marks(t.target).vocabulary);
    f([&] { return std::visit([&](const auto& model) { return last_of(model(batch)); }, t.model); });
  } else if (old.program == "classify") {
    const Checkpoint checkpoint = load_checkpoint(old.file());
    Rng rng(1);
    Classifier model(test::parse_json(checkpoint.text("settings")), rng);
    load_model(checkpoint, model);
    const Tensor x = fixed_tokens(3, 6, ListOps::kPadding);
    f([&] { return model.head(mean(model.encoder.hidden(x, Tensor::from<std::int32_t>({6, 6, 6})), {1})); });
  } else {
    const LanguageModel lm = load_language_model(old.file());
    const Tensor x = fixed_tokens(2, 6, lm.tokenizer.vocabulary_size());
    f([&] { return last_of(lm.model(x)); });
  }
}

void check_near(const Tensor& now, const Tensor& before, double rtol) {
  REQUIRE(now.shape() == before.shape());
  CHECK(test::worst(now, before, 0, rtol * max(abs(before)).item()) <= 1);
}

// Losses of the steps 5 and 6, after resuming from a stored checkpoint of 4 steps.
Tensor resumed_losses(const Old& old) {
  const TemporaryFolder folder;
  copy_inputs(folder.path);
  const fs::path file = folder.path / "old.h5";
  fs::copy_file(old.file(), file);
  const bool epochs = test::contains(old.flags, "--epochs");  // of two steps
  const test::Ran ran = test::run("exec env -C " + quoted(folder.path.string()) + " " + test::program(old.program) +
                                  (old.program == "train_lm" ? " --sample 0" : "") +
                                  (epochs ? " --epochs 3" : " --steps 6") + " --checkpoint old.h5 --resume");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(test::contains(ran.output, "resumed at step 4\n"));
  const Tensor losses = load_checkpoint(file).tensor("history/loss");
  REQUIRE(losses.shape() == Shape{6});
  return losses.slice(0, 4, 6);
}

// ---- Names and keys ----

// The layout of a checkpoint, as lines: tensors with dtype and shape, counters, texts, and the keys and values of the
// texts that are lists of options.
std::set<std::string> layout(const Checkpoint& c) {
  std::set<std::string> lines;
  for (const auto& [name, x] : c.tensors)
    lines.insert(name + " " + std::string(name_of(x.dtype())) + " " + to_string(x.shape()));
  for (const auto& [name, value] : c.counters) lines.insert("counter " + name);
  for (const auto& [name, value] : c.blobs) lines.insert("blob " + name);
  for (const auto& [name, text] : c.texts) {
    lines.insert("text " + name);
    if (name != "config" && name != "settings" && name != "run_options") continue;
    const nlohmann::json options = test::parse_json(text);
    for (const auto& [key, value] : options.items()) lines.insert(name + "." + key + " = " + value.dump());
  }
  return lines;
}

void check_layout(const Checkpoint& now, const Checkpoint& before) {
  const std::set<std::string> a = layout(now), b = layout(before);
  for (const std::string& line : b) CHECK_MESSAGE(a.count(line) == 1, "today's program does not write: ", line);
  for (const std::string& line : a)
    CHECK_MESSAGE(b.count(line) + kAdded.count(line) == 1, "the stored checkpoint lacks: ", line);
}

// Options that no flag of a program sets, as in a user's own program: heads that share keys and values, sizes of keys
// and values, an output weight that is not the embedding, and an average of the weights.
void train_shared_heads(const fs::path& checkpoint) {
  const std::string text = test::bytes_of(stored_file("text.txt"));
  const Tokenizer tokenizer = CharTokenizer(text);
  const TokenSource source(tokenizer.encode(text), tokenizer.vocabulary_size());
  const GPTConfig config{
      {.vocabulary = tokenizer.vocabulary_size(),
       .context = 12,
       .blocks =
           {.layers = 1,
            .attention =
                {.width = 8, .heads = 4, .kv_heads = 2, .key_size = 6, .value_size = 3, .bias = false, .rope = true},
            .hidden = 10},
       .tied = false}};
  Rng rng(1);
  GPT model(config.options, rng, config.factory());
  SGD sgd(decay_groups(model, 0.1), {.lr = 0.1});
  Schedule schedule("one-cycle", {.lr = 0.1, .steps = 4});
  WeightAverage average(named_parameters(model), 0.9);
  run(model, sgd, schedule, LanguageModelBatches(source, {.batch = 2, .context = 12}), {},
      {.steps = 4,
       .average = &average,
       .checkpoint = {.path = checkpoint, .texts = language_model_texts(config, tokenizer)}});
}

std::vector<Old> with_shared_heads() {
  std::vector<Old> all = old_checkpoints();
  all.push_back({"shared_heads", "", ""});
  return all;
}

// Writes the results of today's code.
void write_values(const fs::path& file) {
  if (const fs::path own = stored_file("shared_heads.h5"); !fs::exists(own)) train_shared_heads(own);
  std::ofstream out(file);
  const char* before = "{";
  const auto write = [&](const std::string& name, const Tensor& x) {
    out << before << "\n\"" << name << "\": {\"shape\": [";
    for (int a = 0; a < x.rank(); ++a) out << (a > 0 ? ", " : "") << x.dim(a);
    out << "],\n\"values\": [";
    char digits[32];
    for (Index i = 0; i < x.numel(); ++i) {
      std::snprintf(digits, sizeof digits, "%.9g", x.to_vector<double>()[static_cast<std::size_t>(i)]);
      out << (i == 0 ? "" : i % 9 == 0 ? ",\n" : ", ") << digits;
    }
    out << "]}", before = ",";
  };
  const NoTape no_tape;
  const Evaluation evaluation;
  for (const Old& old : with_shared_heads()) {
    with_loaded(old, [&](const auto& results) { write(old.name, results()); });
    if (!old.program.empty()) write(old.name + ", resumed", resumed_losses(old));
  }
  out << "}\n";
}

}  // namespace

TEST_CASE("old checkpoints: they load, and their models give the same results") {
  if (std::getenv("HEED_OLD_CHECKPOINTS") != nullptr) write_values(stored_file("values.json"));
  const NoTape no_tape;
  const Evaluation evaluation;
  const test::Named before = test::stored_tensors("checkpoints/values.json");
  for (const Old& old : with_shared_heads()) {
    CAPTURE(old.name);
    with_loaded(old, [&](const std::function<Tensor()>& results) {
      test::on_each_level([&] { check_near(results(), before.at(old.name), 1e-6); });
    });
  }
}

TEST_CASE("old checkpoints: programs continue them") {
  const bool fuses = kernels::fuses(kernels::level());
  const test::Named before = test::stored_tensors("checkpoints/values.json");
  for (const Old& old : old_checkpoints()) {
    CAPTURE(old.name);
    check_near(resumed_losses(old), before.at(old.name + ", resumed"), fuses ? 1e-6 : 1e-2);
  }
}

RELEASE_TEST_CASE("old checkpoints: today's programs write the same names and keys, with the same options") {
  const TemporaryFolder folder;
  copy_inputs(folder.path);
  for (const Old& old : old_checkpoints()) {
    CAPTURE(old.name);
    const test::Ran ran =
        test::run("exec env -C " + quoted(folder.path.string()) + " " + test::program(old.program) + old.flags +
                  (old.program == "train_lm" ? " --sample 0" : "") + " --checkpoint " + old.name + ".h5");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    check_layout(load_checkpoint(folder.path / (old.name + ".h5")), load_checkpoint(old.file()));
  }
  train_shared_heads(folder.path / "shared_heads.h5");
  check_layout(load_checkpoint(folder.path / "shared_heads.h5"), load_checkpoint(stored_file("shared_heads.h5")));
}
