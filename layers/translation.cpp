// Translation of texts, and translators in checkpoints.
#include <algorithm>
#include <heed/autograd/reductions.hpp>
#include <heed/data/samples.hpp>
#include <heed/layers/translation.hpp>
#include <limits>

namespace heed {
namespace {

TranslationModel build(const Seq2SeqConfig& c, Rng& rng) { return Seq2Seq(c.options, rng, c.factory()); }
TranslationModel build(const TransformerSeq2SeqConfig& c, Rng& rng) {
  return TransformerSeq2Seq(c.options, rng, c.factory());
}
TranslationModel build(const ConvS2SConfig& c, Rng& rng) { return ConvS2S(c.options, rng); }
TranslationModel build(const ByteNetConfig& c, Rng& rng) { return ByteNet(c.options, rng); }

// Throws Error if load_translator() could not build the model.
template <class Config>
void check_mechanisms(const Config& config) {
  if constexpr (requires { config.factory(); }) config.factory();
}

// The tokens of a text that the encoder reads.
Tokens source_tokens(const Translator& t, const std::string& text) {
  Tokens ids = t.source.encode(text);
  if (!ids.empty()) ids.push_back(text_marks(t.source).end);
  return ids;
}

// Rows of token ids, padded, and their lengths.
std::pair<Tensor, Tensor> padded(const std::vector<Tokens>& rows) {
  std::vector<Sample> samples;
  for (const Tokens& row : rows) samples.push_back({{"source", Tensor::from(row)}});
  Batch b = collate(samples, {{"source", {.lengths = true}}});
  return {b["source"], b["source_lengths"]};
}

}  // namespace

TranslationModel make_translation_model(const TranslationConfig& config, Rng& rng) {
  return std::visit([&](const auto& c) { return build(c, rng); }, config);
}

TranslationModel make_translation_model(const TranslationConfig& config, const Checkpoint& values) {
  TranslationModel made = [&] {
    const detail::SkipInit skip;
    Rng rng;
    return make_translation_model(config, rng);
  }();
  std::visit([&](auto& model) { load_model(values, model); }, made);
  return made;
}

std::map<std::string, std::string> translator_texts(const TranslationConfig& config, const Tokenizer& source,
                                                    const Tokenizer& target) {
  std::visit([](const auto& c) { check_mechanisms(c); }, config);
  return {{"config", std::visit([](const auto& c) { return to_json(c); }, config)},
          {"source_tokenizer", source.to_json()},
          {"target_tokenizer", target.to_json()}};
}

TranslationConfig translation_config(const Checkpoint& checkpoint) {
  const std::string& json = checkpoint.text("config");
  std::string kind;
  OptionFields(json, checkpoint.source)("model", kind);
  if (kind == "seq2seq") return from_json<Seq2SeqConfig>(json, checkpoint.source);
  if (kind == "convs2s") return from_json<ConvS2SConfig>(json, checkpoint.source);
  if (kind == "bytenet") return from_json<ByteNetConfig>(json, checkpoint.source);
  require(kind == "transformer-seq2seq", checkpoint.source, ": the model is ", kind,
          "; a translator requires seq2seq, transformer-seq2seq, convs2s or bytenet");
  return from_json<TransformerSeq2SeqConfig>(json, checkpoint.source);
}

Translator load_translator(const std::filesystem::path& file) { return load_translator(load_checkpoint(file)); }

Translator load_translator(const Checkpoint& c) {
  const TranslationConfig config = translation_config(c);
  const Tokenizer source = Tokenizer::from_json(c.text("source_tokenizer")),
                  target = Tokenizer::from_json(c.text("target_tokenizer"));
  std::visit(
      [&](const auto& any) {
        const Index sources = text_marks(source).vocabulary, targets = text_marks(target).vocabulary;
        require(any.options.source_vocabulary == sources && any.options.target_vocabulary == targets, c.source,
                ": the tokenizers have ", sources, " and ", targets, " tokens and the model ",
                any.options.source_vocabulary, " and ", any.options.target_vocabulary, "; they must agree");
        // Before memory is allocated for tensors that the file does not have.
        const Shape& embedding = c.tensor("model/source.weight").shape();
        require(embedding.rank() == 2 && embedding[0] == sources, c.source, ": source.weight is ", embedding, " but ",
                "the configuration has ", sources, " tokens; they must agree");
      },
      config);
  return {make_translation_model(config, c), source, target};
}

namespace {

// The tokens of each text. Throws Error with the number of a text that cannot be encoded or is too long.
std::vector<Tokens> tokens_of_texts(const Translator& t, std::span<const std::string> texts,
                                    const TranslateOptions& o) {
  std::vector<Tokens> sources;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      sources.push_back(source_tokens(t, texts[i]));
    } catch (const EncodeError& e) {
      fail("translate: ", o.name, " ", i + 1, ": ", e.what());
    }
    const Index tokens = std::ssize(sources[i]) - 1;
    require(o.longest == 0 || tokens <= o.longest, "translate: ", o.name, " ", i + 1, " has ", tokens,
            " tokens, but longest is ", o.longest, "; split it, or increase longest (--longest)");
  }
  return sources;
}

