// The conformance kit in a doctest suite, heed's or a user's. Include <doctest/doctest.h> before: heed itself does not
// need it. A test case says
//
//   TEST_CASE("MyAttention does what it declares") {
//     check_conformance_in_test([](Index, Rng&) { return MyAttention(); });
//   }
//
// Example:
//
//   check_conformance_in_test([](Index, Rng&) { return SoftmaxAttention(); });
#pragma once
#include <heed/layers/attention/conformance.hpp>

#ifndef DOCTEST_VERSION
#error "include <doctest/doctest.h> before heed/layers/attention/conformance_doctest.hpp"
#endif

namespace heed {

// One assertion a check; a failed one shows its detail, at the caller's line.
inline ConformanceReport check_conformance_in_test(const MechanismFactory& make, const ConformanceOptions& options = {},
                                                   Where where = Where::current()) {
  ConformanceReport report = check_conformance(make, options);
  if (report.checks.empty())
    DOCTEST_ADD_FAIL_CHECK_AT(where.file_name(), static_cast<int>(where.line()), report.mechanism,
                              " attention: nothing was checked");
  for (const ConformanceCheck& check : report.checks) {
    if (check.passed) {
      DOCTEST_CHECK(check.passed);
    } else {
      DOCTEST_ADD_FAIL_CHECK_AT(where.file_name(), static_cast<int>(where.line()), report.mechanism, " attention, ",
                                check.name, ": ", check.detail);
    }
  }
  return report;
}

}  // namespace heed
