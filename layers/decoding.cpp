#include <algorithm>
#include <cmath>
#include <heed/layers/language_model.hpp>
#include <numeric>

namespace heed {

void check_sampling(const SamplingOptions& o) {
  require(o.temperature >= 0, "sampling: temperature is ", o.temperature, "; it must be 0 or more");
  require(o.top_k >= 0, "sampling: top_k is ", o.top_k, "; it must be 0 (all) or more");
  require(o.top_p > 0 && o.top_p <= 1, "sampling: top_p is ", o.top_p, "; it must lie in (0, 1]");
}

std::int32_t sample(const Tensor& logits, const SamplingOptions& o, Rng& rng) {
  check_sampling(o);
  require(logits.rank() == 1 && logits.numel() > 0, "sample: logits are ", logits, "; they must be [vocabulary]");
  const std::vector<double> values = logits.to_vector<double>();
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const double u = rng.uniform();
  for (std::size_t i = 0; i < values.size(); ++i)
    require(values[i] < INFINITY, "sample: logit ", i, " is ", values[i], "; it must be a number, or -inf");
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const double x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (o.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  std::sort(order.begin(), order.end(), likelier);
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(o.top_k)));

  const double most = values[static_cast<std::size_t>(order[0])];
  require(most > -INFINITY, "sample: all logits are -inf; one must be a number");
  std::vector<double> weights;
  for (std::int32_t i : order)
    weights.push_back(std::exp((values[static_cast<std::size_t>(i)] - most) / o.temperature));
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (o.top_p < 1) {
    double reached = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && reached < o.top_p * sum) reached += weights[kept++];
    weights.resize(kept);
    sum = reached;
  }
  double rest = u * sum;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[weights.size() - 1];
}

namespace {

// A text that grows.
struct Row {
  std::vector<std::int32_t> text;
  std::size_t prompt = 0;  // tokens of the prompt
  std::size_t begin = 0;   // tokens before it are not seen any more
  std::size_t read = 0;    // those before it are in the states
  Rng* rng;

  std::span<const std::int32_t> made() const { return std::span(text).subspan(prompt); }
};

// Rows that take their steps together, and the states that have read them.
struct Group {
  std::vector<Row*> rows;
  std::vector<AttentionState> states = {};

  // Takes out the rows of which `leaves` holds, and gives them back.
  template <class Leaves>
  std::vector<Row*> take_out(const Leaves& leaves) {
    std::vector<Row*> gone, stay;
    std::vector<std::int32_t> places;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      (leaves(*rows[i]) ? gone : stay).push_back(rows[i]);
      if (gone.empty() || gone.back() != rows[i]) places.push_back(static_cast<std::int32_t>(i));
    }
    if (gone.empty()) return gone;
    rows = stay;
    if (!rows.empty()) states = pick_rows(states, Tensor::from(places, {static_cast<Index>(places.size())}));
    return gone;
  }
};

// Logits [rows, vocabulary] of what follows each text, of which all is read.
Tensor read_on(const GPT& model, Group& group) {
  std::vector<std::int32_t> counts;
  for (Row* row : group.rows) counts.push_back(static_cast<std::int32_t>(row->text.size() - row->read));
  const Index rows = static_cast<Index>(counts.size()), most = *std::ranges::max_element(counts);
  Tensor x = Tensor::zeros({rows, most}, DType::int32);
  for (Index i = 0; i < rows; ++i) {
    Row& row = *group.rows[static_cast<std::size_t>(i)];
    std::copy(row.text.begin() + static_cast<std::ptrdiff_t>(row.read), row.text.end(),
              x.ptr<std::int32_t>() + i * most);
    row.read = row.text.size();
  }
  AttentionCall call;
  if (*std::ranges::min_element(counts) < most) call.key_lengths = Tensor::from(counts, {rows});
  return model.decode(x, group.states, call);
}

// Each row goes on until `on_token` says that a token is its last.
void generate_rows(const GPT& model, std::vector<Row>& rows, const SamplingOptions& sampling,
                   const std::function<bool(const Row& row, std::int32_t token)>& is_last) {
  const NoTape no_tape;
  const Evaluation evaluation;
  const auto context = static_cast<std::size_t>(model.options().context);
  std::vector<Group> groups(1);
  for (Row& row : rows) {
    row.prompt = row.text.size();
    row.begin = row.read = row.text.size() > context ? row.text.size() - context : 0;
    groups[0].rows.push_back(&row);
  }
  while (!groups.empty()) {
    // Texts that leave the context are read anew from their last half on, by states of their own.
    for (std::size_t g = 0, count = groups.size(); g < count; ++g) {
      Group anew{groups[g].take_out([&](const Row& row) { return row.text.size() - row.begin > context; })};
      for (Row* row : anew.rows) row->begin = row->read = row->text.size() - std::max<std::size_t>(1, context / 2);
      if (!anew.rows.empty()) groups.push_back(std::move(anew));
    }
    for (Group& group : groups) {
      if (group.rows.empty()) continue;
      const Tensor logits = read_on(model, group);
      Index i = 0;
      std::vector<Row*> done;
      for (Row* row : group.rows) {
        row->text.push_back(sample(logits[i++], sampling, *row->rng));
        if (is_last(*row, row->text.back())) done.push_back(row);
      }
      group.take_out([&](const Row& row) { return std::ranges::find(done, &row) != done.end(); });
    }
    std::erase_if(groups, [](const Group& group) { return group.rows.empty(); });
  }
}

}  // namespace

std::vector<std::int32_t> generate(const GPT& model, std::span<const std::int32_t> prompt, Index count,
                                   const SamplingOptions& o, Rng& rng,
                                   const std::function<bool(std::int32_t)>& on_token) {
  check_sampling(o);
  require(!prompt.empty(), "generate: the prompt is empty; it needs one token or more");
  if (count <= 0) return {};
  std::vector<Row> rows = {{.text = {prompt.begin(), prompt.end()}, .rng = &rng}};
  generate_rows(model, rows, o, [&](const Row& row, std::int32_t token) {
    return (on_token && !on_token(token)) || static_cast<Index>(row.made().size()) >= count;
  });
  return {rows[0].made().begin(), rows[0].made().end()};
}

std::vector<std::vector<std::int32_t>> generate(const GPT& model, std::span<const std::vector<std::int32_t>> prompts,
                                                const GenerateOptions& o) {
  check_sampling(o.sampling);
  std::vector<std::vector<std::int32_t>> texts(prompts.size());
  std::vector<Rng> generators;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    require(!prompts[i].empty(), "generate: prompt ", i, " is empty; it needs one token or more");
    generators.emplace_back(o.seed, o.stream + i);
  }
  if (o.count <= 0 || prompts.empty()) return texts;
  std::vector<Row> rows;
  for (std::size_t i = 0; i < prompts.size(); ++i) rows.push_back({.text = prompts[i], .rng = &generators[i]});
  generate_rows(model, rows, o.sampling, [&](const Row& row, std::int32_t token) {
    const bool goes_on = !o.on_token || o.on_token(&row - rows.data(), token);
    return !goes_on || std::ranges::find(o.stop_tokens, token) != o.stop_tokens.end() ||
           static_cast<Index>(row.made().size()) >= o.count;
  });
  for (std::size_t i = 0; i < prompts.size(); ++i) texts[i] = {rows[i].made().begin(), rows[i].made().end()};
  return texts;
}

}  // namespace heed
