// Functions for whole models: copies, conversion of dtypes, prediction of activations, and the table of a summary.
#include <algorithm>
#include <array>
#include <heed/autograd/tape.hpp>
#include <heed/layers/model.hpp>
#include <iomanip>
#include <map>

namespace heed {
namespace detail {

std::optional<DType> common_dtype(const std::vector<NamedParameter>& parameters) {
  if (parameters.empty()) return {};
  const DType first = parameters.front().parameter->dtype();
  for (const NamedParameter& p : parameters)
    if (p.parameter->dtype() != first) return {};
  return first;
}

void take_dtypes(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to) {
  for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const Parameter &given = *from[i].parameter, &own = *to[i].parameter;
    if (from[i].name != to[i].name || given.dtype() == own.dtype() || !to[i].others.empty()) continue;
    *to[i].parameter = Parameter(Tensor::empty(own.shape(), given.dtype()));
    to[i].parameter->set_path(to[i].name);
  }
}

void copy_parameters(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to) {
  require(from.size() == to.size(), "copy_values: one model has ", from.size(), " parameters and the other ", to.size(),
          "; they must be the same");
  for (std::size_t i = 0; i < from.size(); ++i) {
    require(from[i].name == to[i].name && from[i].parameter->shape() == to[i].parameter->shape() &&
                from[i].parameter->dtype() == to[i].parameter->dtype(),
            "copy_values: ", from[i].name, " is ", describe(*from[i].parameter), " and in the other model ", to[i].name,
            " is ", describe(*to[i].parameter), "; they must be the same");
    to[i].parameter->copy_(*from[i].parameter);
    if (!is_quantized(to[i].parameter->dtype())) to[i].parameter->requires_grad_(from[i].parameter->requires_grad());
  }
}

// Whether the parameter is the weight of a linear layer or the table of an embedding, by the names that heed's layers
// use. linear() and embedding() read bfloat16 and quantized types.
static bool is_weight(const NamedParameter& p) {
  const std::string_view path = p.name, name = path.substr(path.rfind('.') + 1);
  return p.parameter->rank() == 2 && (name == "weight" || name == "output") && !path.ends_with("relative.weight") &&
         path.find("mechanism.") == std::string_view::npos;
}

DType converted_type(const NamedParameter& p, DType type) {
  if (type != DType::bfloat16 && type != DType::q8_0) return type;
  if (!is_weight(p)) return DType::float32;
  // Rows of q8_0 are whole blocks. Vectors of positions and of token types are few, and added to others.
  const bool added = p.name.ends_with("positions.weight") || p.name.ends_with("types.weight");
  return type == DType::q8_0 && (added || p.parameter->dim(-1) % kBlockNumbers != 0) ? DType::float32 : type;
}

void convert(const Members& members, DType type) {
  require(is_floating(type) || type == DType::q8_0, "to: the type is ", type,
          "; it must be float32, float64, bfloat16 or q8_0");
  std::map<const Storage*, Parameter*> done;
  std::vector<Parameter> kept;  // old ones: keeps their addresses unused while they are keys
  const DType others = type == DType::float64 ? type : DType::float32;
  for (const NamedBuffer& b : members.buffers)
    if (b.buffer->defined() && is_floating(b.buffer->dtype())) *b.buffer = b.buffer->to(others).detach();
  for (const NamedParameter& m : members.parameters) {
    const DType dtype = converted_type(m, type);
    Parameter& p = *m.parameter;
    if (const auto found = done.find(p.storage()); found != done.end()) {
      p = Parameter(Tensor::empty(p.shape(), found->second->dtype()));
      tie(*found->second, p);
      continue;
    }
    const Storage* storage = p.storage();
    Parameter converted(p.detach().to(dtype).clone());
    converted.set_path(p.path());
    if (!is_quantized(dtype)) converted.requires_grad_(p.requires_grad());
    kept.push_back(std::move(p));
    p = std::move(converted);
    done[storage] = &p;
    done[p.storage()] = &p;
  }
}

void copy_buffers(const std::vector<NamedBuffer>& from, const std::vector<NamedBuffer>& to) {
  require(from.size() == to.size(), "copy_values: one model has ", from.size(), " buffers and the other ", to.size(),
          "; they must be the same");
  for (std::size_t i = 0; i < from.size(); ++i)
    *to[i].buffer = from[i].buffer->defined() ? from[i].buffer->detach().clone() : Tensor();
}

// 1234567 -> 1,234,567
static std::string grouped(Index n) {
  std::string digits = std::to_string(n);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), 1, ',');
  return digits;
}

