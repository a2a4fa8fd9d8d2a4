// Sets other locales, for tests that texts are the same in every locale.
#pragma once
#include <doctest/doctest.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <heed/core/check.hpp>
#include <iostream>
#include <locale>
#include <sstream>

#include "tests/data/temporary_folder.hpp"

namespace heed::test {

// Writes numbers as de_DE or en_US does, in every stream made while this object exists. The locale has no name, so the
// locale of C does not change.
class ForeignLocale {
 public:
  explicit ForeignLocale(char decimal = ',', char thousands = '.')
      : before_(std::locale::global(std::locale(std::locale::classic(), new Marks(decimal, thousands)))) {
    std::ostringstream text;
    text << 1234 << ' ' << 0.5;
    REQUIRE(text.str() == std::string("1") + thousands + "234 0" + decimal + "5");
  }
  ~ForeignLocale() { std::locale::global(before_); }

 private:
  struct Marks : std::numpunct<char> {
    char decimal, thousands;
    Marks(char d, char t) : decimal(d), thousands(t) {}
    char do_decimal_point() const override { return decimal; }
    char do_thousands_sep() const override { return thousands; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::locale before_;
};

// Sets the locale of C to de_DE, which is compiled for the test. `set` is false, and a message is printed, if the
// machine has no localedef or no sources of locales.
class ForeignC {
 public:
  bool set = false;

  ForeignC() {
    const std::string name = (folder_.path / "de_DE.UTF-8").string();
    const int status = std::system(("localedef -i de_DE -f UTF-8 '" + name + "' > /dev/null 2>&1").c_str());
    ::setenv("LOCPATH", folder_.path.c_str(), 1);
    set = status == 0 && std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
    if (!set) std::cout << "localedef makes no de_DE on this machine: not tested with a locale of C\n";
    char text[8];
    std::snprintf(text, sizeof text, "%.1f", 0.5);
    REQUIRE(std::string(text) == (set ? "0,5" : "0.5"));
  }
  ~ForeignC() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
  }

 private:
  TemporaryFolder folder_;
};

// Checks that the text made by f() is the same in every locale.
template <class F>
void check_in_every_locale(F f) {
  const std::string expected = f();
  CHECK(!expected.empty());
  {
    const ForeignLocale german;
    CHECK(f() == expected);
  }
  {
    const ForeignLocale american('.', ',');
    CHECK(f() == expected);
  }
  const ForeignC c;
  CHECK(f() == expected);
}

}  // namespace heed::test
