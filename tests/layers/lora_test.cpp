// LoRA: names of linear maps, values and gradients against formulas, what backward keeps and computes, and merging.
// More than 400 lines, because all cases use the same formulas.
#include <cmath>
#include <heed/heed.hpp>
#include <heed/layers/lora.hpp>
#include <heed/layers/model_config.hpp>
#include <sstream>

#include "tests/support.hpp"

using namespace heed;
using test::close;
using test::contains;
using test::error_of;
using test::same_bits;

namespace {

// A small Llama: qkv has 8 + 4 + 4 rows, and the up of swiglu 12 + 12.
GPTOptions llama() {
  return {.vocabulary = 11,
          .context = 16,
          .blocks = {.layers = 2,
                     .attention = {.width = 8, .heads = 2, .kv_heads = 1, .bias = false},
                     .hidden = 12,
                     .activation = FeedForwardKind::swiglu,
                     .norm = NormKind::rms},
          .positions = PositionKind::rope};
}

GPT llama_model(DType dtype = DType::float32) {
  Rng rng(3);
  GPT model(llama(), rng);
  for (const NamedParameter& p : named_parameters(model)) init::normal_(*p.parameter, rng, 0, 0.4);
  to(model, dtype);
  return model;
}

// Gives B other values than 0.
template <class M>
void randomize(M& model, std::uint64_t seed = 8) {
  Rng rng(seed);
  for (const NamedParameter& p : trainable_parameters(model)) init::normal_(*p.parameter, rng, 0, 0.5);
}

std::vector<std::string> map_names(const std::vector<LinearMap>& maps) {
  std::vector<std::string> names;
  for (const LinearMap& m : maps) names.push_back(m.name);
  return names;
}

// The names and shapes of the adapters that these targets give to a Llama, in block 0.
std::string adapters_of(const std::string& targets, bool whole = false) {
  GPT model = llama_model();
  Rng rng(1);
  add_lora(model, {.rank = 2, .targets = targets, .whole = whole}, rng);
  std::ostringstream text;
  for (const NamedParameter& p : trainable_parameters(model))
    if (p.name.starts_with("blocks.0.")) text << p.name.substr(9) << p.parameter->shape() << ' ';
  return text.str();
}

const Tensor& tokens() {
  static const Tensor all = test::random_ids({2, 7}, 11, 4);
  return all;
}
Tensor loss_of(const GPT& model) { return model.loss(tokens().slice(1, 0, 6), tokens().slice(1, 1, 7)); }
Tensor logits_of(const GPT& model) {
  const NoTape no_tape;
  return model(tokens());
}

// y = x W^T + b + scale (x A_i^T) B_i^T, with one product per adapter.
Tensor by_formula(const Linear& l, const Tensor& x) {
  const Tensor y = linear(x, l.weight, l.bias).clone();
  const Index rank = l.lora->rank();
  Index a = 0, b = 0;
  for (const ColumnRange& c : l.lora->columns) {
    const Tensor A = l.lora->a.slice(0, a, a + rank), B = l.lora->b.slice(0, b, b + c.count);
    Tensor part = y.slice(-1, c.begin, c.begin + c.count);
    part.copy_(part + matmul(matmul(x, A.t()), B.t()) * l.lora->scale());
    a += rank, b += c.count;
  }
  return y;
}

struct Two {
  Linear first, second;
  void members(MemberVisitor& visit) { visit("first", first), visit("second", second); }
};

}  // namespace

TEST_CASE("lora: each linear map of a model has a name, also the maps in a stacked matrix") {
  GPT model = llama_model();
  std::vector<LinearMap> maps = linear_maps(model);
  REQUIRE(maps.size() == 18);
  maps.resize(9);
  CHECK(map_names(maps) == std::vector<std::string>{"blocks.0.attention.qkv", "blocks.0.attention.q",
                                                    "blocks.0.attention.k", "blocks.0.attention.v",
                                                    "blocks.0.attention.proj", "blocks.0.mlp.up", "blocks.0.mlp.gate",
                                                    "blocks.0.mlp.up", "blocks.0.mlp.down"});
  CHECK(maps[0].part == -1);
  CHECK(maps[0].columns.count == 16);
  CHECK(maps[3].part == 2);
  CHECK(maps[3].layer == "blocks.0.attention.qkv");
  CHECK(maps[3].columns.begin == 12);
  CHECK(maps[3].columns.count == 4);
  CHECK(maps[3].adapter == -1);
  CHECK(maps[7].columns.begin == 12);
  Rng rng(1);
  add_lora(model, {.targets = "q,v"}, rng);
  maps = linear_maps(model);
  CHECK(maps[0].adapter == -1);
  CHECK(maps[1].adapter == 0);
  CHECK(maps[2].adapter == -1);
  CHECK(maps[3].adapter == 1);
}