std::string summary_text(const std::vector<NamedParameter>& parameters, const ActivationBytes& activations) {
  std::vector<std::array<std::string, 4>> rows = {{"parameter", "shape", "elements", "kept for backward"}};
  std::map<std::string, std::size_t> kept(activations.modules.begin(), activations.modules.end());
  Index total = 0, frozen = 0;
  for (const NamedParameter& p : parameters) {
    const auto place = kept.find(p.name.substr(0, p.name.rfind('.')));  // its module; the whole name without a dot
    const DType dtype = p.parameter->dtype();
    const std::string note = is_quantized(dtype) ? " (frozen, " + std::string(name_of(dtype)) + ")" : " (frozen)";
    rows.push_back({p.name + (p.parameter->requires_grad() ? "" : note), to_string(p.parameter->shape()),
                    grouped(p.parameter->numel()),
                    place == kept.end() ? "" : grouped(static_cast<Index>(place->second))});
    if (place != kept.end()) kept.erase(place);
    total += p.parameter->numel();
    if (!p.parameter->requires_grad()) frozen += p.parameter->numel();
  }
  for (const auto& [module, bytes] : kept)  // ops before the first parameter, or of unnamed parameters
    if (bytes > 0) rows.push_back({"(others)", "", "", grouped(static_cast<Index>(bytes))});
  rows.push_back({"total", "", grouped(total), grouped(static_cast<Index>(activations.total))});
  if (frozen > 0) rows.push_back({"of which frozen", "", grouped(frozen), ""});

  const std::size_t columns = activations.modules.empty() ? 3 : 4;
  std::array<std::size_t, 4> widths{};
  for (const auto& row : rows)
    for (std::size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
  PlainText out;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < columns; ++c)
      out << (c == 0 ? "" : "  ") << (c < 2 ? std::left : std::right) << std::setw(static_cast<int>(widths[c]))
          << row[c];
    out << "\n";
  }
  if (columns == 4) out << "kept for backward: bytes per training step, without parameters\n";
  return out.str();
}

}  // namespace detail

static ActivationBytes activations_of(const std::function<Tensor(Index)>& forward, Index rows) {
  struct Restore {
    Rng rng = default_rng();
    ~Restore() { default_rng() = rng; }
  } const restore;
  Tape tape;
  const Tensor y = forward(rows);
  return {tape.saved_bytes(), tape.saved_by_module()};
}

ActivationBytes predict_activations(const std::function<Tensor(Index)>& forward, Index rows) {
  require(rows >= 1, "predict_activations: the batch has ", rows, " rows; it must have 1 or more");
  ActivationBytes one = activations_of(forward, 1);
  if (rows == 1) return one;
  const ActivationBytes two = activations_of(forward, 2);
  require(one.modules.size() == two.modules.size(),
          "predict_activations: forward uses different modules for two rows than for one; it must use the same");
  const auto more = [rows](std::size_t a, std::size_t b) { return a + (b - a) * static_cast<std::size_t>(rows - 1); };
  one.total = more(one.total, two.total);
  for (std::size_t i = 0; i < one.modules.size(); ++i)
    one.modules[i].second = more(one.modules[i].second, two.modules[i].second);
  return one;
}

}  // namespace heed
