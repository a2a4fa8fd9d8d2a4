// Examples for fine-tuning as tokens: marks for the loss, and examples longer than the context.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/fine_tuning.hpp>

namespace heed {
namespace {

// Appends the tokens of a text. Errors name the part of the example and its origin.
void append_tokens(MarkedTokens& to, const Tokenizer& tokenizer, const std::string& text, bool trained,
                   const std::string& part) {
  if (text.empty()) return;
  Tokens tokens;
  try {
    tokens = to.tokens.empty() ? tokenizer.encode(text) : tokenizer.encode_next(text);
  } catch (const EncodeError& e) {
    throw e.at(e.offset(), part);
  }
  to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
  to.trained.resize(to.tokens.size(), trained);
}

void append_token(MarkedTokens& to, const std::optional<std::int32_t>& token, bool trained) {
  if (!token) return;
  to.tokens.push_back(*token);
  to.trained.push_back(trained);
}

MarkedTokens encoded_example(const TextExample& x, const Tokenizer& tokenizer, const TokenExampleOptions& o) {
  MarkedTokens all;
  if (!x.messages.empty()) {
    require(o.encode_chat != nullptr, "fine-tuning: ", x.where,
            " is a conversation; it needs a chat template, as encode_chat");
    all = o.encode_chat(x.messages);
    require(all.trained.size() == all.tokens.size(), "fine-tuning: encode_chat returned ", all.tokens.size(),
            " tokens and ", all.trained.size(), " marks for ", x.where, "; there must be one mark per token");
  } else {
    append_token(all, o.begin, false);
    append_tokens(all, tokenizer, x.prompt, false, "the prompt of " + x.where);
    append_tokens(all, tokenizer, x.completion, true, x.prompt.empty() ? x.where : "the completion of " + x.where);
    append_token(all, o.end, true);
  }
  if (o.all_tokens) all.trained.assign(all.tokens.size(), true);
  return all;
}

// Whether a token after the first of [begin, end) is trained: the first has no input before it.
bool has_target(const MarkedTokens& x, std::size_t begin, std::size_t end) {
  if (end <= begin + 1) return false;
  const auto first = x.trained.begin() + static_cast<std::ptrdiff_t>(begin) + 1;
  return std::find(first, x.trained.begin() + static_cast<std::ptrdiff_t>(end), true) !=
         x.trained.begin() + static_cast<std::ptrdiff_t>(end);
}

}  // namespace

TokenExamples::TokenExamples(const std::vector<TextExample>& examples, const Tokenizer& tokenizer,
                             const TokenExampleOptions& o) {
  require(o.context >= 1, "fine-tuning: context is ", o.context, "; it must be 1 or more");
  for (const auto& mark : {o.begin, o.end})
    require(!mark || *mark >= 0, "fine-tuning: the token ", mark.value_or(0), " begins or ends examples; it must be 0 ",
            "or more");
  for (std::size_t i = 0; i < examples.size(); ++i) {
    TextExample named;
    const TextExample* x = &examples[i];
    if (x->where.empty()) named = *x, named.where = "example " + std::to_string(i + 1), x = &named;
    ++counts_.examples;
    add_example(encoded_example(*x, tokenizer, o), x->where, x->messages.empty() && x->prompt.empty(), o);
  }
  const std::string reasons = counts_.text(o.context);
  require(size() > 0, "fine-tuning: no example remains", reasons.empty() ? "" : ": ", reasons);
}

void TokenExamples::add_example(const MarkedTokens& x, const std::string& where, bool is_text,
                                const TokenExampleOptions& o) {
  const std::size_t count = x.tokens.size(), most = static_cast<std::size_t>(o.context) + 1;
  const bool longer = count > most;
  if (is_text && longer) {
    ++counts_.divided;
    // the last target of a part is the first input of the next
    for (std::size_t begin = 0; begin + 1 < count; begin += most - 1)
      add(x, begin, std::min(begin + most, count), where);
    return;
  }
  if (longer && o.leave_out) {
    ++counts_.left_out;
    return;
  }
  const std::size_t end = std::min(count, most);
  if (!has_target(x, 0, end)) {
    ++counts_.untrained;
    return;
  }
  counts_.cut += longer ? 1 : 0;
  add(x, 0, end, where);
}

void TokenExamples::add(const MarkedTokens& x, std::size_t begin, std::size_t end, const std::string& where) {
  begins_.push_back(tokens_.size());
  origins_.push_back(where);
  for (std::size_t i = begin; i < end; ++i) {
    tokens_.push_back(x.tokens[i]);
    trained_.push_back(x.trained[i]);
    counts_.trained += i > begin && x.trained[i] ? 1 : 0;
  }
  counts_.tokens += static_cast<Index>(end - begin) - 1;
}

Sample TokenExamples::sample(Index i) const {
  detail::check_index("fine-tuning: sample", i, size());
  const auto at = static_cast<std::size_t>(i);
  const std::size_t begin = begins_[at], end = at + 1 < begins_.size() ? begins_[at + 1] : tokens_.size();
  const auto count = static_cast<Index>(end - begin) - 1;
  Tensor inputs = Tensor::empty({count}, DType::int32), targets = Tensor::empty({count}, DType::int32);
  std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(begin), count, inputs.ptr<std::int32_t>());
  for (std::size_t n = begin + 1; n < end; ++n)
    targets.ptr<std::int32_t>()[n - begin - 1] = trained_[n] ? tokens_[n] : kIgnoreIndex;
  return {{"inputs", inputs}, {"targets", targets}};
}

std::string TokenExamples::where(Index i) const {
  detail::check_index("fine-tuning: sample", i, size());
  return origins_[static_cast<std::size_t>(i)];
}

std::string TokenExamples::fingerprint() const {
  detail::ContentHash hash;
  hash.add(tokens_.data(), tokens_.size() * sizeof tokens_[0]);
  hash.add(begins_.data(), begins_.size() * sizeof begins_[0]);
  std::string marks;
  for (const bool mark : trained_) marks += mark ? '1' : '0';
  hash.add(marks);
  return std::to_string(size()) + " examples with the hash " + hash.hex();
}

std::string ExampleCounts::text(Index context) const {
  std::string all;
  const auto tell = [&](Index n, const std::string& one, const std::string& many, const char* done) {
    if (n == 0) return;
    all +=
        (all.empty() ? std::to_string(n) + " of " + std::to_string(examples) + " examples" : "; " + std::to_string(n));
    all += (n == 1 ? " " + one + " and was " : " " + many + " and were ") + done;
  };
  const std::string tokens_of = "longer than " + std::to_string(context) + " tokens";
  tell(divided, "is a text " + tokens_of, "are texts " + tokens_of, "divided");
  tell(cut, "is " + tokens_of, "are " + tokens_of, "cut");
  tell(left_out, "is " + tokens_of, "are " + tokens_of, "left out");
  tell(untrained, "has no token that the loss counts", "have no token that the loss counts", "left out");
  return all;
}

}  // namespace heed
