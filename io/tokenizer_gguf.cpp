// Tokenizers inside GGUF files: writes the tokenizer.json that tokenizer.ggml.* describe.
#include <algorithm>
#include <array>
#include <cmath>
#include <heed/data/text.hpp>
#include <heed/io/detail/gguf_tokenizer.hpp>
#include <heed/io/json.hpp>
#include <heed/io/tokenizer/text.hpp>
#include <heed/io/tokenizer/vocabulary.hpp>
#include <heed/io/tokenizer_gguf.hpp>

namespace heed {

using namespace detail::gguf;
using namespace detail::tokenizer;

namespace {

// Reads tokenizer.ggml.*.
class GgufTokenizer {
 public:
  explicit GgufTokenizer(const GgufFile& file) : file_(file), tokens_(file.array<std::string>(kTokensKey)) {
    check_keys();
    for (std::size_t i = 0; i < tokens_.size(); ++i) check_text(kTokensKey, i, tokens_[i]);
    if (!file_.has(kTypesKey)) return;
    types_ = file_.array<std::int32_t>(kTypesKey);
    if (types_.size() != tokens_.size())
      refuse(kTypesKey, "has ", types_.size(), " values; it must have one per token, ", tokens_.size());
  }

  // The text of the tokenizer.json.
  std::string json() const {
    const std::string& model = file_.text(kModelKey);
    if (model == "gpt2") return byte_level();
    if (model == "llama") return scored();
    if (model == "bert") return word_piece();
    refuse(kModelKey, "is \"", excerpt(model), "\"; it must be gpt2, llama or bert");
  }

  // The token that a key names by its id.
  std::size_t token(const char* key) const {
    const std::uint64_t id = file_.number(key);
    if (id >= tokens_.size()) refuse(key, "is ", id, "; the file has ", tokens_.size(), " tokens");
    return static_cast<std::size_t>(id);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const char* key, const Parts&... parts) const {
    fail("load_tokenizer: ", file_.name(), ": ", key, " ", parts...);
  }
  void check_keys() const;
  void check_text(const char* key, std::size_t i, const std::string& text) const {
    if (find_invalid_utf8(text)) refuse(key, "has a text that is not UTF-8 at index ", i);
  }
  std::int32_t type(std::size_t id) const { return types_.empty() ? kNormal : types_[id]; }
  bool is_added(std::size_t id) const {
    return type(id) == kControl || type(id) == kUnknown || type(id) == kUserDefined;
  }
  bool flag(const char* key, bool otherwise) const { return file_.has(key) ? file_.flag(key) : otherwise; }

  // The parts of the file around the model.
  std::string whole(const std::string& normalizer, const std::string& pre_tokenizer, const std::string& post_processor,
                    const std::string& decoder, const std::string& model) const {
    return "{\"version\":\"1.0\",\"truncation\":null,\"padding\":" + padding() + ",\"added_tokens\":" + added_tokens() +
           ",\"normalizer\":" + normalizer + ",\"pre_tokenizer\":" + pre_tokenizer +
           ",\"post_processor\":" + post_processor + ",\"decoder\":" + decoder + ",\"model\":{" + model + "}}";
  }

  std::string byte_level() const;
  std::string scored() const;
  std::string word_piece() const;

  const Pre& pre() const;
  std::string added_tokens() const;
  std::string padding() const;
  std::string frame(const std::vector<const char*>& before, const std::vector<const char*>& after) const;
  std::string frame_of_flags(bool begin) const;
  template <class Text>
  std::string vocabulary(const Text& text) const;
  std::string plain_vocabulary() const {
    return vocabulary([](std::size_t, const std::string& text) { return text; });
  }
  struct Division;
  std::vector<Division> divisions() const;
  std::string merges_by_score() const;

