// Writes the text of a tokenizer.json for tokenizers that have none.
#include <algorithm>
#include <cmath>
#include <heed/core/names.hpp>
#include <heed/data/detail/base64.hpp>
#include <heed/data/text.hpp>
#include <heed/io/json.hpp>
#include <heed/io/tokenizer/byte_level.hpp>
#include <heed/io/tokenizer/pieces.hpp>
#include <heed/io/tokenizer/text.hpp>
#include <heed/io/tokenizer/vocabulary.hpp>
#include <tuple>

namespace heed::detail::tokenizer {
namespace {

std::string listed(const std::vector<std::string>& items) { return "[" + joined(items, {}, ",") + "]"; }

std::string replace_json(const char* kind, const char* pattern, const char* content) {
  return R"({"type":"Replace","pattern":{")" + std::string(kind) + "\":" + quoted_json(pattern) +
         "},\"content\":" + quoted_json(content) + "}";
}

// The tokens of SentencePiece are merged by score: the pair whose token has the highest score is merged first. So each
// division of a token into two tokens is a merge, and merges are in the order of the scores.
//
// Of several divisions of one token, SentencePiece merges the leftmost pair. Two such pairs can share a token: in
// x|y|z with xy = yz, the left pair is divided at a period of the token, and the right pair is not. So divisions at a
// period are first.
struct PieceMerge {
  float score;
  std::int32_t id;
  bool aperiodic;
  std::uint32_t cut;
  auto key() const { return std::tuple(-score, id, aperiodic, cut); }
};

std::vector<PieceMerge> merges_of(const PieceModel& model, const std::string& who) {
  constexpr std::size_t kLongest = 256;                    // bytes of a token; divisions take their square
  constexpr std::size_t kPerByte = 16, kAlways = 1 << 16;  // bytes of divided tokens; Llama 2 has about 2 per byte
  const auto joins = [&](std::size_t id) {
    return model.type(id) == kNormal || model.type(id) == kUserDefined || model.type(id) == kUnused;
  };
  Vocabulary parts;
  std::size_t left = kAlways;
  for (std::size_t i = 0; i < model.texts.size(); ++i) {
    if (joins(i) && parts.id_of(model.texts[i]) < 0) parts.add(model.texts[i], static_cast<std::int32_t>(i));
    left += kPerByte * model.texts[i].size();
  }
  std::vector<PieceMerge> merges;
  for (std::size_t i = 0; i < model.texts.size(); ++i) {
    if (!joins(i)) continue;
    const std::string_view text = model.texts[i];
    if (!std::isfinite(model.scores[i])) fail(who, "tokenizer.ggml.scores is not finite at index ", i);
    if (text.size() > kLongest)
      fail(who, "tokenizer.ggml.tokens has a text of ", text.size(), " bytes at index ", i, "; it must have at most ",
           kLongest);
    for (std::size_t cut = 0; cut < text.size(); cut += length_at(text, cut)) {
      if (cut == 0 || parts.id_of(text.substr(0, cut)) < 0 || parts.id_of(text.substr(cut)) < 0) continue;
      if (text.size() > left)
        fail(who, "tokenizer.ggml.tokens has texts that are two other tokens in too many ways: these have more than ",
             kPerByte, " times the bytes of all tokens");
      left -= text.size();
      merges.push_back({model.scores[i], static_cast<std::int32_t>(i), !text.starts_with(text.substr(cut)),
                        static_cast<std::uint32_t>(cut)});
    }
  }
  std::ranges::sort(merges, {}, &PieceMerge::key);
  return merges;
}

std::string bpe_json(const PieceModel& model, const std::string& who) {
  std::string merges;
  for (const PieceMerge& m : merges_of(model, who)) {
    const std::string_view text = model.texts[static_cast<std::size_t>(m.id)];
    merges += (merges.empty() ? "[" : ",[") + quoted_json(text.substr(0, m.cut)) + "," +
              quoted_json(text.substr(m.cut)) + "]";
  }
  const std::string unknown =
      model.unknown < 0 ? "null" : quoted_json(model.texts[static_cast<std::size_t>(model.unknown)]);
  return R"("type":"BPE","unk_token":)" + unknown + R"(,"fuse_unk":true,"byte_fallback":)" +
         (model.byte_fallback ? "true," : "false,") + vocabulary_json(model.texts) + ",\"merges\":[" + merges + "]";
}

std::string unigram_json(const PieceModel& model) {
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < model.texts.size(); ++i)
    entries.push_back("[" + quoted_json(model.texts[i]) + "," +
                      formatted("%.9g", static_cast<double>(model.scores[i])) + "]");
  return R"("type":"Unigram","unk_id":)" + (model.unknown < 0 ? "null" : std::to_string(model.unknown)) +
         R"(,"vocab":)" + listed(entries) + R"(,"byte_fallback":)" + (model.byte_fallback ? "true" : "false");
}

}  // namespace

