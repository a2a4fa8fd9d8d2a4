// The conformance kit for a doctest suite. Include <doctest/doctest.h> before this header; heed itself does not depend
// on doctest. A test case:
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

// Runs check_conformance with one assertion per check. A failure shows the detail of the check at the caller's line.
// Fails if nothing was checked.
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
