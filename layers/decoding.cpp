// Sampling, generation and beam search.
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/decoding.hpp>
#include <numeric>

namespace heed {

static void check_logits(const char* op, const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    require(values[i] < detail::kInfinity, op, ": logit ", i, " is ", values[i], "; it must be a number, or -inf");
  require(std::ranges::any_of(values, [](double x) { return x > -detail::kInfinity; }), op,
          ": all logits are -inf; at least one must be a number");
}

void check_sampling(const SamplingOptions& o) {
  require(o.temperature >= 0 && std::isfinite(o.temperature), "sampling: temperature is ", o.temperature,
          "; it must be 0 or more, and finite");
  require(o.top_k >= 0, "sampling: top_k is ", o.top_k, "; it must be 0 (all) or more");
  require(o.top_p > 0 && o.top_p <= 1, "sampling: top_p is ", o.top_p, "; it must be in (0, 1]");
  require(o.min_p >= 0 && o.min_p <= 1, "sampling: min_p is ", o.min_p, "; it must be from 0 to 1");
  require(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "sampling: repetition_penalty is ",
          o.repetition_penalty, "; it must be above 0, and finite");
}

namespace {

struct Option {
  double logit, weight;
  std::int32_t token;
};

bool likelier(const Option& a, const Option& b) { return a.logit != b.logit ? a.logit > b.logit : a.token < b.token; }

// Moves the likeliest options, as few as make enough(sum of weights) true, to the front. The least likely of them is
// last; the order of the others is unspecified. Returns their number and sum. If no sum is enough, takes all options.
template <class Enough>
std::pair<std::size_t, double> first_enough(std::vector<Option>& options, const Enough& enough) {
  std::size_t begin = 0, end = options.size();
  double sum = 0;  // of the options before begin
  const auto at = [&](std::size_t i) { return options.begin() + static_cast<std::ptrdiff_t>(i); };
  while (end - begin > 1) {
    const std::size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end), likelier);
    double more = sum;
    for (std::size_t i = begin; i < middle; ++i) more += options[i].weight;
    if (enough(more))
      end = middle;
    else
      begin = middle, sum = more;
  }
  return {begin + 1, sum + options[begin].weight};
}

// exp((value - max_value) / temperature), vectorized.
Tensor relative_weights(const std::vector<double>& values, double max_value, double temperature) {
  const NoTape guard;
  Tensor x = Tensor::empty({static_cast<Index>(values.size())});
  const auto exponent = [&](double v) { return static_cast<float>((v - max_value) / temperature); };
  std::ranges::transform(values, x.ptr<float>(), exponent);
  return exp(x);
}

// Sets `options` to those of at least this weight, without those of weight 0. Returns the sum of their weights.
double gather_options(const std::vector<double>& values, const float* weight, float min_weight,
                      std::vector<Option>& options) {
  options.clear();
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (weight[i] < min_weight || weight[i] == 0) continue;
    options.push_back({values[i], weight[i], static_cast<std::int32_t>(i)});
    sum += weight[i];
  }
  return sum;
}

}  // namespace

// Changes the logits of the tokens in `seen`, each once.
static void penalize(std::vector<double>& values, double penalty, std::span<const std::int32_t> seen) {
  std::vector<std::int32_t> tokens(seen.begin(), seen.end());
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  check_vocabulary("sample", "token of `seen`", tokens, static_cast<Index>(values.size()));
  for (const std::int32_t token : tokens) {
    double& x = values[static_cast<std::size_t>(token)];
    x = x > 0 ? x / penalty : x * penalty;
  }
}

