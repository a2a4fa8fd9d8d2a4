// A tape printed as text and as a graph.
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <sstream>

#include "tests/autograd/small_ops.hpp"
#include "tests/foreign_locale.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("a tape prints itself and gives its gradient memory back") {
  Parameter w = parameter({2, 3}, {2});
  w.set_path("w");
  const std::size_t before = memory_use().current;
  {
    Tape tape;
    const Tensor y = total(times(times(w, w), w));
    std::ostringstream out;
    tape.print(out);
    CHECK(contains(out.str(), "times"));
    CHECK(contains(out.str(), "w [2], w [2]"));
    CHECK(contains(out.str(), "3 steps keep"));
    tape.backward(y);
    std::ostringstream after;
    tape.print(after);
    CHECK(contains(after.str(), "already run and released"));
  }
  CHECK(memory_use().current <= before + 1024);  // the parameter's gradient stays
}

TEST_CASE("a tape as a graph: a box per step, an ellipse per leaf, an arrow per input that needs a gradient") {
  Parameter w = parameter({2, 3}, {2}), nameless = parameter({4, 5}, {2});
  w.set_path("mlp.weight");
  Tape tape;
  const Tensor x = tape.watch(Tensor::from<double>({6, 7}));
  const Tensor y = total(times(times(w, times(x, Tensor::from<double>({1, 1}))), nameless));
  const std::string begin = "digraph tape {\n  rankdir=TB;\n  node [fontname=\"sans-serif\"];\n";
  CHECK(tape.graph() == begin +
                            "  n1 [shape=box, label=\"times\\n[2]\"];\n"
                            "  n0 -> n1;\n"
                            "  n3 [shape=box, label=\"times\\n[2]\"];\n"
                            "  n2 -> n3;\n"
                            "  n1 -> n3;\n"
                            "  n5 [shape=box, label=\"times\\n[2]\"];\n"
                            "  n3 -> n5;\n"
                            "  n4 -> n5;\n"
                            "  n6 [shape=box, label=\"total\\n[]\"];\n"
                            "  n5 -> n6;\n"
                            "  n0 [shape=ellipse, label=\"%0\\n[2]\"];\n"
                            "  n2 [shape=ellipse, label=\"mlp.weight\\n[2]\"];\n"
                            "  n4 [shape=ellipse, label=\"%4\\n[2]\"];\n"
                            "}\n");
  tape.backward(y);
  CHECK(tape.graph() == begin + "}\n");  // steps that have run are removed
}

RELEASE_TEST_CASE("a tape prints the same text in every locale") {
  check_in_every_locale([] {
    Parameter w(Tensor::ones({1500}, DType::float64));
    w.set_path("w");
    Tape tape;
    total(times(w, w));
    std::ostringstream out;
    tape.print(out);
    return out.str() + tape.graph();
  });
}
