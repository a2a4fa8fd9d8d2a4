// What every program does around its work: flags, errors, threads.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>

namespace heed::examples {

// A usage error found after parsing: printed and answered like those of the parser.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses the flags into what `app` was told, then runs `work`. Exit codes: 0 done, 1 an Error (one line on stderr), 2
// wrong flags (one line that says what is right).
inline int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& work) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "%s: %s (%s --help lists the flags)\n", app.get_name().c_str(), e.what(),
                 app.get_name().c_str());
    return 2;
  }
  try {
    return work();
  } catch (const UsageError& e) {
    std::fprintf(stderr, "%s: %s (%s --help lists the flags)\n", app.get_name().c_str(), e.what(),
                 app.get_name().c_str());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: the system has no more memory\n", app.get_name().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
  }
  return 1;
}

}  // namespace heed::examples
