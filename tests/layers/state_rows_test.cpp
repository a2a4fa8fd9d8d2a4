// Picked rows of states: buffers, shared tensors, states with their own rows(), and states of sampling and beam search.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

Tensor ints(std::vector<std::int32_t> x) { return Tensor::from(x, {static_cast<Index>(x.size())}); }

struct Kept {
  Tensor keys = Tensor::arange(6).view({3, 2});
  std::vector<Tensor> inputs = {ints({7, 8, 9}), {}};
  Tensor start = Tensor::full({}, 4, DType::int32), table = Tensor::arange(2);
  AttentionCall call = {};

  void members(MemberVisitor& visit) {
    visit.buffer("keys", keys), visit.buffer("inputs", inputs);
    visit.shared("start", start), visit.shared("table", table);
    visit("call", call);
  }
};

// The text of each row as a tensor. The next token is the sum of the last two, modulo 5.
struct Texts {
  Tensor last_two = {};  // int32 [B, 2]

  Tensor read(const Tensor& tokens, const Tensor&) {
    if (!last_two.defined()) last_two = Tensor::zeros({tokens.dim(0), 2}, DType::int32);
    last_two = concatenate({last_two, tokens}, 1);
    last_two = last_two.slice(1, last_two.dim(1) - 2, last_two.dim(1));
    std::vector<std::int32_t> next;
    for (Index i = 0; i < tokens.dim(0); ++i)
      next.push_back(static_cast<std::int32_t>(last_two.at({i, 0}) + last_two.at({i, 1})) % 5);
    return one_hot(ints(next), 5) * 3.0;
  }
  void members(auto&& visit) { visit.buffer("last_two", last_two); }
};

// The same with its own rows().
struct OwnRows {
  Texts texts = {};
  Tensor read(const Tensor& tokens, const Tensor& lengths) { return texts.read(tokens, lengths); }
  OwnRows rows(const Tensor& indices) const { return {{index_select(texts.last_two, 0, indices)}}; }
};

static_assert(HasRows<Kept> && HasRows<OwnRows> && !HasRows<int> && !HasRows<Tensor>);
static_assert(DecodeStateLike<Texts> && DecodeStateLike<OwnRows> && !DecodeStateLike<Kept>);

}  // namespace

TEST_CASE("pick_rows: rows of buffers in any order, and all of a shared tensor") {
  const Kept state, picked = pick_rows(state, ints({2, 0, 2, 2}));
  CHECK(picked.keys.to_vector<double>() == std::vector<double>{4, 5, 0, 1, 4, 5, 4, 5});
  CHECK(picked.inputs[0].to_vector<double>() == std::vector<double>{9, 7, 9, 9});
  CHECK(!picked.inputs[1].defined());
  CHECK(picked.start.shares_storage(state.start));
  CHECK(picked.table.shape() == Shape{2});
  CHECK(state.keys.shape() == Shape{3, 2});
  Kept named;
  std::vector<std::string> shared;
  for (const NamedBuffer& b : named_buffers(named))
    if (b.shared) shared.push_back(b.name);
  CHECK(shared == std::vector<std::string>{"start", "table", "call.mask", "call.bias", "call.first_query"});
  CHECK(named_buffers(named)[2].name == "inputs.1");
  const std::vector<Kept> both = pick_rows(std::vector<Kept>(2), ints({1}));
  CHECK(both[1].keys.to_vector<double>() == std::vector<double>{2, 3});
  CHECK(pick_rows(OwnRows{{ints({1, 2, 3, 4}).view({2, 2})}}, ints({1})).texts.last_two.numel() == 2);
}

TEST_CASE("pick_rows: the tensors of a call, as far as they depend on the batch") {
  Kept state;
  state.call = {.key_lengths = ints({1, 2, 3}),
                .key_mask = Tensor::arange(6).view({3, 2}) > 2,
                .mask = Tensor::arange(6).view({3, 1, 1, 2}) > 2,
                .bias = Tensor::arange(2).view({1, 1, 1, 2}),
                .first_query = ints({5, 6, 7})};
  const AttentionCall call = pick_rows(state, ints({2, 0})).call;
  CHECK(call.key_lengths.to_vector<double>() == std::vector<double>{3, 1});
  CHECK(call.first_query.to_vector<double>() == std::vector<double>{7, 5});
  for (const Tensor& x : {call.key_mask, call.mask}) CHECK(x.to_vector<double>() == std::vector<double>{1, 1, 0, 0});
  CHECK(call.bias.shape() == Shape{1, 1, 1, 2});
  state.call = {.mask = Tensor::ones({3, 2}, DType::bool8), .bias = Tensor::ones({2, 2}), .first_query = ints({5})[0]};
  const AttentionCall same = pick_rows(state, ints({2, 0})).call;
  CHECK(same.mask.shape() == Shape{3, 2});
  CHECK(same.bias.shape() == Shape{2, 2});
  CHECK(same.first_query.item() == 5);
}

TEST_CASE("pick_rows: gradients of buffers pass through") {
  Parameter keys(Tensor::ones({3, 2}));
  keys.set_path("keys");
  Tape tape;
  tape.backward(sum(pick_rows(Kept{.keys = keys}, ints({2, 2, 0})).keys));
  CHECK(keys.grad().to_vector<double>() == std::vector<double>{1, 1, 0, 0, 2, 2});
}

TEST_CASE("pick_rows: errors") {
  check_errors({
      {"pick_rows: inputs.0 is [3] int32 and keys is [2, 2] float32; the first axis of a state's buffers must be its "
       "rows (name other tensors by visit.shared())",
       [] {
         pick_rows(Kept{.keys = Tensor::zeros({2, 2})}, ints({0}));
       }},
      {"pick_rows: inputs.1 is [] float32 and keys is [3, 2] int32",
       [] {
         Kept state;
         state.inputs[1] = Tensor::zeros({});
         pick_rows(state, ints({0}));
       }},
      {"index_select: index[1] is 3",
       [] {
         pick_rows(Kept{}, ints({0, 3}));
       }},
  });
}

TEST_CASE("decode states: rows that follow from members() are the rows of a state with rows()") {
  const std::vector<Tokens> prompts = {{1, 1}, {2, 4}, {3, 1}};
  const GenerateOptions options{.count = 9, .stop_tokens = {0}, .counts = {9, 2, 5}};
  CHECK(generate(Texts{}, prompts, options) == generate(OwnRows{}, prompts, options));
  CHECK(generate(Texts{}, prompts, {.count = 3, .sampling = {.temperature = 0}})[0] == Tokens{2, 3, 0});
  const BeamOptions beams{.beam = 3, .n_best = 2, .count = 6, .stop_tokens = {0}};
  const auto found = beam_search(Texts{}, prompts, beams), expected = beam_search(OwnRows{}, prompts, beams);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    for (std::size_t n = 0; n < 2; ++n) CHECK(found[i][n].tokens == expected[i][n].tokens);
}
