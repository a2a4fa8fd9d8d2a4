// Muon against PyTorch's, with and without bfloat16 rounding, and against plain loops.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>
#include <map>

#include "tests/core/levels.hpp"
#include "tests/optim/optim_testing.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;
using nlohmann::json;

namespace {

// The options of tests/reference/optim_torch.py for this case.
MuonOptions options_of(const std::string& name) {
  if (name == "usual") return {.lr = 0.02, .weight_decay = 0};
  if (name == "heavy ball") return {.lr = 0.02, .weight_decay = 0.3, .momentum = 0.8, .nesterov = false};
  if (name == "match_rms_adamw") return {.lr = 0.02, .adjust_lr_fn = AdjustLr::match_rms_adamw};
  if (name == "coefficients") return {.lr = 0.05, .ns_coefficients = {2.0, -1.5, 0.5}, .eps = 4, .ns_steps = 3};
  return {};
}

// All values of the three matrices after each stored step.
template <class T>
std::vector<std::vector<double>> trajectory(const std::string& name) {
  const json &data = reference()["muon"], &shapes = data["shapes"];
  std::vector<Parameter> parameters;
  std::vector<NamedParameter> named;
  for (std::size_t k = 0; k < shapes.size(); ++k)
    parameters.emplace_back(
        Tensor::from(data["start"][k].get<std::vector<T>>(), {shapes[k][0].get<Index>(), shapes[k][1].get<Index>()}));
  for (std::size_t k = 0; k < parameters.size(); ++k) named.push_back({"p" + std::to_string(k), &parameters[k]});
  Muon optimizer(named, options_of(name));
  std::vector<std::vector<double>> kept;
  for (std::size_t t = 0; t < data["noise"].size(); ++t) {
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      std::vector<T> g = data["noise"][t][k].get<std::vector<T>>();
      const std::vector<T> x = parameters[k].to_vector<T>(), goal = data["target"][k].get<std::vector<T>>();
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = T(0.75) * (x[i] - goal[i]) + g[i];
      set_gradient(parameters[k], Tensor::from(g, parameters[k].shape()));
    }
    optimizer.step();
    if (kept.size() == reference()["kept"].size() || reference()["kept"][kept.size()].get<std::size_t>() != t + 1)
      continue;
    kept.emplace_back();
    for (const Parameter& p : parameters)
      for (const double x : p.to_vector<double>()) kept.back().push_back(x);
  }
  return kept;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b.at(i)));
  return largest;
}

// Calls f(name, PyTorch's values with bfloat16, PyTorch's values without) for each case.
template <class F>
void for_each_case(F&& f) {
  using Values = std::vector<std::vector<double>>;
  for (const auto& entry : reference()["muon"]["cases"].items()) {
    CAPTURE(entry.key());
    f(entry.key(), entry.value()["bfloat16"].get<Values>(), entry.value()["float64"].get<Values>());
  }
}