  const GgufFile& file_;
  const std::vector<std::string>& tokens_;
  std::vector<std::int32_t> types_;  // empty: all normal
};

// Keys of other programs are refused. Ids of named tokens change no tokens of a text; the number of token types is the
// model's; texts of other programs are copies.
void GgufTokenizer::check_keys() const {
  constexpr std::string_view kRead[] = {kModelKey,     kPreNameKey,      kTokensKey, kTypesKey, kScoresKey, kMergesKey,
                                        kLowercaseKey, kStripAccentsKey, kAddBegin,  kAddEnd,   kAddSpace};
  constexpr std::string_view kWithoutEffect[] = {"tokenizer.ggml.token_type_count", "tokenizer.ggml.add_sep_token",
                                                 "tokenizer.huggingface.json", "tokenizer.chat_templates",
                                                 "tokenizer.chat_template"};
  constexpr char kTrims[] = "tokenizer.ggml.remove_extra_whitespaces";
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with("tokenizer.") || key.starts_with("tokenizer.chat_template.")) continue;
    const bool is_known = std::ranges::find(kRead, key) != std::end(kRead) ||
                          std::ranges::find(kWithoutEffect, key) != std::end(kWithoutEffect) ||
                          (key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id"));
    if (!is_known && key != kTrims) refuse(key.c_str(), "is a field that heed does not know; its effect would be lost");
  }
  if (flag(kTrims, false)) refuse(kTrims, "is true; heed supports only false");
}

const Pre& GgufTokenizer::pre() const {
  const std::string& name = file_.text(kPreNameKey);
  const auto found = std::ranges::find(kPre, name, &Pre::name);
  if (found != std::end(kPre)) return *found;
  std::string names;
  for (const Pre& known : kPre) (names += names.empty() ? "" : ", ") += known.name;
  refuse(kPreNameKey, "is \"", excerpt(name), "\"; it must be one of ", names);
}

std::string GgufTokenizer::added_tokens() const {
  std::string all;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (is_added(i))
      all += std::string(all.empty() ? "" : ",") + "{\"id\":" + std::to_string(i) +
             ",\"content\":" + detail::quoted_json(tokens_[i]) +
             ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":" +
             (type(i) == kUserDefined ? "false}" : "true}");
  return "[" + all + "]";
}

std::string GgufTokenizer::padding() const {
  if (!file_.has(kPaddingKey)) return "null";
  const std::size_t id = token(kPaddingKey);
  return "{\"strategy\":\"BatchLongest\",\"direction\":\"Right\",\"pad_to_multiple_of\":null,\"pad_id\":" +
         std::to_string(id) + ",\"pad_type_id\":0,\"pad_token\":" + detail::quoted_json(tokens_[id]) + "}";
}

// A post-processor that adds the tokens that keys name.
std::string GgufTokenizer::frame(const std::vector<const char*>& before, const std::vector<const char*>& after) const {
  std::string tokens;
  const auto add = [&](const char* key) {
    const std::string id = std::to_string(token(key)), name = detail::quoted_json(id);
    if (tokens.find(name + ":") == tokens.npos)
      tokens += (tokens.empty() ? "" : ",") + name + ":{\"id\":" + name + ",\"ids\":[" + id + "],\"tokens\":[" +
                detail::quoted_json(tokens_[token(key)]) + "]}";
    return "{\"SpecialToken\":{\"id\":" + name + ",\"type_id\":0}}";
  };
  std::string single;
  for (const char* key : before) single += add(key) + ",";
  single += R"({"Sequence":{"id":"A","type_id":0}})";
  for (const char* key : after) single += "," + add(key);
  return R"({"type":"TemplateProcessing","single":[)" + single + R"(],"pair":[],"special_tokens":{)" + tokens + "}}";
}

// `begin`: the default of add_bos_token.
std::string GgufTokenizer::frame_of_flags(bool begin) const {
  std::vector<const char*> before, after;
  if (flag(kAddBegin, begin)) before.push_back(kBeginKey);
  if (flag(kAddEnd, false)) after.push_back(kEndKey);
  return frame(before, after);
}

// `"vocab":{...}` with the texts that text(id, text) returns.
template <class Text>
std::string GgufTokenizer::vocabulary(const Text& text) const {
  std::string all = "\"vocab\":{";
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    (all += i > 0 ? "," : "") += detail::quoted_json(text(i, tokens_[i])) + ":" + std::to_string(i);
  return all + "}";
}

std::string GgufTokenizer::byte_level() const {
  const Pre& kind = pre();
  std::string stages, merges;
  if (kind.digits) stages += R"({"type":"Digits","individual_digits":true},)";
  if (kind.pattern != nullptr)
    stages += R"({"type":"Split","pattern":{"Regex":)" + detail::quoted_json(kind.pattern) +
              R"(},"behavior":"Isolated","invert":false},)";
  stages += std::string(R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)") +
            (kind.pattern == nullptr ? "true}" : "false}");
  const auto& listed = file_.array<std::string>(kMergesKey);
  for (std::size_t i = 0; i < listed.size(); ++i) {
    check_text(kMergesKey, i, listed[i]);
    (merges += i > 0 ? "," : "") += detail::quoted_json(listed[i]);
  }
  const std::string whole_pieces = kind.ignore_merges ? "true," : "false,";
  return whole(kind.nfc ? R"({"type":"NFC"})" : "null", R"({"type":"Sequence","pretokenizers":[)" + stages + "]}",
               frame_of_flags(kind.begin),
               R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})",
               R"("type":"BPE","ignore_merges":)" + whole_pieces + plain_vocabulary() + ",\"merges\":[" + merges + "]");
}