TEST_CASE("lora: maps without a name of heed have the path of their layer and a number") {
  struct Stack {
    Linear maps;
    void members(MemberVisitor& visit) { visit.stacked("maps", maps, {1, 2}); }
  };
  Rng rng(1);
  Stack model{Linear(3, 5, rng)};
  CHECK(map_names(linear_maps(model)) == std::vector<std::string>{"maps", "maps.0", "maps.1", "maps.2"});
}

TEST_CASE("lora: targets are names of heed or PEFT, paths or their ends, or all") {
  const std::string qkv = "attention.qkv.lora.a[6, 8] attention.qkv.lora.b[16, 2] ";
  const std::string rest =
      "attention.proj.lora.a[2, 8] attention.proj.lora.b[8, 2] mlp.up.lora.a[4, 8] mlp.up.lora.b[24, 2] "
      "mlp.down.lora.a[2, 12] mlp.down.lora.b[8, 2] ";
  CHECK(adapters_of("all") == qkv + rest);
  CHECK(adapters_of("all-linear") == qkv + rest);
  CHECK(adapters_of("q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj") == qkv + rest);
  CHECK(adapters_of("all", true) ==
        "attention.qkv.lora.a[2, 8] attention.qkv.lora.b[16, 2] attention.proj.lora.a[2, 8] "
        "attention.proj.lora.b[8, 2] mlp.up.lora.a[2, 8] mlp.up.lora.b[24, 2] mlp.down.lora.a[2, 12] "
        "mlp.down.lora.b[8, 2] ");
  CHECK(adapters_of("qkv") == "attention.qkv.lora.a[2, 8] attention.qkv.lora.b[16, 2] ");
  CHECK(adapters_of("c_attn") == adapters_of("qkv"));
  CHECK(adapters_of("v,q") == "attention.qkv.lora.a[4, 8] attention.qkv.lora.b[12, 2] ");
  CHECK(adapters_of("query,value") == adapters_of("v,q"));
  CHECK(adapters_of("up") == "mlp.up.lora.a[2, 8] mlp.up.lora.b[12, 2] ");  // the map, not the matrix with the gate
  CHECK(adapters_of("mlp.down") == "mlp.down.lora.a[2, 12] mlp.down.lora.b[8, 2] ");
  CHECK(adapters_of("blocks.0.mlp.down") == adapters_of("mlp.down"));
  CHECK(adapters_of("blocks.1.mlp.down").empty());
}

TEST_CASE("lora: all targets are in blocks, if the model has blocks") {
  struct Headed {
    GPT body = llama_model();
    Linear head;
    void members(MemberVisitor& visit) { visit("body", body), visit("head", head); }
  };
  Rng rng(1);
  Headed model{.head = Linear(8, 8, rng)};
  add_lora(model, {}, rng);
  CHECK_FALSE(model.head.lora);
  CHECK(model.body.transformer.blocks[1].mlp.down.lora);
  remove_lora(model);
  add_lora(model, {.targets = "head"}, rng);
  CHECK(model.head.lora);
  Two without{Linear(8, 6, rng), Linear(6, 4, rng)};
  add_lora(without, {}, rng);
  CHECK(trainable_parameters(without).size() == 4);
}

TEST_CASE("lora: refused options and targets") {
  GPT model = llama_model();
  Rng rng(1);
  const auto with = [&](const LoraOptions& o) { return [&, o] { add_lora(model, o, rng); }; };
  test::check_errors({
      {"add_lora: rank is 0; it must be 1 or more", with({.rank = 0})},
      {"add_lora: alpha is 0; it must be above 0", with({.alpha = 0})},
      {"add_lora: alpha is inf; it must be above 0", with({.alpha = test::kInf})},
      {"add_lora: dropout is 1; it must be at least 0 and below 1", with({.dropout = 1})},
      {"add_lora: the target w matches no linear map of the model; targets must be all, or names of linear maps: qkv, "
       "q, k, v, proj, up, gate, down",
       with({.targets = "q,w"})},
      {"the target  matches no linear map", with({.targets = ""})},
      {"the target roj matches no linear map", with({.targets = "roj"})},
      {"add_lora: the targets select blocks.0.attention.qkv and also blocks.0.attention.q in it; they must select one "
       "of them",
       with({.targets = "q,qkv"})},
      {"merge_lora: the model has no adapters; add_lora() makes them", [&] { merge_lora(model); }},
      {"remove_lora: the model has no adapters; add_lora() makes them", [&] { remove_lora(model); }},
  });
  add_lora(model, {.targets = "proj"}, rng);
  CHECK(contains(error_of(with({.targets = "proj"})),
                 "add_lora: blocks.0.attention.proj has adapters already; "
                 "merge_lora() or remove_lora() removes them"));
}