// A matrix as a vector of rows, for plain loops.
using Rows = std::vector<std::vector<double>>;
Rows product(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Rows transposed(const Rows& a) {
  Rows t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
double frobenius(const Rows& a) {
  double sum = 0;
  for (const auto& row : a)
    for (const double x : row) sum += x * x;
  return std::sqrt(sum);
}

// x after the iteration by the formula of the header, always multiplied from the left.
Rows iterated(Rows x, const MuonOptions& o) {
  const double norm = std::max(frobenius(x), o.eps);
  for (auto& row : x)
    for (double& v : row) v /= norm;
  for (int step = 0; step < o.ns_steps; ++step) {
    const Rows s = product(x, transposed(x));
    Rows of_x = product(s, s);
    for (std::size_t i = 0; i < s.size(); ++i)
      for (std::size_t j = 0; j < s.size(); ++j)
        of_x[i][j] =
            o.ns_coefficients[0] * (i == j) + o.ns_coefficients[1] * s[i][j] + o.ns_coefficients[2] * of_x[i][j];
    x = product(of_x, x);
  }
  return x;
}

template <class T>
Rows rows_of(const std::vector<T>& x, Index columns) {
  Rows rows(x.size() / static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < x.size(); ++i)
    rows[i / static_cast<std::size_t>(columns)].push_back(static_cast<double>(x[i]));
  return rows;
}

constexpr unsigned kMuonSteps = 2;

std::vector<float> gradient_of(Index rows, Index columns, unsigned t) {
  return spread_values<float>(rows * columns, 7 + t);
}

// The change of a matrix in the last step, by plain loops.
Rows movement(Index rows, Index columns, const MuonOptions& o) {
  Rows mean(static_cast<std::size_t>(rows), std::vector<double>(static_cast<std::size_t>(columns))), u = mean;
  for (unsigned t = 0; t < kMuonSteps; ++t) {
    const Rows by_rows = rows_of(gradient_of(rows, columns, t), columns);
    for (std::size_t i = 0; i < u.size(); ++i)
      for (std::size_t j = 0; j < u[0].size(); ++j) {
        const double gradient = 0.5 * by_rows[i][j];
        mean[i][j] += (1 - o.momentum) * (gradient - mean[i][j]);
        u[i][j] = o.nesterov ? gradient + o.momentum * (mean[i][j] - gradient) : mean[i][j];
      }
  }
  Rows x = iterated(u, o);
  const double a = static_cast<double>(rows), b = static_cast<double>(columns);
  const double far =
      o.lr * (o.adjust_lr_fn == AdjustLr::original ? std::sqrt(std::max(1.0, a / b)) : 0.2 * std::sqrt(std::max(a, b)));
  for (auto& row : x)
    for (double& v : row) v *= -far;
  return x;
}

// The norm of the difference between Muon's change and `expected`, divided by the norm of `expected`.
template <class T>
double share_off(const Rows& expected, const MuonOptions& o) {
  const Index rows = static_cast<Index>(expected.size()), columns = static_cast<Index>(expected[0].size());
  Parameter p(Tensor::zeros({rows, columns}, dtype_of<T>));
  Muon optimizer({{"p", &p}}, o);
  for (unsigned t = 0; t < kMuonSteps; ++t) {
    set_gradient(p, Tensor::from(gradient_of(rows, columns, t), {rows, columns}).to(dtype_of<T>));
    p.fill_(0);
    optimizer.step(0.5);
  }
  Rows off = rows_of(p.to_vector<T>(), columns);
  for (std::size_t i = 0; i < off.size(); ++i)
    for (std::size_t j = 0; j < off[0].size(); ++j) off[i][j] -= expected[i][j];
  return frobenius(off) / frobenius(expected);
}

// One parameter with two names, of which the second belongs to an embedding.
struct Tied {
  Linear out;
  Embedding in;
  explicit Tied(Rng& rng) : out(4, 9, rng, {.bias = false}), in(9, 4, rng) { tie(in.weight, out.weight); }
  void members(auto&& visit) { visit("out", out), visit("in", in); }
};

}  // namespace

TEST_CASE("muon: 24 steps in float64 equal PyTorch's code without bfloat16 rounding, every option") {
  on_each_level([] {
    for_each_case([](const std::string& name, const auto&, const auto& exact) {
      const auto x = trajectory<double>(name);
      REQUIRE(x.size() == exact.size());
      for (std::size_t k = 0; k < x.size(); ++k) CHECK(distance(x[k], exact[k]) < 1e-12);
    });
  });
}

// On levels with bfloat16 products, Muon rounds the values that PyTorch rounds, so errors have the same magnitude.
TEST_CASE("muon: 24 steps in float32 have errors of the magnitude of PyTorch's own rounding") {
  on_each_level([] {
    for_each_case([](const std::string& name, const auto& torch, const auto& exact) {
      const auto x = trajectory<float>(name);
      REQUIRE(x.size() == exact.size());
      double off = 0, of_torch = 0;
      for (std::size_t k = 0; k < x.size(); ++k) {
        off = std::max(off, distance(x[k], exact[k]));
        of_torch = std::max(of_torch, distance(torch[k], exact[k]));
      }
      CHECK(off < 3 * of_torch);
      CHECK(off > 1e-2 * of_torch);  // products read bfloat16
    });
  });
}

TEST_CASE("muon: a step equals plain loops, at the edges of vectors and of blocks, wide and tall") {
  const MuonOptions usual{.lr = 0.5, .weight_decay = 0};
  const MuonOptions other{.lr = 0.5,
                          .weight_decay = 0,
                          .momentum = 0.7,
                          .nesterov = false,
                          .ns_coefficients = {2, -1.5, 0.5},
                          .ns_steps = 4,
                          .adjust_lr_fn = AdjustLr::match_rms_adamw};
  const std::vector<std::pair<Index, Index>> shapes = {{1, 1},     {1, 5},     {7, 1},    {3, 4},    {8, 8},
                                                       {15, 16},   {17, 9},    {33, 31},  {127, 65}, {64, 128},
                                                       {129, 128}, {131, 140}, {150, 133}};
  int number = 0;
  for (const auto& shape : shapes)
    for (const MuonOptions& o : {usual, other}) {
      if (!is_taken(number++, 5)) continue;
      const Index rows = shape.first, columns = shape.second;
      CAPTURE(rows);
      CAPTURE(columns);
      const Rows expected = movement(rows, columns, o);
      on_each_level([&] {
        CHECK(share_off<double>(expected, o) < 1e-12);
        CHECK(share_off<float>(expected, o) < 0.03);
      });
    }
}

TEST_CASE("muon: iterations that converge give an orthogonal matrix, and a zero matrix does not change") {
  Parameter p(Tensor::zeros({20, 12}, DType::float64)), still(Tensor::ones({3, 3})), empty(Tensor::ones({0, 2}));
  Muon optimizer({{"p", &p}, {"still", &still}, {"empty", &empty}},
                 {.lr = 1, .weight_decay = 0, .ns_coefficients = {1.5, -0.5, 0}, .ns_steps = 60});
  set_gradient(p, Tensor::from(spread_values<double>(240, 3), {20, 12}));
  set_gradient(still, Tensor::zeros({3, 3}));
  set_gradient(empty, Tensor::zeros({0, 2}));
  {
    Tape tape;
    optimizer.step();
  }
  const Tensor gram = matmul(p.t(), p) / (20.0 / 12);
  double off = 0;
  for (Index i = 0; i < 12; ++i)
    for (Index j = 0; j < 12; ++j) off = std::max(off, std::abs(gram.at({i, j}) - (i == j)));
  CHECK(off < 1e-12);
  CHECK(same_bits(still, Tensor::ones({3, 3})));
}

TEST_CASE("muon: vectors, tables and elementwise groups take AdamW's steps") {
  const auto values = [](Index n) { return Tensor::from(spread_values<float>(n, 9), {n}); };
  Parameter a(values(12).view({3, 4})), b(values(12).view({3, 4})), c(values(24).view({2, 3, 4})),
      d(values(24).view({2, 3, 4})), e(values(5)), f(values(5)), m(values(6).view({2, 3}));
  const std::array<double, 2> betas = {0.8, 0.9};
  Muon muon(
      std::vector<ParameterGroup>{{.parameters = {{"a", &a}}, .lr_scale = 0.5, .weight_decay = {}, .elementwise = true},
                                  {.parameters = {{"c", &c}, {"m", &m}, {"e", &e}}, .weight_decay = 0}},
      {.lr = 0.1, .weight_decay = 0.3, .betas = betas, .adamw_eps = 1e-3});
  AdamW adamw(std::vector<ParameterGroup>{{.parameters = {{"b", &b}}, .lr_scale = 0.5, .weight_decay = {}},
                                          {.parameters = {{"d", &d}, {"f", &f}}, .weight_decay = 0}},
              {.lr = 0.1, .betas = betas, .eps = 1e-3, .weight_decay = 0.3});
  for (unsigned t = 0; t < 3; ++t) {
    for (Parameter* p : {&a, &b, &c, &d, &e, &f, &m})
      set_gradient(*p, Tensor::from(spread_values<float>(p->numel(), 20 + t), p->shape()));
    muon.step(0.5);
    adamw.step(0.5);
  }
  CHECK(same_bits(a, b));
  CHECK(same_bits(c, d));
  CHECK(same_bits(e, f));
  std::vector<std::string> names;
  for (const NamedTensor& part : muon.state())
    if (contains(part.name, ".")) names.push_back(part.name);
  CHECK(names == std::vector<std::string>{"exp_avg.a", "exp_avg_sq.a", "exp_avg.c", "exp_avg_sq.c", "momentum_buffer.m",
                                          "exp_avg.e", "exp_avg_sq.e"});
}

TEST_CASE("muon: a matrix of several maps, one below the other, steps as each of them does alone") {
  const std::vector<Index> parts = {5, 0, 2, 3};
  Parameter all(Tensor::from(spread_values<float>(40, 1), {10, 4}));
  std::vector<Parameter> alone;
  std::vector<NamedParameter> named;
  Index begin = 0;
  for (const Index rows : parts) alone.emplace_back(all.slice(0, begin, begin + rows).clone()), begin += rows;
  for (std::size_t i = 0; i < alone.size(); ++i) named.push_back({std::to_string(i), &alone[i]});
  const MuonOptions o{.lr = 0.1, .adjust_lr_fn = AdjustLr::match_rms_adamw};
  Muon stacked(std::vector<NamedParameter>{{.name = "all", .parameter = &all, .parts = parts}}, o), apart(named, o);
  for (unsigned t = 0; t < 3; ++t) {
    const Tensor g = Tensor::from(spread_values<float>(40, 2 + t), {10, 4});
    set_gradient(all, g);
    begin = 0;
    for (Parameter& p : alone) set_gradient(p, g.slice(0, begin, begin + p.dim(0)).clone()), begin += p.dim(0);
    stacked.step(0.5);
    apart.step(0.5);
  }
  begin = 0;
  for (const Parameter& p : alone) {
    CHECK(same_bits(all.slice(0, begin, begin + p.dim(0)).clone(), p));
    begin += p.dim(0);
  }
}

RELEASE_TEST_CASE(
    "muon: the same bits at any number of threads, for matrices of every size, and after a resume in between") {
  const ThreadScope restore;
  const auto trained = [](int count, bool resumes) {
    set_threads(count);
    Rng rng(3);
    std::vector<Parameter> all;
    std::vector<NamedParameter> named;
    for (const Shape& shape : {Shape{64, 96}, Shape{7}, Shape{640, 700}, Shape{130, 40}, Shape{3, 2}, Shape{64, 96}})
      all.emplace_back(rng.normal(shape));
    for (std::size_t i = 0; i < all.size(); ++i) named.push_back({std::to_string(i), &all[i]});
    auto optimizer = std::make_unique<Muon>(named, MuonOptions{.lr = 0.1});
    for (int t = 0; t < 3; ++t) {
      for (Parameter& p : all) set_gradient(p, rng.normal(p.shape()));
      optimizer->clipped_step(1);
      if (!resumes || t != 1) continue;
      std::vector<NamedTensor> state;
      for (const NamedTensor& part : optimizer->state()) state.push_back({part.name, part.tensor.clone()});
      optimizer = std::make_unique<Muon>(named, MuonOptions{.lr = 0.1});
      optimizer->load_state(state);
    }
    std::vector<float> bits;
    for (const Parameter& p : all)
      for (const float v : p.to_vector<float>()) bits.push_back(v);
    return bits;
  };
  const std::vector<float> one = trained(1, false);
  CHECK(trained(2, false) == one);
  CHECK(trained(5, true) == one);
}

TEST_CASE("muon_groups: embeddings, output weights and vectors are apart from the matrices") {
  Rng rng(1);
  GPT model({.vocabulary = 11,
             .context = 8,
             .blocks = {.layers = 1, .attention = {.width = 8, .heads = 2, .qk_norm = true}},
             .tied = false},
            rng);
  const auto names = [](const ParameterGroup& group) {
    std::vector<std::string> list;
    for (const NamedParameter& p : group.parameters) list.push_back(p.name);
    return list;
  };
  const std::string block = "blocks.0.";
  const auto groups = muon_groups(model, {.weight_decay = 0.1, .lr_scale = 0.5});
  REQUIRE(groups.size() == 3);
  CHECK(names(groups[0]) == std::vector<std::string>{block + "attention.qkv.weight", block + "attention.proj.weight",
                                                     block + "mlp.up.weight", block + "mlp.down.weight"});
  CHECK(names(groups[1]) == std::vector<std::string>{"tokens.weight", "positions.weight", "output"});
  for (const NamedParameter& p : groups[0].parameters)
    CHECK(p.parts == (contains(p.name, "qkv") ? std::vector<Index>{8, 8, 8} : std::vector<Index>()));
  CHECK(groups[2].parameters.size() == named_parameters(model).size() - 7);
  for (const NamedParameter& p : groups[2].parameters) CHECK(p.parameter->rank() == 1);
  CHECK(groups[0].weight_decay == 0.1);
  CHECK(groups[1].weight_decay == 0.1);
  CHECK(groups[2].weight_decay == 0.0);
  CHECK(groups[0].lr_scale == 1);
  CHECK((groups[1].lr_scale == 0.5 && groups[2].lr_scale == 0.5));
  CHECK((!groups[0].elementwise && groups[1].elementwise && groups[2].elementwise));

  MultiHeadAttention forgets({.width = 8, .heads = 2, .kv_heads = 1}, rng, ForgettingAttention());
  CHECK(named_parameters(forgets)[0].parts == std::vector<Index>{8, 4, 4, 1});  // last: an input of the mechanism
  MultiHeadAttention cross({.width = 8, .heads = 2, .kv_heads = 1, .memory_width = 6}, rng);
  for (const NamedParameter& p : named_parameters(cross))
    if (p.name != "kv.weight")
      CHECK(p.parts.empty());
    else
      CHECK(p.parts == std::vector<Index>{4, 4});
  FeedForward gated(8, rng, {.hidden = 5, .activation = FeedForwardKind::swiglu});
  CHECK(named_parameters(gated)[0].parts == std::vector<Index>{5, 5});

  Sequential plain(Linear(4, 3, rng), Linear(3, 2, rng));
  CHECK(names(muon_groups(plain)[0]) == std::vector<std::string>{"0.weight", "1.weight"});
  CHECK(muon_groups(plain).size() == 2);  // no empty group
  CHECK(names(muon_groups(plain, {.others = {"1"}})[1]) == std::vector<std::string>{"1.weight"});
  CHECK(contains(error_of([&] { muon_groups(plain, {.others = {"head"}}); }), "part head has no parameters"));
  CHECK(contains(error_of([&] { muon_groups(plain, {.weight_decay = -1}); }), "weight_decay is -1"));

  Tied tied(rng);
  CHECK(muon_groups(tied)[0].elementwise);
}

TEST_CASE("muon: invalid options are refused") {
  Parameter p(Tensor::ones({2, 2}));
  const std::vector<NamedParameter> named = {{"p", &p}};
  const auto refuses = [&](MuonOptions o, const char* message) {
    CHECK(contains(error_of([&] { Muon(named, o); }), message));
  };
  refuses({.momentum = -0.1}, "Muon: momentum is -0.1; it must be from 0 to 1");
  refuses({.ns_coefficients = {1, NAN, 0}}, "Muon: one of ns_coefficients is nan; it must be finite");
  refuses({.eps = -1}, "Muon: eps is -1; it must be 0 or more");
  refuses({.ns_steps = 100}, "Muon: ns_steps is 100; it must be 0 or more and below 100");
  refuses({.ns_steps = -1}, "Muon: ns_steps is -1");
  refuses({.betas = {0.9, 1}}, "Muon: betas[1] is 1; it must be at least 0 and below 1");
  refuses({.adamw_eps = -1}, "Muon: adamw_eps is -1; it must be 0 or more");
}
