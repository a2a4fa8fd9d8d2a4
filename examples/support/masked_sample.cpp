// Encodes texts with masks, and formats the tokens that a model fills in.
#include "examples/support/masked_sample.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <heed/autograd/reductions.hpp>

namespace heed::examples {
namespace {

const std::string kMask = "[MASK]";

// The text of a token on its own.
std::string alone(const Tokenizer& tokenizer, std::int32_t id) {
  StreamDecoder decoder(tokenizer);
  return decoder.next(id) + decoder.finish();
}

// The most likely tokens except the mask, which is the last one.
Tokens likeliest(const BERT& model, const Tokens& tokens, std::int32_t mask) {
  const NoTape no_tape;
  const Evaluation evaluation;
  const Tensor logits = model(Tensor::from(tokens, {1, static_cast<Index>(tokens.size())}));
  return argmax(logits.slice(2, 0, mask), -1).to_vector<std::int32_t>();
}

// The tokens as text. Each hidden token is replaced by show(position, text of its token in `fill`).
template <class Show>
std::string with_places(const Tokenizer& tokenizer, const Tokens& tokens, const Tokens& fill, std::int32_t mask,
                        const Show& show) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::int32_t id = tokens[t] == mask ? fill[t] : tokens[t];
    std::string piece = decoder.next(id);
    if (tokens[t] != mask) {
      text += piece;
      continue;
    }
    if (piece.size() > 1 && piece[0] == ' ') piece.erase(0, 1), text += ' ';  // a word after a space
    text += show(t, piece.empty() ? alone(tokenizer, id) : piece == "\n" ? "\\n" : piece);
  }
  return text + decoder.finish();
}

}  // namespace

Tokens masked_tokens(const Tokenizer& tokenizer, const std::string& text, std::int32_t mask, Index context) {
  require(text.find(kMask) != std::string::npos, "--prompt: there is no [MASK] in '", text,
          "'; a masked model replaces each [MASK] with one token");
  Tokens ids;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(text.find(kMask, begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const Tokens more = begin == 0 ? tokenizer.encode(part) : tokenizer.encode_next(part);
    ids.insert(ids.end(), more.begin(), more.end());
    if (end == text.size()) break;
    ids.push_back(mask);
    begin = end + kMask.size();
  }
  require(static_cast<Index>(ids.size()) <= context, "--prompt: it has ", ids.size(), " tokens, but the context is ",
          context);
  return ids;
}

std::string filled_in(const Tokenizer& tokenizer, const Tokens& tokens, const Tokens& predicted, const Tokens& truth,
                      std::int32_t mask, bool colours) {
  const auto painted = [&](const std::string& text, const char* colour) {
    return colours ? std::string("\x1b[") + colour + "m" + text + "\x1b[0m" : text;
  };
  return with_places(tokenizer, tokens, predicted, mask, [&](std::size_t t, const std::string& word) {
    if (truth.empty() || predicted[t] == truth[t]) return painted("[" + word + "]", "32");
    return painted("{" + word + "|" + alone(tokenizer, truth[t]) + "}", "31");
  });
}

std::string filled_in(const BERT& model, const Tokenizer& tokenizer, const Tokens& tokens, const Tokens& truth,
                      std::int32_t mask, bool colours) {
  return filled_in(tokenizer, tokens, likeliest(model, tokens, mask), truth, mask, colours);
}

void print_filled_in(const BERT& model, const Tokenizer& tokenizer, const EvaluationSet& texts, MaskOptions masks,
                     const std::string& prompt, Index count, std::uint64_t seed) {
  const bool colours = isatty(STDOUT_FILENO) == 1;
  if (!prompt.empty()) {
    const Tokens tokens = masked_tokens(tokenizer, prompt, masks.mask, model.options().context);
    std::printf("%s\n", filled_in(model, tokenizer, tokens, {}, masks.mask, colours).c_str());
    return;
  }
  if (texts.size() == 0) {
    std::printf("there is no held-out text to fill in: --val-fraction is 0\n");
    return;
  }
  masks.masked = 1, masks.random = 0;  // every chosen token becomes a mask
  const MaskedEvaluation hidden(texts, masks, seed);
  std::string question, answer;
  for (Index i = 0, left = count; i < texts.size() && left > 0; ++i) {
    const Tensor all = hidden.batch(i).inputs, original = texts.batch(i).inputs;
    for (Index row = 0; row < all.dim(0) && left > 0; ++row) {
      const Index length = std::min(left, all.dim(1));
      const auto tokens = all[row].slice(0, 0, length).to_vector<std::int32_t>(),
                 truth = original[row].slice(0, 0, length).to_vector<std::int32_t>();
      question +=
          with_places(tokenizer, tokens, truth, masks.mask, [](std::size_t, const std::string&) { return "_"; }) + "\n";
      answer += filled_in(model, tokenizer, tokens, truth, masks.mask, colours) + "\n";
      left -= length;
    }
  }
  std::printf("held-out text with hidden tokens:\n%s\nfilled in; [right], {wrong|truth}:\n%s", question.c_str(),
              answer.c_str());
}

}  // namespace heed::examples