// A token as two other tokens. The second begins at byte `cut`.
struct GgufTokenizer::Division {
  float score;
  std::int32_t id;
  bool aperiodic;
  std::uint32_t cut;
  auto key() const { return std::tuple(-score, id, aperiodic, cut); }
};

// All divisions of tokens into two tokens.
std::vector<GgufTokenizer::Division> GgufTokenizer::divisions() const {
  constexpr std::size_t kLongest = 256;                    // bytes of a token; divisions take their square
  constexpr std::size_t kPerByte = 16, kAlways = 1 << 16;  // bytes of divided tokens; Llama 2 has about 2 per byte
  const auto& scores = file_.array<float>(kScoresKey);
  if (scores.size() != tokens_.size())
    refuse(kScoresKey, "has ", scores.size(), " values; it must have one per token, ", tokens_.size());
  const auto joins = [&](std::size_t id) {
    return type(id) == kNormal || type(id) == kUserDefined || type(id) == kUnused;
  };
  Vocabulary parts;
  std::size_t left = kAlways;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (joins(i) && parts.id_of(tokens_[i]) < 0) parts.add(tokens_[i], static_cast<std::int32_t>(i));
    left += kPerByte * tokens_[i].size();
  }
  std::vector<Division> all;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (!joins(i)) continue;
    const std::string_view text = tokens_[i];
    if (!std::isfinite(scores[i])) refuse(kScoresKey, "is not finite at index ", i);
    if (text.size() > kLongest)
      refuse(kTokensKey, "has a text of ", text.size(), " bytes at index ", i, "; it must have at most ", kLongest);
    for (std::size_t cut = 0; cut < text.size(); cut += length_at(text, cut)) {
      if (cut == 0 || parts.id_of(text.substr(0, cut)) < 0 || parts.id_of(text.substr(cut)) < 0) continue;
      if (text.size() > left)
        refuse(kTokensKey, "has texts that are two other tokens in too many ways: these have more than ", kPerByte,
               " times the bytes of all tokens");
      left -= text.size();
      all.push_back({scores[i], static_cast<std::int32_t>(i), !text.starts_with(text.substr(cut)),
                     static_cast<std::uint32_t>(cut)});
    }
  }
  return all;
}

