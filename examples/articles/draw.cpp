// DRAW (Gregor et al. 2015): draws images stroke by stroke. An encoder looks at a part of the image through a window of
// attention, a decoder writes through another window onto a canvas, and a variational bound trains both.
//
//   draw                       prints the bound in nats per image
//   draw --plot strokes.svg    draws new digits, from the first stroke to the last
//
// Equations are those of the paper, sections 2 and 3. The images are digits that the program draws.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "examples/support/article.hpp"
#include "examples/support/drawn_digits.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kSide = 20;  // of an image

struct Settings : TrainingSettings {
  Index window = 5, strokes = 8, latent = 10, hidden = 96;

  Settings() { steps = 3000; }
  void fields(SettingFields& f) {
    f.counted("window", window, Kind::model, "Side of the windows, in places", whole(2));
    f.counted("strokes", strokes, Kind::model, "Steps of looking and writing");
    f.counted("latent", latent, Kind::model, "Random numbers per stroke");
    f.counted("hidden", hidden, Kind::model, "Units of encoder and decoder");
    TrainingSettings::fields(f, "images");
  }
};

// Image i and the random numbers of its strokes are pure functions of the seed and i.
struct Images : DigitImages {
  Index strokes, latent;

  Sample sample(Index i) const {
    Rng rng = rng_of(i);
    const Tensor image = Tensor::from(draw_digit(rng, kSide, 2).pixels, {kSide, kSide});
    return {{"inputs", image}, {"noise", rng.normal({strokes, latent})}};
  }
};

// A grid of window x window Gaussian filters over an image, equations 19 to 26.
struct Window {
  Tensor rows, columns;  // [B, window, side]: the filters F_Y and F_X
  Tensor intensity;      // [B, 1, 1]

  // p [B, 5]: center, logarithms of variance, distance and intensity.
  Window(const Tensor& p, Index window) {
    const auto number = [&](Index i) { return p.slice(1, i, i + 1); };  // [B, 1]
    const Tensor variance = exp(number(2)),
                 distance = exp(number(3)) * ((kSide - 1.) / static_cast<double>(window - 1));
    std::vector<float> places;
    for (Index i = 0; i < window; ++i) places.push_back(static_cast<float>(i) - 0.5f * static_cast<float>(window - 1));
    const auto filters = [&](const Tensor& center) {
      const Tensor at = (center + 1) * ((kSide - 1) / 2.) + distance * Tensor::from(places);  // [B, window]
      const Tensor from_at = Tensor::arange(kSide, DType::float32) - at.unsqueeze(2);         // [B, window, side]
      const Tensor f = exp(square(from_at) / (-2 * variance.unsqueeze(2)));
      return f / (sum(f, {2}, true) + 1e-8);
    };
    columns = filters(number(0));
    rows = filters(number(1));
    intensity = exp(number(4)).unsqueeze(2);
  }
  Tensor read(const Tensor& image) const {  // [B, side, side] -> [B, window * window]
    return (intensity * matmul(matmul(rows, image), columns.t())).flatten(1);
  }
  Tensor write(const Tensor& patch) const {  // [B, window, window] -> [B, side, side]
    return matmul(matmul(rows.t(), patch), columns) / intensity;
  }
};

class Draw {
 public:
  RecurrentCell encoder, decoder;
  Linear latent;            // mean and logarithm of the standard deviation
  Linear look, place, ink;  // the windows of reading and writing, and what is written
  Parameter first;          // [side, side]: the canvas before the first stroke

  Draw(const Settings& s, Rng& rng)
      : encoder(RecurrentKind::lstm, 2 * s.window * s.window + s.hidden, s.hidden, rng),
        decoder(RecurrentKind::lstm, s.latent, s.hidden, rng),
        latent(s.hidden, 2 * s.latent, rng),
        look(s.hidden, 5, rng),
        place(s.hidden, 5, rng),
        ink(s.hidden, s.window * s.window, rng),
        first(Tensor::full({kSide, kSide}, -2)) {}

