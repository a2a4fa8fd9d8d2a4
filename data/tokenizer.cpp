#include <xxhash.h>

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>
#include <nlohmann/json.hpp>

namespace heed {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= n ? kBase64[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  require(text.size() % 4 == 0, "tokenizer: the base64 text has ", text.size(),
          " characters; it must have a multiple of 4");
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t n = 4;
    while (n > 2 && i + 4 == text.size() && text[i + n - 1] == '=') --n;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::size_t value = k < n ? kBase64.find(text[i + k]) : 0;
      require(value != std::string_view::npos, "tokenizer: the base64 text is damaged at character ", i + k);
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (std::size_t k = 0; k + 1 < n; ++k) bytes += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return bytes;
}

void check_id(std::int32_t id, Index vocabulary) {
  require(id >= 0 && id < vocabulary, "decode: token ", id, " is not in the vocabulary of ", vocabulary, " tokens");
}

}  // namespace

std::string Tokenizer::to_json() const {
  nlohmann::ordered_json json;
  json["kind"] = kind();
  const std::string bytes = state();
  if (find_invalid_utf8(bytes))
    json["state_base64"] = to_base64(bytes);
  else
    json["state"] = bytes;
  return json.dump();
}

Tokenizer Tokenizer::from_json(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto has_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  require(json.is_object() && has_text("kind") && (has_text("state") || has_text("state_base64")),
          "tokenizer: the stored tokenizer is damaged: it must be JSON with \"kind\" and \"state\"");
  const auto kind = json["kind"].get<std::string>();
  const std::string state =
      has_text("state") ? json["state"].get<std::string>() : from_base64(json["state_base64"].get<std::string>());
  if (kind == "byte") return ByteTokenizer();
  if (kind == "char") return CharTokenizer(state);
  if (kind == "sentencepiece") return SentencePieceTokenizer::from_state(state);
  fail("tokenizer: the stored tokenizer is of the kind \"", kind,
       "\"; only byte, char and sentencepiece can be made again here");
}

std::uint64_t Tokenizer::hash() const {
  std::string all = kind();
  (all += "\n") += state();
  return XXH64(all.data(), all.size(), 0);
}

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [](char c) { return static_cast<unsigned char>(c); });
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (std::int32_t id : ids) {
    check_id(id, 256);
    text += static_cast<char>(static_cast<unsigned char>(id));
  }
  return text;
}

CharTokenizer::CharTokenizer(std::string_view text) : characters_(decode_utf8(text)) {
  require(!text.empty(), "char tokenizer: the text to learn the characters from is empty");
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  characters_.shrink_to_fit();
}

std::vector<std::int32_t> CharTokenizer::encode(std::string_view text) const {
  const std::vector<char32_t> code_points = decode_utf8(text);
  std::vector<std::int32_t> ids;
  ids.reserve(code_points.size());
  std::size_t offset = 0;  // in bytes
  for (char32_t c : code_points) {
    const auto it = std::lower_bound(characters_.begin(), characters_.end(), c);
    require(it != characters_.end() && *it == c, "char tokenizer: the character ", show_character(c),
            " at byte offset ", offset, " is not among the ", characters_.size(), " characters of the training text");
    ids.push_back(static_cast<std::int32_t>(it - characters_.begin()));
    offset += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  }
  return ids;
}

std::string CharTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (std::int32_t id : ids) {
    check_id(id, vocabulary_size());
    append_utf8(text, characters_[static_cast<std::size_t>(id)]);
  }
  return text;
}

std::string CharTokenizer::state() const { return encode_utf8(characters_); }

Tokenizer make_tokenizer(const std::string& name, std::string_view text) {
  if (name == "byte") return ByteTokenizer();
  if (name == "char") return CharTokenizer(text);
  require(name.ends_with(".model"), "tokenizer: \"", name,
          "\" is not known; it must be byte, char or a SentencePiece FILE.model");
  return SentencePieceTokenizer::load(name);
}

// A token's text can depend on the tokens before it (a piece at the start of a text loses its space), so the new text
// is the difference between decoding the last tokens with and without the new ones.
std::string StreamDecoder::next(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_);
  static constexpr std::string_view kUnknown = "\xEF\xBF\xBD";  // what SentencePiece gives for an unfinished character
  const std::size_t waiting = ids_.size() - given_;
  const bool unfinished = unfinished_utf8(text) > 0 || (text.ends_with(kUnknown) && waiting < 4);
  return unfinished ? std::string() : take(text, text.size());
}

std::string StreamDecoder::finish() {
  if (given_ == ids_.size()) return {};
  const std::string text = tokenizer_.decode(ids_);
  return take(text, text.size());
}

std::string StreamDecoder::take(std::string_view text, std::size_t end) {
  const std::size_t before = tokenizer_.decode(std::span(ids_).first(given_)).size();
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = ids_.size();
  return end > before ? repair_utf8(text.substr(before, end - before)) : std::string();
}

}  // namespace heed
