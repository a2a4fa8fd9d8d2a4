// Tokenizers inside GGUF files: writes the tokenizer.json that tokenizer.ggml.* describe.
#include <algorithm>
#include <cmath>
#include <heed/data/text.hpp>
#include <heed/io/detail/gguf_tokenizer.hpp>
#include <heed/io/json.hpp>
#include <heed/io/tokenizer/pieces.hpp>
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
    if (model == "t5") return unigram();
    if (model == "bert") return word_piece();
    if (model == "rwkv") return symbols();
    refuse(kModelKey, "is \"", excerpt(model), "\"; it must be gpt2, llama, t5, bert or rwkv");
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

  std::string byte_level() const;
  PieceModel pieces() const;
  std::string scored() const;
  std::string charsmap() const;
  std::string unigram() const;
  std::string word_piece() const;
  std::string symbols() const;

  const Pre& pre() const;
  std::string padding() const;
  std::string frame(const std::vector<const char*>& before, const std::vector<const char*>& after) const;
  std::string frame_of_flags(bool begin) const;

  const GgufFile& file_;
  const std::vector<std::string>& tokens_;
  std::vector<std::int32_t> types_;  // empty: all normal
};

// Keys of other programs are refused. Ids of named tokens change no tokens of a text; the number of token types is the
// model's; texts of other programs are copies.
void GgufTokenizer::check_keys() const {
  constexpr std::string_view kRead[] = {kModelKey,  kPreNameKey, kTokensKey,     kTypesKey,
                                        kScoresKey, kMergesKey,  kLowercaseKey,  kStripAccentsKey,
                                        kAddBegin,  kAddEnd,     kSpacePrefixKey};
  constexpr std::string_view kOfUnigram[] = {kTrimKey, kCharsMapKey, kEscapeKey, kSpaceSuffixKey};
  constexpr std::string_view kWithoutEffect[] = {"tokenizer.ggml.token_type_count", "tokenizer.ggml.add_sep_token",
                                                 "tokenizer.huggingface.json", "tokenizer.chat_templates",
                                                 "tokenizer.chat_template"};
  const bool unigram = file_.text(kModelKey) == "t5";
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with("tokenizer.") || key.starts_with("tokenizer.chat_template.")) continue;
    const bool is_known = std::ranges::find(kRead, key) != std::end(kRead) ||
                          std::ranges::find(kWithoutEffect, key) != std::end(kWithoutEffect) ||
                          (unigram && std::ranges::find(kOfUnigram, key) != std::end(kOfUnigram)) ||
                          (key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id"));
    if (!is_known && key != kTrimKey)
      refuse(key.c_str(), "is a field that heed does not know; its effect would be lost");
  }
  if (!unigram && flag(kTrimKey, false)) refuse(kTrimKey, "is true; heed supports only false");
}

const Pre& GgufTokenizer::pre() const {
  const std::string& name = file_.text(kPreNameKey);
  const auto found = std::ranges::find(kPre, name, &Pre::name);
  if (found != std::end(kPre)) return *found;
  std::string names;
  for (const Pre& known : kPre) (names += names.empty() ? "" : ", ") += known.name;
  refuse(kPreNameKey, "is \"", excerpt(name), "\"; it must be one of ", names);
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
  return whole_json(
      padding(), added_tokens_json(tokens_, types_), normalizer_json(kind.nfc ? UnicodeForm::nfc : UnicodeForm::none),
      R"({"type":"Sequence","pretokenizers":[)" + stages + "]}", frame_of_flags(kind.begin),
      R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})",
      R"("type":"BPE","ignore_merges":)" + whole_pieces + vocabulary_json(tokens_) + ",\"merges\":[" + merges + "]");
}

// The parts of `llama` and `t5`.
PieceModel GgufTokenizer::pieces() const {
  const auto& scores = file_.array<float>(kScoresKey);
  if (scores.size() != tokens_.size())
    refuse(kScoresKey, "has ", scores.size(), " values; it must have one per token, ", tokens_.size());
  PieceModel model{.texts = tokens_, .scores = scores, .types = types_};
  model.space_prefix = flag(kSpacePrefixKey, true);
  if (file_.has(kUnknownKey)) model.unknown = static_cast<std::int32_t>(token(kUnknownKey));
  return model;
}

std::string GgufTokenizer::scored() const {
  Vocabulary known;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (type(i) == kByte && known.id_of(tokens_[i]) < 0) known.add(tokens_[i], static_cast<std::int32_t>(i));
  for (unsigned b = 0; b < 256; ++b)
    if (known.id_of(detail::formatted("<0x%02X>", b)) < 0)
      refuse(kTokensKey, "has no token ", detail::formatted("<0x%02X>", b), " of the type \"byte\", which is needed");
  PieceModel model = pieces();
  model.byte_fallback = true;
  return json_of(model, "load_tokenizer: " + file_.name() + ": ", padding(), frame_of_flags(true));
}

