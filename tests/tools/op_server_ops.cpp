// The ops of op_server: elementwise ops, reductions, shapes, products and losses.
#include "op_server.hpp"

namespace op_server {

using namespace heed;

double number(const json& j) { return j.is_string() ? std::stod(j.get<std::string>()) : j.get<double>(); }
double number(const json& args, const char* name, double otherwise) {
  return args.contains(name) ? number(args[name]) : otherwise;
}

bool flag(const json& args, const char* name) { return args.value(name, false); }

Shape sizes(const json& j) {
  const std::vector<Index> list = j;
  return {list.begin(), list.end()};
}

DType dtype_named(const std::string& name) {
  for (const DType t : {DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::bool8})
    if (name_of(t) == name) return t;
  throw Misuse("unknown dtype " + name);
}

namespace {

Axes axes_of(const json& args) { return args.contains("axes") ? Axes(args["axes"].get<std::vector<int>>()) : Axes(); }

heed::Reduction reduction_of(const json& args) {
  static const std::map<std::string, heed::Reduction> names = {{"none", heed::Reduction::none},
                                                               {"mean", heed::Reduction::mean},
                                                               {"sum", heed::Reduction::sum},
                                                               {"batchmean", heed::Reduction::batch_mean}};
  const auto found = names.find(args.value("reduction", "mean"));
  if (found == names.end()) throw Misuse("unknown reduction " + args["reduction"].get<std::string>());
  return found->second;
}

using Unary = Tensor (*)(In);
using Binary = Tensor (*)(In, In);
using WithNumber = Tensor (*)(In, double);
using NumberFirst = Tensor (*)(double, In);

Op one(Unary f) {
  return [f](const List& x, const json&) { return List{f(x.at(0))}; };
}
// An op of two tensors, or of a tensor and a number, which is the first or second argument.
Op two(Binary f, WithNumber with = nullptr, NumberFirst first = nullptr) {
  return [=](const List& x, const json& a) -> List {
    if (x.size() == 2) return {f(x[0], x[1])};
    if ((flag(a, "first") ? first == nullptr : with == nullptr))
      throw Misuse("there is no such op of a tensor and a number");
    return {flag(a, "first") ? first(number(a["number"]), x.at(0)) : with(x.at(0), number(a["number"]))};
  };
}
Op reduce(Tensor (*f)(In, const Axes&, bool)) {
  return [f](const List& x, const json& a) { return List{f(x.at(0), axes_of(a), flag(a, "keepdim"))}; };
}
Op along(Tensor (*f)(In, Exactly<int>)) {
  return [f](const List& x, const json& a) { return List{f(x.at(0), a["axis"].get<int>())}; };
}
Op where_to(Tensor (*f)(In, std::optional<Exactly<int>>, bool)) {
  return [f](const List& x, const json& a) {
    return List{
        f(x.at(0), a.contains("axis") ? std::optional<int>(a["axis"].get<int>()) : std::nullopt, flag(a, "keepdim"))};
  };
}

void add_elementwise(std::map<std::string, Op>& ops) {
  ops["neg"] = one(neg), ops["abs"] = one(heed::abs), ops["sign"] = one(sign), ops["square"] = one(square);
  ops["sqrt"] = one(heed::sqrt), ops["rsqrt"] = one(rsqrt), ops["exp"] = one(heed::exp),
  ops["expm1"] = one(heed::expm1);
  ops["log"] = one(heed::log), ops["log1p"] = one(heed::log1p), ops["sin"] = one(heed::sin),
  ops["cos"] = one(heed::cos);
  ops["erf"] = one(heed::erf), ops["sigmoid"] = one(sigmoid), ops["tanh"] = one(heed::tanh), ops["relu"] = one(relu);
  ops["silu"] = one(silu), ops["softsign"] = one(softsign), ops["isnan"] = one(heed::isnan),
  ops["isfinite"] = one(heed::isfinite);
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
  ops["sum"] = reduce(sum), ops["mean"] = reduce(mean), ops["logsumexp"] = reduce(logsumexp),
  ops["prod"] = reduce(prod);
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
  ops["permute"] = [](const List& x, const json& a) {
    return List{x.at(0).permute(a["axes"].get<std::vector<int>>())};
  };
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
    AttentionCall o;
    o.causal = flag(a, "causal");
    std::optional<double> scale;
    if (a.contains("scale")) scale = number(a["scale"]);
    o.mask = x.at(3), o.bias = x.at(4), o.dropout = number(a, "dropout", 0);
    return List{attention(x[0], x[1], x[2], o, scale)};
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

}  // namespace

const std::map<std::string, Op>& ops() {
  static const std::map<std::string, Op> all = [] {
    std::map<std::string, Op> made;
    add_elementwise(made);
    add_reductions(made);
    add_shapes(made);
    add_products_and_losses(made);
    return made;
  }();
  return all;
}

}  // namespace op_server
