// Errors: «op: what is; what must be», with shapes, types, the module path and the caller's line.
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

// A line of the caller's, taken by a default argument `Where where = Where::current()`.
#ifdef __cpp_lib_source_location
using Where = std::source_location;
#else  // clang before 15
class Where {
 public:
  static constexpr Where current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) noexcept {
    Where where;
    where.file_ = file, where.line_ = line;
    return where;
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr unsigned line() const noexcept { return line_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
};
#endif

namespace detail {
std::string short_place(const Where& where);  // train.cpp:41
}

// Any bytes as a terminal may show them: control characters and what is not UTF-8 as \n, \t, \x1B.
std::string printable(std::string_view bytes);

// The same for messages: at most `most` characters of the text, and "..." for the rest.
std::string excerpt(std::string_view bytes, std::size_t most = 80);

// All that the library throws on bad input. It never prints or exits: programs catch this and print what(), which is
// printable(): a message may quote a file.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view what) : std::runtime_error(printable(what)) {}
};

namespace detail {

// A stream whose text is the same whatever the program's locale: a global one may have a decimal comma, and group the
// digits of whole numbers.
struct PlainText : std::ostringstream {
  PlainText() { imbue(std::locale::classic()); }
};

// printf's text in the "C" locale, whatever locale the program has set.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* how, ...);

// One part of a message. A tensor shows as «[32, 128] float32», and gives its module path to the end of the message.
// So do parameters, which must not be taken for something with <<: that would print their values.
template <class T> concept Printable =
    !std::is_convertible_v<const T*, const Tensor*> && requires(std::ostream& out, const T& x) { out << x; };
struct Message {
  PlainText text = {};
  std::string path = {};  // of the first parameter mentioned, without its last name: blocks.2.mlp

  void add(const Tensor& x);
  void add(DType t) { text << name_of(t); }
  void add(double x) { x != x ? text << "nan" : text << x; }  // which may have a sign, that means nothing
  void add(float x) { add(static_cast<double>(x)); }
  // A text may be that of a damaged file: at most kLongestPart characters of it. What must be read is shorter.
  static constexpr std::size_t kLongestPart = 1000;
  void add(const std::string& part) { text << excerpt(part, kLongestPart); }
  void add(std::string_view part) { text << excerpt(part, kLongestPart); }
  template <Printable T> void add(const T& part) { text << part; }
  [[noreturn]] void fail(const Where* where);
};

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_at(const Where* where, const Parts&... parts) {
  Message m;
  (m.add(parts), ...);
  m.fail(where);
}

}  // namespace detail

// check(x.rank() == 2, where, "op: x is ", x, "; it must have 2 axes") throws Error unless ok. Parts are formatted only
// on failure: anything with <<, tensors (shape and dtype), shapes, dtypes. The place is appended: «(mlp.up,
// train.cpp:41)».
template <class... Parts> inline void check(bool ok, const Where& where, const Parts&... parts) {
  if (!ok) [[unlikely]] detail::fail_at(&where, parts...);
}

// The same where there is no calling line to show (files, options).
template <class... Parts> inline void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]] detail::fail_at(nullptr, parts...);
}

template <class... Parts> [[noreturn]] inline void fail(const Parts&... parts) { detail::fail_at(nullptr, parts...); }

}  // namespace heed
