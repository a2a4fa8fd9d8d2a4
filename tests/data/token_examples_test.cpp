// Examples for fine-tuning as tokens: what the loss counts, long examples, counts and errors.
#include <heed/data/fine_tuning.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::ids_of;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::int32_t X = kIgnoreIndex;

// Turns as bytes: the first letter of the role, then the content. The loss counts what an assistant says.
MarkedTokens encode_letters(const std::vector<ChatMessage>& messages) {
  MarkedTokens all;
  for (const ChatMessage& message : messages) {
    all.tokens.push_back(message.role[0]);
    for (const char c : message.content) all.tokens.push_back(c);
    all.trained.resize(all.tokens.size(), message.role == "assistant");
    if (message.role == "assistant") all.trained[all.tokens.size() - message.content.size() - 1] = false;
  }
  return all;
}

TokenExamples examples_of(const std::vector<TextExample>& list, TokenExampleOptions o) {
  o.encode_chat = encode_letters;
  return TokenExamples(list, ByteTokenizer(), o);
}

Ids inputs_of(const TokenExamples& x, Index i) { return ids_of(x.sample(i).at("inputs")); }
Ids targets_of(const TokenExamples& x, Index i) { return ids_of(x.sample(i).at("targets")); }

const TextExample kPlainText{.completion = "abc", .where = "line 1 of x"},
    kSumExample{.prompt = "1+1=", .completion = "2"},
    kTalkExample{.messages = {{"user", "hi"}, {"assistant", "yo"}, {"user", "ok"}}};

}  // namespace

TEST_CASE("token examples: inputs, and the targets that the loss counts") {
  const TokenExamples all = examples_of({kPlainText, kSumExample, kTalkExample}, {.context = 16, .begin = 1, .end = 2});
  REQUIRE(all.size() == 3);
  CHECK(inputs_of(all, 0) == Ids{1, 'a', 'b', 'c'});
  CHECK(targets_of(all, 0) == Ids{'a', 'b', 'c', 2});
  CHECK(inputs_of(all, 1) == Ids{1, '1', '+', '1', '=', '2'});
  CHECK(targets_of(all, 1) == Ids{X, X, X, X, '2', 2});
  CHECK(inputs_of(all, 2) == Ids{'u', 'h', 'i', 'a', 'y', 'o', 'u', 'o'});  // marks of the template, no begin and end
  CHECK(targets_of(all, 2) == Ids{X, X, X, 'y', 'o', X, X, X});
  CHECK((all.where(0) == "line 1 of x" && all.where(1) == "example 2"));
  CHECK((all.counts().tokens == 18 && all.counts().trained == 8 && all.counts().text(16).empty()));
  const TokenExamples every = examples_of({kPlainText, kSumExample, kTalkExample}, {.context = 16, .all_tokens = true});
  CHECK(inputs_of(every, 1) == Ids{'1', '+', '1', '='});
  CHECK(targets_of(every, 1) == Ids{'+', '1', '=', '2'});
  CHECK(targets_of(every, 2) == Ids{'h', 'i', 'a', 'y', 'o', 'u', 'o', 'k'});
}

TEST_CASE("token examples: an empty completion learns the end, and one without any target is left out") {
  const TokenExamples ends = examples_of({{.prompt = "ab"}}, {.context = 8, .end = 9});
  CHECK(targets_of(ends, 0) == Ids{X, 9});
  const TokenExamples some =
      examples_of({{.prompt = "ab"}, kPlainText, {.messages = {{"user", "a"}}}, {.completion = "a"}}, {.context = 8});
  CHECK(some.size() == 1);
  CHECK(some.counts().untrained == 3);
  CHECK(some.counts().text(8) == "3 of 4 examples have no token that the loss counts and were left out");
}

TEST_CASE("token examples: long texts are divided, and each of their tokens is a target once") {
  const std::string text = "abcdefghij";
  for (const Index context : {1, 2, 3, 4, 8, 9, 10, 100}) {
    CAPTURE(context);
    const TokenExamples parts = examples_of({{.completion = text}}, {.context = context, .end = 0});
    Ids inputs, targets;
    for (Index i = 0; i < parts.size(); ++i) {
      const Ids x = inputs_of(parts, i), y = targets_of(parts, i);
      CHECK(static_cast<Index>(x.size()) <= context);
      inputs.insert(inputs.end(), x.begin(), x.end()), targets.insert(targets.end(), y.begin(), y.end());
    }
    CHECK(inputs == Ids(text.begin(), text.end()));
    Ids expected(text.begin() + 1, text.end());
    expected.push_back(0);
    CHECK(targets == expected);
    CHECK(parts.size() == (10 + context - 1) / context);
    CHECK(parts.counts().divided == (context < 10 ? 1 : 0));
  }
}

