// Images whose class is a relation of distant parts: the kind of the shape that has the colour of the cross.
// Convolutions see one shape at a time. A block in which all positions attend to each other relates them
// (layers/non_local.hpp).
//
//   non_local                                        the non-local block, embedded Gaussian (Wang et al. 2018)
//   non_local --block em --plot looks.svg            expectation-maximisation attention; draws where positions look
//   non_local --block none                           the same network without a block
#include <algorithm>
#include <array>
#include <heed/heed.hpp>
#include <variant>

#include "examples/support/article.hpp"
#include "examples/support/drawn_shapes.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

constexpr Index kSide = 24, kGrid = 12;    // of an image; of the positions that the block relates
constexpr Index kClasses = 3, kCross = 3;  // circle, square or triangle; the kind of the cross

struct Settings : TrainingSettings {
  std::string block = "embedded";
  Index channels = 16, bases = 16;
  bool subsample = false;

  Settings() { steps = 2000, held_out = 1000, lr = 4e-3; }
  void fields(SettingFields& f) {
    f("block", block, Kind::model,
      "Block: gaussian, embedded, dot, concatenation (Wang et al.), pyramid (Zhu et al.), double (A2-Nets), em "
      "(EMANet), or none [embedded]",
      one_of({"gaussian", "embedded", "dot", "concatenation", "pyramid", "double", "em", "none"}, "NAME"));
    f("subsample", subsample, Kind::model, "Keys are maxima of 2 x 2 positions; for the blocks of Wang et al.");
    f("channels", channels, Kind::model, "Channels of the block [16]", whole(1));
    f("bases", bases, Kind::model, "Bases of em [16]", whole(1));
    TrainingSettings::fields(f, "images");
  }
};

// Image i is a pure function of the seed and i: a cross, a shape of its colour, and a shape of another kind and colour,
// in quadrants of their own. inputs [side, side, 3], targets int32 []. The two kinds alone, without the colours, give
// the right class for half of the images.
struct Scenes {
  Index count;
  std::uint64_t seed;

  Index size() const { return count; }
  std::string fingerprint() const {
    return formatted("%lld scenes, seed %llu", static_cast<long long>(count), static_cast<unsigned long long>(seed));
  }
  Sample sample(Index i) const {
    Rng rng(seed, static_cast<std::uint64_t>(i));
    const auto shapes = drawn(rng);
    DrawnImage image(rng, kSide, 0.05);
    for (const DrawnShape& s : shapes) image.draw(s);
    return {{"inputs", image.tensor()}, {"targets", Tensor::scalar(static_cast<double>(shapes[1].kind), DType::int32)}};
  }
  std::array<DrawnShape, 3> shapes(Index i) const {
    Rng rng(seed, static_cast<std::uint64_t>(i));
    return drawn(rng);
  }

 private:
  static std::array<DrawnShape, 3> drawn(Rng& rng) {
    std::array<DrawnShape, 3> s;
    s[0].kind = kCross, s[1].kind = rng.integer(kClasses), s[2].kind = (s[1].kind + 1 + rng.integer(2)) % kClasses;
    s[0].colour = s[1].colour = rng.integer(4), s[2].colour = (s[0].colour + 1 + rng.integer(3)) % 4;
    const std::vector<Index> quadrants = rng.permutation(4);
    for (std::size_t n = 0; n < s.size(); ++n) {
      const Index r = s[n].radius = 2 + rng.integer(2), free = kSide / 2 - 2 * r;
      s[n].x = kSide / 2 * (quadrants[n] % 2) + r + rng.integer(free);
      s[n].y = kSide / 2 * (quadrants[n] / 2) + r + rng.integer(free);
    }
    return s;
  }
};

using Block = std::variant<std::monostate, NonLocalBlock, DoubleAttention, EMAttention>;

Block block_of(const Settings& s, Rng& rng) {
  if (s.block == "none") return std::monostate();
  if (s.block == "double") return DoubleAttention(s.channels, rng);
  if (s.block == "em") return EMAttention(s.channels, rng, {.bases = s.bases});
  NonLocalOptions o{.subsample = s.subsample};
  if (s.block == "gaussian") o.kind = NonLocalKind::gaussian;
  if (s.block == "dot") o.kind = NonLocalKind::dot;
  if (s.block == "concatenation") o.kind = NonLocalKind::concatenation;
  if (s.block == "pyramid") o.pyramid = {1, 3, 6, 8};
  return NonLocalBlock(s.channels, rng, o);
}

// Convolutions that see 12 pixels around a position, the block, and the sum over positions of what each one finds.
class Classifier {
 public:
  Conv2d first, second, third;
  BatchNorm first_norm, second_norm, third_norm;
  Block block;
  Conv2d found;
  Linear output;