// The tokens of SentencePiece are merged by score: the pair whose token has the highest score is merged first. So each
// division of a token into two tokens is a merge, and merges are in the order of the scores.
//
// Of several divisions of one token, SentencePiece merges the leftmost pair. Two such pairs can share a token: in
// x|y|z with xy = yz, the left pair is divided at a period of the token, and the right pair is not. So divisions at a
// period are first.
std::string GgufTokenizer::merges_by_score() const {
  std::vector<Division> merges = divisions();
  std::ranges::sort(merges, {}, &Division::key);
  std::string all;
  for (const Division& m : merges) {
    const std::string_view text = tokens_[static_cast<std::size_t>(m.id)];
    all += (all.empty() ? "[" : ",[") + detail::quoted_json(text.substr(0, m.cut)) + "," +
           detail::quoted_json(text.substr(m.cut)) + "]";
  }
  return "\"merges\":[" + all + "]";
}

std::string GgufTokenizer::scored() const {
  Vocabulary known;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (type(i) == kByte && known.id_of(tokens_[i]) < 0) known.add(tokens_[i], static_cast<std::int32_t>(i));
  for (unsigned b = 0; b < 256; ++b)
    if (known.id_of(detail::formatted("<0x%02X>", b)) < 0)
      refuse(kTokensKey, "has no token ", detail::formatted("<0x%02X>", b), " of the type \"byte\", which is needed");
  const bool space = flag(kAddSpace, true);
  const std::string prepend = space ? R"({"type":"Prepend","prepend":"▁"},)" : "";
  const std::string strip = space ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "";
  const std::string unknown = file_.has(kUnknownKey) ? detail::quoted_json(tokens_[token(kUnknownKey)]) : "null";
  return whole(R"({"type":"Sequence","normalizers":[)" + prepend +
                   R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
               "null", frame_of_flags(true),
               R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
               R"({"type":"ByteFallback"},{"type":"Fuse"})" +
                   strip + "]}",
               R"("type":"BPE","unk_token":)" + unknown + R"(,"fuse_unk":true,"byte_fallback":true,)" +
                   plain_vocabulary() + "," + merges_by_score());
}

// GGUF writes "▁x" for a word that begins with x and "x" for a piece inside a word. BERT writes "x" and "##x".
std::string GgufTokenizer::word_piece() const {
  constexpr std::string_view kWord = "▁";
  const auto text = [&](std::size_t id, const std::string& token) {
    if (token.starts_with(kWord)) return token.substr(kWord.size());
    const bool is_name = token.size() > 2 && token.starts_with('[') && token.ends_with(']');  // [CLS], [unused1]
    return is_added(id) || is_name ? token : "##" + token;
  };
  const bool lower = flag(kLowercaseKey, true);
  const bool strip = flag(kStripAccentsKey, lower);
  const auto boolean = [](bool value) { return std::string(value ? "true" : "false"); };
  return whole(
      R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":)" + boolean(strip) +
          ",\"lowercase\":" + boolean(lower) + "}",
      R"({"type":"BertPreTokenizer"})",
      frame({file_.has(kClassKey) ? kClassKey : kBeginKey}, {file_.has(kSeparatorKey) ? kSeparatorKey : kEndKey}),
      R"({"type":"WordPiece","prefix":"##","cleanup":true})",
      R"("type":"WordPiece","continuing_subword_prefix":"##","max_input_chars_per_word":100,"unk_token":)" +
          detail::quoted_json(tokens_[token(kUnknownKey)]) + "," + vocabulary(text));
}

}  // namespace

JsonTokenizer tokenizer_of(const GgufFile& file) {
  const std::string json = GgufTokenizer(file).json();
  try {
    return JsonTokenizer::from_state(json);
  } catch (const Error& e) {
    fail("load_tokenizer: ", file.name(), ": ", e.what());
  }
}

Tokens end_tokens_of(const GgufFile& file) {
  const GgufTokenizer reader(file);
  Tokens ids;
  for (const char* key : {kEndKey, kTurnEndKey, kMessageEndKey}) {
    if (!file.has(key)) continue;
    const auto id = static_cast<std::int32_t>(reader.token(key));
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

}  // namespace heed