std::int32_t sample(const Tensor& logits, const SamplingOptions& o, Rng& rng, std::span<const std::int32_t> seen) {
  check_sampling(o);
  require(logits.rank() == 1 && logits.numel() > 0, "sample: logits are ", logits, "; they must be [vocabulary]");
  std::vector<double> values = logits.to_vector<double>();
  const double u = rng.uniform();
  check_logits("sample", values);
  if (o.repetition_penalty != 1) penalize(values, o.repetition_penalty, seen);
  const auto top = std::ranges::max_element(values);  // the first of equals
  if (o.temperature == 0) return static_cast<std::int32_t>(top - values.begin());
  const Tensor weights = relative_weights(values, *top, o.temperature);
  const float* weight = weights.ptr<float>();
  const double total = std::accumulate(weight, weight + values.size(), 0.0);
  std::vector<Option> options;
  // In most calls a few likely options are sufficient.
  const auto least = static_cast<float>(o.min_p);
  const double few = gather_options(values, weight, std::max(1e-3f, least), options);
  const bool enough =
      o.top_k > 0 ? static_cast<Index>(options.size()) >= o.top_k : few > (o.top_p < 1 ? o.top_p : u) * total;
  double sum = total;
  if (!enough || least > 0) sum = gather_options(values, weight, least, options);
  if (o.top_k > 0 && o.top_k < static_cast<Index>(options.size())) {
    std::nth_element(options.begin(), options.begin() + o.top_k, options.end(), likelier);
    options.resize(static_cast<std::size_t>(o.top_k));
  }
  if (o.top_k > 0) {
    sum = 0;
    for (const Option& option : options) sum += option.weight;
  }
  if (o.top_p < 1) {
    const auto [count, reached] = first_enough(options, [&](double x) { return x >= o.top_p * sum; });
    options.resize(count);
    sum = reached;
  }
  const std::size_t last = first_enough(options, [&](double x) { return x > u * sum; }).first - 1;
  return options[last].token;
}

Tensor DecodeState::read(const Tensor& tokens, const Tensor& lengths) {
  const bool rows = tokens.rank() == 2;
  require(!lengths.defined() || !rows || (lengths.dtype() == DType::int32 && lengths.shape() == Shape{tokens.dim(0)}),
          "DecodeState: tokens are ", tokens, " and lengths are ", lengths, "; lengths must be int32 [rows]");
  for (Index i = 0; lengths.defined() && rows && i < lengths.numel(); ++i) {
    const Index length = static_cast<Index>(lengths.at({i}));
    require(length >= 1 && length <= tokens.dim(1), "DecodeState: the length of row ", i, " is ", length,
            " and tokens are ", tokens, "; it must be from 1 to ", tokens.dim(1));
  }
  const AwakeThreads scope;
  return self_->read(tokens, lengths);
}

namespace {

void check_prompts(const char* op, std::span<const Tokens> prompts, const std::vector<Index>& counts) {
  for (std::size_t i = 0; i < prompts.size(); ++i)
    require(!prompts[i].empty(), op, ": prompt ", i, " is empty; it must have at least one token");
  require(counts.empty() || counts.size() == prompts.size(), op, ": got ", counts.size(), " counts for ",
          prompts.size(), " prompts; expected one count per prompt");
}

std::vector<std::size_t> chosen_of(const std::vector<std::size_t>& all, const Tokens& places) {
  std::vector<std::size_t> chosen;
  for (const std::int32_t place : places) chosen.push_back(all[static_cast<std::size_t>(place)]);
  return chosen;
}

Tensor column(const Tokens& tokens) { return Tensor::from(tokens, {static_cast<Index>(tokens.size()), 1}); }

}  // namespace

void check_vocabulary(const char* op, const char* what, const Tokens& tokens, Index vocabulary) {
  for (const std::int32_t token : tokens)
    require(token >= 0 && token < vocabulary, op, ": ", what, " ", token, " is not in the vocabulary of ", vocabulary,
            " tokens");
}

detail::PaddedTokens::PaddedTokens(const std::vector<std::span<const std::int32_t>>& rows) {
  const auto count = static_cast<Index>(rows.size());
  Tokens sizes;
  for (const auto& row : rows) sizes.push_back(static_cast<std::int32_t>(row.size()));
  const Index max_size = *std::ranges::max_element(sizes);
  tokens = Tensor::zeros({count, max_size}, DType::int32);
  for (Index i = 0; i < count; ++i)
    std::ranges::copy(rows[static_cast<std::size_t>(i)], tokens.ptr<std::int32_t>() + i * max_size);
  if (*std::ranges::min_element(sizes) < max_size) lengths = Tensor::from(sizes);
}