TEST_CASE("token examples: long prompts and conversations are cut or left out, and counted") {
  const std::vector<TextExample> list = {kSumExample,
                                         {.prompt = "ab", .completion = "cdef"},
                                         {.prompt = "abcdef", .completion = "g"},
                                         kTalkExample,
                                         {.completion = "xyzuvw"}};
  const TokenExamples cut = examples_of(list, {.context = 4, .end = 0});
  // 1+1=2 is cut before the end token; abcdefg has no target within the context
  REQUIRE(cut.size() == 5);
  CHECK(targets_of(cut, 0) == Ids{X, X, X, '2'});
  CHECK(targets_of(cut, 1) == Ids{X, 'c', 'd', 'e'});
  CHECK(targets_of(cut, 2) == Ids{X, X, X, 'y'});
  CHECK((cut.counts().cut == 3 && cut.counts().untrained == 1 && cut.counts().divided == 1));
  CHECK(
      cut.counts().text(4) ==
      "1 of 5 examples is a text longer than 4 tokens and was divided; 3 are longer than 4 tokens and were cut; 1 has "
      "no token that the loss counts and was left out");
  const TokenExamples rest = examples_of(list, {.context = 4, .end = 0, .leave_out = true});
  CHECK(rest.size() == 2);  // of the text
  CHECK(rest.counts().left_out == 4);
  CHECK(rest.where(1) == "example 5");
  CHECK(examples_of(list, {.context = 5, .end = 0, .leave_out = true}).counts().left_out == 3);
}

TEST_CASE("token examples: fingerprints differ if tokens, marks or borders differ") {
  const auto print = [](const std::vector<TextExample>& list, TokenExampleOptions o) {
    o.context = 8;
    return examples_of(list, o).fingerprint();
  };
  const std::string one = print({kSumExample, kPlainText}, {});
  CHECK(one == print({kSumExample, kPlainText}, {}));
  CHECK(contains(one, "2 examples with the hash "));
  CHECK(one != print({kPlainText, kSumExample}, {}));
  CHECK(one != print({kSumExample, kPlainText}, {.all_tokens = true}));
  CHECK(print({{.completion = "ab"}, {.completion = "cd"}}, {}) != print({{.completion = "abcd"}}, {}));
}

TEST_CASE("token examples: errors name the example") {
  const CharTokenizer letters("ab");
  const auto of = [&](const TextExample& x, const TokenExampleOptions& o) {
    return error_of([&] { TokenExamples({x}, letters, o); });
  };
  const TokenExampleOptions four{.context = 4};
  CHECK(contains(of({.prompt = "ax", .completion = "a", .where = "line 3 of f"}, four), "the prompt of line 3 of f"));
  CHECK(
      contains(of({.prompt = "a", .completion = "bx", .where = "line 3 of f"}, four), "the completion of line 3 of f"));
  CHECK(contains(of({.completion = "x"}, four), "example 1"));
  CHECK(of({.messages = {{"user", "a"}}, .where = "line 2 of f"}, four) ==
        "fine-tuning: line 2 of f is a conversation; it needs a chat template, as encode_chat");
  const auto unmarked = [](const std::vector<ChatMessage>&) { return MarkedTokens{{1, 2}, {true}}; };
  CHECK(of({.messages = {{"user", "a"}}}, {.context = 4, .encode_chat = unmarked}) ==
        "fine-tuning: encode_chat returned 2 tokens and 1 marks for example 1; there must be one mark per token");
  CHECK(of({.completion = "a"}, {}) == "fine-tuning: context is 0; it must be 1 or more");
  CHECK(of({.completion = "a"}, {.context = 4, .end = -1}) ==
        "fine-tuning: the token -1 begins or ends examples; it must be 0 or more");
  CHECK(of({.completion = "a"}, four) ==
        "fine-tuning: no example remains: 1 of 1 examples has no token that the loss counts and was left out");
  CHECK(error_of([&] { TokenExamples({}, letters, four); }) == "fine-tuning: no example remains");
  const TokenExamples two({{.completion = "ab"}}, letters, four);
  CHECK(error_of([&] { two.sample(1); }) == "fine-tuning: sample 1 is out of range; there are 1");
  CHECK(error_of([&] { two.where(-1); }) == "fine-tuning: sample -1 is out of range; there are 1");
}
