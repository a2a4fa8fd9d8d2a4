// Byte and character tokenizers, tokenizers as JSON, and encoding and decoding in parts.
#include <xxhash.h>

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/detail/base64.hpp>
#include <heed/data/detail/published_tokenizer.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>
#include <nlohmann/json.hpp>

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string Tokenizer::to_json() const {
  Json json;
  json["kind"] = kind();
  const std::string bytes = state();
  if (find_invalid_utf8(bytes))
    json["state_base64"] = detail::to_base64(bytes);
  else
    json["state"] = bytes;
  if (unicode() != UnicodeForm::none) json["unicode"] = name_of(unicode());
  return json.dump();
}

static UnicodeForm stored_form(const Json& json) {
  if (!json.contains("unicode")) return UnicodeForm::none;
  const auto form = json["unicode"].is_string() ? unicode_form_named(json["unicode"].get<std::string>()) : std::nullopt;
  require(form.has_value(), "tokenizer: the stored tokenizer is damaged: its Unicode form must be nfc, nfkc or none");
  return *form;
}

Tokenizer Tokenizer::from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto has_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  require(json.is_object() && has_text("kind") && (has_text("state") || has_text("state_base64")),
          "tokenizer: the stored tokenizer is damaged: it must be JSON with \"kind\" and \"state\"");
  const auto kind = json["kind"].get<std::string>();
  const std::string state = has_text("state") ? json["state"].get<std::string>()
                                              : detail::from_base64(json["state_base64"].get<std::string>());
  const UnicodeForm form = stored_form(json);
  if (kind == "byte") return ByteTokenizer(form);
  if (kind == "char") {
    CharTokenizer tokenizer(state, form);
    require(tokenizer.state() == state, "tokenizer: the stored characters are damaged: they must be sorted and unique");
    return tokenizer;
  }
  if (kind == "tokenizer.json") return detail::published_tokenizer(state);
  if (kind == "word") return WordTokenizer::from_state(state, form);
  if (kind == "sentencepiece") {
    const auto tokenizer = SentencePieceTokenizer::from_state(state);
    require(tokenizer.unicode() == form, "tokenizer: the stored tokenizer is damaged: its form is ", name_of(form),
            " and that of its model is ", name_of(tokenizer.unicode()), "; they must be the same");
    return tokenizer;
  }
  fail("tokenizer: the stored tokenizer is of the kind \"", excerpt(kind),
       "\"; it must be byte, char, word, sentencepiece or tokenizer.json");
}

std::uint64_t Tokenizer::hash() const {
  std::string all = kind();
  (all += "\n") += state();
  if (unicode() != UnicodeForm::none) (all += "\n") += name_of(unicode());
  return XXH64(all.data(), all.size(), 0);
}

void TokenCounts::add(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const auto unk = tokenizer.special("<unk>");
  tokens += static_cast<Index>(ids.size());
  // SentencePiece has no piece with a line feed: the line feed is a byte in all of its vocabularies.
  const auto is_line_feed = [&](std::int32_t id) { return tokenizer.decode(std::span(&id, 1)) == "\n"; };
  for (const std::int32_t id : ids) {
    unknown += unk == id ? 1 : 0;
    bytes += tokenizer.is_byte(id) && !is_line_feed(id) ? 1 : 0;
  }
}

std::string TokenCounts::text() const {
  const auto described = [&](Index n, const char* what) {
    return std::to_string(n) + " of " + std::to_string(tokens) + " tokens were " + what;
  };
  std::string all = unknown > 0 ? described(unknown, "unknown to the model") : "";
  if (bytes > 0) all += (all.empty() ? "" : ", ") + described(bytes, "byte pieces");
  return all;
}

Tokens ByteTokenizer::encode(std::string_view given) const {
  const std::string text = normalized(given, unicode_);
  Tokens ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [](char c) { return static_cast<unsigned char>(c); });
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (std::int32_t id : ids) {
    detail::check_id("decode", id, 256);
    text += static_cast<char>(static_cast<unsigned char>(id));
  }
  return text;
}