  Classifier(const Settings& s, Rng& rng)
      : first(3, 16, 3, rng, {.padding = 1}),
        second(16, s.channels, 3, rng, {.padding = 1}),
        third(s.channels, s.channels, 3, rng, {.padding = 1}),
        first_norm(16),
        second_norm(s.channels),
        third_norm(s.channels),
        block(block_of(s, rng)),
        found(s.channels, 2 * s.channels, 1, rng),
        output(2 * s.channels, kClasses, rng) {}

  Tensor features(const Tensor& images) const {  // [B, side, side, 3] -> [B, channels, grid, grid]
    const Tensor edges = max_pool2d(relu(first_norm(first(images.permute({0, 3, 1, 2})))), 2);
    return relu(third_norm(third(relu(second_norm(second(edges))))));
  }
  Tensor operator()(const Tensor& images) const {  // -> [B, classes]
    const Tensor x = features(images);
    const Tensor related = std::visit(
        [&](const auto& b) -> Tensor {
          if constexpr (requires { b(x); })
            return b(x);
          else
            return x;
        },
        block);
    return output(sum(relu(found(related)), {2, 3}) / kGrid);
  }
  Tensor loss(const Batch& b) const { return cross_entropy((*this)(b.inputs), b.targets); }
  // How each position attends to the others, [B, positions, positions]; undefined without a block.
  Tensor weights(const Tensor& images) const {
    return std::visit(
        [&](const auto& b) -> Tensor {
          if constexpr (requires { b.weights(Tensor()); })
            return b.weights(features(images));
          else
            return {};
        },
        block);
  }

  void members(MemberVisitor& visit) {
    visit("first", first), visit("second", second), visit("third", third);
    visit("first_norm", first_norm), visit("second_norm", second_norm), visit("third_norm", third_norm);
    std::visit(
        [&](auto& b) {
          if constexpr (requires { b.members(visit); }) visit("block", b);
        },
        block);
    visit("found", found), visit("output", output);
  }
};

// Draws three images, and where the position of each shape looks.
void draw_looks(const Classifier& model, const Scenes& scenes, const std::string& plot) {
  const NoTape no_tape;
  const Evaluation evaluation;
  MatrixLabels labels{.title = "Where a position looks"};
  labels.rows.resize(kSide), labels.columns.resize(kSide);
  std::vector<std::vector<MatrixPanel>> panels;
  for (Index i = 0; i < 3; ++i) {
    const Tensor image = scenes.sample(i).at("inputs");
    const Tensor weights = model.weights(image.unsqueeze(0));
    const auto shapes = scenes.shapes(i);
    const auto panel = [&](const char* title, Index x, Index y) {  // x below 0: the image alone
      MatrixPanel p{.title = title};
      const Tensor seen = x < 0 ? Tensor() : relu(weights[0][y / 2 * kGrid + x / 2]);
      const double most = x < 0 ? 1 : std::max(1e-30, max(seen).item());
      for (Index row = 0; row < kSide; ++row) {
        p.values.emplace_back();
        for (Index column = 0; column < kSide; ++column)
          p.values.back().push_back(x < 0 ? std::clamp(mean(image[row][column]).item() * 1.5, 0., 1.)
                                          : seen.at({row / 2 * kGrid + column / 2}) / most);
      }
      return p;
    };
    panels.push_back({panel("image", -1, -1), panel("from the cross", shapes[0].x, shapes[0].y),
                      panel("from the shape of its colour", shapes[1].x, shapes[1].y),
                      panel("from the other shape", shapes[2].x, shapes[2].y)});
  }
  plot_matrices(plot, labels, panels);
  std::fprintf(stderr, "drawn: %s\n", printable(plot).c_str());
}

void train(const Settings& s, Article& article) {
  const bool of_wang = s.block == "gaussian" || s.block == "embedded" || s.block == "dot" || s.block == "concatenation";
  if (s.subsample && !of_wang)
    throw UsageError("--subsample is given and the block is " + s.block +
                     "; the block must be gaussian, embedded, dot or concatenation");
  if (!article.plot().empty() && s.block == "none")
    throw UsageError("--plot is given and there is no block; a block is needed to draw where it looks");
  Rng rng(s.seed);
  Classifier model(s, rng);
  const Scenes scenes{s.held_out, 2 * s.seed + 1};
  const SampleBatches training(Scenes{s.examples, 2 * s.seed}, {.rows = s.batch});
  const SampleEvaluation held_out(scenes, {.rows = 100});
  if (!article.train(model, s, s.block == "none" ? "no block" : "block " + s.block, training, held_out,
                     [&](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); }))
    return;
  if (article.result().validation_metrics.contains("accuracy"))
    std::printf("accuracy: %.1f%%; 50%% from a shape without the cross\n",
                100 * article.result().validation_metrics.at("accuracy"));
  if (!article.plot().empty()) draw_looks(model, scenes, article.plot());
}

}  // namespace

int main(int argc, char** argv) {
  return run_article<Settings>({"non_local", "Classifies images by a relation of distant parts, with non-local blocks",
                                "where a position looks"},
                               argc, argv, train);
}
