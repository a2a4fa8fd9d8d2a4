// Zoo of wrong mechanisms: tables of faults, each put into a correct mechanism, with the check of the conformance kit
// that finds the fault.
#pragma once
#include <heed/layers/attention/conformance.hpp>
#include <sstream>

#include "tests/support.hpp"

namespace heed::test {

// One fault of a mechanism made of hooks.
template <class Hooks>
struct Fault {
  const char* what;
  const char* check;  // the check that finds the fault
  std::function<void(Hooks& h)> put_in;
  Index longest = 100;
};

// A factory of the mechanism made of hooks, with the fault that put_in sets. An empty put_in sets no fault.
template <class Mechanism, class Hooks>
MechanismFactory with_fault(const std::function<void(Hooks&)>& put_in) {
  return [put_in](Index, Rng&) {
    Hooks h;
    if (put_in) put_in(h);
    return Mechanism{h};
  };
}

// Runs the kit on the mechanism with this fault. Exactly the checks in `expected` must fail.
template <class Mechanism, class Hooks>
void check_fails(const Fault<Hooks>& fault, const ConformanceOptions& options,
                 const std::vector<std::string>& expected) {
  const ConformanceReport report = check_conformance(with_fault<Mechanism>(fault.put_in), options);
  std::ostringstream text;
  text << fault.what << "\n" << report;
  INFO(text.str());
  CHECK(report.failed() == expected);
}

// For each fault, runs the check that must find the fault, and requires that this check fails.
template <class Mechanism, class Hooks>
void find(const std::vector<Fault<Hooks>>& faults, ConformanceOptions options = {}) {
  long number = 0;
  for (const Fault<Hooks>& fault : faults) {
    if (!is_taken(number++, 10)) continue;
    options.longest = fault.longest, options.only = {fault.check};
    check_fails<Mechanism>(fault, options, options.only);
  }
}

}  // namespace heed::test
