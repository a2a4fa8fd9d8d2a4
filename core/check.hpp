// Errors, and the checks that throw them. A message has the form «op: what is; what must be», and shows shapes, dtypes,
// the module path and the caller's line.
//
// Example:
//
//   const Tensor x = Tensor::zeros({2, 3});
//   check(x.rank() == 2, Where::current(), "my_op: x is ", x, "; it must have two axes");
//   try {
//     x.view({5});
//   } catch (const Error& error) {
//     std::cerr << error.what() << '\n';
//   }
#pragma once
#include <heed/core/shape.hpp>
#include <locale>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace heed {

class Tensor;

// The file and line of a call, captured by a default argument `Where where = Where::current()`.
#ifdef __cpp_lib_source_location
using Where = std::source_location;
#else  // clang before 15 has no std::source_location
class Where {
 public:
  // The location of the caller.
  static constexpr Where current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) noexcept {
    Where where;
    where.file_ = file, where.line_ = line;
    return where;
  }
  // The file as the compiler was given it, and the line, from 1.
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr unsigned line() const noexcept { return line_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
};
#endif

namespace detail {
std::string short_place(const Where& where);  // file name and line: train.cpp:41
}

// Makes any bytes safe to print: control characters and invalid UTF-8 are written as escapes such as \n, \t or \x1B.
std::string printable(std::string_view bytes);

// printable() of the first `max_characters` characters of the text, followed by "..." if the text is longer.
std::string excerpt(std::string_view bytes, std::size_t max_characters = 80);

// The exception that the library throws on bad input. The library does not print errors or exit: programs catch Error
// and print what(). The text is printable(), because a message may quote a file.
class Error : public std::runtime_error {
 public:
  // The message is printable(what).
  explicit Error(std::string_view what) : std::runtime_error(printable(what)) {}
};

namespace detail {

// A string stream that ignores the program's locale, which may use a decimal comma and group digits.
struct PlainText : std::ostringstream {
  PlainText() { imbue(std::locale::classic()); }
};

// The result of printf in the "C" locale, whatever the program's locale is.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* how, ...);

// Types that messages print by <<. Tensors and Parameters are excluded: << would print their values.
template <class T> concept Printable =
    !std::is_convertible_v<const T*, const Tensor*> && requires(std::ostream& out, const T& x) { out << x; };

// Builds the message of an Error from its parts. A tensor is shown as «[32, 128] float32». The module path of the first
// parameter is appended to the message.
struct Message {
  PlainText text = {};
  std::string path = {};  // of the first parameter, without its last name: blocks.2.mlp

  void add(const Tensor& x);
  void add(DType t) { text << name_of(t); }
  void add(double x) { x != x ? text << "nan" : text << x; }  // never "-nan"
  void add(float x) { add(static_cast<double>(x)); }
  // Longer texts are cut: they may be quoted from a damaged file.
  static constexpr std::size_t kLongestPart = 1000;
  void add(const std::string& part) { text << excerpt(part, kLongestPart); }
  void add(std::string_view part) { text << excerpt(part, kLongestPart); }
  template <Printable T> void add(const T& part) { text << part; }
  [[noreturn]] void fail(const Where* where);  // throws Error; null: no source location to append
};

// Formats the parts and throws Error. Not inlined, so that checks add little code to their callers.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_at(const Where* where, const Parts&... parts) {
  Message m;
  (m.add(parts), ...);
  m.fail(where);
}

}  // namespace detail

// Throws Error unless `ok`: check(x.rank() == 2, where, "op: x is ", x, "; it must have 2 axes"). Parts are anything
// with <<, tensors (shown as shape and dtype), shapes and dtypes. They are formatted only on failure. The module path
// and `where` are appended: «(mlp.up, train.cpp:41)».
template <class... Parts> inline void check(bool ok, const Where& where, const Parts&... parts) {
  if (!ok) [[unlikely]] detail::fail_at(&where, parts...);
}

// check() without a source location, for files and options.
template <class... Parts> inline void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]] detail::fail_at(nullptr, parts...);
}

// Throws Error with the message made of the parts.
template <class... Parts> [[noreturn]] inline void fail(const Parts&... parts) { detail::fail_at(nullptr, parts...); }

}  // namespace heed