std::vector<Tokens> detail::generate_by(DecodeState state, std::span<const Tokens> prompts, const GenerateOptions& o,
                                        std::span<Rng> generators) {
  check_sampling(o.sampling);
  check_prompts("generate", prompts, o.counts);
  std::vector<Tokens> texts(prompts.size());
  const auto max_tokens = [&](std::size_t row) { return o.counts.empty() ? o.count : o.counts[row]; };
  std::vector<std::size_t> rows(prompts.size());  // those that continue
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  std::erase_if(rows, [&](std::size_t i) { return max_tokens(i) <= 0; });
  if (rows.empty()) return texts;
  const AwakeThreads scope;
  const bool penalizes = o.sampling.repetition_penalty != 1;
  Tokens seen;  // by one row
  const PaddedTokens padded({prompts.begin(), prompts.end()});
  Tensor logits = state.read(padded.tokens, padded.lengths);
  check_vocabulary("generate", "stop token", o.stop_tokens, logits.dim(1));
  const Tensor places = Tensor::from(Tokens(rows.begin(), rows.end()));
  if (rows.size() < prompts.size()) state = state.rows(places);
  logits = index_select(logits, 0, places);
  while (true) {
    Tokens remaining, last;  // of the rows that continue: their places in `rows`, and their tokens of this step
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t row = rows[i];
      if (penalizes) seen = prompts[row], seen.insert(seen.end(), texts[row].begin(), texts[row].end());
      const std::int32_t token = sample(logits[static_cast<Index>(i)], o.sampling, generators[row], seen);
      texts[row].push_back(token);
      const bool keep_going = !o.on_token || o.on_token(static_cast<Index>(row), token);
      if (!keep_going || std::ranges::find(o.stop_tokens, token) != o.stop_tokens.end() ||
          static_cast<Index>(texts[row].size()) >= max_tokens(row))
        continue;
      remaining.push_back(static_cast<std::int32_t>(i)), last.push_back(token);
    }
    if (remaining.empty()) return texts;
    if (remaining.size() < rows.size()) {
      state = state.rows(Tensor::from(remaining));
      rows = chosen_of(rows, remaining);
    }
    logits = state.read(column(last));
  }
}

std::vector<Tokens> generate(DecodeState state, std::span<const Tokens> prompts, const GenerateOptions& o) {
  std::vector<Rng> generators;
  for (std::size_t i = 0; i < prompts.size(); ++i) generators.emplace_back(o.seed, o.stream + i);
  return detail::generate_by(std::move(state), prompts, o, generators);
}

// ---- Beams ----

namespace {

// A continuation of a text by one token.
struct Candidate {
  double log_probability;
  std::int32_t beam, token;
};

bool before(const Candidate& a, const Candidate& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

// The `count` likeliest continuations of a text with these logits, likeliest first.
std::vector<Candidate> likeliest(const Tensor& logits, double so_far, std::int32_t beam, std::size_t count,
                                 const Tokens& never) {
  std::vector<double> values = logits.to_vector<double>();
  check_logits("beam_search", values);
  const double max_value = *std::ranges::max_element(values);
  double sum = 0;
  for (const double x : values) sum += std::exp(x - max_value);
  const double shift = so_far - max_value - std::log(sum);
  for (const std::int32_t token : never) values[static_cast<std::size_t>(token)] = -detail::kInfinity;
  std::vector<Candidate> all;
  all.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > -detail::kInfinity) all.push_back({values[i] + shift, beam, static_cast<std::int32_t>(i)});
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size()));
  if (end != all.end()) std::nth_element(all.begin(), end, all.end(), before);
  std::sort(all.begin(), end, before);
  all.erase(end, all.end());
  return all;
}

// The search of one row.
struct Search {
  Index max_tokens;  // maximum number of tokens per text
  const BeamOptions& options;
  std::vector<Hypothesis> live = {{}}, ended = {};  // ended: the best `beam`, best first
  Index number_ended = 0;

  double penalty(Index length) const {
    const auto n = static_cast<double>(length);
    switch (options.penalty) {
      case LengthPenalty::none: return 1;
      case LengthPenalty::average: return std::pow(n, options.alpha);
      default: return std::pow((5 + n) / 6, options.alpha);
    }
  }
  double score(const Hypothesis& h, Index length) const { return h.log_probability / penalty(length); }

  void end(Hypothesis h) {
    h.score = score(h, static_cast<Index>(h.tokens.size()));
    ++number_ended;
    const auto better = [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; };
    ended.insert(std::upper_bound(ended.begin(), ended.end(), h, better), std::move(h));
    if (static_cast<Index>(ended.size()) > options.beam) ended.pop_back();
  }

  // Extends the texts by one token, one of those `found` for each. Returns, for each text that continues, the index of
  // the text that it extends.
  Tokens grow(std::span<const std::vector<Candidate>> found) {
    std::vector<Candidate> candidates;
    if (max_tokens > 0)
      for (const std::vector<Candidate>& of_text : found)
        candidates.insert(candidates.end(), of_text.begin(), of_text.end());
    std::ranges::sort(candidates, before);
    std::vector<Hypothesis> longer;
    Tokens from;
    Index taken = 0;  // candidates without a stop token
    for (const Candidate& c : candidates) {
      if (taken == options.beam) break;
      Hypothesis h = live[static_cast<std::size_t>(c.beam)];
      h.tokens.push_back(c.token), h.log_probability = c.log_probability;
      const bool stops = std::ranges::find(options.stop_tokens, c.token) != options.stop_tokens.end();
      taken += stops ? 0 : 1;
      if (stops || static_cast<Index>(h.tokens.size()) >= max_tokens)
        end(std::move(h));
      else
        longer.push_back(std::move(h)), from.push_back(c.beam);
    }
    live = std::move(longer);
    return from;
  }

