// Stories: probabilities of a grammar's texts, sampling, questions and answers, and the floor of the loss.
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <map>
#include <numeric>
#include <set>

#include "tests/data/every_text.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using namespace std::string_literals;

namespace {

std::map<std::string, double> all_texts(const Stories& stories) {
  std::map<std::string, double> texts;
  std::size_t twice = 0;
  test::enumerate([&](Chooser& t) { stories.generate(t); },
                  [&](const std::string& text, double log_p) { twice += !texts.emplace(text, log_p).second; });
  CHECK(twice == 0);
  return texts;
}

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

}  // namespace

TEST_CASE("each text of a reduced grammar is listed once, and their probabilities sum to 1") {
  const Stories stories(test::few_words(), {.max_events = 2});
  const auto texts = all_texts(stories);
  CHECK(texts.size() > 500);
  double total = 0, wrong = 0;
  int number = 0;
  for (const auto& [text, log_p] : texts) {
    total += std::exp(log_p);
    if (!test::is_taken(number++, 10)) continue;
    const auto read = test::log_probability(stories, text);
    REQUIRE(read);
    wrong = std::max({wrong, std::abs(*read - log_p), std::abs(sum(*stories.nats(text)) + log_p)});
  }
  CHECK(std::abs(total - 1) < 1e-12);
  CHECK(wrong < 1e-12);
}

RELEASE_TEST_CASE("each character's conditional probability is that of all texts with the same beginning") {
  const Stories stories(test::few_words(), {.max_events = 2});
  const auto texts = all_texts(stories);
  std::map<std::string, double> beginnings;
  for (const auto& [text, log_p] : texts)
    for (std::size_t n = 0; n <= text.size(); ++n) beginnings[text.substr(0, n)] += std::exp(log_p);
  double wrong = 0;
  for (const auto& [text, log_p] : texts) {
    const std::vector<double> nats = *stories.nats(text);
    for (std::size_t n = 0; n < text.size(); ++n)
      wrong = std::max(wrong,
                       std::abs(nats[n] + std::log(beginnings[text.substr(0, n + 1)] / beginnings[text.substr(0, n)])));
  }
  CHECK(wrong < 1e-10);
}

RELEASE_TEST_CASE("sampled stories have the frequencies of their probabilities") {
  const Stories stories(test::few_words(), {.max_events = 2});
  const auto texts = all_texts(stories);
  std::map<std::string, int> seen;
  const int n = 40000;
  for (int i = 0; i < n; ++i) seen[stories.story(9, static_cast<std::uint64_t>(i)).text]++;
  double chi = 0, rare_p = 0;  // texts expected fewer than 10 times share one cell
  int cells = 1, rare = 0, known = 0;
  for (const auto& [text, log_p] : texts) {
    const double expected = n * std::exp(log_p);
    known += seen[text];
    if (expected < 10) {
      rare_p += std::exp(log_p);
      rare += seen[text];
      continue;
    }
    ++cells;
    chi += (seen[text] - expected) * (seen[text] - expected) / expected;
  }
  CHECK(known == n);
  chi += (rare - n * rare_p) * (rare - n * rare_p) / (n * rare_p);
  const double freedom = cells - 1, z = (chi - freedom) / std::sqrt(2 * freedom);
  CAPTURE(cells);
  CHECK(std::abs(z) < 4);
}

TEST_CASE("every generated story is read with its own probability") {
  const Stories stories;
  double wrong = 0;
  std::size_t longest = 0;
  std::set<std::string> different;
  const std::uint64_t count = test::thinned(8000u, 500u);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Story s = stories.story(3, i);
    const auto read = test::log_probability(stories, s.text);
    REQUIRE(read);
    wrong = std::max(
        {wrong, std::abs(*read - s.log_probability), std::abs(sum(*stories.nats(s.text)) + s.log_probability)});
    longest = std::max(longest, s.text.size());
    different.insert(s.text);
  }
  CHECK(wrong < 1e-11);
  CHECK(longest <= kLongestStory);
  CHECK(different.size() > count * 39 / 40);
}