  // The bound in nats per image, equations 9 to 12, for inputs [B, side, side] and noise [B, strokes, latent].
  Tensor loss(const Batch& b) const {
    const Tensor& x = b.inputs;
    const Index size = latent.weight.dim(0) / 2, batch = x.dim(0), window = side_of_window();
    Tensor canvas = first.expand({batch, kSide, kSide}), seen, state = Tensor::zeros({batch, 2 * decoder.hidden()}), kl;
    for (Index t = 0; t < b.at("noise").dim(1); ++t) {
      const Tensor h = decoder.h(state), error = x - sigmoid(canvas);
      const Window at(look(h), window);
      seen = encoder(concatenate({at.read(x), at.read(error), h}, 1), seen);
      const Tensor q = latent(encoder.h(seen)), mean = q.slice(1, 0, size), log_deviation = q.slice(1, size, 2 * size);
      const Tensor stroke = 0.5 * (square(mean) + exp(2 * log_deviation) - 1) - log_deviation;
      kl = t == 0 ? stroke : kl + stroke;
      canvas = drawn(canvas, mean + exp(log_deviation) * b.at("noise").select(1, t), state);
    }
    const Tensor shown = binary_cross_entropy_with_logits(canvas, x, {.reduction = Reduction::sum});
    return weighted_loss((shown + sum(kl)) / static_cast<double>(batch), static_cast<double>(batch));
  }
  // New images from random numbers [B, strokes, latent]: the canvas after each stroke, [B, side, side] from 0 to 1.
  std::vector<Tensor> generate(const Tensor& noise) const {
    Tensor canvas = first.expand({noise.dim(0), kSide, kSide}),
           state = Tensor::zeros({noise.dim(0), 2 * decoder.hidden()});
    std::vector<Tensor> shown;
    for (Index t = 0; t < noise.dim(1); ++t) {
      canvas = drawn(canvas, noise.select(1, t), state);
      shown.push_back(sigmoid(canvas));
    }
    return shown;
  }

  void members(MemberVisitor& visit) {
    visit("encoder", encoder);
    visit("decoder", decoder);
    visit("latent", latent);
    visit("look", look);
    visit("place", place);
    visit("ink", ink);
    visit("first", first);
  }

 private:
  Index side_of_window() const { return std::lround(std::sqrt(static_cast<double>(ink.weight.dim(0)))); }
  // The canvas after one more stroke; `state` becomes the decoder's next one.
  Tensor drawn(const Tensor& canvas, const Tensor& z, Tensor& state) const {
    const Index window = side_of_window();
    state = decoder(z, state);
    const Tensor h = decoder.h(state);
    return canvas + Window(place(h), window).write(ink(h).view({z.dim(0), window, window}));
  }
};

// Draws six new digits: a row for each, a column for each stroke.
void draw_strokes(const Draw& model, const Settings& s, const std::string& plot) {
  const NoTape no_tape;
  const std::vector<Tensor> shown = model.generate(Rng(s.seed, 999).normal({6, s.strokes, s.latent}));
  MatrixLabels labels{.title = "New digits, stroke by stroke"};
  labels.rows.resize(kSide), labels.columns.resize(kSide);
  std::vector<std::vector<MatrixPanel>> panels(6);
  for (std::size_t i = 0; i < panels.size(); ++i)
    for (const Tensor& canvas : shown) {
      MatrixPanel& panel = panels[i].emplace_back();
      for (Index y = 0; y < kSide; ++y) panel.values.push_back(canvas[static_cast<Index>(i)][y].to_vector<double>());
    }
  plot_matrices(plot, labels, panels);
  std::fprintf(stderr, "drawn: %s\n", printable(plot).c_str());
}

void train(const Settings& s, Article& article) {
  Rng rng(s.seed);
  Draw model(s, rng);
  const SampleBatches training(Images{{s.examples, 2 * s.seed}, s.strokes, s.latent}, {.rows = s.batch});
  const SampleEvaluation held_out(Images{{s.held_out, 2 * s.seed + 1}, s.strokes, s.latent}, {.rows = 50});
  if (!article.train(
          model, s,
          formatted("%ld strokes through windows of %ld x %ld places", long{s.strokes}, long{s.window}, long{s.window}),
          training, held_out))
    return;
  if (article.result().validation_loss)
    std::printf("at most %.1f nats per image, %.3f bits per pixel\n", *article.result().validation_loss,
                *article.result().validation_loss / std::log(2.) / (kSide * kSide));
  if (!article.plot().empty()) draw_strokes(model, s, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"draw", "Draws digits stroke by stroke (DRAW)", "new digits"}, argc, argv, train);
}
