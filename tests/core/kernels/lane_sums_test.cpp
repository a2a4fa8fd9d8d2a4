// Sums over the elements of a row are made in one order, whatever the registers of the level; and so training gives the
// same bits on every level with fma: the hashes of what it makes of the weights, tests/reference/training_bits.txt.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <heed/heed.hpp>
#include <map>
#include <sstream>
#include <vector>

#include "tests/core/levels.hpp"
#include "tests/kernels/simd_probe.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using heed::test::on_each_level;

namespace {

// Numbers of both signs and several sizes, whose sums depend on the order.
template <class T>
std::vector<T> mixed_numbers(std::size_t n, double step) {
  std::vector<T> x;
  for (std::size_t i = 0; i < n; ++i) {
    const double u = std::fmod(step * static_cast<double>(i + 1), 1.0) - 0.45;
    x.push_back(static_cast<T>(u * (i % 3 == 0 ? 1 : i % 3 == 1 ? 19 : 0.03)));
  }
  return x;
}

// The order as it is told: lane i mod lanes, then halves.
template <class T, class Add>
T in_order(std::size_t n, const Add& add) {
  constexpr std::size_t lanes = 64 / sizeof(T);
  T sum[lanes] = {};
  for (std::size_t i = 0; i < n; ++i) sum[i % lanes] = add(sum[i % lanes], i);
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  return sum[0];
}

template <class T>
bool same_sum(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
void check_lane_sums(std::size_t n) {
  const std::vector<T> x = mixed_numbers<T>(n, 0.6180339887498949), y = mixed_numbers<T>(n, 0.41421356237309515);
  const T sum = in_order<T>(n, [&](T s, std::size_t i) { return s + x[i]; });
  const T dot = in_order<T>(n, [&](T s, std::size_t i) { return std::fma(x[i], y[i], s); });
  const T dot_rounded = in_order<T>(n, [&](T s, std::size_t i) { return x[i] * y[i] + s; });
  bool first = true;
  T tree = 0;
  on_each_level([&] {
    T got[3];
    kernels::of<T>(kernels::simd_probes()).sums(x.data(), y.data(), static_cast<std::int64_t>(n), got);
    if (std::exchange(first, false)) tree = got[1];
    const bool fused = kernels::fuses(kernels::level());
    CHECK(same_sum(got[0], sum));
    CHECK(same_sum(got[1], tree));
    CHECK((same_sum(got[2], dot) || (!fused && same_sum(got[2], dot_rounded))));
  });
  CHECK(std::fabs(static_cast<double>(tree - sum)) <= 1e-4 * (1 + static_cast<double>(n)));
}

}  // namespace

TEST_CASE("lane_sums: each element goes to its lane, and the lanes are added in halves, on every level") {
  for (std::size_t n = 0; n < 70; ++n) {
    CAPTURE(n);
    check_lane_sums<float>(n);
    check_lane_sums<double>(n);
  }
  for (const std::size_t n : {127, 255, 256, 257, 511, 512, 513, 600, 767, 1024, 1031, 1536, 2048, 4095, 5000}) {
    CAPTURE(n);
    check_lane_sums<float>(n);
    check_lane_sums<double>(n);
  }
}

namespace {

struct Training {
  std::string optimizer = "adamw";
  DType dtype = DType::float32;  // of parameters
  double dropout = 0, clip = 0;
  DType products = DType::float32;
};

std::string hash_of(const std::vector<NamedParameter>& parameters) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const NamedParameter& p : parameters) {
    const Tensor x = p.parameter->contiguous();
    const auto* bytes = static_cast<const unsigned char*>(x.raw());
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.numel()) * size_of(x.dtype()); ++i)
      hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  std::ostringstream text;
  text << std::hex << hash;
  return text.str();
}

// Three steps of a model of tokens.
template <class Model, class Loss>
std::string trained(Model& model, const Training& t, const Loss& loss) {
  if (t.dtype != DType::float32) to(model, t.dtype);
  const MatmulPrecision products(t.products == DType::bfloat16 ? DType::bfloat16 : DType::float32);
  const auto optimizer =
      make_optimizer(t.optimizer, named_parameters(model), {.lr = 3e-3, .weight_decay = t.clip > 0 ? 0.1 : 0});
  const Schedule schedule("cosine", {.lr = 3e-3, .min_lr = 3e-4, .warmup = 1, .steps = 5});
  manual_seed(11);
  for (Index step = 0; step < 3; ++step) {
    optimizer->set_lr(schedule(step + 1));
    Tape tape;
    tape.backward(loss(step));
    if (t.clip > 0) clip_grad_norm_(named_parameters(model), t.clip);
    optimizer->step();
    optimizer->zero_grad();
  }
  return hash_of(named_parameters(model));
}

const MechanismOptions kOptions{.heads = 2, .head_size = 18, .context = 24, .window = 8, .stride = 4, .radius = 2};
constexpr Index kWords = 37, kBatch = 2, kLength = 21;
Tensor words(Index seed, Index length = kLength, Index batch = kBatch) {
  return Rng(static_cast<std::uint64_t>(seed) + 50).integers({batch, length}, 0, kWords);
}

