// Prints a tape as text and as a graph.
#include <algorithm>
#include <heed/autograd/detail/tape_state.hpp>
#include <iomanip>
#include <ostream>
#include <set>

namespace heed {

using detail::Node;
using detail::Step;

namespace {

// %3 for a value of the tape, the path of a named parameter, «-» for a constant.
std::string name_of(const Tape::State& s, std::uint32_t node) {
  if (node == detail::kNoNode) return "-";
  const Node& n = s.nodes[node];
  if (n.parameter.defined()) {
    const std::string& path = n.parameter.storage()->parameter->path;
    if (!path.empty()) return path;
  }
  return "%" + std::to_string(node);
}

std::size_t saved_by(const Step& step, std::set<const detail::Storage*>& seen) {
  std::size_t bytes = 0;
  for (const detail::SavedTensor& t : step.saved()) {
    if (!t.tensor.defined() || t.tensor.storage()->parameter != nullptr) continue;  // parameters exist anyway
    if (seen.insert(t.tensor.storage()).second) bytes += t.tensor.storage()->bytes;
  }
  return bytes;
}

}  // namespace

std::size_t Tape::steps() const { return state_->steps.size(); }

std::size_t Tape::saved_bytes() const {
  std::set<const detail::Storage*> seen;
  std::size_t bytes = 0;
  for (const Step* step : state_->steps)
    if (step != nullptr) bytes += saved_by(*step, seen);
  return bytes;
}

std::vector<std::pair<std::string, std::size_t>> Tape::saved_by_module() const {
  std::vector<std::pair<std::string, std::size_t>> modules;
  std::set<const detail::Storage*> seen;
  std::string module;
  for (const Step* step : state_->steps) {
    if (step == nullptr) continue;
    if (const auto own = detail::module_of(*state_, *step); !own.empty()) module = own;
    const std::size_t bytes = saved_by(*step, seen);
    const auto place = std::find_if(modules.begin(), modules.end(), [&](const auto& m) { return m.first == module; });
    if (place != modules.end())
      place->second += bytes;
    else
      modules.emplace_back(module, bytes);
  }
  return modules;
}

void Tape::print(std::ostream& to) const {
  const State& s = *state_;
  detail::PlainText out;  // a separate stream: the caller's keeps its alignment
  std::set<const detail::Storage*> seen;
  std::size_t total = 0;
  out << "step  op                    output                 inputs; bytes newly saved\n";
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step* step = s.steps[i];
    out << std::right << std::setw(4) << i << "  ";
    if (step == nullptr) {
      out << "(already run and released)\n";
      continue;
    }
    const std::string output = name_of(s, step->output) + " " + to_string(s.nodes[step->output].shape);
    out << std::left << std::setw(20) << step->op << "  " << std::setw(21) << output << "  ";
    for (std::size_t k = 0; k < step->inputs.size(); ++k)
      out << (k ? ", " : "") << name_of(s, step->inputs[k].node) << " " << step->inputs[k].shape;
    const std::size_t bytes = saved_by(*step, seen);
    total += bytes;
    out << "; " << bytes << "\n";
  }
  out << s.steps.size() << " steps keep " << total << " bytes for backward (parameters not counted)\n";
  to << out.str();
}

std::string Tape::graph() const {
  const State& s = *state_;
  detail::PlainText out;
  out << "digraph tape {\n  rankdir=TB;\n  node [fontname=\"sans-serif\"];\n";
  std::set<std::uint32_t> leaves;
  for (const Step* step : s.steps) {
    if (step == nullptr) continue;
    out << "  n" << step->output << " [shape=box, label=\"" << step->op << "\\n"
        << s.nodes[step->output].shape << "\"];\n";
    for (const detail::InputRef& in : step->inputs) {
      if (in.node == detail::kNoNode) continue;
      out << "  n" << in.node << " -> n" << step->output << ";\n";
      leaves.insert(in.node);
    }
  }
  for (const Step* step : s.steps)
    if (step != nullptr) leaves.erase(step->output);
  for (std::uint32_t leaf : leaves)
    out << "  n" << leaf << " [shape=ellipse, label=\"" << name_of(s, leaf) << "\\n" << s.nodes[leaf].shape << "\"];\n";
  out << "}\n";
  return out.str();
}

}  // namespace heed
