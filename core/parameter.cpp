// Parameters: tensors with a gradient. They can be moved, but not copied.
#include <heed/core/members.hpp>

namespace heed {

using detail::ParameterInfo;

Parameter::Parameter(Tensor value, Where made) {
  require(value.defined(), "Parameter: the value is undefined; it must have values");
  require(is_floating(value.dtype()) || is_quantized(value.dtype()), "Parameter: the value is ", value,
          "; it must be float32, float64, bfloat16 or quantized");
  const bool own = value.is_contiguous() && value.offset() == 0 && value.storage()->references == 1 &&
                   value.storage()->keeper == nullptr && value.storage()->parameter == nullptr;
  Tensor& self = *this;
  if (own) {
    self = std::move(value);
  } else {
    const NoTape guard;
    self = value.clone();
  }
  self = self.with_node(0);  // a parameter is a leaf, also if a tape computed the value
  storage()->parameter = new ParameterInfo;
  storage()->parameter->shape = shape();
  storage()->parameter->requires_grad = !is_quantized(dtype());
  storage()->parameter->made = made;
}

void Parameter::count_owners(int change) noexcept {
  ParameterInfo* p = defined() ? storage()->parameter : nullptr;
  if (p != nullptr) p->owners.fetch_add(change, std::memory_order_relaxed);
}

Parameter& Parameter::operator=(Parameter&& other) noexcept {
  if (this == &other) return *this;
  count_owners(-1);
  Tensor::operator=(std::move(other));
  return *this;
}

static ParameterInfo& info(const Parameter& p) {
  require(p.defined(), "Parameter: it is undefined (moved from, or default-constructed)");
  return *p.storage()->parameter;
}

Tensor Parameter::grad() const {
  const ParameterInfo& i = info(*this);
  return i.has_gradient ? i.gradient : Tensor();
}

void Parameter::zero_grad() { info(*this).has_gradient = false; }
bool Parameter::requires_grad() const { return info(*this).requires_grad; }
void Parameter::requires_grad_(bool on) {
  ParameterInfo& i = info(*this);
  require(!on || !is_quantized(dtype()), "requires_grad_: the parameter", i.path.empty() ? "" : " ", i.path, " is ",
          dtype(), ", which is not trained; convert the model to float32 first: to(model, DType::float32)");
  i.requires_grad = on;
}
const std::string& Parameter::path() const { return info(*this).path; }
void Parameter::set_path(std::string path) { info(*this).path = std::move(path); }

void tie(Parameter& a, Parameter& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype(), "tie: a is ", static_cast<const Tensor&>(a), " and b is ",
          static_cast<const Tensor&>(b), "; shapes and dtypes must be the same");
  b.count_owners(-1);
  static_cast<Tensor&>(b) = static_cast<const Tensor&>(a);
  b.count_owners(1);
}

}  // namespace heed
