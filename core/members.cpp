// Visits the members of a model, and merges tied parameters.
#include <heed/core/members.hpp>
#include <numeric>

namespace heed {

void MemberVisitor::operator()(std::string_view name, Parameter& member) {
  if (member.defined()) inside(name, [&] { found_.parameters.push_back({path_, &member}); });
}

void MemberVisitor::table(std::string_view name, Parameter& member) {
  (*this)(name, member);
  if (member.defined()) found_.parameters.back().table = true;
}

// Sets `parts` of the matrices from found_.parameters[first] on.
void MemberVisitor::mark_parts(std::size_t first, const std::vector<Index>& rows) {
  for (std::size_t i = first; i < found_.parameters.size(); ++i) {
    NamedParameter& p = found_.parameters[i];
    if (p.parameter->rank() != 2) continue;
    std::vector<Index> parts = rows;
    const Index rest = p.parameter->dim(0) - std::accumulate(rows.begin(), rows.end(), Index{0});
    if (rest > 0) parts.push_back(rest);
    if (parts.size() > 1) p.parts = std::move(parts);
  }
}

void MemberVisitor::buffer(std::string_view name, Tensor& member) {
  inside(name, [&] { found_.buffers.push_back({path_, &member}); });
}

void MemberVisitor::buffer(std::string_view name, std::vector<Tensor>& members) {
  inside(name, [&] {
    for (std::size_t i = 0; i < members.size(); ++i) buffer(std::to_string(i), members[i]);
  });
}

void MemberVisitor::shared(std::string_view name, Tensor& member) {
  buffer(name, member);
  found_.buffers.back().shared = true;
}

namespace detail {

std::vector<NamedParameter> merge_tied(const std::vector<NamedParameter>& parameters) {
  std::vector<NamedParameter> list;
  std::map<const Storage*, std::size_t> seen;
  for (const NamedParameter& p : parameters) {
    const auto [at, is_new] = seen.insert({p.parameter->storage(), list.size()});
    if (is_new) {
      list.push_back(p);
      continue;
    }
    NamedParameter& first = list[at->second];
    first.others.push_back(p.name);
    first.table |= p.table;  // tied: a table if any of its names is one
  }
  return list;
}

}  // namespace detail
}  // namespace heed
