// Linear layers and initial values.
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/recurrent.hpp>
#include <heed/layers/transformer_seq2seq.hpp>
#include <numeric>
#include <type_traits>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::names_of;
using test::normal;
using test::same_bits;

namespace {

// The model that `make` returns, made in memory that a similar model has filled with NaN.
template <class Make>
auto made_of_nan(const Make& make) {
  {
    Rng rng(1);
    auto model = make(rng);
    for (const NamedParameter& p : named_parameters(model)) p.parameter->fill_(std::nan(""));
  }
  Rng rng(1);
  return make(rng);
}

// Checks that each parameter is filled for any contents of memory, and that skipping initialization advances the
// generator equally.
template <class M, class... Arguments>
void check_filled(const Arguments&... arguments) {
  const auto make = [&](Rng& rng) { return M(arguments..., rng); };
  Rng rng(1), skipped(1);
  M first = make(rng), second = made_of_nan(make);
  const auto a = named_parameters(first), b = named_parameters(second);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].name);
    CHECK(test::same_bits(*a[i].parameter, *b[i].parameter));
    for (const double x : b[i].parameter->template to_vector<double>()) REQUIRE(std::isfinite(x));
  }
  {
    const detail::SkipInit skip;
    make(skipped);
  }
  CHECK(skipped.position() == rng.position());
}

// True if T can be constructed from these types.
template <class T, class... From>
constexpr bool kMakes = std::is_constructible_v<T, From...>;

}  // namespace

TEST_CASE("layers: sizes are integers, and other types do not compile") {
  CHECK(kMakes<Linear, int, Index, Rng&>);
  CHECK(kMakes<Linear, std::size_t, short, Rng&>);
  CHECK_FALSE(kMakes<Linear, double, int, Rng&>);
  CHECK_FALSE(kMakes<Linear, int, float, Rng&>);
  CHECK_FALSE(kMakes<Linear, int, bool, Rng&>);
  CHECK(kMakes<Embedding, int, int, Rng&>);
  CHECK_FALSE(kMakes<Embedding, double, int, Rng&>);
  CHECK_FALSE(kMakes<Embedding, int, double, Rng&>);
  CHECK_FALSE(kMakes<LearnedPositions, int, double, Rng&>);
  CHECK_FALSE(kMakes<SinusoidalPositions, double, int>);
  CHECK_FALSE(kMakes<RelativePositionBias, int, double, Rng&>);
  CHECK_FALSE(kMakes<LayerNorm, double>);
  CHECK_FALSE(kMakes<RMSNorm, double>);
  CHECK_FALSE(kMakes<Norm, NormKind, double>);
  CHECK_FALSE(kMakes<FeedForward, double, Rng&>);
  CHECK_FALSE(kMakes<RecurrentCell, RecurrentKind, int, double, Rng&>);
  CHECK_FALSE(kMakes<CosineAttention, double, int, Rng&>);
  CHECK_FALSE(kMakes<TopKAttention, double>);
  CHECK_FALSE(kMakes<FavorAttention, double>);
  CHECK_FALSE(kMakes<LinformerAttention, int, double, Rng&>);
  CHECK_FALSE(kMakes<LuongGeneral, int, double, Rng&>);
  CHECK_FALSE(kMakes<LuongConcat, int, double, Rng&>);
  CHECK_FALSE(kMakes<LuongLocation, double, int, Rng&, LuongLocationOptions>);
  CHECK_FALSE(kMakes<LuongLocalAttention, int, double, Rng&>);
  CHECK_FALSE(kMakes<BahdanauAttention, int, double, Rng&>);
}

TEST_CASE("skip_init leaves parameters uninitialized, and the generator as if they were filled") {
  constexpr Index n = 4096;  // larger than any other block of the pool
  { const Tensor before = Tensor::full({n, n}, 7); }
  Tensor memory;
  {
    const Tensor left = Tensor::empty({n, n});  // sevens, or NaN if the pool fills new memory
    memory = left.clone();
  }
  Rng rng(3), same(3);
  const Linear skipped = skip_init<Linear>(n, n, rng, LinearOptions{.bias = false});
  // Except for the first row, where the pool stores a link.
  CHECK(same_bits(skipped.weight.slice(0, 1, n), memory.slice(0, 1, n)));
  const Linear filled(n, n, same, {.bias = false});
  CHECK(rng.position() == same.position());
  CHECK_FALSE(same_bits(filled.weight, skipped.weight));
  const Linear next(4, 4, rng), expected(4, 4, same);  // the scope has ended
  CHECK(same_bits(next.weight, expected.weight));
  CHECK(rng.position() == same.position());
}

