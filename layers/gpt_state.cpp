// The decode state of a GPT: rows of any lengths, and continuation beyond the context.
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/gpt.hpp>

namespace heed {
namespace {

// A text that grows.
struct Row {
  Tokens text = {};
  std::size_t begin = 0;  // tokens before this index are no longer visible
  std::size_t read = 0;   // tokens before this index are in the states
};

// Rows that are read together, and their states.
struct Group {
  std::vector<std::size_t> rows = {};
  std::vector<AttentionState> states = {};

  // A group of the rows at `places` in this group. `names` are their new row numbers.
  Group chosen(const std::vector<std::int32_t>& places, std::vector<std::size_t> names) const {
    bool same = places.size() == rows.size();
    for (std::size_t i = 0; same && i < places.size(); ++i) same = places[i] == static_cast<std::int32_t>(i);
    if (same || states.empty() || places.empty()) return {std::move(names), states};
    return {std::move(names), pick_rows(states, Tensor::from(places))};
  }
};

// The type that a DecodeState holds: the texts of all rows, in groups. Rows that exceed the context in the same step
// form a new group.
struct GptState {
  const GPT* model;
  std::vector<Row> texts = {};
  std::vector<Group> groups = {};

  Tensor read(const Tensor& tokens, const Tensor& lengths) {
    const Index count = tokens.dim(0), max_length = tokens.dim(1);
    if (texts.empty()) begin(static_cast<std::size_t>(count));
    check(static_cast<std::size_t>(count) == texts.size(), Where::current(), "GPT: tokens are ", tokens,
          "; they must be int32 [", texts.size(), ", 1 or more]");
    const Tensor all = tokens.dense();
    const bool first = texts[0].text.empty();
    for (Index i = 0; i < count; ++i) {
      Row& row = texts[static_cast<std::size_t>(i)];
      const std::int32_t* from = all.ptr<std::int32_t>() + i * max_length;
      row.text.insert(row.text.end(), from, from + (lengths.defined() ? lengths.ptr<std::int32_t>()[i] : max_length));
    }
    leave_context(first);
    std::vector<Tensor> logits;
    Tokens places(texts.size());
    std::int32_t at = 0;
    for (Group& group : groups) {
      logits.push_back(read_on(group));
      for (const std::size_t row : group.rows) places[row] = at++;
    }
    if (groups.size() == 1) return logits[0];
    return index_select(concatenate(logits, 0), 0, Tensor::from(places, {count}));
  }

  GptState rows(const Tensor& indices) const {
    const std::vector<std::int32_t> from = indices.to_vector<std::int32_t>();
    GptState s{model};
    for (const std::int32_t i : from) s.texts.push_back(texts[static_cast<std::size_t>(i)]);
    for (const Group& group : groups) {
      Tokens places;
      std::vector<std::size_t> names;
      for (std::size_t i = 0; i < from.size(); ++i) {
        const auto found = std::ranges::find(group.rows, static_cast<std::size_t>(from[i]));
        if (found == group.rows.end()) continue;
        places.push_back(static_cast<std::int32_t>(found - group.rows.begin())), names.push_back(i);
      }
      if (!places.empty()) s.groups.push_back(group.chosen(places, std::move(names)));
    }
    return s;
  }

 private:
  void begin(std::size_t count) {
    texts.resize(count);
    groups.emplace_back();
    for (std::size_t i = 0; i < count; ++i) groups[0].rows.push_back(i);
  }

  // Texts that exceed the context are read again from their last half context, with new states. For prompts longer than
  // the context, only the last `context` tokens are read.
  void leave_context(bool prompts) {
    const auto context = static_cast<std::size_t>(model->options().context);
    if (prompts) {
      for (Row& row : texts) row.begin = row.read = row.text.size() > context ? row.text.size() - context : 0;
      return;
    }
    for (std::size_t g = 0, count = groups.size(); g < count; ++g) {
      Tokens remaining;
      std::vector<std::size_t> names;
      Group restarted;
      for (std::size_t i = 0; i < groups[g].rows.size(); ++i) {
        const std::size_t name = groups[g].rows[i];
        Row& row = texts[name];
        if (row.text.size() - row.begin > context) {
          row.begin = row.read = row.text.size() - std::max<std::size_t>(1, context / 2);
          restarted.rows.push_back(name);
        } else {
          remaining.push_back(static_cast<std::int32_t>(i)), names.push_back(name);
        }
      }
      if (restarted.rows.empty()) continue;
      groups[g] = groups[g].chosen(remaining, std::move(names));
      groups.push_back(std::move(restarted));
    }
    std::erase_if(groups, [](const Group& group) { return group.rows.empty(); });
  }

  // Reads all unread tokens of the group. Returns the logits [rows, vocabulary] of each row's next token.
  Tensor read_on(Group& group) {
    std::vector<std::span<const std::int32_t>> unread;
    for (const std::size_t i : group.rows) {
      unread.push_back(std::span(texts[i].text).subspan(texts[i].read));
      texts[i].read = texts[i].text.size();
    }
    const detail::PaddedTokens padded(unread);
    return model->decode(padded.tokens, group.states, {.key_lengths = padded.lengths});
  }
};

}  // namespace

DecodeState GPT::make_state() const {
  require(options_.causal,
          "GPT: this model is not causal: positions see later positions, so it cannot continue a text");
  return GptState{this};
}

}  // namespace heed
