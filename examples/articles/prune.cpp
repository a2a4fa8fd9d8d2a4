// Removes weights of a trained language model, those of least magnitude, and trains the others further (Han et al.,
// "Learning both weights and connections for efficient neural networks", 2015).
//
//   prune --model lm.h5 --data your.txt                half of the weights of each linear map
//   prune --model lm.h5 --data your.txt --share 0.9    nine tenths
//   prune --model lm.h5 --data your.txt --plot p.svg   draws the loss at other shares, without further training
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"
#include "examples/support/text_windows.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings : TrainingSettings {
  std::string model = "lm.h5", data;
  double share = 0.5;

  Settings() { steps = 200, batch = 12, lr = 3e-4; }
  void fields(SettingFields& f) {
    f("model", model, Kind::start, "Checkpoint of train_lm [lm.h5]", file_name("FILE", FileRole::input));
    f("data", data, Kind::start, "Text to train and to evaluate on", file_name("FILE", FileRole::input));
    f("share", share, Kind::start, "Share of the weights to remove [0.5]", number(0, 1));
    TrainingSettings::fields(f, "windows of the text");
  }
};

// The weights of linear maps that stay: 1, and 0 for those that are removed.
class Mask {
 public:
  // Removes the share of each matrix in the blocks that has the smallest magnitudes.
  Mask(GPT& model, double share) {
    for (const NamedParameter& p : named_parameters(model)) {
      if (p.parameter->rank() != 2 || !p.name.starts_with("blocks.")) continue;
      std::vector<float> sizes = abs(p.parameter->detach()).to_vector<float>();
      const auto cut = static_cast<std::size_t>(share * static_cast<double>(sizes.size()));
      if (cut == 0) continue;
      std::vector<float> sorted = sizes;
      std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(cut - 1), sorted.end());
      masks_.emplace_back(p.parameter, (abs(p.parameter->detach()) > sorted[cut - 1]).to(DType::float32));
    }
  }
  void apply() const {
    const NoTape no_tape;
    for (const auto& [parameter, mask] : masks_) parameter->copy_(parameter->detach() * mask);
  }

 private:
  std::vector<std::pair<Parameter*, Tensor>> masks_;
};

double loss_of(const GPT& model, const WholeSplit& text) {
  return evaluate([&](const Batch& b) { return model.loss(b.inputs, b.targets); }, text);
}

// Draws the loss without further training for shares from 0 to 0.9.
void draw(const Settings& s, const TextWindows& text, double trained, const std::string& plot) {
  Series cut{.name = "removed", .style = Series::line};
  for (int tenths = 0; tenths < 10; ++tenths) {
    LanguageModel lm = load_language_model(s.model);
    Mask(lm.model, tenths / 10.).apply();
    cut.points.emplace_back(10 * tenths, loss_of(lm.model, text.held_out));
  }
  heed::plot(plot, {"Pruning", "removed weights, percent", "loss on held-out text"},
             {cut, {"trained further", {{100 * s.share, trained}}, Series::points_only}});
  std::fprintf(stderr, "drawn: %s\n", printable(plot).c_str());
}

void train(const Settings& s, Article& article) {
  if (s.data.empty()) throw UsageError("--data is missing; it must name a text");
  LanguageModel lm = load_language_model(s.model);
  require(lm.model.options().causal, s.model, " is a masked model; it must be a language model");
  const TextWindows text(lm.tokenizer, s.data,
                         {.batch = s.batch, .context = lm.model.options().context, .name = "a part of the text"});
  const double before = loss_of(lm.model, text.held_out);
  const Mask mask(lm.model, s.share);
  mask.apply();
  const double cut = loss_of(lm.model, text.held_out);
  article.after_step = [&](RunStep&) { mask.apply(); };
  if (!article.train(lm.model, s, formatted("%g%% of the weights removed", 100 * s.share), text.training,
                     text.held_out))
    return;
  const double after = loss_of(lm.model, text.held_out);
  std::printf("loss on held-out text: %.4f before, %.4f without %g%% of the weights, %.4f trained further\n", before,
              cut, 100 * s.share, after);
  if (!article.plot().empty()) draw(s, text, after, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>(
      {"prune", "Removes small weights of a language model and trains the others further", "the loss by share"}, argc,
      argv, train);
}
