// Converts a language model with softmax attention into one with linear attention, and trains it further: the weights
// stay, and only the mechanism changes (Kasai et al., "Finetuning pretrained transformers into RNNs", 2021, there with
// trained features).
//
//   linearize --model lm.h5 --data your.txt                         features elu(x) + 1
//   linearize --model lm.h5 --data your.txt --feature-map exp       other features
//   linearize --model lm.h5 --data your.txt --scratch               the same model from new weights, for comparison
#include <heed/heed.hpp>

#include "examples/support/article.hpp"
#include "examples/support/mechanism_flags.hpp"
#include "examples/support/text_windows.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings : TrainingSettings {
  std::string model = "lm.h5", data, attention = "linear";
  MechanismOptions mechanism = {};
  bool scratch = false;

  Settings() { steps = 500, batch = 12, lr = 5e-4; }
  void fields(SettingFields& f) {
    const std::vector<std::string>& names = mechanism_names();
    f("model", model, Kind::start, "Checkpoint of train_lm [lm.h5]", file_name("FILE", FileRole::input));
    f("data", data, Kind::start, "Text to train and to evaluate on", file_name("FILE", FileRole::input));
    f("attention", attention, Kind::model, "The new mechanism: " + choice(names, ", ") + " [linear]",
      one_of(names, "NAME"));
    mechanism_fields(f, mechanism, names,
                     [this](const MechanismOption& o, bool has_value) { return has_value && o.of(attention); });
    f("scratch", scratch, Kind::start, "Begin with new weights instead of those of the model");
    TrainingSettings::fields(f, "windows of the text");
  }
};

double loss_of(const GPT& model, const WholeSplit& text) {
  return evaluate([&](const Batch& b) { return model.loss(b.inputs, b.targets); }, text);
}

void train(const Settings& s, Article& article) {
  if (s.data.empty()) throw UsageError("--data is missing; it must name a text");
  LanguageModel lm = load_language_model(s.model);
  const GPTOptions options = lm.model.options();
  require(options.causal, s.model, " is a masked model; it must be a language model");
  const TextWindows text(lm.tokenizer, s.data,
                         {.batch = s.batch, .context = options.context, .name = "a part of the text"});
  Rng rng(s.seed);
  GPT model(options, rng, GPTConfig{options, s.attention, s.mechanism}.factory());
  if (!s.scratch) copy_values(lm.model, model);
  const double before = loss_of(lm.model, text.held_out), converted = loss_of(model, text.held_out);
  if (!article.train(model, s, s.attention + (s.scratch ? " attention, from new weights" : " attention instead"),
                     text.training, text.held_out))
    return;
  std::printf("loss on held-out text: %.4f before, %.4f with %s attention, %.4f trained further\n", before, converted,
              s.attention.c_str(), loss_of(model, text.held_out));
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>(
      {"linearize", "Gives a language model another attention mechanism and trains it further", "the loss"}, argc, argv,
      train);
}
