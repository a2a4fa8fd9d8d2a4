// Visits the members of a model, and derives parameters, buffers and counts from the list of members.
#include <heed/core/members.hpp>
#include <numeric>

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

void MemberVisitor::table(std::string_view name, Parameter& member) {
  (*this)(name, member);
  if (member.defined()) found_.back().table = true;
}

// Sets `parts` of the matrices from found_[first] on.
void MemberVisitor::mark_parts(std::size_t first, const std::vector<Index>& rows) {
  for (std::size_t i = first; i < found_.size(); ++i) {
    const Parameter* p = found_[i].parameter;
    if (p == nullptr || p->rank() != 2) continue;
    std::vector<Index> parts = rows;
    const Index rest = p->dim(0) - std::accumulate(rows.begin(), rows.end(), Index{0});
    if (rest > 0) parts.push_back(rest);
    if (parts.size() > 1) found_[i].parts = std::move(parts);
  }
}

void MemberVisitor::buffer(std::string_view name, Tensor& member) {
  const std::size_t above = enter(name);
  found_.push_back({path_, nullptr, &member});
  leave(above);
}

namespace detail {

std::vector<NamedParameter> named_parameters_among(const std::vector<Member>& members) {
  std::vector<NamedParameter> list;
  std::map<const Storage*, std::size_t> seen;
  for (const Member& m : members) {
    if (m.parameter == nullptr) continue;
    const auto [at, is_new] = seen.insert({m.parameter->storage(), list.size()});
    if (!is_new) {
      list[at->second].table |= m.table;  // tied: a table if any of its names is one
      continue;
    }
    m.parameter->set_path(m.path);
    list.push_back({m.path, m.parameter, m.table, m.parts});
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
