// ListOps: random expressions, their values, and batches of them.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>
#include <heed/data/samples.hpp>
#include <heed/data/tasks.hpp>
#include <heed/data/text.hpp>
#include <numeric>

namespace heed {
namespace {

constexpr std::uint64_t kListOpsStream = std::uint64_t{0x11570} << 44;
constexpr std::uint64_t kAttempts = 10000;  // max attempts to find an expression of an allowed length

const char* const kWords[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MAX", "[MIN", "[MED", "[SM", "]"};

bool opens(std::int32_t token) { return token >= ListOps::kMax && token <= ListOps::kSm; }

// A list with `depth` levels left, including itself. Stops after `max_tokens` tokens: the caller discards such a list.
void generate_list(const ListOpsOptions& o, Index depth, Rng& rng, Tokens& out) {
  out.push_back(ListOps::kMax + static_cast<std::int32_t>(rng.integer(4)));
  const Index arguments = 2 + rng.integer(o.arguments - 1);
  for (Index i = 0; i < arguments && static_cast<Index>(out.size()) <= o.max_tokens; ++i) {
    if (depth > 1 && rng.uniform() < o.list)
      generate_list(o, depth - 1, rng, out);
    else
      out.push_back(static_cast<std::int32_t>(rng.integer(10)));
  }
  out.push_back(ListOps::kClose);
}

std::int32_t apply(std::int32_t op, std::vector<std::int32_t> arguments) {
  std::sort(arguments.begin(), arguments.end());
  const std::size_t n = arguments.size();
  switch (op) {
    case ListOps::kMax: return arguments.back();
    case ListOps::kMin: return arguments.front();
    case ListOps::kMed: return (arguments[(n - 1) / 2] + arguments[n / 2]) / 2;
    default: return std::accumulate(arguments.begin(), arguments.end(), 0) % 10;
  }
}

// The value of the expression that begins at tokens[at]. Moves `at` past the expression.
std::int32_t read(std::span<const std::int32_t> tokens, std::size_t& at) {
  require(at < tokens.size(), "listops: the expression ends within a list; each list must end with ]");
  const std::int32_t token = tokens[at++];
  if (token >= 0 && token < 10) return token;
  require(opens(token), "listops: token ", token, " at ", at - 1, " must be a digit or begin a list");
  std::vector<std::int32_t> arguments;
  while (at < tokens.size() && tokens[at] != ListOps::kClose) arguments.push_back(read(tokens, at));
  require(at < tokens.size(), "listops: the expression ends within a list; each list must end with ]");
  require(!arguments.empty(), "listops: the list that ends at ", at, " is empty; it must have an argument");
  ++at;
  return apply(token, std::move(arguments));
}

Batch collect(const std::vector<ListOpsExample>& examples) {
  std::vector<Sample> samples;
  for (const ListOpsExample& e : examples)
    samples.push_back({{"inputs", Tensor::from(e.tokens)}, {"targets", Tensor::scalar(e.value, DType::int32)}});
  return collate(samples, {{"inputs", {.value = ListOps::kPadding}}});
}

}  // namespace

ListOps::ListOps(const ListOpsOptions& o) : options_(o) {
  require(o.depth >= 1 && o.arguments >= 2, "listops: depth is ", o.depth, " and arguments ", o.arguments,
          "; they must be 1 or more and 2 or more");
  require(o.min_tokens <= o.max_tokens && o.max_tokens >= 4, "listops: expressions have ", o.min_tokens, " to ",
          o.max_tokens, " tokens; the maximum must be at least 4 and at least the minimum");
  require(o.list >= 0 && o.list <= 1, "listops: the share of lists is ", o.list, "; it must be from 0 to 1");
  example(0, 0);  // so that an error is thrown here, not during training
}

ListOpsExample ListOps::example(std::uint64_t seed, std::uint64_t index) const {
  Rng rng(seed, kListOpsStream + index);
  for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    Tokens tokens;
    generate_list(options_, options_.depth, rng, tokens);
    const auto length = static_cast<Index>(tokens.size());
    if (length < options_.min_tokens || length > options_.max_tokens) continue;
    const std::int32_t answer = value(tokens);
    return {std::move(tokens), answer};
  }
  fail("listops: none of ", kAttempts, " expressions had ", options_.min_tokens, " to ", options_.max_tokens,
       " tokens; change the lengths, the depth or the arguments");
}

std::string ListOps::text(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token == kPadding) continue;
    require(token >= 0 && token < kPadding, "listops: token ", token, " is out of range; tokens are 0 to ", kPadding);
    text += (text.empty() ? "" : " ") + std::string(kWords[token]);
  }
  return text;
}

Tokens ListOps::tokens(std::string_view text) {
  Tokens tokens;
  for (const std::string_view word : split_words(text)) {
    const auto* found = std::find(std::begin(kWords), std::end(kWords), word);
    require(found != std::end(kWords), "listops: '", word,
            "' is not a token; tokens are 0 to 9, [MAX, [MIN, "
            "[MED, [SM and ], separated by spaces");
    tokens.push_back(static_cast<std::int32_t>(found - std::begin(kWords)));
  }
  return tokens;
}

std::int32_t ListOps::value(std::span<const std::int32_t> tokens) {
  std::size_t at = 0;
  const std::int32_t value = read(tokens, at);
  require(at == tokens.size(), "listops: the expression ends at ", at, " but there are ", tokens.size(), " tokens");
  return value;
}

std::string ListOps::fingerprint() const {
  detail::PlainText text;
  text << "ListOps of depth " << options_.depth << ", " << options_.arguments << " arguments, " << options_.min_tokens
       << " to " << options_.max_tokens << " tokens, a share of " << options_.list << " lists";
  return text.str();
}

ListOpsBatches::ListOpsBatches(ListOps examples, Exactly<Index> rows)
    : examples_(std::move(examples)), rows_(rows), order_(batching()) {
  require(rows > 0, "listops: a batch has ", rows, " rows; it must have 1 or more");
}

Batch ListOpsBatches::batch(std::uint64_t seed, std::uint64_t step) const {
  std::vector<ListOpsExample> examples;
  for (Index r = 0; r < rows_; ++r) examples.push_back(examples_.example(2 * seed, order_.number(step, r)));
  return collect(examples);
}

ListOpsBatches ListOpsBatches::continued(const std::vector<BatchesRead>& read) const {
  ListOpsBatches next = *this;
  next.order_ = order_.continued(read);
  return next;
}

ListOpsHeldOut::ListOpsHeldOut(ListOps examples, Exactly<Index> count, Exactly<Index> rows, std::uint64_t seed)
    : examples_(std::move(examples)), count_(count), rows_(rows), seed_(2 * seed + 1) {
  require(count > 0 && rows > 0, "listops: count is ", count, " and rows is ", rows, "; both must be 1 or more");
}

ListOpsExample ListOpsHeldOut::example(Index i) const {
  return examples_.example(seed_, static_cast<std::uint64_t>(i));
}

Batch ListOpsHeldOut::batch(Index i) const {
  detail::check_index("batches: batch", i, size());
  std::vector<ListOpsExample> examples;
  for (Index e = i * rows_; e < std::min(count_, (i + 1) * rows_); ++e) examples.push_back(example(e));
  return collect(examples);
}

std::string ListOpsHeldOut::fingerprint() const {
  return std::to_string(count_) + " of seed " + std::to_string(seed_) + ", " + examples_.fingerprint();
}

double ListOpsHeldOut::majority() const {
  std::vector<Index> counts(ListOps::kValues);
  for (Index i = 0; i < count_; ++i) ++counts[static_cast<std::size_t>(example(i).value)];
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) / static_cast<double>(count_);
}

}  // namespace heed