TEST_CASE("lora: initial values are PEFT's, and the model is unchanged at first") {
  GPT model = llama_model();
  const Tensor before = logits_of(model);
  Rng rng(1);
  add_lora(model, {.rank = 64, .alpha = 16, .rslora = true, .targets = "q,k"}, rng);
  CHECK(close(logits_of(model), before));
  const LowRank& lora = *model.transformer.blocks[0].attention.qkv->lora;
  CHECK(lora.scale() == 2);  // 16 / sqrt(64)
  const std::vector<double> a = lora.a.to_vector<double>();
  const double bound = 1 / std::sqrt(8.0), largest = *std::ranges::max_element(a);
  CHECK(largest <= bound);
  CHECK(largest > 0.98 * bound);
  CHECK(std::abs(mean(lora.a).item()) < 0.1 * bound);
  for (const double b : lora.b.to_vector<double>()) CHECK(b == 0);
  remove_lora(model);
  add_lora(model, {.rank = 4, .alpha = 6}, rng);
  CHECK(model.transformer.blocks[0].mlp.down.lora->scale() == 1.5);
}

TEST_CASE("lora: a linear layer with adapters equals the formula, in each type") {
  for (const DType type : {DType::float64, DType::float32, DType::bfloat16}) {
    CAPTURE(type);
    Rng rng(1);
    GPT model = llama_model(type == DType::float64 ? type : DType::float32);
    add_lora(model, {.rank = 3, .alpha = 5, .targets = "q,v,proj"}, rng);
    randomize(model);
    const DType sums = type == DType::float64 ? type : DType::float32;
    const Tensor x = test::normal({2, 3, 8}, 5, sums);
    const MatmulPrecision precision(type == DType::bfloat16 ? type : DType::float32);
    const double error = type == DType::float64 ? 1e-13 : type == DType::float32 ? 1e-5 : 2e-2;
    const MultiHeadAttention& attention = model.transformer.blocks[0].attention;
    for (const Linear* l : {&*attention.qkv, &attention.proj}) {
      const Tensor y = (*l)(x);
      CHECK(y.dtype() == sums);
      CHECK(close(y, by_formula(*l, x), error, error));
    }
    if (type == DType::float64) continue;
    const Tensor narrow = (*attention.qkv)(x, DType::bfloat16);
    CHECK(narrow.dtype() == DType::bfloat16);
    CHECK(same_bits(narrow, (*attention.qkv)(x).to(DType::bfloat16)));
  }
}

TEST_CASE("lora: each kind of feed-forward network with adapters equals its formula") {
  for (const FeedForwardKind kind : {FeedForwardKind::relu, FeedForwardKind::gelu, FeedForwardKind::gelu_tanh,
                                     FeedForwardKind::silu, FeedForwardKind::swiglu, FeedForwardKind::relu_squared}) {
    CAPTURE(static_cast<int>(kind));
    Rng rng(1);
    FeedForward network(4, rng, {.hidden = 6, .activation = kind});
    add_lora(network, {.rank = 2}, rng);
    randomize(network);
    const Tensor x = test::normal({3, 4}, 2, DType::float32), y = network(x);
    merge_lora(network);  // the fused op, with the changed weights
    CHECK(close(y, network(x)));
  }
}

TEST_CASE("lora: gradients of adapters and inputs agree with differences") {
  GPT model = llama_model(DType::float64);
  Rng rng(1);
  add_lora(model, {.rank = 2, .alpha = 3}, rng);
  randomize(model);
  gradcheck([&] { return loss_of(model); }, trainable_parameters(model));
}

