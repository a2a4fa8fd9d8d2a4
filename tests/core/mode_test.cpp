// Tape, NoTape and Evaluation scopes that end in any order, and on another thread.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <future>
#include <heed/heed.hpp>
#include <memory>
#include <thread>

#include "tests/support.hpp"

using namespace heed;
using test::contains;

namespace {

// One scope of each kind, started in this order.
struct FourScopes {
  std::unique_ptr<Tape> outer = std::make_unique<Tape>();
  std::unique_ptr<NoTape> off = std::make_unique<NoTape>();
  std::unique_ptr<Evaluation> evaluation = std::make_unique<Evaluation>();
  std::unique_ptr<Tape> inner;

  explicit FourScopes(bool with_inner) {
    if (with_inner) inner = std::make_unique<Tape>();
  }
  void end(int i) {
    if (i == 0) outer.reset();
    if (i == 1) off.reset();
    if (i == 2) evaluation.reset();
    if (i == 3) inner.reset();
  }
  // Compares the mode with the effect of the scopes that have not ended, applied in order.
  void check_mode() const {
    Tape* tape = nullptr;
    bool suspended = false, training = false;
    if (outer) tape = outer.get(), training = true;
    if (off) tape = nullptr, suspended = true;
    if (evaluation) training = false;
    if (inner) tape = inner.get(), suspended = false, training = true;
    CHECK(detail::mode().tape == tape);
    CHECK(detail::mode().suspended == suspended);
    CHECK(is_training() == training);
    CHECK((detail::mode().copied != nullptr) == (outer || inner));
  }
};

// Ends the scope in a child process. Returns the message of the Error that terminates the process; empty if none does.
template <class Scope>
std::string last_words(std::unique_ptr<Scope>& scope) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    static int out;
    out = ends[1];
    std::set_terminate([] {
      try {
        std::rethrow_exception(std::current_exception());
      } catch (const Error& e) {
        if (::write(out, e.what(), std::strlen(e.what())) < 0) ::_exit(2);
      }
      ::_exit(1);
    });
    scope.reset();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string words(1000, ' ');
  const ssize_t n = ::read(ends[0], words.data(), words.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  words.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return words;
}

}  // namespace

TEST_CASE("scopes: a tape may begin before the one that it replaces ends") {
  Parameter w(Tensor::from<double>({2, 3}));
  std::unique_ptr<Tape> tape;
  for (const double factor : {1., 2., 3.}) {
    tape = std::make_unique<Tape>();  // the old tape ends after the new tape has started
    CHECK(detail::mode().tape == tape.get());
    CHECK(is_training());
    w.zero_grad();
    tape->backward(sum(w * factor));
    CHECK(w.grad().to_vector<double>() == std::vector<double>{factor, factor});
  }
  tape.reset();
  CHECK(detail::mode().tape == nullptr);
  CHECK(!is_training());
  CHECK((w * 2).is_unrecorded());
}

TEST_CASE("scopes: they may end in any order, and the remaining scopes stay in effect") {
  for (const bool with_inner : {true, false}) {
    std::array<int, 4> order = {0, 1, 2, 3};
    do {
      CAPTURE(order[0] * 1000 + order[1] * 100 + order[2] * 10 + order[3]);
      FourScopes scopes(with_inner);
      scopes.check_mode();
      for (const int i : order) {
        scopes.end(i);
        scopes.check_mode();
      }
      CHECK(detail::mode().scope == nullptr);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("scopes: a scope that outlives its thread does not change the mode of other threads") {
  Parameter w(Tensor::from<double>({2, 3}));
  const Tape here;
  std::unique_ptr<Tape> tape;
  std::unique_ptr<NoTape> off;
  std::thread([&] {
    tape = std::make_unique<Tape>();
    sum(w * 2);
    off = std::make_unique<NoTape>();
  }).join();
  CHECK(tape->steps() == 2);
  tape.reset();
  off.reset();
  CHECK(detail::mode().tape == &here);
  CHECK(!detail::mode().suspended);
}

TEST_CASE("scopes: ending a scope on another thread while its own thread runs terminates the program with a message") {
  std::unique_ptr<Tape> tape;
  std::unique_ptr<NoTape> off;
  std::promise<void> begun, over;
  std::thread other([&] {
    tape = std::make_unique<Tape>();
    off = std::make_unique<NoTape>();
    begun.set_value();
    over.get_future().wait();
    tape.reset();
    off.reset();
  });
  begun.get_future().wait();
  const std::string of_tape = last_words(tape), of_guard = last_words(off);
  over.set_value();
  other.join();
  const std::string expected =
      "Tape: a Tape, NoTape, Evaluation or Profile ends on another thread than it began on, and that thread is "
      "still running; it must end on the thread where it began";
  CHECK(contains(of_tape, expected));
  CHECK(contains(of_guard, expected));
}
