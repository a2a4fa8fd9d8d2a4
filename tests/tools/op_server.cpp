// Runs heed's ops for tests/reference/torch_samples.py: programs of named ops on given tensors, forward and backward,
// many per process. A message on standard input or output is the size of a JSON head (8 bytes, little-endian), the
// head, and the values of the tensors in the head, one after another.
//
//   in:  {"inputs": [{"dtype", "shape", "grad"}], "steps": [{"op", "in": [values], "args": {...}}],
//         "outputs": [values], "dys": [{"dtype", "shape"} or null], "seed"}
//   out: {"outputs": [{"dtype", "shape"}], "gradients": [{...} or null, one per input]}, or {"error", "heed": true for
//         an Error of heed}
//
// Values have numbers: first the inputs, then the results of the steps. -1 is an undefined tensor.
#include "op_server.hpp"

#include <cstdio>

using namespace heed;
using namespace op_server;

namespace {

// Objects that backward needs: layers whose parameters are inputs.
struct Session {
  std::vector<std::shared_ptr<void>> layers;
  std::map<std::size_t, Tensor> parameters;  // by the number of the input
};

// Sets the parameters of a layer to inputs, by name: args["parameters"] = {name: number of the input}.
template <class M>
M& with_parameters(Session& s, std::shared_ptr<M> model, const json& args, const List& values) {
  s.layers.push_back(model);
  to(*model, values.empty() ? DType::float32 : values[0].dtype());
  json numbers = args["parameters"];
  for (const NamedParameter& p : named_parameters(*model)) {
    if (!numbers.contains(p.name)) throw Misuse("the parameter " + p.name + " is missing");
    const auto i = numbers[p.name].get<std::size_t>();
    p.parameter->copy_(values.at(i).detach());
    s.parameters[i] = *p.parameter;
    numbers.erase(p.name);
  }
  if (!numbers.empty()) throw Misuse("the layer has no parameter " + numbers.begin().key());
  return *model;
}

AttentionCall call_of(const json& a, const List& x, std::size_t first) {
  AttentionCall c;
  c.causal = flag(a, "causal");
  if (first >= x.size()) return c;
  c.mask = x.at(first), c.bias = x.at(first + 1), c.key_mask = x.at(first + 2);
  return c;
}

// Inputs: queries, keys, values (undefined: none), mask, bias, key mask.
List multi_head(Session& s, const List& x, const json& a, const List& values) {
  Rng rng(1);
  auto layer =
      std::make_shared<MultiHeadAttention>(MultiHeadAttentionOptions{.width = a["width"],
                                                                     .heads = a["heads"],
                                                                     .memory_width = a.value("memory_width", Index{0}),
                                                                     .value_width = a.value("value_width", Index{0}),
                                                                     .bias = flag(a, "bias"),
                                                                     .dropout = number(a, "dropout", 0)},
                                           rng);
  const MultiHeadAttention& l = with_parameters(s, layer, a, values);
  const AttentionCall c = call_of(a, x, 3);
  if (!x[1].defined()) return {l(x[0], c)};
  return {x[2].defined() ? l(x[0], x[1], x[2], c) : l(x[0], x[1], c)};
}

// Inputs: x, memory (or undefined), then mask, bias and key mask for each of the two.
List transformer(Session& s, const List& x, const json& a, const List& values) {
  Rng rng(1);
  const std::string activation = a["activation"];
  auto model = std::make_shared<Transformer>(
      TransformerOptions{.layers = a["layers"],
                         .attention = {.width = a["width"],
                                       .heads = a["heads"],
                                       .memory_width = a.value("memory_width", Index{0}),
                                       .bias = flag(a, "bias")},
                         .hidden = a["hidden"],
                         .dropout = number(a, "dropout", 0),
                         .activation = activation == "gelu" ? FeedForwardKind::gelu : FeedForwardKind::relu,
                         .norm_first = flag(a, "norm_first")},
      rng);
  if (!flag(a, "last_norm"))
    model->norm.reset();
  else if (!model->norm)
    model->norm.emplace(NormLayerOptions{.bias = flag(a, "bias")}, a["width"].get<Index>());
  const Transformer& m = with_parameters(s, model, a, values);
  if (!x.at(1).defined()) return {m(x[0], call_of(a, x, 2))};
  return {m(x[0], x[1], call_of(a, x, 2), call_of(json::object(), x, 5))};
}

// A layer with the sizes in the message and random weights.
List embedding_layer(const List& x, const json& a) {
  Rng rng(1);
  return {Embedding(a["count"], a["width"], rng)(x.at(0))};
}

// Inputs: the parameter, then its gradient per step. "twice": the parameter is listed twice, in one group or in two.
List optimize(const List& x, const json& a) {
  Parameter p(x.at(0).clone());
  ParameterGroup once, again;
  once.parameters = {{"p", &p}}, again.parameters = {{"q", &p}};
  const std::string twice = a.value("twice", "");
  const ParameterGroups groups = twice == "in one"   ? ParameterGroups({{"p", &p}, {"q", &p}})
                                 : twice == "in two" ? ParameterGroups({once, again})
                                                     : ParameterGroups(once);
  const std::string name = a["kind"];
  const double lr = number(a["lr"]), decay = number(a["weight_decay"]), eps = number(a, "eps", 0);
  const bool up = flag(a, "maximize"), amsgrad = flag(a, "amsgrad");
  const std::array<double, 2> betas = {number(a, "beta1", 0), number(a, "beta2", 0)};
  std::unique_ptr<Optimizer> o;
  if (name == "SGD")
    o = std::make_unique<SGD>(groups, SGDOptions{.lr = lr,
                                                 .momentum = number(a["momentum"]),
                                                 .dampening = number(a["dampening"]),
                                                 .weight_decay = decay,
                                                 .nesterov = flag(a, "nesterov"),
                                                 .maximize = up});
  else if (name == "Adam")
    o = std::make_unique<Adam>(groups, AdamOptions{lr, betas, eps, decay, amsgrad, up});
  else if (name == "AdamW")
    o = std::make_unique<AdamW>(groups, AdamWOptions{lr, betas, eps, decay, amsgrad, up});
  else if (name == "RMSprop")
    o = std::make_unique<RMSprop>(groups, RMSpropOptions{.lr = lr,
                                                         .alpha = number(a["alpha"]),
                                                         .eps = eps,
                                                         .weight_decay = decay,
                                                         .momentum = number(a["momentum"]),
                                                         .centered = flag(a, "centered"),
                                                         .maximize = up});
  else if (name == "Adafactor")
    o = std::make_unique<Adafactor>(
        groups, AdafactorOptions{.lr = lr,
                                 .beta2_decay = number(a["beta2_decay"]),
                                 .eps1 = a.contains("eps1") ? std::optional(number(a["eps1"])) : std::nullopt,
                                 .eps2 = number(a["eps2"]),
                                 .d = number(a["d"]),
                                 .weight_decay = decay,
                                 .maximize = up});
  else
    o = std::make_unique<Adagrad>(groups,
                                  AdagradOptions{.lr = lr,
                                                 .lr_decay = number(a["lr_decay"]),
                                                 .weight_decay = decay,
                                                 .initial_accumulator_value = number(a["initial_accumulator_value"]),
                                                 .eps = eps,
                                                 .maximize = up});
  for (std::size_t i = 1; i < x.size(); ++i) {
    o->zero_grad();
    Tape tape;
    tape.backward(mul(p, 1), x[i]);
    o->step();
  }
  return {p.detach().clone()};
}

json described(const Tensor& x) {
  return {{"dtype", std::string(name_of(x.dtype()))},
          {"shape", std::vector<Index>(x.shape().begin(), x.shape().end())}};
}

Tensor read_tensor(const json& head) {
  Tensor x = Tensor::empty(sizes(head["shape"]), dtype_named(head["dtype"]));
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  if (bytes != 0 && std::fread(x.raw(), 1, bytes, stdin) != bytes) throw Misuse("the input ends within a tensor");
  return x;
}

// The answer to a message: the results, then the gradients of inputs with "grad" (undefined for others).
List answer(const json& head, const List& inputs, const List& dys) {
  if (head.contains("seed")) manual_seed(head["seed"].get<std::uint64_t>());
  Session session;
  Tape tape;
  List values, given;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    values.push_back(head["inputs"][i].value("grad", false) ? tape.watch(inputs[i]) : inputs[i]);
  const std::size_t count = values.size();
  given = values;
  const auto value = [&](const json& i) { return i.get<int>() < 0 ? Tensor() : values.at(i.get<std::size_t>()); };
  for (const json& step : head["steps"]) {
    List x;
    for (const json& i : step["in"]) x.push_back(value(i));
    const std::string name = step["op"];
    const json args = step.value("args", json::object());
    List results;
    if (name == "MultiHeadAttention")
      results = multi_head(session, x, args, inputs);
    else if (name == "Transformer")
      results = transformer(session, x, args, inputs);
    else if (name == "optimizer")
      results = optimize(x, args);
    else if (name == "Embedding")
      results = embedding_layer(x, args);
    else if (const auto op = ops().find(name); op != ops().end())
      results = op->second(x, args);
    else
      throw Misuse("unknown op " + name);
    values.insert(values.end(), results.begin(), results.end());
  }
  List answers;
  for (const json& i : head["outputs"]) answers.push_back(value(i));
  List terms;
  for (std::size_t i = 0; i < dys.size(); ++i)
    if (dys[i].defined()) terms.push_back(sum(answers.at(i) * dys[i].to(answers[i].dtype())));
  if (terms.empty()) return answers;
  Tensor total = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) total = total + terms[i];
  if (dys.size() == 1 && total.node() != 0)
    tape.backward(answers[0], dys[0]);
  else if (total.node() != 0)
    tape.backward(total);
  for (std::size_t i = 0; i < count; ++i) {
    const auto parameter = session.parameters.find(i);
    const bool needs_gradient = head["inputs"][i].value("grad", false);
    if (parameter != session.parameters.end())
      answers.push_back(parameter->second.storage()->parameter->has_gradient
                            ? parameter->second.storage()->parameter->gradient
                            : Tensor());
    else
      answers.push_back(needs_gradient ? tape.grad(given[i]) : Tensor());
  }
  return answers;
}