TEST_CASE("lora: frozen weights get no gradients, and no memory for them") {
  GPT model = llama_model();
  Rng rng(1);
  add_lora(model, {}, rng);
  Tape tape;
  tape.backward(loss_of(model));
  for (const NamedParameter& p : named_parameters(model)) {
    CAPTURE(p.name);
    const bool trained = contains(p.name, ".lora.");
    CHECK(p.parameter->requires_grad() == trained);
    CHECK(p.parameter->grad().defined() == trained);
    CHECK(p.parameter->storage()->parameter->gradient.defined() == trained);
  }
}

TEST_CASE("lora: backward ends at the lowest adapter") {
  GPT model = llama_model();
  Rng rng(1);
  const auto steps = [&](const std::string& targets) {
    add_lora(model, {.targets = targets}, rng);
    named_parameters(model);
    const Tape tape;
    const Tensor loss = loss_of(model);
    std::ostringstream text;
    tape.print(text);
    remove_lora(model);
    return text.str();
  };
  const std::string all = steps("all"), last = steps("blocks.1.mlp.down");
  CHECK(std::ranges::count(last, '\n') < 8);
  CHECK_FALSE(contains(last, "attention"));
  CHECK_FALSE(contains(last, "silu"));
  CHECK_FALSE(contains(all, "embedding"));
  CHECK(contains(all, "attention"));
}

TEST_CASE("lora: a frozen weight keeps no input for backward") {
  Rng rng(1);
  Two model{Linear(8, 6, rng), Linear(6, 4, rng)};
  const auto kept = [&](const auto& f) {
    Tape tape;
    const Tensor x = tape.watch(test::normal({10, 8}, 1, DType::float32)), y = f(x);
    return tape.saved_bytes();
  };
  const auto both = [&](const Tensor& x) { return model.second(model.first(x)); };
  const auto fused = [&](const Tensor& x) {
    return feed_forward(x, model.first.weight, model.first.bias, model.second.weight, model.second.bias,
                        Activation::gelu);
  };
  const auto again = [&](const Tensor& x) {
    const WeightReuse reuse;
    return model.first(x);
  };
  const auto product = [&](const Tensor& x) { return matmul(x, model.first.weight.t()); };
  const std::size_t x = 10 * 8 * 4, h = 10 * 6 * 4;
  CHECK(kept(both) == x + h);
  CHECK(kept(fused) == x + h);
  CHECK(kept(product) == x);
  const std::size_t packed = kept(again) - x;
  freeze(model);
  CHECK(kept(both) == 0);
  CHECK(kept(fused) == h);  // of the activation
  CHECK(kept(product) == 0);
  CHECK(kept(again) == packed);
  add_lora(model, {.rank = 2}, rng);
  CHECK(kept(both) == x + h + 2 * 10 * 2 * 4);  // each input once, and x A^T
  const MatmulPrecision precision(DType::bfloat16);
  CHECK(kept(both) == (x + h) / 2 + 2 * 10 * 2 * 4);
}

TEST_CASE("lora: the adapters of queries, keys and values keep their input once") {
  GPT model = llama_model();
  Rng rng(1);
  add_lora(model, {.rank = 2, .targets = "q,k,v"}, rng);
  named_parameters(model);
  Tape tape;
  const Tensor loss = loss_of(model);
  const std::vector<std::pair<std::string, std::size_t>> modules = tape.saved_by_module();
  const auto of = [&](const std::string& name) {
    const auto found = std::ranges::find(modules, name, &std::pair<std::string, std::size_t>::first);
    return found == modules.end() ? 0 : found->second;
  };
  // x, x A^T, queries, keys, values, the result of attention, and a number per head and row for its softmax.
  CHECK(of("blocks.0.attention.qkv.lora") == 12 * (8 + 6 + 8 + 4 + 4 + 8 + 2) * 4);
}

TEST_CASE("lora: adapters are added in the memory of the product, unless that is used elsewhere") {
  Rng rng(1);
  Linear layer(8, 6, rng);
  const Tensor x = test::normal({3, 8}, 1, DType::float32);
  const Tensor a = rng.normal({2, 8}), b = rng.normal({6, 2});
  Tensor base = linear(x, layer.weight, layer.bias);
  const Tensor copy = base.clone();
  const Tensor other = add_low_rank(base, x, a, b, {{0, 6}}, 0.5);
  CHECK(same_bits(base, copy));
  CHECK(other.raw() != base.raw());
  const void* memory = base.raw();
  const Tensor y = add_low_rank(std::move(base), x, a, b, {{0, 6}}, 0.5);
  CHECK(y.raw() == memory);
  CHECK(same_bits(y, other));
  Tensor parameter_as_base = Parameter(copy.clone());
  CHECK(add_low_rank(std::move(parameter_as_base), x, a, b, {{0, 6}}, 0.5).storage()->parameter == nullptr);
}