TEST_CASE("models that skip initial values of their parts fill every parameter, with the same numbers") {
  struct MadeGPT : GPT {
    MadeGPT(const GPTConfig& c, Rng& rng) : GPT(c.options, rng, c.factory()) {}
  };
  GPTOptions o{.vocabulary = 37, .context = 32, .blocks = {.layers = 2, .attention = {.width = 32, .heads = 2}}};
  for (const PositionKind kind : {PositionKind::none, PositionKind::learned, PositionKind::sinusoidal,
                                  PositionKind::rope, PositionKind::relative}) {
    CAPTURE(static_cast<int>(kind));
    const Index clip = kind == PositionKind::relative ? 4 : 0;
    o.positions = kind, o.blocks.attention.relative_clip = clip;
    o.tied = kind != PositionKind::rope, o.blocks.attention.bias = kind != PositionKind::none;
    check_filled<MadeGPT>(GPTConfig{.options = o});
    struct MadeSeq2Seq : TransformerSeq2Seq {
      MadeSeq2Seq(const TransformerSeq2SeqOptions& t, Rng& rng) : TransformerSeq2Seq(t, rng) {}
    };
    check_filled<MadeSeq2Seq>(TransformerSeq2SeqOptions{
        .source_vocabulary = 11,
        .target_vocabulary = 13,
        .blocks = {.layers = 1, .attention = {.width = 32, .heads = 2, .relative_clip = clip}},
        .decoder_layers = 2,
        .positions = kind,
        .context = 16});
  }
  o.positions = PositionKind::learned, o.causal = true;
  for (const char* name : {"bahdanau", "luong-general", "luong-concat", "cosine"})
    check_filled<MadeGPT>(GPTConfig{.options = o, .attention = name});
}

TEST_CASE("initializers have the documented moments") {
  Rng rng(10);
  Parameter p(Tensor::empty({400, 300}));
  const auto moments = [&] {
    const std::vector<double> v = p.to_vector<double>();
    const double n = static_cast<double>(v.size()), mean = std::accumulate(v.begin(), v.end(), 0.0) / n;
    double square = 0, max_abs = 0;
    for (double x : v) {
      square += (x - mean) * (x - mean);
      max_abs = std::max(max_abs, std::fabs(x));
    }
    return std::array<double, 3>{mean, std::sqrt(square / n), max_abs};
  };
  const auto expect = [&](double deviation, double max_abs) {
    const auto [mean, sd, largest] = moments();
    CHECK(std::fabs(mean) < 0.02 * deviation);
    CHECK(sd == doctest::Approx(deviation).epsilon(0.01));
    CHECK(largest <= max_abs * (1 + 1e-6));
  };
  init::xavier_uniform_(p, rng);
  expect(std::sqrt(2.0 / 700), std::sqrt(6.0 / 700));
  init::xavier_normal_(p, rng, 2);
  expect(2 * std::sqrt(2.0 / 700), 1);
  init::kaiming_uniform_(p, rng);
  expect(std::sqrt(2.0 / 300), std::sqrt(6.0 / 300));
  init::kaiming_normal_(p, rng, std::sqrt(5.0));
  expect(std::sqrt(1.0 / 900), 1);
  init::normal_(p, rng, 0, 0.5);
  expect(0.5, 4);
  init::trunc_normal_(p, rng, 0, 1, -2, 2);
  expect(0.8796, 2);
  init::orthogonal_(p, rng, 1.5);
  const Tensor w = p.to(DType::float64).detach();
  const Tensor product = matmul(w.t(), w);
  for (Index i = 0; i < 300; i += 37)
    for (Index j = 0; j < 300; j += 29)
      CHECK(product.at({i, j}) == doctest::Approx(i == j ? 2.25 : 0).epsilon(1e-4).scale(1));
  // Fans include the positions of a kernel: [out, in, position]. If there are fewer rows than columns, rows are
  // orthonormal.
  Parameter kernel(Tensor::empty({40, 30, 20}, DType::float64));
  init::xavier_uniform_(kernel, rng);
  CHECK(norm(kernel, {}, {.p = INFINITY}).item() == doctest::Approx(std::sqrt(6.0 / (600 + 800))).epsilon(0.01));
  init::orthogonal_(kernel, rng);
  const Tensor flat = kernel.view({40, 600}).detach(), rows = matmul(flat, flat.t());
  for (Index i = 0; i < 40; i += 3)
    for (Index j = 0; j < 40; j += 3) CHECK(rows.at({i, j}) == doctest::Approx(i == j ? 1 : 0).scale(1));
  init::constant_(kernel, 3);
  CHECK(kernel.at({39, 29, 19}) == 3);
  init::uniform_(kernel, rng, 2, 3);
  CHECK(min(kernel).item() >= 2);
  CHECK(max(kernel).item() < 3);
  CHECK(mean(kernel).item() == doctest::Approx(2.5).epsilon(0.01));
}