void put(const json& head, const List& tensors) {
  const std::string text = head.dump();
  const std::uint64_t size = text.size();
  std::fwrite(&size, 1, sizeof size, stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
  for (const Tensor& x : tensors)
    if (x.defined()) std::fwrite(x.raw(), 1, static_cast<std::size_t>(x.numel()) * size_of(x.dtype()), stdout);
  std::fflush(stdout);
}

}  // namespace

int main() {
  std::uint64_t size = 0;
  while (std::fread(&size, 1, sizeof size, stdin) == sizeof size) {
    std::string text(size, '\0');
    if (std::fread(text.data(), 1, size, stdin) != size) return 1;
    try {
      const json head = json::parse(text);
      List inputs, dys, dense;
      for (const json& i : head["inputs"]) inputs.push_back(read_tensor(i));
      for (const json& i : head["dys"]) dys.push_back(i.is_null() ? Tensor() : read_tensor(i));
      json reply;
      try {
        const List answers = answer(head, inputs, dys);
        const std::size_t outputs = head["outputs"].size();
        reply["outputs"] = json::array(), reply["gradients"] = json::array();
        for (std::size_t i = 0; i < answers.size(); ++i) {
          dense.push_back(answers[i].defined() ? answers[i].dense() : Tensor());
          reply[i < outputs ? "outputs" : "gradients"].push_back(dense[i].defined() ? described(dense[i]) : json());
        }
      } catch (const std::exception& e) {
        reply = {{"error", e.what()}, {"heed", dynamic_cast<const Error*>(&e) != nullptr}};
        dense.clear();
      }
      put(reply, dense);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "op_server: %s\n", e.what());
      return 1;
    }
  }
  return 0;
}