TEST_CASE("lora: merged and removed adapters") {
  for (const DType type : {DType::float64, DType::float32}) {
    CAPTURE(type);
    GPT model = llama_model(type);
    const Tensor before = logits_of(model);
    Rng rng(1);
    add_lora(model, {.rank = 3, .alpha = 5, .rslora = true, .targets = "all"}, rng);
    randomize(model);
    const Tensor adapted = logits_of(model);
    CHECK_FALSE(close(adapted, before, 1e-2, 1e-2));
    merge_lora(model);
    const double error = type == DType::float64 ? 1e-12 : 2e-5;
    CHECK(close(logits_of(model), adapted, error, error));
    for (const NamedParameter& p : named_parameters(model)) {
      CHECK_FALSE(contains(p.name, "lora"));
      CHECK_FALSE(p.parameter->requires_grad());
    }
  }
  GPT model = llama_model();
  const Tensor before = logits_of(model);
  Rng rng(1);
  add_lora(model, {}, rng);
  randomize(model);
  remove_lora(model);
  CHECK(same_bits(logits_of(model), before));
}

TEST_CASE("lora: bfloat16 weights are merged with one rounding") {
  Rng rng(1);
  Two model{Linear(8, 6, rng), Linear(6, 4, rng)};
  to(model, DType::bfloat16);
  add_lora(model, {.rank = 2}, rng);
  randomize(model);
  CHECK(model.first.lora->a.dtype() == DType::float32);
  const LowRank& lora = *model.first.lora;
  const Tensor exact = model.first.weight.to(DType::float32) + matmul(lora.b, lora.a) * lora.scale();
  merge_lora(model);
  CHECK(same_bits(model.first.weight.detach(), exact.detach().to(DType::bfloat16)));
}

TEST_CASE("lora: dropout acts on the input of the adapters, in training only") {
  Rng rng(1);
  Two model{Linear(8, 6, rng), Linear(6, 4, rng)};
  add_lora(model, {.rank = 2, .dropout = 0.5}, rng);
  randomize(model);
  const Tensor x = test::normal({5, 8}, 1, DType::float32);
  const Linear& l = model.first;
  CHECK(close(l(x), by_formula(l, x)));
  const Tape tape;
  manual_seed(3);
  const Tensor y = l(x).detach();
  manual_seed(3);
  const Tensor dropped = dropout(x, 0.5);
  const Tensor change = matmul(matmul(dropped, l.lora->a.t()), l.lora->b.t()) * l.lora->scale();
  CHECK(close(y, (linear(x, l.weight, l.bias) + change).detach()));
}

TEST_CASE("lora: training with dropout, and with bfloat16 products") {
  for (const double dropout : {0.0, 0.25}) {
    const auto results = [&](DType products) {
      GPT model = llama_model();
      Rng rng(1);
      add_lora(model, {.rank = 2, .alpha = 0.5, .dropout = dropout}, rng);
      randomize(model);
      const MatmulPrecision precision(products);
      manual_seed(2);
      Tape tape;
      const Tensor loss = loss_of(model);
      tape.backward(loss);
      std::vector<Tensor> all = {loss.detach()};
      for (const NamedParameter& p : trainable_parameters(model)) all.push_back(p.parameter->grad().clone());
      return all;
    };
    const std::vector<Tensor> exact = results(DType::float32), rounded = results(DType::bfloat16);
    REQUIRE(exact.size() == 17);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const auto length = [](const Tensor& x) { return std::sqrt(sum(square(x)).item()); };
      CAPTURE(i);
      CHECK(length(rounded[i] - exact[i]) < (i == 0 ? 0.01 : 0.1) * length(exact[i]));
    }
  }
}