std::string json_of(const PieceModel& model, const std::string& who, const std::string& padding,
                    const std::string& post_processor) {
  std::vector<std::string> normalizers, decoders;
  if (model.unicode != UnicodeForm::none) normalizers.push_back(normalizer_json(model.unicode));
  if (!model.charsmap.empty())
    normalizers.push_back(R"({"type":"Precompiled","precompiled_charsmap":")" + to_base64(model.charsmap) + "\"}");
  if (model.trims) {
    normalizers.push_back(replace_json("Regex", kSeveralSpaces, " "));
    normalizers.push_back(replace_json("Regex", kOuterSpaces, ""));
  }
  if (model.space_prefix) normalizers.push_back(R"({"type":"Prepend","prepend":"▁"})");
  normalizers.push_back(replace_json("String", " ", "▁"));
  decoders = {replace_json("String", "▁", " "), R"({"type":"ByteFallback"})", R"({"type":"Fuse"})"};
  if (model.space_prefix) decoders.push_back(R"({"type":"Strip","content":" ","start":1,"stop":0})");
  return whole_json(padding, added_tokens_json(model.texts, model.types),
                    R"({"type":"Sequence","normalizers":)" + listed(normalizers) + "}", "null", post_processor,
                    R"({"type":"Sequence","decoders":)" + listed(decoders) + "}",
                    model.unigram ? unigram_json(model) : bpe_json(model, who));
}

std::string whole_json(const std::string& padding, const std::string& added_tokens, const std::string& normalizer,
                       const std::string& pre_tokenizer, const std::string& post_processor, const std::string& decoder,
                       const std::string& model) {
  return "{\"version\":\"1.0\",\"truncation\":null,\"padding\":" + padding + ",\"added_tokens\":" + added_tokens +
         ",\"normalizer\":" + normalizer + ",\"pre_tokenizer\":" + pre_tokenizer +
         ",\"post_processor\":" + post_processor + ",\"decoder\":" + decoder + ",\"model\":{" + model + "}}";
}

std::string added_tokens_json(const std::vector<std::string>& texts, const std::vector<std::int32_t>& types) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i] == kControl || types[i] == kUnknown || types[i] == kUserDefined)
      all.push_back("{\"id\":" + std::to_string(i) + ",\"content\":" + quoted_json(texts[i]) +
                    ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":" +
                    (types[i] == kUserDefined ? "false}" : "true}"));
  return listed(all);
}

std::string vocabulary_json(const std::vector<std::string>& texts) {
  std::string all = "\"vocab\":{";
  for (std::size_t i = 0; i < texts.size(); ++i)
    (all += i > 0 ? "," : "") += quoted_json(texts[i]) + ":" + std::to_string(i);
  return all + "}";
}

std::string normalizer_json(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::nfc: return R"({"type":"NFC"})";
    case UnicodeForm::nfkc: return R"({"type":"NFKC"})";
    case UnicodeForm::none: return "null";
  }
  return "null";
}

std::string bytes_json(const std::vector<std::string>& bytes, UnicodeForm form) {
  std::vector<std::string> texts(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) byte_level::append_characters(texts[i], bytes[i]);
  const std::string stage = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";
  return whole_json("null", "[]", normalizer_json(form), stage, "null", stage,
                    R"("type":"BPE",)" + vocabulary_json(texts) + ",\"merges\":[]");
}

std::string characters_json(const std::vector<std::string>& characters, UnicodeForm form) {
  return whole_json("null", "[]", normalizer_json(form),
                    R"({"type":"Split","pattern":{"Regex":)" + quoted_json(kAnyCharacter) +
                        R"(},"behavior":"Isolated","invert":false})",
                    "null", R"({"type":"Fuse"})",
                    R"("type":"WordLevel",)" + vocabulary_json(characters) + R"(,"unk_token":"<unk>")");
}

}  // namespace heed::detail::tokenizer