namespace {

// The set of characters in texts.
class Characters {
 public:
  void add(std::string_view text) {
    for (char32_t c : decode_utf8(text)) seen_[c] = true;
  }
  std::vector<char32_t> sorted() const {
    std::vector<char32_t> list;
    for (std::size_t c = 0; c < seen_.size(); ++c)
      if (seen_[c]) list.push_back(static_cast<char32_t>(c));
    return list;
  }

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000);
};

std::vector<char32_t> characters_of(std::string_view text, UnicodeForm unicode) {
  if (const auto bad = find_invalid_utf8(text))
    fail("char tokenizer: the text to learn the characters from is not UTF-8 at byte offset ", *bad);
  Characters characters;
  const auto add = [&](std::string_view part) { characters.add(normalized(part, unicode)); };
  add(detail::use_parts(text, 1 << 16, 1 << 20, add));  // in parts, since code points take more memory
  return characters.sorted();
}

}  // namespace

CharTokenizer::CharTokenizer(std::vector<char32_t> characters, UnicodeForm unicode)
    : characters_(std::move(characters)), unicode_(unicode) {
  require(!characters_.empty(), "char tokenizer: the text to learn the characters from is empty");
  ascii_.fill(-1);
  for (std::size_t i = 0; i < characters_.size() && characters_[i] < 128; ++i)
    ascii_[characters_[i]] = static_cast<std::int32_t>(i);
}

CharTokenizer::CharTokenizer(std::string_view text, UnicodeForm unicode)
    : CharTokenizer(characters_of(text, unicode), unicode) {}

CharTokenizer CharTokenizer::train(const std::vector<std::filesystem::path>& files_and_folders, UnicodeForm unicode,
                                   const ReadTextOptions& reading) {
  Characters characters;
  const auto add = [&](std::string_view part) { characters.add(normalized(part, unicode)); };
  std::string rest;  // a character may continue in the next piece
  const auto feed = [&](const TextPiece& piece) { detail::feed_parts(rest, piece.text, 1 << 16, 1 << 20, add); };
  read_text_pieces(files_and_folders, feed, reading);
  add(rest);
  return CharTokenizer(characters.sorted(), unicode);
}

std::int32_t CharTokenizer::id_of(char32_t c) const {
  if (c < 128) return ascii_[c];
  const auto it = std::lower_bound(characters_.begin(), characters_.end(), c);
  return it != characters_.end() && *it == c ? static_cast<std::int32_t>(it - characters_.begin()) : -1;
}

Tokens CharTokenizer::encode(std::string_view given) const {
  // An EncodeError, whose offset callers can move to a larger text.
  if (const auto bad = find_invalid_utf8(given))
    throw EncodeError("char tokenizer: the byte " + show_byte(given[*bad]), *bad, "is not valid UTF-8");
  const std::vector<char32_t> code_points = decode_utf8(normalized(given, unicode_));
  Tokens ids;
  ids.reserve(code_points.size());
  std::size_t offset = 0;  // in bytes
  for (char32_t c : code_points) {
    const std::int32_t id = id_of(c);
    if (id < 0) {
      const bool other_form = unicode_ == UnicodeForm::none && normalized(given, UnicodeForm::nfc) != given;
      throw EncodeError("char tokenizer: the character " + show_character(c),
                        offset_before_normalizing(given, unicode_, offset),
                        "is not among the " + std::to_string(characters_.size()) + " characters of the training text" +
                            (other_form ? "; the text is not in the Unicode form NFC" : ""));
    }
    ids.push_back(id);
    offset += detail::utf8_size(c);
  }
  return ids;
}

std::string CharTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::int32_t id : ids) {
    detail::check_id("decode", id, vocabulary_size());
    append_utf8(text, characters_[static_cast<std::size_t>(id)]);
  }
  return text;
}

