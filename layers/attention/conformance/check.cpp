// Runs the list of checks and prints the report.
#include <algorithm>
#include <heed/core/names.hpp>
#include <heed/layers/attention/conformance.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <ostream>

namespace heed {
namespace {

using namespace detail::conformance;

// Slow checks that would report every fault again are marked `last`: they run only if all others passed, or by name.
constexpr struct {
  const char* name;
  void (*run)(Subject&, Finding&);
  bool last = false;
} kChecks[] = {{"gradient", check_gradient},
               {"direction", check_direction},
               {"reference", check_reference},
               {"weights", check_weights},
               {"masks", check_masks},
               {"causal", check_causal},
               {"padding", check_padding},
               {"rows sum to one", check_rows},  // reads the results of causal and padding
               {"empty rows", check_empty_rows},
               {"cross lengths", check_cross_lengths},
               {"grouped", check_grouped},
               {"views", check_views},
               {"batch", check_batch},
               {"sizes", check_sizes},
               {"zero vectors", check_zero_vectors},
               {"empty tensors", check_empty_tensors},
               {"dropout", check_dropout},
               {"calls", check_calls},
               {"state", check_state},
               {"state copies", check_state_copies},
               {"state rows", check_state_rows},
               {"ragged state", check_ragged_state},
               {"state resumed", check_state_resumed},
               {"lengths", check_lengths},
               {"spread", check_spread},
               {"float32", check_float32},
               {"bfloat16", check_bfloat16},
               {"mapped keys", check_mapped_keys},
               {"documents", check_documents},
               {"threads", check_threads},
               {"members", check_members},
               {"cost", check_cost},
               {"refuses", check_refuses},
               {"borders", check_borders, true},
               {"state programs", check_state_programs, true},
               {"combinations", check_combinations, true}};

// Restores the default generator, from which dropout draws.
struct KeepRng {
  Rng rng = default_rng();
  ~KeepRng() { default_rng() = rng; }
};

}  // namespace

const std::vector<std::string>& conformance_checks() {
  static const std::vector<std::string> names = detail::names_of(kChecks, [](const auto& check) { return check.name; });
  return names;
}

bool ConformanceReport::passed() const {
  return !checks.empty() && std::all_of(checks.begin(), checks.end(), [](const auto& c) { return c.passed; });
}

std::vector<std::string> ConformanceReport::failed() const {
  std::vector<std::string> names;
  for (const ConformanceCheck& c : checks)
    if (!c.passed) names.push_back(c.name);
  return names;
}

std::ostream& operator<<(std::ostream& out, const ConformanceReport& report) {
  std::size_t width = 0;
  for (const ConformanceCheck& c : report.checks) width = std::max(width, c.name.size());
  out << report.mechanism << " attention: " << std::to_string(report.checks.size()) << " checks, "
      << std::to_string(report.failed().size()) << " failed\n";
  for (const ConformanceCheck& c : report.checks)
    out << "  " << c.name << std::string(width + 2 - c.name.size(), ' ') << (c.passed ? "ok      " : "FAILED  ")
        << c.detail << "\n";
  if (!report.left_out.empty()) out << "left out:\n";
  for (const std::string& what : report.left_out) out << "  " << what << "\n";
  return out;
}

ConformanceReport check_conformance(const MechanismFactory& make, const ConformanceOptions& options) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : options.only)
    require(has(conformance_checks(), name), "conformance: only contains «", name, "», but no check has that name");
  const KeepRng keep;
  manual_seed(options.seed);
  Subject subject(make, options);
  ConformanceReport report{subject.mechanism(DType::float64).name(), {}, {}};
  for (const auto& check : kChecks) {
    if (!options.only.empty() && !has(options.only, check.name)) continue;
    if (check.last && options.only.empty() && !subject.failed.empty()) {
      report.left_out.push_back(std::string(check.name) + ": other checks failed");
      continue;
    }
    Finding finding;
    try {
      check.run(subject, finding);
    } catch (const std::exception& e) {
      finding.expect(false, e.what());
    }
    for (const std::string& what : finding.left_out()) report.left_out.push_back(std::string(check.name) + ": " + what);
    if (!finding.compared()) continue;
    report.checks.push_back(finding.result(check.name));
    if (!report.checks.back().passed) subject.failed.insert(check.name);
  }
  return report;
}

}  // namespace heed