TEST_CASE("lora: the last product of a gated network computes its input again for backward") {
  Rng rng(1);
  FeedForward network(8, rng, {.hidden = 12, .activation = FeedForwardKind::swiglu, .bias = false});
  add_lora(network, {.rank = 2}, rng);
  randomize(network);
  const auto kept = [&](Tensor* gradient = nullptr) {
    Tape tape;
    const Tensor x = tape.watch(test::normal({10, 8}, 1, DType::float32)), y = network(x);
    const std::size_t bytes = tape.saved_bytes();
    tape.backward(sum(square(y)));
    if (gradient != nullptr) *gradient = network.down.lora->a.grad().clone();
    zero_grad(network);
    return bytes;
  };
  Tensor again;
  CHECK(kept(&again) == 10 * (8 + 4 + 24 + 2) * 4);  // x, x A^T of gate and up, h, x A^T of down
  network.down.lora->dropout = 1e-9;                 // the input is kept
  Tensor stored;
  CHECK(kept(&stored) == 10 * (8 + 4 + 24 + 12 + 2) * 4);
  CHECK(same_bits(again, stored));
  network.down.lora->dropout = 0;
  const MatmulPrecision precision(DType::bfloat16);
  CHECK(kept() == 10 * (8 + 24) * 2 + 10 * (4 + 2) * 4);
}

TEST_CASE("lora: a recomputed layer with adapters has the same gradients") {
  const auto gradients = [](bool again) {
    Rng rng(1);
    Two model{Linear(8, 6, rng), Linear(6, 4, rng)};
    add_lora(model, {.rank = 2, .dropout = 0.25}, rng);
    randomize(model);
    const Tensor x = test::normal({5, 8}, 1, DType::float32);
    const auto f = [&](const std::vector<Tensor>& in) { return model.second(model.first(in[0])); };
    manual_seed(2);
    Tape tape;
    tape.backward(sum(square(again ? recompute(f, {x}) : f({x}))));
    std::vector<Tensor> all;
    for (const NamedParameter& p : trainable_parameters(model)) all.push_back(p.parameter->grad().clone());
    return all;
  };
  const std::vector<Tensor> once = gradients(false), twice = gradients(true);
  REQUIRE(once.size() == 4);
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(same_bits(once[i], twice[i]));
}

TEST_CASE("lora: training changes only the adapters, with the same bits at any number of threads") {
  const auto trained = [](int threads) {
    set_threads(threads);
    GPT model = llama_model();
    Rng rng(1);
    add_lora(model, {.rank = 4, .alpha = 8}, rng);
    AdamW optimizer(trainable_parameters(model), {.lr = 0.05});
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
      Tape tape;
      const Tensor loss = loss_of(model);
      tape.backward(loss);
      losses.push_back(loss.item());
      optimizer.step();
      optimizer.zero_grad();
    }
    set_threads(0);
    CHECK(losses.back() < losses.front() - 0.4);
    GPT original = llama_model();
    const std::vector<NamedParameter> before = named_parameters(original);
    std::size_t frozen = 0;
    std::vector<Tensor> adapters;
    for (const NamedParameter& p : named_parameters(model)) {
      if (p.parameter->requires_grad())
        adapters.push_back(p.parameter->detach().clone());
      else
        CHECK(same_bits(p.parameter->detach(), before.at(frozen++).parameter->detach()));
    }
    CHECK(frozen == before.size());
    return adapters;
  };
  const std::vector<Tensor> one = trained(1);
  for (const int threads : {2, 3}) {
    const std::vector<Tensor> others = trained(threads);
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], others[i]));
  }
}

TEST_CASE("lora: Muon sees the adapters of a stacked matrix as separate maps") {
  GPT model = llama_model();
  Rng rng(1);
  add_lora(model, {.rank = 2, .targets = "q,v,gate"}, rng);
  for (const NamedParameter& p : trainable_parameters(model)) {
    CAPTURE(p.name);
    if (contains(p.name, "qkv.lora.a")) CHECK(p.parts == std::vector<Index>{2, 2});
    if (contains(p.name, "qkv.lora.b")) CHECK(p.parts == std::vector<Index>{8, 4});
    if (contains(p.name, "up.lora")) CHECK(p.parts.empty());
  }
}

TEST_CASE("lora: options as JSON") {
  const LoraOptions o{.rank = 16, .alpha = 32, .rslora = true, .dropout = 0.1, .targets = "q,v", .whole = true};
  const std::string json = to_json(o);
  CHECK(json == R"({"rank":16,"alpha":32.0,"rslora":true,"lora_dropout":0.1,"targets":"q,v","whole":true})");
  const auto same = from_json<LoraOptions>(json);
  CHECK(to_json(same) == json);
  CHECK_FALSE(contains(to_json(LoraOptions()), "whole"));
}