std::string CharTokenizer::state() const { return encode_utf8(characters_); }

std::string tokenizer_name_error(const std::string& name) {
  if (name == "byte" || name == "char" || name.ends_with(".model")) return {};
  return "\"" + name + "\" is not a tokenizer; it must be byte, char or a SentencePiece FILE.model";
}

static Tokenizer fixed_tokenizer(const std::string& name, std::optional<UnicodeForm> unicode) {
  if (name == "byte") return ByteTokenizer(unicode.value_or(UnicodeForm::none));
  if (const std::string error = tokenizer_name_error(name); !error.empty()) fail("tokenizer: ", error);
  const auto loaded = SentencePieceTokenizer::load(name);
  return loaded.with_unicode(unicode.value_or(loaded.unicode()));
}

Tokenizer make_tokenizer(const std::string& name, std::string_view text, std::optional<UnicodeForm> unicode) {
  if (name == "char") return CharTokenizer(text, unicode.value_or(UnicodeForm::none));
  return fixed_tokenizer(name, unicode);
}

Tokenizer make_tokenizer(const std::string& name, const std::vector<std::filesystem::path>& files_and_folders,
                         std::optional<UnicodeForm> unicode, const ReadTextOptions& reading) {
  if (name == "char") return CharTokenizer::train(files_and_folders, unicode.value_or(UnicodeForm::none), reading);
  return fixed_tokenizer(name, unicode);
}

EncodeError::EncodeError(std::string subject, std::size_t offset, std::string reason, const std::string& file)
    : Error(subject + " at byte offset " + std::to_string(offset) + (file.empty() ? "" : " of " + file) + " " + reason),
      subject_(std::move(subject)),
      reason_(std::move(reason)),
      offset_(offset) {}

void StreamEncoder::encode(std::string_view part) {
  try {
    use_(offset_ == 0 ? tokenizer_.encode(part) : tokenizer_.encode_next(part));
  } catch (const EncodeError& e) {
    throw e.at(offset_ + e.offset());
  }
  offset_ += part.size();
}

void StreamEncoder::feed(std::string_view piece) {
  constexpr std::size_t kMinText = 4096, kMaxText = std::size_t{1} << 20;  // SentencePiece is slower on longer texts
  detail::feed_parts(rest_, piece, kMinText, kMaxText, [this](std::string_view part) { encode(part); });
}

void StreamEncoder::finish() {
  if (!rest_.empty()) encode(rest_);
  rest_.clear();
}

Tokens encode_text(const Tokenizer& tokenizer, std::string_view text) {
  Tokens all;
  all.reserve(text.size() / 4);
  StreamEncoder encoder(tokenizer,
                        [&](std::span<const std::int32_t> ids) { all.insert(all.end(), ids.begin(), ids.end()); });
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (std::size_t begin = 0; begin < text.size(); begin += kPiece) encoder.feed(text.substr(begin, kPiece));
  encoder.finish();
  return all;
}

// The text of a token can depend on earlier tokens: a piece at the start of a text loses its space. So the new text is
// the difference between decoding the last tokens with and without the new ones.
std::string StreamDecoder::next(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_);
  static constexpr std::string_view kUnknown = "\xEF\xBF\xBD";  // SentencePiece's text for an unfinished character
  const std::size_t waiting = ids_.size() - given_;
  const bool unfinished = unfinished_utf8(text) > 0 || (text.ends_with(kUnknown) && waiting < 4);
  return unfinished ? std::string() : take(text);
}

std::string StreamDecoder::finish() { return given_ == ids_.size() ? std::string() : take(tokenizer_.decode(ids_)); }

std::string StreamDecoder::take(std::string_view text) {
  const std::size_t before = tokenizer_.decode(std::span(ids_).first(given_)).size();
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = ids_.size();
  return repair_utf8(text.substr(std::min(before, text.size())));
}

}  // namespace heed