Batch pairs(Index seed, Index length, Index batch) {
  return {.inputs = words(seed, length, batch),
          .targets = words(seed + 9, length, batch),
          .others = {{"source", words(seed + 20, length - 4, batch)}}};
}

std::string language_model(const std::string& mechanism, bool causal, const Training& t, GPTOptions o = {}) {
  Rng rng(3);
  o.vocabulary = kWords, o.context = 24, o.layers = 1, o.heads = 2, o.width = 36, o.dropout = t.dropout;
  o.causal = causal;
  MechanismOptions options = kOptions;
  options.causal = causal;
  GPT model(o, rng, mechanism_by_name(mechanism, options));
  return trained(model, t, [&](Index step) { return model.loss(words(step), words(step + 9)); });
}

std::string translator(const std::string& mechanism, const Training& t) {
  Rng rng(4);
  MechanismOptions options = kOptions;
  options.causal = false, options.memory = true;
  TransformerSeq2Seq model({.source_vocabulary = kWords,
                            .target_vocabulary = kWords,
                            .width = 36,
                            .heads = 2,
                            .encoder_layers = 1,
                            .decoder_layers = 1,
                            .dropout = t.dropout},
                           rng, {.cross = mechanism_by_name(mechanism, options)});
  return trained(model, t, [&](Index step) {
    return model.loss(pairs(step, kLength, kBatch));
  });
}

std::string recurrent_translator(DecoderAttention attention, RecurrentKind cell, const Training& t) {
  Rng rng(5);
  Seq2Seq model({.source_vocabulary = kWords,
                 .target_vocabulary = kWords,
                 .embedding = 19,
                 .hidden = 26,
                 .cell = cell,
                 .attention = attention,
                 .dropout = t.dropout},
                rng);
  return trained(model, t, [&](Index step) {
    return model.loss(pairs(step, 6, 3));
  });
}

using Trainings = std::map<std::string, std::function<std::string()>>;

const Trainings& trainings() {
  static const Trainings all = [] {
    Trainings list;
    const auto add = [&](const std::string& of, DType dtype, DType products) {
      const Training plain{.dtype = dtype, .products = products},
          whole{.dtype = dtype, .dropout = 0.1, .clip = 0.5, .products = products};
      for (const std::string& name : mechanism_names())
        list["causal " + name + of] = [=] { return language_model(name, true, plain); };
      for (const std::string& name : mechanism_names(false))
        list["masked " + name + of] = [=] { return language_model(name, false, plain); };
      for (const std::string& name : memory_mechanism_names())
        list["memory " + name + of] = [=] { return translator(name, plain); };
      for (const std::string& name : optimizer_names())
        list["optimizer " + name + of] = [=] {
          return language_model("softmax", true, {.optimizer = name, .dtype = dtype, .clip = 1, .products = products});
        };
      list["dropout and clipping" + of] = [=] { return language_model("softmax", true, whole); };
      list["dropout and clipping, translator" + of] = [=] { return translator("softmax", whole); };
      list["rotary positions, RMSNorm and SwiGLU" + of] = [=] {
        return language_model("softmax", true, plain,
                              {.activation = FeedForwardKind::swiglu, .norm = NormKind::rms, .rope = true});
      };
      for (const auto attention : {DecoderAttention::none, DecoderAttention::bahdanau, DecoderAttention::luong})
        for (const auto cell : {RecurrentKind::gru, RecurrentKind::lstm, RecurrentKind::rnn_tanh}) {
          const int kind = static_cast<int>(attention) * 10 + static_cast<int>(cell);
          list["recurrent translator " + std::to_string(kind) + of] = [=] {
            return recurrent_translator(attention, cell, whole);
          };
        }
    };
    add(" f32", DType::float32, DType::float32);
    add(" f64", DType::float64, DType::float64);
    add(" bf16", DType::float32, DType::bfloat16);
    return list;
  }();
  return all;
}

}  // namespace

// HEED_TRAINING_BITS names the file where the hashes of this machine go.
TEST_CASE("training: the same bits on every level with fma, and on every machine") {
  const std::string path = test::in_source("tests/reference/training_bits.txt");
  std::map<std::string, std::string> stored, now;
  std::ifstream file(path);
  for (std::string hash, name; file >> hash >> std::ws && std::getline(file, name);) stored[name] = hash;
  on_each_level([&] {
    if (!kernels::fuses(kernels::level())) return;
    for (const auto& training : trainings()) {
      const auto& name = training.first;
      const auto& train_it = training.second;
      CAPTURE(name);
      const std::string hash = now[name] = train_it();
      CHECK_MESSAGE(hash == stored[name], name);
    }
  });
  if (const char* out = std::getenv("HEED_TRAINING_BITS")) {
    std::ofstream to(out);
    for (const auto& [name, hash] : now) to << hash << " " << name << "\n";
    return;
  }
  CHECK((now.empty() || stored.size() == trainings().size()));
}