RELEASE_TEST_CASE("no story is longer than kLongestStory") {
  StoryWords longest = StoryWords::all();
  for (auto* list : {&longest.girls, &longest.boys, &longest.things, &longest.colours, &longest.prepositions,
                     &longest.spots, &longest.lands, &longest.asides}) {
    std::stable_sort(list->begin(), list->end(),
                     [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
    list->resize(std::min<std::size_t>(list->size(), list == &longest.things ? 3 : list == &longest.spots ? 2 : 1));
  }
  const Stories stories(longest);
  std::size_t max_size = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) max_size = std::max(max_size, stories.story(1, i).text.size());
  CHECK(max_size <= kLongestStory);
  CHECK(max_size == kLongestStory);
}

TEST_CASE("stories are a pure function of seed and index, and texts are rows of them") {
  const Stories stories;
  CHECK(stories.story(1, 5).text == stories.story(1, 5).text);
  CHECK(stories.story(1, 5).text != stories.story(2, 5).text);
  CHECK(stories.story(1, 5).text != stories.story(1, 6).text);
  std::string row;
  for (std::uint64_t i = 10; i < 20; ++i) row += stories.story(1, i).text;
  CHECK(stories.text(1, row.size(), 10) == row);
  CHECK(stories.text(1, row.size() - 1, 10).size() < row.size() - 1);
  CHECK(stories.text(1, 0).empty());
  CHECK(*test::log_probability(stories, row) == doctest::Approx(-sum(*stories.nats(row))).scale(0).epsilon(1e-12));
  CHECK(*test::log_probability(stories, "") == 0);
}

TEST_CASE("texts outside the grammar have no probability") {
  const Stories stories;
  // Pairs of a story and a variant that the grammar excludes.
  const std::pair<const char*, const char*> pairs[] = {
      {"Mia hid a key in the cart. Where is the key? In the cart.",
       "Mia hid a key in the cart. Where is the key? In the bed."},
      {"Mia hid a key in the cart. Tom moved it by the bed. Where is the key? By the bed.",
       "Mia hid a key in the cart. Tom moved it by the bed. Where is the key? In the cart."},
      {"Mia hid a key in the cart. She ran to the lake. Where is Mia? At the lake.",
       "Mia hid a key in the cart. He ran to the lake. Where is Mia? At the lake."},
      {"Mia hid a key in the cart. Where is the key? In the cart.",
       "Mia hid a key in the cart. Where is the cup? In the cart."},
      {"Mia found a key. Mia gave it to Ben. Who has the key? Ben.",
       "Mia found a key. Tom gave it to Ben. Who has the key? Ben."},
      {"Mia found a key. Mia gave it to Ben. Who has the key? Ben.",
       "Mia found a key. Mia gave it to Ben. Who has the key? Mia."},
      {"Mia hid a key in the cart. Mia moved it in the bed. Where is the key? In the bed.",
       "Mia hid a key in the cart. Mia moved it in the cart. Where is the key? In the cart."},
      {"Mia found a red map. She hid it by the oak. Tom ran to the lake. Where is the map? By the oak.",
       "Mia found a red map. Tom hid it by the oak. Tom ran to the lake. Where is the map? By the oak."},
  };
  for (const auto& pair : pairs) {
    CAPTURE(pair.second);
    CHECK(test::log_probability(stories, pair.first + std::string("\n")));
    CHECK_FALSE(test::log_probability(stories, pair.second + std::string("\n")));
  }
  const std::string good = pairs[0].first + std::string("\n");
  for (const std::string& bad :
       {"Where is the key? In the cart.\n"s, "m"s + good.substr(1), good.substr(0, good.size() - 1), "\n"s, " "s})
    CHECK_FALSE(test::log_probability(stories, bad));
  CHECK_FALSE(test::log_probability(stories, good + "x"));
  CHECK_FALSE(stories.nats(good + "x"));
  REQUIRE(stories.nats(good + "Mi"));
  CHECK(stories.nats(good + "Mi")->size() == good.size() + 2);  // the last story may be incomplete
  CHECK(sum(*stories.nats(good.substr(0, 40))) < sum(*stories.nats(good)) + 1e-12);
}

TEST_CASE("questions have their answers and the position of the fact") {
  const Stories stories;
  const std::string first =
      "Mia found a red map. She hid it by the oak. Tom ran to the lake. Where is the map? By the oak.\n";
  const std::string second = "Tom hid a cup in the cart. Mia took it. Who has the cup? Mia.\n";
  const std::string text = first + second;
  const auto questions = stories.questions(text);
  REQUIRE(questions.size() == 2);
  const auto at = [&](std::size_t begin, std::size_t length) { return text.substr(begin, length); };
  CHECK(at(questions[0].question, 17) == "Where is the map?");
  CHECK(at(questions[0].answer, questions[0].answer_end - questions[0].answer) == "By the oak.");
  CHECK(at(questions[0].fact, 10) == "by the oak");
  CHECK(questions[0].distance() == first.find("By the oak") - first.find("by the oak"));
  CHECK(at(questions[1].answer, 4) == "Mia.");
  CHECK(at(questions[1].fact, 11) == "Mia took it");
  CHECK(contains(error_of([&] { stories.questions(first + "x"); }),
                 "the text does not follow this grammar (story at offset " + std::to_string(first.size()) + ")"));
  CHECK(contains(error_of([&] { stories.questions("Mia"); }), "the story at offset 0 is cut short"));
}

TEST_CASE("the fact of a question is the place, or the name of the owner") {
  const Stories stories;
  const std::string text = stories.text(8, 200000);
  const auto word = [&](std::size_t begin) { return text.substr(begin, text.find_first_of(" .?", begin) - begin); };
  int who = 0, where = 0;
  for (const StoryQuestion& q : stories.questions(text)) {
    CAPTURE(text.substr(q.fact, q.answer_end - q.fact));
    REQUIRE(q.fact > 0);
    CHECK((text[q.fact - 1] == ' ' || text[q.fact - 1] == '\n'));
    std::string found = word(q.fact);
    if (text.substr(q.question, 3) == "Who") {
      ++who;
      REQUIRE(found == word(q.answer));
    } else if (text.substr(q.question, 12) != "Where is the") {  // a question about a person: «At the lake.»
      REQUIRE(found == text.substr(q.answer, q.answer_end - q.answer - 1).substr(7));
    } else {
      ++where;
      found[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(found[0])));
      REQUIRE(found == word(q.answer));
    }
  }
  CHECK(who > 100);
  CHECK(where > 100);
}

