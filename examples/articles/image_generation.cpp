// Draws digits pixel by pixel: a causal model of the pixels of an image, row by row. Katharopoulos et al.,
// "Transformers are RNNs", 2020, section 4.2, generate the images of MNIST and CIFAR-10 so. With linear attention, a
// pixel takes the same time wherever it is.
//
//   image_generation                                         linear attention
//   image_generation --attention softmax --plot digits.svg   draws 16 new digits
//
// The program draws the digits that it learns from: 5 x 7 dots, moved, slanted, faint or bright, with noise.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"
#include "examples/support/drawn_digits.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kSide = 12, kPixels = kSide * kSide, kLevels = 4;  // of an image; brightness of a pixel
constexpr std::int32_t kStart = kLevels;                           // the token before the first pixel

struct Settings : TrainingSettings {
  std::string attention = "linear";
  Index layers = 3, heads = 4, width = 64;

  Settings() { steps = 4000, batch = 16; }
  void fields(SettingFields& f) {
    f("attention", attention, Kind::model, "Attention mechanism: " + choice(mechanism_names(), ", ") + " [linear]",
      one_of(mechanism_names(), "NAME"));
    f.counted("layers", layers, Kind::model, "Layers");
    f.counted("heads", heads, Kind::model, "Attention heads; must divide the width");
    f.counted("width", width, Kind::model, "Size of a pixel's vector");
    TrainingSettings::fields(f, "images");
  }
};

// Image i is a pure function of the seed and i: inputs, the start and all pixels but the last; targets, all pixels.
struct Images : DigitImages {
  Sample sample(Index i) const {
    Rng rng = rng_of(i);
    std::vector<std::int32_t> pixels = {kStart};
    for (const float brightness : draw_digit(rng, kSide).pixels) {
      const Index level = std::lround(brightness * (kLevels - 1)), noise = rng.integer(20) == 0 ? 1 : 0;
      pixels.push_back(static_cast<std::int32_t>(level > 0 ? level - noise : noise));
    }
    const Tensor all = Tensor::from(pixels);
    return {{"inputs", all.slice(0, 0, kPixels)}, {"targets", all.slice(0, 1, kPixels + 1)}};
  }
};

// Draws images side by side.
void draw(const std::vector<Tokens>& images, const std::string& plot) {
  MatrixLabels labels{.title = "New digits"};
  for (Index i = 0; i < kSide; ++i) labels.rows.emplace_back(), labels.columns.emplace_back();
  std::vector<std::vector<MatrixPanel>> panels;
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (i % 8 == 0) panels.emplace_back();
    MatrixPanel panel;
    for (Index y = 0; y < kSide; ++y) {
      panel.values.emplace_back();
      for (Index x = 0; x < kSide; ++x)
        panel.values.back().push_back(
            std::min(1., static_cast<double>(images[i][static_cast<std::size_t>(y * kSide + x)]) / (kLevels - 1)));
    }
    panels.back().push_back(panel);
  }
  plot_matrices(plot, labels, panels);
  std::fprintf(stderr, "drawn: %s\n", printable(plot).c_str());
}

void train(const Settings& s, Article& article) {
  const GPTConfig config{.options = {.vocabulary = kLevels + 1,
                                     .context = kPixels,
                                     .blocks = {.layers = s.layers, .attention = {.width = s.width, .heads = s.heads}}},
                         .attention = s.attention};
  Rng rng(s.seed);
  GPT model(config.options, rng, config.factory());
  const SampleBatches training(Images{{s.examples, 2 * s.seed}}, {.rows = s.batch});
  const SampleEvaluation held_out(Images{{s.held_out, 2 * s.seed + 1}}, {.rows = 20});
  if (!article.train(model, s, s.attention + " attention", training, held_out)) return;
  if (article.result().validation_loss)
    std::printf("bits per pixel: %.3f; 2 without a model\n", *article.result().validation_loss / std::log(2.));
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Tokens> prompts(16, Tokens{kStart});
  const std::vector<Tokens> images = generate(model, prompts, {.count = kPixels, .seed = s.seed});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::fprintf(stderr, "16 images in %.2f s\n", seconds);
  if (!article.plot().empty()) draw(images, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>(
      {"image_generation", "Draws digits pixel by pixel with a causal model of their pixels", "new digits"}, argc, argv,
      train);
}
