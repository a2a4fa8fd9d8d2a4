// Vectors of texts.
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/mode.hpp>
#include <heed/io/pretrained.hpp>
#include <numeric>

namespace heed {
namespace {

// The tokens of a text between the tokens that the tokenizer adds, at most `max`.
Tokens tokens_of(const Tokenizer& tokenizer, const std::string& text, Index max) {
  Tokens ids = tokenizer.encode(text);
  const auto first = tokenizer.special("<s>"), last = tokenizer.special("</s>");
  const Index room = std::max<Index>(0, max - first.has_value() - last.has_value());
  if (static_cast<Index>(ids.size()) > room) ids.resize(static_cast<std::size_t>(room));
  if (first) ids.insert(ids.begin(), *first);
  if (last) ids.push_back(*last);
  return ids;
}

// The vectors of a row's tokens become its vector.
void pool(const SentencePooling& pooling, const float* tokens, Index count, Index width, float* to) {
  const Index used = pooling.kind == SentencePooling::Kind::first ? 1 : count;
  for (Index j = 0; j < width; ++j) {
    double sum = 0, largest = -std::numeric_limits<double>::infinity();
    for (Index i = 0; i < used; ++i) {
      const double x = tokens[i * width + j];
      sum += x, largest = std::max(largest, x);
    }
    to[j] = static_cast<float>(pooling.kind == SentencePooling::Kind::max ? largest : sum / static_cast<double>(used));
  }
  if (!pooling.normalized) return;
  double square = 0;
  for (Index j = 0; j < width; ++j) square += static_cast<double>(to[j]) * to[j];
  const double length = std::max(std::sqrt(square), 1e-12);
  for (Index j = 0; j < width; ++j) to[j] = static_cast<float>(to[j] / length);
}

}  // namespace

Tensor encode_texts(const Pretrained& p, const std::vector<std::string>& texts, Index batch) {
  require(p.pooling.has_value(),
          "encode_texts: the model has no pooling (1_Pooling/config.json); set Pretrained::pooling");
  require(batch > 0, "encode_texts: batch is ", batch, "; it must be 1 or more");
  const NoTape no_tape;
  const Evaluation evaluation;
  const GPTOptions& o = p.lm.model.options();
  const Index max = p.pooling->max_tokens > 0 ? std::min(p.pooling->max_tokens, o.context) : o.context;
  const Index width = o.blocks.attention.width;
  std::vector<Tokens> ids;
  for (const std::string& text : texts) ids.push_back(tokens_of(p.lm.tokenizer, text, max));
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return ids[i].size(); });
  Tensor all = Tensor::zeros({static_cast<Index>(texts.size()), width});
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(batch)) {
    const std::size_t end = std::min(order.size(), begin + static_cast<std::size_t>(batch));
    const auto longest = static_cast<Index>(ids[order[end - 1]].size()), rows = static_cast<Index>(end - begin);
    if (longest == 0) continue;
    Tensor x = Tensor::zeros({rows, longest}, DType::int32), lengths = Tensor::zeros({rows}, DType::int32);
    for (std::size_t i = begin; i < end; ++i) {
      const Tokens& row = ids[order[i]];
      std::ranges::copy(row, x.mutable_data<std::int32_t>() + static_cast<Index>(i - begin) * longest);
      lengths.mutable_data<std::int32_t>()[i - begin] = static_cast<std::int32_t>(row.size());
    }
    const Tensor hidden = p.lm.model.hidden(x, {.key_lengths = lengths}).to(DType::float32).contiguous();
    for (std::size_t i = begin; i < end; ++i) {
      const auto count = static_cast<Index>(ids[order[i]].size());
      if (count == 0) continue;
      pool(*p.pooling, hidden.data<float>() + static_cast<Index>(i - begin) * longest * width, count, width,
           all.mutable_data<float>() + static_cast<Index>(order[i]) * width);
    }
  }
  return all;
}

}  // namespace heed