  bool done() const {
    if (live.empty()) return true;
    if (static_cast<Index>(ended.size()) < options.n_best) return false;
    const double worst = ended[static_cast<std::size_t>(options.n_best - 1)].score;
    // The log probability can only fall. The divisor is largest at the maximum length.
    if (options.exact) return worst >= score(live[0], max_tokens);
    return number_ended >= options.beam && worst >= score(live[0], static_cast<Index>(live[0].tokens.size()));
  }

  std::vector<Hypothesis> best() const {
    const auto n = std::min(ended.size(), static_cast<std::size_t>(options.n_best));
    return {ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>(n)};
  }
};

void check_beams(const BeamOptions& o) {
  require(o.beam >= 1 && o.n_best >= 1 && o.n_best <= o.beam, "beam_search: beam is ", o.beam, " and n_best is ",
          o.n_best, "; both must be 1 or more, and n_best at most beam");
  require(o.alpha >= 0 && std::isfinite(o.alpha), "beam_search: alpha is ", o.alpha, "; it must be 0 or more");
}

// The likeliest continuations of each text of these rows. `logits` has one row per text.
std::vector<std::vector<Candidate>> candidates_of(const std::vector<std::size_t>& rows,
                                                  const std::vector<Search>& searches, const Tensor& logits,
                                                  const BeamOptions& o) {
  const std::size_t many = static_cast<std::size_t>(o.beam) + o.stop_tokens.size();
  std::vector<std::pair<std::size_t, std::int32_t>> texts;  // for each row of the logits: its search, its text in there
  for (const std::size_t row : rows)
    for (std::size_t b = 0; b < searches[row].live.size(); ++b) texts.emplace_back(row, static_cast<std::int32_t>(b));
  std::vector<std::vector<Candidate>> found(texts.size());
  parallel_for_each(static_cast<Index>(texts.size()), 1, [&](Index i) {
    const auto& [row, b] = texts[static_cast<std::size_t>(i)];
    const double so_far = searches[row].live[static_cast<std::size_t>(b)].log_probability;
    found[static_cast<std::size_t>(i)] = likeliest(logits[i], so_far, b, many, o.never);
  });
  return found;
}

}  // namespace

std::vector<std::vector<Hypothesis>> beam_search(DecodeState state, std::span<const Tokens> prompts,
                                                 const BeamOptions& o) {
  check_beams(o);
  check_prompts("beam_search", prompts, o.counts);
  std::vector<Search> searches;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    searches.push_back({.max_tokens = o.counts.empty() ? o.count : o.counts[i], .options = o});
  std::vector<std::size_t> rows(prompts.size());  // rows that continue
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  std::vector<std::vector<Hypothesis>> best(prompts.size());
  if (prompts.empty()) return best;
  const AwakeThreads scope;
  const detail::PaddedTokens padded({prompts.begin(), prompts.end()});
  Tensor logits = state.read(padded.tokens, padded.lengths);
  check_vocabulary("beam_search", "stop token", o.stop_tokens, logits.dim(1));
  check_vocabulary("beam_search", "never token", o.never, logits.dim(1));
  while (true) {
    const std::vector<std::vector<Candidate>> found = candidates_of(rows, searches, logits, o);
    Tokens picked, next;
    std::size_t texts = 0;  // those of the rows so far
    for (const std::size_t row : rows) {
      Search& search = searches[row];
      const std::size_t first = texts;
      texts += search.live.size();
      const Tokens from = search.grow({found.begin() + static_cast<std::ptrdiff_t>(first), search.live.size()});
      if (search.done()) {
        best[row] = search.best();
        if (o.on_done) o.on_done(static_cast<Index>(row));
        continue;
      }
      for (std::size_t b = 0; b < from.size(); ++b)
        picked.push_back(static_cast<std::int32_t>(first) + from[b]), next.push_back(search.live[b].tokens.back());
    }
    std::erase_if(rows, [&](std::size_t row) { return searches[row].done(); });
    if (rows.empty()) return best;
    state = state.rows(Tensor::from(picked));
    logits = state.read(column(next));
  }
}

}  // namespace heed
