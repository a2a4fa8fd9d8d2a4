#include "examples/support/program.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <numeric>
#include <sstream>

#include "examples/support/flag_checks.hpp"

namespace heed::examples {
namespace {

std::string must_be(const std::string& given, const std::string& right) {
  return "it is '" + given + "'; it must be " + right;
}

std::string shown(double x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

// From `least` on, or from least to most.
std::string range(const std::string& least, const std::string& most, bool open) {
  return open ? least + " or more" : "from " + least + " to " + most;
}

// Letters to insert, drop or change to get from one word to the other.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] != b[j] ? 1 : 0)}));
  }
  return row.back();
}

std::string unknown_flag(const CLI::App& app, const std::string& given) {
  std::string nearest;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = "--" + (option->get_lnames().empty() ? std::string() : option->get_lnames().front());
    if (nearest.empty() || edits(given, name) < edits(given, nearest)) nearest = name;
  }
  return "there is no flag " + given + (given.starts_with("-") ? "; the nearest is " + nearest : "");
}

// Lines of at most 80 columns; what is behind goes under the descriptions.
std::string wrapped(const std::string& text) {
  constexpr std::size_t kWidth = 80, kIndent = 30;
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    while (line.size() > kWidth) {
      const std::size_t space = line.rfind(' ', kWidth);
      if (space == std::string::npos || space <= kIndent) break;
      out += line.substr(0, space) + "\n";
      line = std::string(kIndent, ' ') + line.substr(space + 1);
    }
    out += line + "\n";
  }
  return out;
}

int usage_error(const CLI::App& app, const char* what) {
  std::fprintf(stderr, "%s: %s (%s --help lists the flags)\n", app.get_name().c_str(), what, app.get_name().c_str());
  return 2;
}

}  // namespace

CLI::Validator whole(std::int64_t least, std::int64_t most) {
  return CLI::Validator(
      [least, most](const std::string& given) {
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), n);
        const bool good = error == std::errc() && end == given.data() + given.size() && n >= least && n <= most;
        const bool open = most >= std::int64_t{1} << 40;
        return good ? std::string()
                    : must_be(given, "a whole number, " + range(std::to_string(least), std::to_string(most), open));
      },
      "");
}

CLI::Validator number(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& given) {
        char* end = nullptr;
        const double x = std::strtod(given.c_str(), &end);
        const bool good = !given.empty() && *end == '\0' && std::isfinite(x) && x >= least && x <= most;
        const bool open = most == std::numeric_limits<double>::max();
        return good ? std::string() : must_be(given, "a number, " + range(shown(least), shown(most), open));
      },
      "");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words](const std::string& given) {
        if (std::find(words.begin(), words.end(), given) != words.end()) return std::string();
        std::string list = words.front();
        for (std::size_t i = 1; i < words.size(); ++i) list += (i + 1 == words.size() ? " or " : ", ") + words[i];
        return must_be(given, list);
      },
      "");
}

std::string choice(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "|") + word;
  return text;
}

void add_sampling_flags(CLI::App& app, SamplingOptions& sampling) {
  app.add_option("--temperature", sampling.temperature, "Of the sample; 0: always the likeliest token [0.8]")
      ->type_name("X")
      ->check(number(0));
  app.add_option("--top-k", sampling.top_k, "Sample from the k likeliest; 0: from all [0]")
      ->type_name("N")
      ->check(whole(0));
  app.add_option("--top-p", sampling.top_p, "Sample from the likeliest that reach this probability [1]")
      ->type_name("X")
      ->check(number(1e-6, 1));
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& work) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(wrapped(app.help()).c_str(), stdout);
    return 0;
  } catch (const CLI::ExtrasError&) {
    return usage_error(app, unknown_flag(app, app.remaining().front()).c_str());
  } catch (const CLI::ParseError& e) {
    return usage_error(app, e.what());
  }
  try {
    return work();
  } catch (const UsageError& e) {
    return usage_error(app, e.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: the system has no more memory\n", app.get_name().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
  }
  return 1;
}

int run_tutorial(const std::string& about, int argc, char** argv, const std::vector<FileFlag>& files,
                 const std::function<int()>& lesson) {
  CLI::App app(about, std::filesystem::path(argv[0]).filename().string());
  for (const FileFlag& f : files) app.add_option(f.flag, *f.file, f.help)->type_name("FILE");
  return run_program(app, argc, argv, lesson);
}

}  // namespace heed::examples
