// Runs attention_maps on a model that train_lm trained: the table, the picture, and inputs that are refused.
#include <heed/plot/plot.hpp>
#include <sstream>

#include "examples/support/token_labels.hpp"
#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::program;
using test::Ran;
using test::Training;

namespace {

Ran maps(const Training& t, const std::string& prompt, const std::string& flags = "") {
  return test::run("exec " + program("attention_maps") + " --checkpoint " + t.file("lm.h5") + " --prompt " +
                   test::quoted(prompt) + " " + flags);
}

// The last row of a head's weights, computed by the library.
std::vector<double> last_row(const LanguageModel& lm, const std::string& prompt, Index layer, Index head) {
  const std::vector<std::int32_t> ids = lm.tokenizer.encode(prompt);
  const auto n = static_cast<Index>(ids.size());
  return lm.model
      .attention_weights(Tensor::from_values(ids.data(), n, {1, n}))[static_cast<std::size_t>(layer)][0][head][n - 1]
      .to_vector<double>();
}

}  // namespace

RELEASE_TEST_CASE("attention_maps: prints the largest weight of each head on an earlier token, and draws all heads") {
  const Training t;
  int looks_at_itself = 0;
  for (const char* attention : {"softmax", "linear", "lsh", "efficient"}) {
    REQUIRE(t.run(std::string("--steps 20 --layers 2 --lr 0.02 --attention ") + attention).exit_code == 0);
    const std::string svg = t.file("maps.svg"), prompt = "The quick fox";
    const Ran ran = maps(t, prompt, "--plot " + svg);
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    CHECK(contains(ran.output, "13 tokens; attention of the last, 'x', to earlier tokens:"));
    const LanguageModel lm = load_language_model(t.file("lm.h5"));
    std::istringstream lines(ran.output);
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);
    for (Index head = 0; head < 4; ++head) {
      std::vector<double> row = last_row(lm, prompt, head / 2, head % 2);
      std::size_t best = 0;
      for (std::size_t j = 0; j + 1 < row.size(); ++j) best = row[j] > row[best] ? j : best;
      char numbers[80];
      std::snprintf(numbers, sizeof numbers, " %10zu %10.3f %10.3f", best, row[best], row.back());
      std::getline(lines, line);
      INFO(line << " / " << numbers);
      CHECK(contains(line, numbers));
      CHECK(contains(line, prompt[best] == ' ' ? "'␣'" : std::string("'") + prompt[best] + "'"));
    }
    // The last of two tokens has only one token before it, even if its weight on itself is larger.
    CHECK(test::count_of("'T'                           0 ", maps(t, "Th").output) == 4);
    for (Index head = 0; head < 4; ++head) looks_at_itself += last_row(lm, "Th", head / 2, head % 2)[1] > 0.5 ? 1 : 0;
    const std::string picture = bytes_of(svg);
    for (const char* label : {"<svg", "layer 0, head 0", "layer 1, head 1", "␣", "attends to", "token"})
      CHECK(contains(picture, label));
    CHECK(contains(picture, std::string(attention) + " attention"));
  }
  CHECK(looks_at_itself > 0);
}

RELEASE_TEST_CASE("attention_maps: one layer and one head, a line feed, one token") {
  const Training t;
  REQUIRE(t.run("--steps 2").exit_code == 0);
  const std::string png = t.file("maps.png"), svg = t.file("maps.svg");
  const Ran ran = maps(t, "of them.\nThe", "--layer 0 --head 1 --threads 1 --plot " + png);
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(test::count_of("\n", ran.output) == 4);
  CHECK(bytes_of(png).rfind("\x89PNG", 0) == 0);
  REQUIRE(maps(t, "of them.\nThe", "--head 1 --plot " + svg).exit_code == 0);
  CHECK(contains(bytes_of(svg), "↵"));
  CHECK(contains(bytes_of(svg), "layer 0, head 1"));
  CHECK(!contains(bytes_of(svg), "layer 0, head 0"));
  const Ran one = maps(t, "T", "--plot " + png);
  CHECK(one.exit_code == 0);
  CHECK(contains(one.output, "none: it is the first"));
  CHECK(contains(one.output, " 1.000"));
}

