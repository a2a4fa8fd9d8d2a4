// Runs heed's ops for tests/reference/torch_samples.py: programs of named ops on given tensors, forward and backward, many
// a process. Over 300 lines, as it is a table of all ops. A message, on standard input and output, is the size of a JSON head (8 bytes, little-endian), the head, and
// the values of the tensors that it describes, one after the other.
//
//   in:  {"inputs": [{"dtype", "shape", "grad"}], "steps": [{"op", "in": [values], "args": {...}}], "outputs": [values],
//         "dys": [{"dtype", "shape"} or null], "seed"}
//   out: {"outputs": [{"dtype", "shape"}], "gradients": [{...} or null, one an input]} or {"error"}
//
// Values are numbered: the inputs, then what the steps gave; -1 is an undefined tensor.
#include <cstdio>
#include <functional>
#include <heed/heed.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

using namespace heed;
using nlohmann::json;

namespace {

using List = std::vector<Tensor>;

// Numbers that JSON has no words for come as text.
double number(const json& j) { return j.is_string() ? std::stod(j.get<std::string>()) : j.get<double>(); }
double number(const json& args, const char* name, double otherwise) {
  return args.contains(name) ? number(args[name]) : otherwise;
}

Shape sizes(const json& j) {
  const std::vector<Index> list = j;
  return {list.begin(), list.end()};
}
Axes axes_of(const json& args) { return args.contains("axes") ? Axes(args["axes"].get<std::vector<int>>()) : Axes(); }
bool flag(const json& args, const char* name) { return args.value(name, false); }

DType dtype_named(const std::string& name) {
  for (const DType t : {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::bool8})
    if (name_of(t) == name) return t;
  fail("op_server: the dtype is ", name);
}

heed::Reduction reduction_of(const json& args) {
  const std::string name = args.value("reduction", "mean");
  return name == "none"  ? heed::Reduction::none
         : name == "sum" ? heed::Reduction::sum
         : name == "batchmean" ? heed::Reduction::batch_mean
                               : heed::Reduction::mean;
}

// What lives until backward: layers whose parameters are inputs.
struct Session {
  std::vector<std::shared_ptr<void>> layers;
  std::map<std::size_t, Tensor> parameters;  // by the number of the input
};

using Op = std::function<List(const List&, const json&)>;

using Unary = Tensor (*)(In);
using Binary = Tensor (*)(In, In);
using WithNumber = Tensor (*)(In, double);
using NumberFirst = Tensor (*)(double, In);

Op one(Unary f) {
  return [f](const List& x, const json&) { return List{f(x.at(0))}; };
}
// Two tensors, or one and a number, which comes first or second.
Op two(Binary f, WithNumber with = nullptr, NumberFirst first = nullptr) {
  return [=](const List& x, const json& a) -> List {
    if (x.size() == 2) return {f(x[0], x[1])};
    require(flag(a, "first") ? first != nullptr : with != nullptr, "op_server: no such op of a tensor and a number");
    return {flag(a, "first") ? first(number(a["number"]), x.at(0)) : with(x.at(0), number(a["number"]))};
  };
}
Op reduce(Tensor (*f)(In, const Axes&, bool)) {
  return [f](const List& x, const json& a) { return List{f(x.at(0), axes_of(a), flag(a, "keepdim"))}; };
}
Op along(Tensor (*f)(In, int)) {
  return [f](const List& x, const json& a) { return List{f(x.at(0), a["axis"].get<int>())}; };
}
Op where_to(Tensor (*f)(In, std::optional<int>, bool)) {
  return [f](const List& x, const json& a) {
    return List{f(x.at(0), a.contains("axis") ? std::optional<int>(a["axis"].get<int>()) : std::nullopt,
                  flag(a, "keepdim"))};
  };
}

void add_elementwise(std::map<std::string, Op>& ops) {
  ops["neg"] = one(neg), ops["abs"] = one(heed::abs), ops["sign"] = one(sign), ops["square"] = one(square);
  ops["sqrt"] = one(heed::sqrt), ops["rsqrt"] = one(rsqrt), ops["exp"] = one(heed::exp), ops["expm1"] = one(heed::expm1);
  ops["log"] = one(heed::log), ops["log1p"] = one(heed::log1p), ops["sin"] = one(heed::sin), ops["cos"] = one(heed::cos);
  ops["erf"] = one(heed::erf), ops["sigmoid"] = one(sigmoid), ops["tanh"] = one(heed::tanh), ops["relu"] = one(relu);
  ops["silu"] = one(silu), ops["isnan"] = one(heed::isnan), ops["isfinite"] = one(heed::isfinite);
  ops["logical_not"] = one(logical_not);
  ops["add"] = two(add, add), ops["sub"] = two(sub, sub, sub), ops["mul"] = two(mul, mul);
  ops["div"] = two(heed::div, heed::div, heed::div), ops["pow"] = two(heed::pow, heed::pow, heed::pow);
  ops["maximum"] = two(maximum, maximum), ops["minimum"] = two(minimum, minimum);
  ops["eq"] = two(eq, eq), ops["ne"] = two(ne, ne), ops["lt"] = two(lt, lt), ops["le"] = two(le, le);
  ops["gt"] = two(gt, gt), ops["ge"] = two(ge, ge);
  ops["logical_and"] = two(logical_and), ops["logical_or"] = two(logical_or), ops["logical_xor"] = two(logical_xor);
  ops["leaky_relu"] = [](const List& x, const json& a) { return List{leaky_relu(x.at(0), number(a["slope"]))}; };
  ops["elu"] = [](const List& x, const json& a) { return List{elu(x.at(0), number(a["alpha"]))}; };
  ops["gelu"] = [](const List& x, const json& a) {
    return List{gelu(x.at(0), flag(a, "tanh") ? Gelu::tanh : Gelu::none)};
  };
  ops["softplus"] = [](const List& x, const json& a) { return List{softplus(x.at(0), number(a["beta"]))}; };
  ops["clamp"] = [](const List& x, const json& a) {
    if (x.size() == 3) return List{clamp(x[0], x[1], x[2])};
    return List{clamp(x.at(0), number(a, "low", -detail::kInfinity), number(a, "high", detail::kInfinity))};
  };
  ops["where"] = [](const List& x, const json& a) {
    if (x.size() == 3) return List{where(x[0], x[1], x[2])};
    const double n = number(a["number"]);
    return List{flag(a, "first") ? where(x.at(0), n, x.at(1)) : where(x.at(0), x.at(1), n)};
  };
  ops["masked_fill"] = [](const List& x, const json& a) {
    return List{masked_fill(x.at(0), x.at(1), number(a["number"]))};
  };
  ops["dropout"] = [](const List& x, const json& a) { return List{dropout(x.at(0), number(a["p"]))}; };
}

void add_reductions(std::map<std::string, Op>& ops) {
  ops["sum"] = reduce(sum), ops["mean"] = reduce(mean), ops["logsumexp"] = reduce(logsumexp), ops["prod"] = reduce(prod);
  ops["max"] = reduce(heed::max), ops["min"] = reduce(heed::min), ops["any"] = reduce(any), ops["all"] = reduce(all);
  ops["argmax"] = where_to(argmax), ops["argmin"] = where_to(argmin);
  ops["softmax"] = along(softmax), ops["log_softmax"] = along(log_softmax), ops["cumsum"] = along(cumsum);
  const auto spread = [](Tensor (*f)(In, const Axes&, VarianceOptions)) -> Op {
    return [f](const List& x, const json& a) {
      return List{f(x.at(0), axes_of(a), {.correction = number(a, "correction", 1), .keepdim = flag(a, "keepdim")})};
    };
  };
  ops["variance"] = spread(variance), ops["stddev"] = spread(stddev);
  ops["norm"] = [](const List& x, const json& a) {
    return List{norm(x.at(0), axes_of(a), {.p = number(a, "p", 2), .keepdim = flag(a, "keepdim")})};
  };
  ops["top_k"] = [](const List& x, const json& a) {
    const TopK t = top_k(x.at(0), a["k"].get<Index>(), a["axis"].get<int>(), a.value("largest", true));
    return List{t.values, t.indices};
  };
}

void add_shapes(std::map<std::string, Op>& ops) {
  ops["concatenate"] = [](const List& x, const json& a) { return List{concatenate(x, a["axis"].get<int>())}; };
  ops["stack"] = [](const List& x, const json& a) { return List{stack(x, a["axis"].get<int>())}; };
  ops["split"] = [](const List& x, const json& a) {
    if (a.contains("size")) return split(x.at(0), a["size"].get<Index>(), a["axis"].get<int>());
    return split(x.at(0), a["sizes"].get<std::vector<Index>>(), a["axis"].get<int>());
  };
  ops["tril"] = [](const List& x, const json& a) { return List{tril(x.at(0), a["diagonal"].get<Index>())}; };
  ops["triu"] = [](const List& x, const json& a) { return List{triu(x.at(0), a["diagonal"].get<Index>())}; };
  ops["repeat"] = [](const List& x, const json& a) { return List{repeat(x.at(0), sizes(a["sizes"]))}; };
  ops["flip"] = [](const List& x, const json& a) { return List{flip(x.at(0), axes_of(a))}; };
  ops["transpose"] = [](const List& x, const json& a) { return List{x.at(0).transpose(a["a"], a["b"])}; };
  ops["permute"] = [](const List& x, const json& a) { return List{x.at(0).permute(a["axes"].get<std::vector<int>>())}; };
  ops["unsqueeze"] = [](const List& x, const json& a) { return List{x.at(0).unsqueeze(a["axis"])}; };
  ops["squeeze"] = [](const List& x, const json& a) { return List{x.at(0).squeeze(a["axis"])}; };
  ops["expand"] = [](const List& x, const json& a) { return List{x.at(0).expand(sizes(a["sizes"]))}; };
  ops["view"] = [](const List& x, const json& a) { return List{x.at(0).view(sizes(a["sizes"]))}; };
  ops["reshape"] = [](const List& x, const json& a) { return List{x.at(0).reshape(sizes(a["sizes"]))}; };
  ops["flatten"] = [](const List& x, const json& a) { return List{x.at(0).flatten(a["from"], a["to"])}; };
  ops["slice"] = [](const List& x, const json& a) {
    return List{x.at(0).slice(a["axis"], a["begin"], a["end"], a.value("step", Index{1}))};
  };
  ops["select"] = [](const List& x, const json& a) { return List{x.at(0).select(a["axis"], a["index"])}; };
  ops["clone"] = [](const List& x, const json&) { return List{x.at(0).clone()}; };
  ops["contiguous"] = [](const List& x, const json&) { return List{x.at(0).contiguous()}; };
  ops["to"] = [](const List& x, const json& a) { return List{x.at(0).to(dtype_named(a["dtype"]))}; };
  ops["gather"] = [](const List& x, const json& a) { return List{gather(x.at(0), a["axis"], x.at(1))}; };
  ops["scatter_add"] = [](const List& x, const json& a) {
    return List{scatter_add(x.at(0), a["axis"], x.at(1), x.at(2))};
  };
  ops["index_select"] = [](const List& x, const json& a) { return List{index_select(x.at(0), a["axis"], x.at(1))}; };
  ops["one_hot"] = [](const List& x, const json& a) {
    return List{one_hot(x.at(0), a["classes"].get<Index>(), dtype_named(a["dtype"]))};
  };
  ops["embedding"] = [](const List& x, const json& a) {
    return List{embedding(x.at(0), x.at(1),
                          a.contains("padding") ? std::optional<Index>(a["padding"].get<Index>()) : std::nullopt)};
  };
  ops["full"] = [](const List&, const json& a) {
    return List{Tensor::full(sizes(a["sizes"]), number(a["number"]), dtype_named(a["dtype"]))};
  };
}

void add_products_and_losses(std::map<std::string, Op>& ops) {
  ops["matmul"] = two(matmul);
  ops["linear"] = [](const List& x, const json&) { return List{linear(x.at(0), x.at(1), x.at(2))}; };
  ops["layer_norm"] = [](const List& x, const json& a) {
    return List{layer_norm(x.at(0), x.at(1), x.at(2), number(a["eps"]))};
  };
  ops["rms_norm"] = [](const List& x, const json& a) { return List{rms_norm(x.at(0), x.at(1), number(a["eps"]))}; };
  ops["normalize"] = one(normalize);
  ops["attention"] = [](const List& x, const json& a) {
    AttentionOptions o;
    o.causal = flag(a, "causal");
    if (a.contains("scale")) o.scale = number(a["scale"]);
    o.mask = x.at(3), o.bias = x.at(4), o.dropout = number(a, "dropout", 0);
    return List{attention(x[0], x[1], x[2], o)};
  };
  ops["mse_loss"] = [](const List& x, const json& a) { return List{mse_loss(x.at(0), x.at(1), reduction_of(a))}; };
  ops["l1_loss"] = [](const List& x, const json& a) { return List{l1_loss(x.at(0), x.at(1), reduction_of(a))}; };
  ops["huber_loss"] = [](const List& x, const json& a) {
    return List{huber_loss(x.at(0), x.at(1), {.delta = number(a["delta"]), .reduction = reduction_of(a)})};
  };
  ops["binary_cross_entropy_with_logits"] = [](const List& x, const json& a) {
    return List{binary_cross_entropy_with_logits(
        x.at(0), x.at(1), {.weight = x.at(2), .pos_weight = x.at(3), .reduction = reduction_of(a)})};
  };
  ops["kl_div"] = [](const List& x, const json& a) {
    return List{kl_div(x.at(0), x.at(1), {.log_target = flag(a, "log_target"), .reduction = reduction_of(a)})};
  };
  const auto cross_entropy_options = [](const json& a, const Tensor& weight) {
    return CrossEntropyOptions{.ignore_index = a.value("ignore_index", Index{-100}),
                               .label_smoothing = number(a, "label_smoothing", 0),
                               .weight = weight,
                               .reduction = reduction_of(a)};
  };
  ops["cross_entropy"] = [=](const List& x, const json& a) {
    return List{cross_entropy(x.at(0), x.at(1), cross_entropy_options(a, x.at(2)))};
  };
  ops["linear_cross_entropy"] = [=](const List& x, const json& a) {
    return List{linear_cross_entropy(x.at(0), x.at(1), x.at(2), x.at(3), cross_entropy_options(a, x.at(4)))};
  };
}

// A layer whose parameters are inputs, by name: args["parameters"] = {name: number of the input}.
template <class M>
M& with_parameters(Session& s, std::shared_ptr<M> model, const json& args, const List& values) {
  s.layers.push_back(model);
  to(*model, values.empty() ? DType::float32 : values[0].dtype());
  json numbers = args["parameters"];
  for (const NamedParameter& p : named_parameters(*model)) {
    require(numbers.contains(p.name), "op_server: the parameter ", p.name, " was not given");
    const auto i = numbers[p.name].get<std::size_t>();
    p.parameter->copy_(values.at(i).detach());
    s.parameters[i] = *p.parameter;
    numbers.erase(p.name);
  }
  require(numbers.empty(), "op_server: the layer has no parameter ", numbers.empty() ? "" : numbers.begin().key());
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
  auto layer = std::make_shared<MultiHeadAttention>(
      MultiHeadAttentionOptions{.width = a["width"], .heads = a["heads"], .memory_width = a.value("memory_width", Index{0}),
                                .value_width = a.value("value_width", Index{0}), .bias = flag(a, "bias"),
                                .dropout = number(a, "dropout", 0)},
      rng);
  const MultiHeadAttention& l = with_parameters(s, layer, a, values);
  const AttentionCall c = call_of(a, x, 3);
  if (!x[1].defined()) return {l(x[0], c)};
  return {x[2].defined() ? l(x[0], x[1], x[2], c) : l(x[0], x[1], c)};
}

// Inputs: x, memory (or undefined), then mask, bias and key mask of each.
List transformer(Session& s, const List& x, const json& a, const List& values) {
  Rng rng(1);
  const std::string activation = a["activation"];
  auto model = std::make_shared<Transformer>(
      TransformerOptions{.width = a["width"],
                         .heads = a["heads"],
                         .hidden = a["hidden"],
                         .layers = a["layers"],
                         .memory_width = a.value("memory_width", Index{0}),
                         .dropout = number(a, "dropout", 0),
                         .activation = activation == "gelu" ? FeedForwardKind::gelu : FeedForwardKind::relu,
                         .norm_first = flag(a, "norm_first"),
                         .bias = flag(a, "bias")},
      rng);
  if (!flag(a, "last_norm")) model->norm.reset();
  else if (!model->norm) model->norm.emplace(NormKind::layer, a["width"].get<Index>(), flag(a, "bias"));
  const Transformer& m = with_parameters(s, model, a, values);
  if (!x.at(1).defined()) return {m(x[0], call_of(a, x, 2))};
  return {m(x[0], x[1], call_of(a, x, 2), call_of(json::object(), x, 5))};
}

// Inputs: the parameter, then its gradient of each step.
List optimize(const List& x, const json& a) {
  Parameter p(x.at(0).clone());
  const ParameterGroups groups = std::vector<NamedParameter>{{"p", &p}};
  const std::string name = a["kind"];
  const double lr = number(a["lr"]), decay = number(a["weight_decay"]), eps = number(a, "eps", 0);
  const bool up = flag(a, "maximize"), amsgrad = flag(a, "amsgrad");
  const std::array<double, 2> betas = {number(a, "beta1", 0), number(a, "beta2", 0)};
  std::unique_ptr<Optimizer> o;
  if (name == "SGD")
    o = std::make_unique<SGD>(groups, SGDOptions{.lr = lr, .momentum = number(a["momentum"]), .dampening = number(a["dampening"]),
                                                 .weight_decay = decay, .nesterov = flag(a, "nesterov"), .maximize = up});
  else if (name == "Adam")
    o = std::make_unique<Adam>(groups, AdamOptions{lr, betas, eps, decay, amsgrad, up});
  else if (name == "AdamW")
    o = std::make_unique<AdamW>(groups, AdamWOptions{lr, betas, eps, decay, amsgrad, up});
  else if (name == "RMSprop")
    o = std::make_unique<RMSprop>(groups, RMSpropOptions{.lr = lr, .alpha = number(a["alpha"]), .eps = eps, .weight_decay = decay,
                                                         .momentum = number(a["momentum"]), .centered = flag(a, "centered"),
                                                         .maximize = up});
  else
    o = std::make_unique<Adagrad>(groups, AdagradOptions{.lr = lr, .lr_decay = number(a["lr_decay"]), .weight_decay = decay,
                                                         .initial_accumulator_value = number(a["initial_accumulator_value"]),
                                                         .eps = eps, .maximize = up});
  for (std::size_t i = 1; i < x.size(); ++i) {
    o->zero_grad();
    Tape tape;
    tape.backward(mul(p, 1), x[i]);
    o->step();
  }
  return {p.detach().clone()};
}

std::map<std::string, Op> all_ops() {
  std::map<std::string, Op> ops;
  add_elementwise(ops);
  add_reductions(ops);
  add_shapes(ops);
  add_products_and_losses(ops);
  ops["optimizer"] = optimize;
  return ops;
}

json described(const Tensor& x) {
  return {{"dtype", std::string(name_of(x.dtype()))}, {"shape", std::vector<Index>(x.shape().begin(), x.shape().end())}};
}

Tensor read_tensor(const json& head) {
  Tensor x = Tensor::empty(sizes(head["shape"]), dtype_named(head["dtype"]));
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  require(bytes == 0 || std::fread(x.raw(), 1, bytes, stdin) == bytes, "op_server: the input ended within a tensor");
  return x;
}

// What a message asks for: the results, then the gradients of the inputs that want one (undefined for others).
List answer(const json& head, const List& inputs, const List& dys) {
  static const std::map<std::string, Op> ops = all_ops();
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
    else
      results = ops.at(name)(x, args);
    values.insert(values.end(), results.begin(), results.end());
  }
  List answers;
  for (const json& i : head["outputs"]) answers.push_back(value(i));
  List wanted;
  for (std::size_t i = 0; i < dys.size(); ++i)
    if (dys[i].defined()) wanted.push_back(sum(answers.at(i) * dys[i].to(answers[i].dtype())));
  if (wanted.empty()) return answers;
  Tensor total = wanted[0];
  for (std::size_t i = 1; i < wanted.size(); ++i) total = total + wanted[i];
  if (dys.size() == 1 && total.node() != 0)
    tape.backward(answers[0], dys[0]);
  else if (total.node() != 0)
    tape.backward(total);
  for (std::size_t i = 0; i < count; ++i) {
    const auto parameter = session.parameters.find(i);
    const bool wants = head["inputs"][i].value("grad", false);
    if (parameter != session.parameters.end())
      answers.push_back(parameter->second.storage()->parameter->has_gradient ? parameter->second.storage()->parameter->gradient
                                                                             : Tensor());
    else
      answers.push_back(wants ? tape.grad(given[i]) : Tensor());
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
        reply = {{"error", e.what()}};
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
