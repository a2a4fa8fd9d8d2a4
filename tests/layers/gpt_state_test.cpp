// The decode states of several threads that use one const GPT at once, as in docs/serving.md: the same bits as alone.
#include <atomic>
#include <heed/heed.hpp>
#include <thread>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// A model with products and attention of several chunks each.
GPT served_model(PositionKind positions, const std::string& mechanism, DType dtype) {
  GPTOptions o{.vocabulary = 300, .context = 96, .positions = positions};
  o.blocks = {.layers = 2, .attention = {.width = 64, .heads = 4}};
  Rng rng(3);
  GPT model(o, rng, mechanism_by_name(mechanism, {.head_size = 16, .window = 9, .buckets = 4}));
  for (const NamedParameter& p : named_parameters(model))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.1));
  if (dtype != DType::float32) to(model, dtype);
  return model;
}

std::vector<Tokens> prompts_of(std::uint64_t request) {
  std::vector<Tokens> prompts;
  for (const Index length : {3, 40, 17})
    prompts.push_back(ids_of(random_ids({length + static_cast<Index>(request)}, 300, 10 * request + 1)));
  return prompts;
}

// The results of a request, all of which depend on the bits of the logits.
struct Answer {
  std::vector<Tokens> texts, beams;
  Tensor logits;
};

// Generates beyond the context, searches by beams, and decodes; with an invalid request in between.
Answer answer(const GPT& model, std::uint64_t request) {
  const std::vector<Tokens> prompts = prompts_of(request);
  Answer a;
  a.texts = generate(model, prompts, {.count = thinned<Index>(90, 60), .seed = request});
  const Tokens wrong(1, 300);
  if (error_of([&] { generate(model, std::vector<Tokens>{wrong}, {.count = 3}); }).empty()) return {};
  for (const auto& found : beam_search(model.make_state(), prompts, {.beam = 3, .count = 8}))
    a.beams.push_back(found[0].tokens);
  std::vector<AttentionState> states = model.make_states();
  model.decode(Tensor::from(prompts[1], {1, static_cast<Index>(prompts[1].size())}), states);
  a.logits = model.decode(Tensor::from<std::int32_t>({7}, {1, 1}), states);
  return a;
}

bool same(const Answer& a, const Answer& b) {
  return a.texts == b.texts && a.beams == b.beams && a.logits.defined() && same_bits(a.logits, b.logits);
}

}  // namespace

TEST_CASE("decoding: several threads with one const model get the bits of each request alone") {
  constexpr std::uint64_t kCallers = 4;
  struct Case {
    PositionKind positions;
    const char* mechanism;
    DType dtype;
  };
  for (const Case& c :
       {Case{PositionKind::learned, "softmax", DType::float32}, Case{PositionKind::rope, "softmax", DType::bfloat16},
        Case{PositionKind::relative, "window", DType::float32}, Case{PositionKind::rope, "linear", DType::float32},
        Case{PositionKind::learned, "lsh", DType::float32}}) {
    CAPTURE(c.mechanism);
    const GPT model = served_model(c.positions, c.mechanism, c.dtype);
    set_threads(1);
    std::vector<Answer> alone;
    for (std::uint64_t i = 0; i < kCallers; ++i) alone.push_back(answer(model, i));
    for (const int threads : {1, 2, 3}) {
      CAPTURE(threads);
      set_threads(threads);
      std::vector<Answer> together(kCallers);
      std::vector<std::thread> callers;
      for (std::uint64_t i = 0; i < kCallers; ++i) callers.emplace_back([&, i] { together[i] = answer(model, i); });
      for (std::thread& t : callers) t.join();
      for (std::uint64_t i = 0; i < kCallers; ++i) CHECK(same(together[i], alone[i]));
    }
  }
  set_threads(0);
  CHECK_FALSE(same(Answer{}, Answer{}));
}

TEST_CASE("decoding: a row that one thread cancels leaves the rows of others as they are") {
  const GPT model = served_model(PositionKind::learned, "softmax", DType::float32);
  const std::vector<Tokens> prompts = prompts_of(5);
  const std::vector<Tokens> whole = generate(model, prompts, {.count = 30, .seed = 2});
  std::atomic<bool> begun{false}, cancelled{false};
  std::vector<Tokens> cut, beside;
  std::thread first([&] {
    cut = generate(model, prompts, {.count = 100000, .seed = 2, .on_token = [&](Index, std::int32_t) {
                                      begun = true;
                                      return !cancelled;
                                    }});
  });
  std::thread second([&] {
    while (!begun) std::this_thread::yield();
    beside = generate(model, prompts, {.count = 30, .seed = 2});
    cancelled = true;
  });
  first.join(), second.join();
  CHECK(beside == whole);
  REQUIRE(cut.size() == 3);
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK(cut[row].size() < 100000);
    const std::size_t n = std::min(cut[row].size(), whole[row].size());
    CHECK(std::equal(cut[row].begin(), cut[row].begin() + static_cast<std::ptrdiff_t>(n), whole[row].begin()));
  }
}

TEST_CASE("decoding: an exception of on_token reaches its caller, and other calls go on") {
  const GPT model = served_model(PositionKind::learned, "softmax", DType::float32);
  const std::vector<Tokens> prompts = prompts_of(6);
  const std::vector<Tokens> whole = generate(model, prompts, {.count = 12});
  const auto stop = [](Index, std::int32_t) -> bool { fail("the client has left"); };
  std::vector<std::string> errors(3);
  std::vector<std::thread> callers;
  for (std::string& error : errors)
    callers.emplace_back([&] {
      for (int i = 0; i < 5; ++i) error = error_of([&] { generate(model, prompts, {.count = 12, .on_token = stop}); });
    });
  for (int i = 0; i < 5; ++i) CHECK(generate(model, prompts, {.count = 12}) == whole);
  for (std::thread& t : callers) t.join();
  for (const std::string& error : errors) CHECK(error == "the client has left");
}