RELEASE_TEST_CASE("attention_maps: a masked model looks at both sides, and so does its picture") {
  const Training t;
  REQUIRE(t.run("--model mlm --steps 20 --lr 0.02").exit_code == 0);
  const std::string svg = t.file("maps.svg"), expected = t.file("wanted.svg"), prompt = "The quick";
  const Ran ran = maps(t, prompt, "--head 1 --plot " + svg);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "9 tokens; attention of the last, 'k', to earlier tokens:"));
  const LanguageModel lm = load_language_model(t.file("lm.h5"));
  const std::vector<std::int32_t> ids = lm.tokenizer.encode(prompt);
  const std::vector<std::string> labels = examples::token_labels(lm.tokenizer, ids);
  const Tensor weights = lm.model.attention_weights(Tensor::from(ids, {1, 9}))[0][0][1];
  MatrixPanel panel{"layer 0, head 1", {}};
  for (Index i = 0; i < 9; ++i) {
    panel.values.push_back(weights[i].to_vector<double>());
    double sum = 0;
    for (const double w : panel.values.back()) {
      CHECK(w > 0);  // both earlier and later positions
      sum += w;
    }
    CHECK(sum == doctest::Approx(1));
  }
  plot_matrices(expected, {"softmax attention", "token", "attends to", labels, labels}, {{panel}});
  CHECK(bytes_of(svg) == bytes_of(expected));

  REQUIRE(maps(t, "T[MASK]e [MASK]uick", "--plot " + svg).exit_code == 0);
  CHECK(test::count_of(">[MASK]<", bytes_of(svg)) == 2 * 2 + 2);  // rows have it once, columns in both heads
  CHECK(contains(maps(t, "The quick brown [MASK]ox").output, "tokens, but the context is 16"));
}

RELEASE_TEST_CASE("attention_maps: errors are one sentence") {
  const Training t;
  REQUIRE(t.run("--steps 2").exit_code == 0);
  test::check_refused(maps(t, "The quick brown fox jumps"), 1, "the prompt has 25 tokens, but the context is 16");
  test::check_refused(maps(t, "é"), 1, "é");
  test::check_refused(maps(t, ""), 1, "the prompt is empty");
  test::check_refused(maps(t, "T", "--layer 1"), 2, "--layer is 1; it must be from 0 to 0");
  test::check_refused(maps(t, "T", "--head 2"), 2, "--head is 2; it must be from 0 to 1");
  test::check_refused(maps(t, "T", "--head -1"), 2, "a whole number, 0 or more");
  test::check_refused(maps(t, "T", "--plot maps.gif"), 2, "it must end with .svg or .png");
  test::check_refused(test::run("exec " + program("attention_maps")), 2, "--prompt is required");
  test::check_refused(test::run("exec " + program("attention_maps") + " --prompt T --checkpoint /nowhere.h5"), 1,
                      "/nowhere.h5");
}

TEST_CASE("token labels: invisible characters and single bytes get visible labels") {
  const auto labels = [](const Tokenizer& tokenizer, const std::string& text) {
    return examples::token_labels(tokenizer, tokenizer.encode(text));
  };
  using Labels = std::vector<std::string>;
  CHECK(labels(CharTokenizer("a \n\té"), "a é\n\t") == Labels{"a", "␣", "é", "↵", "⇥"});
  CHECK(labels(ByteTokenizer(), "é\x01 b") == Labels{"<C3>", "<A9>", "<01>", "␣", "b"});
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the lazy dog and the quick fox\n";
  const std::string phrase = "the quick dog\n";
  std::string joined;
  const Labels pieces = labels(SentencePieceTokenizer::train_on_text(text, {.vocabulary = 290}), phrase);
  for (const std::string& piece : pieces) joined += piece;
  CHECK(joined == "the␣quick␣dog↵");
  CHECK(pieces.size() < phrase.size());
  struct Broken {  // the first byte of é without its second byte
    std::vector<std::int32_t> encode(std::string_view) const { return {0}; }
    std::string decode(std::span<const std::int32_t>) const { return "\xC3z"; }
    Index vocabulary_size() const { return 1; }
    std::string kind() const { return "broken"; }
    std::string state() const { return {}; }
  };
  CHECK(labels(Broken(), "") == Labels{"<C3>z"});
  CHECK(examples::padded("␣é", 4) == "␣é  ");
  CHECK(examples::padded("long", 2) == "long");
}

TEST_CASE("pictures: frames and panels that do not fit are errors") {
  const Training t;
  using namespace examples;
  const std::string svg = t.file("x.svg");
  test::check_errors({{"there is no frame", [&] { plot_frames(svg, {}, false); }},
                      {"plot: there are no points to draw",
                       [&] {
                         plot_frames(svg, {{{"a", "x", "y"}, {}}}, false);
                       }},
                      {"logarithmic axes need numbers above 0",
                       [&] {
                         plot_frames(svg, {{{"a", "x", "y"}, {{"s", {{1, 0}}}}}}, true);
                       }},
                      {"the panels differ in size",
                       [&] {
                         plot_matrices(svg, {"t", "r", "c", {"a"}, {"b"}}, {});
                       }},
                      {"the panels differ in size", [&] {
                         plot_matrices(svg, {"t", "r", "c", {"a"}, {"b"}}, {{{"p", {{1, 2}}}}});
                       }}});
}
