#include <algorithm>
#include <heed/layers/model.hpp>
#include <iomanip>
#include <sstream>

namespace heed {
namespace detail {

void copy_parameters(const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to) {
  require(from.size() == to.size(), "copy_values: one model has ", from.size(), " parameters and the other ", to.size(),
          "; they must be the same");
  for (std::size_t i = 0; i < from.size(); ++i) {
    require(from[i].name == to[i].name && from[i].parameter->shape() == to[i].parameter->shape(),
            "copy_values: ", from[i].name, " is ", describe(*from[i].parameter), " and in the other model ", to[i].name,
            " is ", describe(*to[i].parameter), "; they must be the same");
    to[i].parameter->copy_(*from[i].parameter);
    to[i].parameter->requires_grad_(from[i].parameter->requires_grad());
  }
}

void copy_buffers(const std::vector<NamedBuffer>& from, const std::vector<NamedBuffer>& to) {
  require(from.size() == to.size(), "copy_values: one model has ", from.size(), " buffers and the other ", to.size(),
          "; they must be the same");
  for (std::size_t i = 0; i < from.size(); ++i)
    *to[i].buffer = from[i].buffer->defined() ? from[i].buffer->detach().clone() : Tensor();
}

// 1234567 as 1,234,567.
static std::string grouped(Index n) {
  std::string digits = std::to_string(n);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string summary_text(const std::vector<NamedParameter>& parameters, std::size_t activation_bytes) {
  std::size_t name_width = 9, shape_width = 5;
  Index total = 0, frozen = 0;
  for (const NamedParameter& p : parameters) {
    name_width = std::max(name_width, p.name.size());
    shape_width = std::max(shape_width, to_string(p.parameter->shape()).size());
    total += p.parameter->numel();
    if (!p.parameter->requires_grad()) frozen += p.parameter->numel();
  }
  std::ostringstream out;
  const auto row = [&](const std::string& name, const std::string& shape, const std::string& count) {
    out << std::left << std::setw(static_cast<int>(name_width)) << name << "  "
        << std::setw(static_cast<int>(shape_width)) << shape << "  " << std::right << std::setw(12) << count << "\n";
  };
  row("parameter", "shape", "elements");
  for (const NamedParameter& p : parameters)
    row(p.name + (p.parameter->requires_grad() ? "" : " (frozen)"), to_string(p.parameter->shape()),
        grouped(p.parameter->numel()));
  row("total", "", grouped(total));
  if (frozen > 0) row("of these frozen", "", grouped(frozen));
  if (activation_bytes > 0)
    out << "a training step keeps " << grouped(static_cast<Index>(activation_bytes))
        << " bytes of activations for backward\n";
  return out.str();
}

}  // namespace detail
}  // namespace heed
