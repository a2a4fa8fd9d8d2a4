// Trains a small language model to predict what a large one predicts (Hinton, Vinyals, Dean, "Distilling the knowledge
// in a neural network", 2015).
//
//   distill --teacher lm.h5 --data your.txt                  a student of half the width and half the layers
//   distill --teacher lm.h5 --data your.txt --weight 0       the same model, trained on the text alone
//
// loss = (1 - weight) cross_entropy(student, text) + weight T^2 KL(softmax(teacher / T), softmax(student / T))
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"
#include "examples/support/text_windows.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings : TrainingSettings {
  std::string teacher = "lm.h5", data;
  Index layers = 0, width = 0;
  double weight = 0.7, temperature = 2;

  Settings() { batch = 12, lr = 1e-3; }
  void fields(SettingFields& f) {
    f("teacher", teacher, Kind::start, "Checkpoint of train_lm [lm.h5]", file_name("FILE", FileRole::input));
    f("data", data, Kind::start, "Text to train and to evaluate on", file_name("FILE", FileRole::input));
    f("layers", layers, Kind::model, "Layers of the student [half of the teacher's]", whole(0));
    f("width", width, Kind::model, "Width of the student; the heads must divide it [half of the teacher's]", whole(0));
    f("weight", weight, Kind::training, "Share of the teacher in the loss [0.7]", number(0, 1));
    f("temperature", temperature, Kind::training, "T, above 0 [2]", number(0));
    TrainingSettings::fields(f, "windows of the text");
  }
};

// The student, whose loss reads the teacher, too.
struct Student {
  GPT model;
  const GPT* teacher;
  double weight, temperature;

  Tensor loss(const Batch& b) const {
    const Tensor logits = model(b.inputs), own = cross_entropy(logits, b.targets);
    if (weight == 0) return own;
    const Tensor wanted = [&] {
      const NoTape no_tape;
      return log_softmax((*teacher)(b.inputs) / temperature, -1);
    }();
    const Tensor far = kl_div(log_softmax(logits / temperature, -1), wanted.detach(),
                              {.log_target = true, .reduction = Reduction::sum});
    const auto tokens = static_cast<double>(b.counted);
    return weighted_loss((1 - weight) * own + far * (weight * temperature * temperature / tokens), tokens);
  }
  void members(MemberVisitor& visit) { model.members(visit); }
};

double loss_of(const GPT& model, const WholeSplit& text) {
  return evaluate([&](const Batch& b) { return model.loss(b.inputs, b.targets); }, text);
}

void train(const Settings& s, Article& article) {
  if (s.data.empty()) throw UsageError("--data is missing; it must name a text");
  if (s.temperature <= 0) throw UsageError("--temperature is 0; it must be above 0");
  const LanguageModel lm = load_language_model(s.teacher);
  GPTOptions options = lm.model.options();
  require(options.causal, s.teacher, " is a masked model; it must be a language model");
  const TextWindows text(lm.tokenizer, s.data,
                         {.batch = s.batch, .context = options.context, .name = "a part of the text"});
  options.blocks.layers = s.layers > 0 ? s.layers : std::max<Index>(1, options.blocks.layers / 2);
  options.blocks.attention.width = s.width > 0 ? s.width : options.blocks.attention.width / 2;
  options.blocks.hidden = 0;
  Rng rng(s.seed);
  Student student{GPT(options, rng), &lm.model, s.weight, s.temperature};
  const auto metrics = [&](const Batch& b) -> Metrics {
    return {{"loss", student.model.loss(b.inputs, b.targets).item()}};
  };
  if (!article.train(student, s,
                     formatted("a student of %ld layers and width %ld", long{options.blocks.layers},
                               long{options.blocks.attention.width}),
                     text.training, text.held_out, metrics))
    return;
  std::printf("loss on held-out text: teacher %.4f, student %.4f\n", loss_of(lm.model, text.held_out),
              loss_of(student.model, text.held_out));
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>(
      {"distill", "Trains a small language model on the predictions of a large one", "the loss"}, argc, argv, train);
}
