// In, the argument of an op: a variable of it that refers to what is gone is warned of.
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

using namespace heed;
using test::contains;

namespace {

// What the compiler of the tests says of a function with this body, with the warnings of -Wall as errors. Not the
// inside of sanitizers, which hides it.
test::Ran compiled(const std::string& body) {
  const test::TemporaryFolder folder;
  const std::string file = folder
                               .write("body.cpp",
                                      "#include <heed/autograd/elementwise.hpp>\n#include "
                                      "<heed/autograd/elementwise.hpp>\nusing namespace heed;\nTensor f(In x) {\n" +
                                          body + "\n}\n")
                               .string();
  return test::run("exec " + test::quoted(test::compiler()) + " -std=c++20 -Wall -Werror -O1 -I " +
                   test::quoted(test::in_build("include")) + " -S -o /dev/null " + test::quoted(file));
}

}  // namespace

TEST_CASE("In: a variable that refers to a result which is gone does not compile with -Wall -Werror") {
  for (const std::string body : {"In h = relu(x); return relu(h);", "In h = relu(x); return relu(h + 1.0);",
                                 "In h(relu(x)); return h;", "const In h = x.tensor()[0]; return h->clone();"}) {
    INFO(body);
    const test::Ran ran = compiled(body);
    CHECK(ran.exit_code == 1);
    CHECK(contains(ran.output, "angling"));
  }
  for (const std::string body :
       {"Tensor h = relu(x); return relu(h);", "Tensor h = relu(x); In again = h; return relu(again);",
        "return relu(relu(x) + x);", "In again = x; return relu(In(again, x.where()));"}) {
    const test::Ran ran = compiled(body);
    INFO(body << ran.output);
    CHECK(ran.exit_code == 0);
  }
}
