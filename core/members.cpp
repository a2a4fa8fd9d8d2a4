// The walk over a model's members, and what is made of the list.
#include <heed/core/members.hpp>
#include <set>

namespace heed {

std::size_t MemberVisitor::enter(std::string_view name) {
  const std::size_t above = path_.size();
  if (above > 0) path_ += '.';
  path_ += name;
  return above;
}

void MemberVisitor::leave(std::size_t above) { path_.resize(above); }

std::string MemberVisitor::number(std::size_t i) { return std::to_string(i); }

void MemberVisitor::operator()(std::string_view name, Parameter& member) {
  if (!member.defined()) return;
  const std::size_t above = enter(name);
  found_.push_back({path_, &member, nullptr});
  leave(above);
}

void MemberVisitor::buffer(std::string_view name, Tensor& member) {
  const std::size_t above = enter(name);
  found_.push_back({path_, nullptr, &member});
  leave(above);
}

namespace detail {

std::vector<NamedParameter> named_parameters_among(const std::vector<Member>& members) {
  std::vector<NamedParameter> list;
  std::set<const Storage*> seen;
  for (const Member& m : members) {
    if (m.parameter == nullptr || !seen.insert(m.parameter->storage()).second) continue;
    m.parameter->set_path(m.path);
    list.push_back({m.path, m.parameter});
  }
  return list;
}

std::vector<NamedBuffer> named_buffers_among(const std::vector<Member>& members) {
  std::vector<NamedBuffer> list;
  for (const Member& m : members)
    if (m.buffer != nullptr) list.push_back({m.path, m.buffer});
  return list;
}

void freeze(const std::vector<NamedParameter>& parameters, bool frozen) {
  for (const NamedParameter& p : parameters) p.parameter->requires_grad_(!frozen);
}

void zero_grad(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& p : parameters) p.parameter->zero_grad();
}

Index parameter_count(const std::vector<NamedParameter>& parameters) {
  Index n = 0;
  for (const NamedParameter& p : parameters) n += p.parameter->numel();
  return n;
}

std::vector<Parameter*> pointers(const std::vector<NamedParameter>& parameters) {
  std::vector<Parameter*> list;
  for (const NamedParameter& p : parameters) list.push_back(p.parameter);
  return list;
}

}  // namespace detail
}  // namespace heed
