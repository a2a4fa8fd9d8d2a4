// Zoos of wrong mechanisms: tables of faults, each put into a mechanism that is right without it, with the check of the
// conformance kit that finds it.
#pragma once
#include <heed/layers/attention/conformance.hpp>
#include <sstream>

#include "tests/support.hpp"

namespace heed::test {

template <class Hooks>
struct Fault {
  const char* what;
  const char* check;  // that finds it
  std::function<void(Hooks& h)> put_in;
  Index longest = 100;
};

// The mechanism made of hooks, into which a function has put a fault, or none.
template <class Mechanism, class Hooks>
MechanismFactory with_fault(const std::function<void(Hooks&)>& put_in) {
  return [put_in](Index, Rng&) {
    Hooks h;
    if (put_in) put_in(h);
    return Mechanism{h};
  };
}

// These checks fail of the mechanism with this fault, and no other that is run.
template <class Mechanism, class Hooks>
void check_fails(const Fault<Hooks>& fault, const ConformanceOptions& options, const std::vector<std::string>& wanted) {
  const ConformanceReport report = check_conformance(with_fault<Mechanism>(fault.put_in), options);
  std::ostringstream text;
  text << fault.what << "\n" << report;
  INFO(text.str());
  CHECK(report.failed() == wanted);
}

// The check of each fault fails.
template <class Mechanism, class Hooks>
void find(const std::vector<Fault<Hooks>>& faults, ConformanceOptions options = {}) {
  for (const Fault<Hooks>& fault : faults) {
    options.longest = fault.longest, options.only = {fault.check};
    check_fails<Mechanism>(fault, options, options.only);
  }
}

}  // namespace heed::test
