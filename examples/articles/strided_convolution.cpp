// A Transformer encoder whose feed-forward parts are convolutions with a stride: each layer halves the sequence. Su
// proposes this at the end of his article on linear attention (kexue.fm/archives/7546, 2020). The model reads the
// pixels of a digit one after another, and names the digit.
//
//   strided_convolution --plot digits.svg        144, 72 and 36 positions; draws which pixels matter
//   strided_convolution --stride 1 --kernel 1    the usual feed-forward part, on all positions in each layer
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"
#include "examples/support/drawn_digits.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kSide = 12, kPixels = kSide * kSide, kDigits = 10;

struct Settings : TrainingSettings {
  Index layers = 3, heads = 4, width = 64, stride = 2, kernel = 3;

  Settings() { steps = 1000; }
  void fields(SettingFields& f) {
    f.counted("layers", layers, Kind::model, "Layers");
    f.counted("heads", heads, Kind::model, "Attention heads; must divide the width");
    f.counted("width", width, Kind::model, "Size of a pixel's vector");
    f.counted("stride", stride, Kind::model, "Stride of the convolutions", whole(1, kPixels));
    f.counted("kernel", kernel, Kind::model, "Positions that a convolution reads; odd", whole(1, kPixels));
    TrainingSettings::fields(f, "images");
  }
};

// Image i is a pure function of the seed and i: float32 [kPixels], and its digit, int32 [1].
struct Images : DigitImages {
  Sample sample(Index i) const {
    Rng rng = rng_of(i);
    const DrawnDigit drawn = draw_digit(rng, kSide);
    return {{"inputs", Tensor::from(drawn.pixels)},
            {"targets", Tensor::full({1}, static_cast<double>(drawn.digit), DType::int32)}};
  }
};

// With the convolution C of a stride, in place of the first map of a feed-forward part:
//   h = x + attention(norm(x));  y = mean over windows of h + down(gelu(C(norm(h))))
// The means have the stride of C, so that both summands have ceil(T / stride) positions.
struct ShorteningLayer {
  LayerNorm norm1, norm2;
  MultiHeadAttention attention;
  Conv1d up;    // [4 width, width, kernel]
  Linear down;  // [width, 4 width]

  ShorteningLayer(const Settings& s, Rng& rng)
      : norm1(s.width),
        norm2(s.width),
        attention({.width = s.width, .heads = s.heads}, rng),
        up(s.width, 4 * s.width, s.kernel, rng, {.stride = s.stride, .padding = s.kernel / 2}),
        down(4 * s.width, s.width, rng) {}

  Tensor operator()(In x) const {  // [B, T, width] -> [B, ceil(T / stride), width]
    const Tensor h = x + attention(norm1(x));
    const Index stride = up.options.stride;
    const Tensor means = stride == 1 ? h : avg_pool1d(h.t(), stride, {.ceil_mode = true}).t();
    return means + down(gelu(up(norm2(h).t()).t()));
  }
  void members(MemberVisitor& visit) {
    visit("norm1", norm1), visit("norm2", norm2), visit("attention", attention), visit("up", up), visit("down", down);
  }
};

struct Classifier {
  Linear brightness;           // [width, 1]
  LearnedPositions positions;  // [kPixels, width]
  std::vector<ShorteningLayer> layers;
  LayerNorm norm;
  Linear output;  // [kDigits, width]

  Classifier(const Settings& s, Rng& rng)
      : brightness(1, s.width, rng), positions(kPixels, s.width, rng), norm(s.width), output(s.width, kDigits, rng) {
    for (Index i = 0; i < s.layers; ++i) layers.emplace_back(s, rng);
  }

  Tensor operator()(In pixels) const {  // [B, kPixels] -> logits [B, 1, kDigits]
    Tensor h = brightness(pixels->unsqueeze(2)) + positions(kPixels);
    for (const ShorteningLayer& layer : layers) h = layer(h);
    return output(norm(mean(h, {1}, true)));
  }
  Tensor loss(const Batch& b) const { return cross_entropy((*this)(b.inputs), b.targets); }

  void members(MemberVisitor& visit) {
    visit("brightness", brightness), visit("positions", positions), visit("layers", layers);
    visit("norm", norm), visit("output", output);
  }
};

std::vector<std::vector<double>> square_of(const Tensor& pixels) {
  std::vector<std::vector<double>> rows;
  for (Index y = 0; y < kSide; ++y) rows.push_back(pixels.slice(0, y * kSide, (y + 1) * kSide).to_vector<double>());
  return rows;
}

// Draws digits, and below each the size of the gradient that its pixels get from the logit of the digit.
void draw(const Classifier& model, const Images& images, const std::string& plot) {
  MatrixLabels labels{.title = "Digits, and the pixels that matter"};
  for (Index i = 0; i < kSide; ++i) labels.rows.emplace_back(), labels.columns.emplace_back();
  std::vector<std::vector<MatrixPanel>> panels(2);
  for (Index i = 0; i < 8; ++i) {
    const Sample s = images.sample(i);
    const auto digit = s.at("targets").item<Index>();
    Tape tape;
    const Tensor pixels = tape.watch(s.at("inputs").unsqueeze(0));
    tape.backward(sum(model(pixels).select(2, digit)));
    const Tensor size = abs(tape.grad(pixels)[0]);
    panels[0].push_back({std::to_string(digit), square_of(s.at("inputs"))});
    panels[1].push_back({"", square_of(size / max(size).item())});
  }
  plot_matrices(plot, labels, panels);
  std::fprintf(stderr, "drawn: %s\n", printable(plot).c_str());
}

void train(const Settings& s, Article& article) {
  if (s.kernel % 2 == 0) throw UsageError("--kernel must be odd, so that a convolution is centred on its position");
  Rng rng(s.seed);
  Classifier model(s, rng);
  std::string positions;
  for (Index i = 0, left = kPixels; i < s.layers; ++i, left = (left + s.stride - 1) / s.stride)
    positions += (i == 0 ? "" : ", ") + std::to_string(left);
  const Images held_out{{s.held_out, 2 * s.seed + 1}};
  if (!article.train(model, s, positions + " positions",
                     SampleBatches(Images{{s.examples, 2 * s.seed}}, {.rows = s.batch}),
                     SampleEvaluation(held_out, {.rows = 100}),
                     [&](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); }))
    return;
  std::printf("digits recognized: %.1f%%\n", 100 * article.result().validation_metrics.at("accuracy"));
  if (!article.plot().empty()) draw(model, held_out, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>(
      {"strided_convolution", "Names digits by a Transformer that shortens its sequence", "which pixels matter"}, argc,
      argv, train);
}