TEST_CASE("answers follow from the story and cost nothing, and many facts are more than 32 characters back") {
  const Stories stories;
  const std::string text = stories.text(6, 100000);
  const std::vector<double> nats = *stories.nats(text);
  double cost = 0;
  int near = 0, far = 0;
  for (const StoryQuestion& q : stories.questions(text)) {
    cost = std::accumulate(nats.begin() + static_cast<std::ptrdiff_t>(q.answer),
                           nats.begin() + static_cast<std::ptrdiff_t>(q.answer_end), cost);
    ++(q.distance() <= 32 ? near : far);
    REQUIRE(q.fact < q.question);
  }
  CHECK(cost == 0);
  CHECK(far > near / 2);
  CHECK(near > far / 4);
}

RELEASE_TEST_CASE("no predictor beats the floor on held-out stories: a bigram model with the true frequencies") {
  const Stories stories;
  const std::string train = "\n" + stories.text(1, 200000), held_out = "\n" + stories.text(2, 50000);
  std::map<std::pair<char, char>, double> pairs;
  std::map<char, double> singles;
  for (std::size_t i = 1; i < train.size(); ++i) ++pairs[{train[i - 1], train[i]}], ++singles[train[i - 1]];
  double loss = 0;
  for (std::size_t i = 1; i < held_out.size(); ++i)
    loss -= std::log((pairs[{held_out[i - 1], held_out[i]}] + 0.5) / (singles[held_out[i - 1]] + 32));
  const double n = static_cast<double>(held_out.size() - 1), floor = sum(*stories.nats(held_out.substr(1))) / n;
  CHECK(loss / n > floor + 1);
  CHECK(floor > 0.2);
  CHECK(floor < 0.4);
}

TEST_CASE("word lists that make texts ambiguous, or leave no text, are refused") {
  StoryWords words = StoryWords::all();
  words.spots = {"pan", "pan. Tom"};
  const Stories ambiguous(words);
  CHECK(contains(error_of([&] {
                   for (std::uint64_t i = 0; i < 100; ++i) ambiguous.story(1, i);
                 }),
                 "no option may be a prefix of another"));
  words.spots = {"pan"};
  CHECK(contains(error_of([&] { Stories{words}; }),
                 "stories: there is 1 spot; things move, so there must be 2 or more spots in the words"));
  words = StoryWords::all();
  words.things = {"key"};
  CHECK(contains(error_of([&] { Stories{words}; }), "words"));
  words = StoryWords::all();
  words.lands.clear();
  CHECK(contains(error_of([&] { Stories{words}; }), "words"));
  CHECK(contains(error_of([&] { Stories(StoryWords::all(), {.max_events = 0}); }), "events"));
}
