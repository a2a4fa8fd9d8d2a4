// Visits the members of a model, and merges tied parameters.
#include <algorithm>
#include <charconv>
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

// Sets `parts` of the layer with the current path, and of its own matrices, from found_.parameters[first] on.
void MemberVisitor::mark_parts(std::size_t first, const std::vector<Index>& rows) {
  for (std::size_t i = first; i < found_.parameters.size(); ++i) {
    NamedParameter& p = found_.parameters[i];
    if (p.parameter->rank() != 2 || p.name.find('.', path_.size() + 1) != std::string::npos) continue;
    std::vector<Index> parts = rows;
    const Index rest = p.parameter->dim(0) - std::accumulate(rows.begin(), rows.end(), Index{0});
    if (rest > 0) parts.push_back(rest);
    if (parts.size() > 1) p.parts = std::move(parts);
  }
  for (NamedLayer<void>& layer : found_.layers)
    if (layer.name == path_) layer.parts = rows;
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

// The number in «blocks.3.norm1.weight» or «decoder.blocks.3.norm1.weight»; -1 if there is none.
static Index block_of(std::string_view name) {
  constexpr std::string_view kBlocks = "blocks.";
  std::size_t at = name.find(kBlocks);
  while (at != name.npos && at > 0 && name[at - 1] != '.') at = name.find(kBlocks, at + 1);
  if (at == name.npos) return -1;
  Index number = -1;
  std::from_chars(name.data() + at + kBlocks.size(), name.data() + name.size(), number);
  return number;
}

std::vector<Index> parameter_depths(const std::vector<NamedParameter>& parameters) {
  Index blocks = 0;
  for (const NamedParameter& p : parameters) blocks = std::max(blocks, block_of(p.name) + 1);
  require(blocks > 0, "parameter_depths: no name has a part blocks.N; the model must have blocks");
  std::vector<Index> depths;
  bool begun = false;
  for (const NamedParameter& p : parameters) {
    const Index block = block_of(p.name);
    begun = begun || block >= 0;
    depths.push_back(block >= 0 ? block + 1 : begun ? blocks + 1 : 0);
  }
  return depths;
}

void freeze_lower(const std::vector<NamedParameter>& parameters, Exactly<Index> blocks) {
  const std::vector<Index> depths = parameter_depths(parameters);
  Index all = 0;
  for (const NamedParameter& p : parameters) all = std::max(all, block_of(p.name) + 1);
  require(blocks >= 0 && blocks <= all, "freeze_lower: blocks is ", Index(blocks), "; it must be from 0 to ", all,
          ", the number of blocks");
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (depths[i] <= blocks) parameters[i].parameter->requires_grad_(false);
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