void check_options(const TranslateOptions& o) {
  require(o.batch_tokens >= 1 && o.max_per_token >= 0 && o.max_extra_tokens >= 0 && o.longest >= 0,
          "translate: batch_tokens is ", o.batch_tokens, ", max_per_token is ", o.max_per_token,
          ", max_extra_tokens is ", o.max_extra_tokens, " and longest is ", o.longest,
          "; batch_tokens must be 1 or more, the others 0 or more");
}

// The maximum number of tokens that the decoder can read: those that have a vector of their position.
Index max_tokens(const TranslationModel& model) {
  const auto of = [](const auto& m) -> Index {
    if constexpr (requires { m.target.bounded(); })
      if (m.target.bounded()) return m.options().context;
    return std::numeric_limits<Index>::max();
  };
  return std::visit(of, model);
}

BeamOptions search_options(const Translator& t, const TranslateOptions& o) {
  const TextMarks marks = text_marks(t.target);
  BeamOptions search{.beam = o.beam, .stop_tokens = {marks.end}, .penalty = o.penalty, .alpha = o.alpha};
  search.never.push_back(marks.begin);
  if (const auto pad = t.target.special("<pad>")) search.never.push_back(*pad);
  if (const auto unknown = t.target.special("<unk>"); unknown && !o.unknown) search.never.push_back(*unknown);
  return search;
}

}  // namespace

std::vector<std::string> translate(const Translator& t, std::span<const std::string> texts, const TranslateOptions& o) {
  check_options(o);
  std::vector<std::string> made(texts.size());
  const std::vector<Tokens> sources = tokens_of_texts(t, texts, o);
  std::vector<std::size_t> order;  // longest first, so that a batch has texts of similar lengths
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (!sources[i].empty()) order.push_back(i);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return sources[a].size() > sources[b].size(); });
  const TextMarks marks = text_marks(t.target);
  BeamOptions search = search_options(t, o);
  const Index longest_target = max_tokens(t.model);
  if (o.on_done) o.on_done(static_cast<Index>(texts.size() - order.size()));
  for (std::size_t first = 0; first < order.size();) {
    const auto longest = static_cast<Index>(sources[order[first]].size());
    const auto rows = static_cast<std::size_t>(std::max<Index>(1, o.batch_tokens / longest));
    const std::size_t last = std::min(order.size(), first + rows);
    std::vector<Tokens> batch;
    search.counts.clear();
    for (std::size_t i = first; i < last; ++i) {
      batch.push_back(sources[order[i]]);
      const auto length = static_cast<double>(batch.back().size());
      const Index count = static_cast<Index>(std::min(o.max_per_token * length, 1e9)) + o.max_extra_tokens;
      search.counts.push_back(std::min(count, longest_target));
    }
    const auto [source, lengths] = padded(batch);
    const DecodeState state = std::visit(
        [&source = source, &lengths = lengths](const auto& m) { return m.make_state(source, lengths); }, t.model);
    const std::vector<Tokens> prompts(batch.size(), {marks.begin});
    const auto best = beam_search(state, prompts, search);
    for (std::size_t i = first; i < last; ++i) {
      if (best[i - first].empty()) continue;
      Tokens ids = best[i - first][0].tokens;
      if (!ids.empty() && ids.back() == marks.end) ids.pop_back();
      made[order[i]] = t.target.decode(ids);
    }
    if (o.on_done) o.on_done(static_cast<Index>(last - first));
    first = last;
  }
  return made;
}

Alignment align(const Translator& t, const std::string& source, const std::string& target) {
  Alignment a{source_tokens(t, source), t.target.encode(target), {}};
  require(!a.source.empty(), "align: the source has no tokens; it must have at least one");
  const TextMarks marks = text_marks(t.target);
  Tokens inputs = {marks.begin};
  inputs.insert(inputs.end(), a.target.begin(), a.target.end());
  a.target.push_back(marks.end);
  Batch b;
  b["source"] = Tensor::from(a.source, {1, static_cast<Index>(a.source.size())});
  b.inputs = Tensor::from(inputs, {1, static_cast<Index>(inputs.size())});
  b.targets = Tensor::from(a.target, {1, static_cast<Index>(a.target.size())});
  const std::vector<Tensor> weights = std::visit([&](const auto& m) { return m.attention_weights(b); }, t.model);
  a.weights = mean(weights.back(), {1}).select(0, 0);
  return a;
}

}  // namespace heed