// Bytes, which files store as uint8 or int8.
std::string GgufTokenizer::charsmap() const {
  const auto* array = std::get_if<GgufArray>(&file_.metadata().find(kCharsMapKey)->second);
  if (array != nullptr && std::holds_alternative<std::vector<std::int8_t>>(array->values)) {
    const auto& map = file_.array<std::int8_t>(kCharsMapKey);
    return {map.begin(), map.end()};
  }
  const auto& map = file_.array<std::uint8_t>(kCharsMapKey);
  return {map.begin(), map.end()};
}

std::string GgufTokenizer::unigram() const {
  PieceModel model = pieces();
  model.unigram = true;
  if (model.unknown < 0) refuse(kUnknownKey, "is missing; unigram models need it");
  model.trims = flag(kTrimKey, false);
  if (model.trims && !model.space_prefix)
    refuse(kTrimKey, "is true and ", kSpacePrefixKey, " is false; heed supports other combinations");
  if (!flag(kEscapeKey, true) || flag(kSpaceSuffixKey, false))
    refuse(kModelKey, "is t5 with unescaped spaces or spaces as suffixes; heed supports spaces as prefixes");
  if (file_.has(kCharsMapKey)) model.charsmap = charsmap();
  for (std::size_t i = 0; i < model.scores.size(); ++i)
    if (!std::isfinite(model.scores[i])) refuse(kScoresKey, "is not finite at index ", i);
  return json_of(model, {}, padding(), frame_of_flags(false));
}

// The bytes of a token of `rwkv`, which has escapes: \t, \n, \r, \xHH, and a backslash before any other byte.
std::string unescaped(std::string_view text) {
  std::string bytes;
  const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      bytes += text[i];
    } else if (const char c = text[++i]; c == 'x' && i + 2 < text.size()) {
      bytes += static_cast<char>(digit(text[i + 1]) << 4 | digit(text[i + 2]));
      i += 2;
    } else {
      bytes += c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
    }
  }
  return bytes;
}

// `rwkv`: the longest token at each place of a text. heed reads what heed writes: tokens of one byte or one character.
std::string GgufTokenizer::symbols() const {
  std::vector<std::string> symbols;
  bool bytes = true, characters = true;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string symbol = unescaped(tokens_[i]);
    bytes = bytes && symbol.size() == 1;
    characters = characters && !symbol.empty() && !find_invalid_utf8(symbol) && length_at(symbol, 0) == symbol.size();
    if (!bytes && !characters)
      refuse(kTokensKey, "has \"", excerpt(tokens_[i]), "\" at index ", i,
             "; heed reads rwkv's tokenizers if all tokens are single bytes, or all are single characters");
    symbols.push_back(symbol);
  }
  return characters ? characters_json(symbols, UnicodeForm::none) : bytes_json(symbols, UnicodeForm::none);
}

// GGUF writes "▁x" for a word that begins with x and "x" for a piece inside a word. BERT writes "x" and "##x".
std::string GgufTokenizer::word_piece() const {
  constexpr std::string_view kWord = "▁";
  std::vector<std::string> texts = tokens_;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string& token = tokens_[i];
    const bool is_name = token.size() > 2 && token.starts_with('[') && token.ends_with(']');  // [CLS], [unused1]
    if (token.starts_with(kWord))
      texts[i] = token.substr(kWord.size());
    else if (!is_added(i) && !is_name)
      texts[i] = "##" + token;
  }
  const bool lower = flag(kLowercaseKey, true);
  const bool strip = flag(kStripAccentsKey, lower);
  const auto boolean = [](bool value) { return std::string(value ? "true" : "false"); };
  return whole_json(
      padding(), added_tokens_json(tokens_, types_),
      R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":)" + boolean(strip) +
          ",\"lowercase\":" + boolean(lower) + "}",
      R"({"type":"BertPreTokenizer"})",
      frame({file_.has(kClassKey) ? kClassKey : kBeginKey}, {file_.has(kSeparatorKey) ? kSeparatorKey : kEndKey}),
      R"({"type":"WordPiece","prefix":"##","cleanup":true})",
      R"("type":"WordPiece","continuing_subword_prefix":"##","max_input_chars_per_word":100,"unk_token":)" +
          detail::quoted_json(tokens_[token(kUnknownKey)]) + "," + vocabulary_json(texts));
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

std::optional<std::int32_t> begin_token_of(const GgufFile& file) {
  if (!file.has(kBeginKey)) return {};
  return static_cast<std::int32_t>(GgufTokenizer(file).token(kBeginKey));
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
