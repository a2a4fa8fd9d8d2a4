// Writes tokenizers as the metadata of GGUF files.
#include <algorithm>
#include <heed/data/detail/base64.hpp>
#include <heed/io/detail/gguf_tokenizer.hpp>
#include <heed/io/tokenizer/byte_level.hpp>
#include <heed/io/tokenizer/json.hpp>
#include <heed/io/tokenizer/pieces.hpp>
#include <heed/io/tokenizer_gguf.hpp>
#include <map>
#include <set>

namespace heed {

using namespace detail::gguf;
using namespace detail::tokenizer;
using detail::JsonView;

namespace {

// The metadata of a tokenizer.json.
class GgufTokenizerWriter {
 public:
  GgufTokenizerWriter(const JsonTokenizer& tokenizer, Index vocabulary)
      : tokenizer_(tokenizer),
        file_(detail::tokenizer::parse_tokenizer_json(tokenizer.state())),
        root_(file_.root, "tokenizer.json"),
        model_(root_.at("model")) {
    const Index known = tokenizer.vocabulary_size();
    const auto count = static_cast<std::size_t>(std::max(vocabulary, known));
    tokens_.resize(count);
    types_.assign(count, kNormal);
    for (std::size_t i = 0; i < count; ++i) {
      if (static_cast<Index>(i) < known) tokens_[i] = tokenizer.token(static_cast<std::int32_t>(i));
      if (tokens_[i].empty()) tokens_[i] = "[PAD" + std::to_string(i) + "]", types_[i] = kUnused;
    }
    if (!root_.has("added_tokens")) return;
    for (const JsonView& token : root_.at("added_tokens").items()) {
      const auto id = static_cast<std::size_t>(token.at("id").integer(0, known - 1));
      for (const char* key : {"single_word", "lstrip", "rstrip"})
        if (token.at(key).boolean()) token.at(key).refuse("is true; a GGUF file cannot say so");
      types_[id] = token.at("special").boolean() ? kControl : kUserDefined;
    }
  }

  GgufMetadata written(std::optional<std::int32_t> begin_token, std::span<const std::int32_t> end_tokens) {
    const std::size_t kind = model_.at("type").one_of({"BPE", "WordPiece", "Unigram", "WordLevel"});
    if (is_symbols(kind)) {
      symbols(kind == 0);
    } else if (kind == 1) {
      word_piece();
    } else if (kind == 2) {
      unigram();
    } else if (kind == 3) {
      model_.at("type").refuse("is \"WordLevel\"; a GGUF file can have it for words of one character");
    } else if (model_.boolean_or("byte_fallback", false)) {
      scored();
    } else {
      byte_level();
    }
    if (made_.at(kModelKey) != GgufValue("bert")) added_flags();
    if (made_.at(kModelKey) != GgufValue("rwkv"))
      set_id(kBeginKey, begin_token ? begin_token : tokenizer_.special("<s>"));
    for (std::size_t i = 0; i < std::min<std::size_t>(end_tokens.size(), 3); ++i)
      set_id(std::array{kEndKey, kTurnEndKey, kMessageEndKey}[i], end_tokens[i]);
    if (made_.contains(kSpacePrefixKey)) end_of_pieces();
    set_id(kPaddingKey, tokenizer_.special("<pad>"));
    set_id(kUnknownKey, tokenizer_.special("<unk>"));
    made_[kTokensKey] = GgufArray(std::move(tokens_));
    made_[kTypesKey] = GgufArray(std::move(types_));
    return std::move(made_);
  }

 private:
  // Sets the id unless it is set already.
  void set_id(const char* key, std::optional<std::int32_t> id) {
    if (id) made_.emplace(key, static_cast<std::uint32_t>(*id));
  }

  // The tokens that the post-processor adds.
  void added_flags() {
    const Tokens around = tokenizer_.with_special_tokens({-1});
    const auto text = std::ranges::find(around, -1);
    const auto before = text - around.begin(), after = around.end() - text - 1;
    if (before > 1 || after > 1)
      root_.at("post_processor").refuse("adds several tokens at one end of a text; a GGUF file can have one");
    made_["tokenizer.ggml.add_bos_token"] = before == 1;
    made_["tokenizer.ggml.add_eos_token"] = after == 1;
    if (before == 1) set_id(kBeginKey, around.front());
    if (after == 1) set_id(kEndKey, around.back());
  }

  // The stages of a part of the file, without Sequences.
  static void flatten(std::vector<JsonView>& to, const JsonView& json, const char* list) {
    if (json.at("type").text() != "Sequence") return to.push_back(json);
    for (const JsonView& item : json.at(list).items()) flatten(to, item, list);
  }
  std::vector<JsonView> stages(const char* part, const char* list) const {
    std::vector<JsonView> all;
    if (root_.has(part)) flatten(all, root_.at(part), list);
    return all;
  }
  static bool is(const JsonView& stage, std::string_view type) { return stage.at("type").text() == type; }

  // Without an end token, engines would end texts with token 2 of SentencePiece's models, or token 1.
  void end_of_pieces() {
    set_id(kEndKey, tokenizer_.special("</s>"));
    if (!made_.contains(kEndKey)) model_.refuse("has no token that ends a text, which a GGUF file requires");
  }

  bool is_symbols(std::size_t kind) const;
  void symbols(bool bytes);
  void byte_level();
  void scored();
  void unigram();
  void word_piece();
  struct PieceStages;
  PieceStages piece_stages() const;

  const JsonTokenizer& tokenizer_;
  const detail::tokenizer::TokenizerFile file_;
  const JsonView root_, model_;
  std::vector<std::string> tokens_;
  std::vector<std::int32_t> types_;
  GgufMetadata made_;
};

void GgufTokenizerWriter::byte_level() {
  bool digits = false, nfc = false, bytes = false;
  std::string pattern;
  for (const JsonView& stage : stages("normalizer", "normalizers")) {
    if (!is(stage, "NFC")) stage.at("type").refuse("has no name in tokenizer.ggml.pre");
    nfc = true;
  }
  for (const JsonView& stage : stages("pre_tokenizer", "pretokenizers")) {
    const bool first = !digits && pattern.empty() && !bytes;
    if (is(stage, "Digits") && first && stage.at("individual_digits").boolean()) {
      digits = true;
    } else if (is(stage, "Split") && pattern.empty() && !bytes && stage.at("pattern").has("Regex") &&
               stage.at("behavior").text() == "Isolated" && !stage.at("invert").boolean()) {
      pattern = stage.at("pattern").at("Regex").text();
    } else if (is(stage, "ByteLevel") && !bytes && !stage.at("add_prefix_space").boolean() &&
               stage.boolean_or("use_regex", true) == pattern.empty()) {
      bytes = true;
    } else {
      stage.refuse("has no name in tokenizer.ggml.pre");
    }
  }
  const bool whole = model_.boolean_or("ignore_merges", false);
  const auto found = std::ranges::find_if(kPre, [&](const Pre& pre) {
    return pre.digits == digits && pre.nfc == nfc && pre.ignore_merges == whole &&
           pattern == (pre.pattern == nullptr ? "" : pre.pattern);
  });
  if (found == std::end(kPre) || !bytes)
    (root_.has("pre_tokenizer") ? root_.at("pre_tokenizer") : model_).refuse("has no name in tokenizer.ggml.pre");
  std::vector<std::string> merges;
  for (const auto& [left, right] : file_.merges)
    merges.push_back(std::string(file_.text(left)) + " " + std::string(file_.text(right)));
  made_[kModelKey] = "gpt2";
  made_[kPreNameKey] = std::string(found->name);
  made_[kMergesKey] = GgufArray(std::move(merges));
}

// What the stages before SentencePiece's models do.
struct GgufTokenizerWriter::PieceStages {
  bool prefix = false, replaces = false, trims = false;
  std::string charsmap = {};
};

// Files of engines cannot say that texts are normalized to NFC, as published tokenizers do and llama.cpp does not.
GgufTokenizerWriter::PieceStages GgufTokenizerWriter::piece_stages() const {
  PieceStages found;
  const auto replaces = [](const JsonView& stage, const char* kind, std::string_view pattern,
                           std::string_view content) {
    return is(stage, "Replace") && stage.at("pattern").text_or(kind, "") == pattern &&
           stage.at("content").text() == content;
  };
  bool one_space = false;
  for (const JsonView& stage : stages("normalizer", "normalizers")) {
    const bool first = found.charsmap.empty() && !one_space && !found.prefix && !found.replaces;
    if (is(stage, "NFC") && first) continue;
    if (is(stage, "Precompiled") && first) {
      found.charsmap = detail::from_base64(stage.at("precompiled_charsmap").text());
    } else if (replaces(stage, "Regex", kSeveralSpaces, " ") && !one_space && !found.prefix && !found.replaces) {
      one_space = true;
    } else if (replaces(stage, "Regex", kOuterSpaces, "") && one_space && !found.prefix && !found.replaces) {
      found.trims = true;
    } else if (is(stage, "Prepend") && !found.replaces && stage.at("prepend").text() == "▁") {
      found.prefix = true;
    } else if (replaces(stage, "String", " ", "▁") && !found.replaces && found.trims == one_space) {
      found.replaces = true;
    } else {
      stage.refuse("has no counterpart in a GGUF file");
    }
  }
  for (const JsonView& stage : stages("pre_tokenizer", "pretokenizers")) {
    const bool spaces = is(stage, "Split") && found.replaces && stage.at("pattern").text_or("String", "") == " ";
    const bool marks = is(stage, "Metaspace") && !found.replaces && stage.at("replacement").text() == "▁";
    if (!spaces && !marks) stage.refuse("has no counterpart in a GGUF file");  // `spaces`: a text then has none
    if (marks) found.prefix = stage.text_or("prepend_scheme", "always") != "never", found.replaces = true;
  }
  if (!found.replaces) model_.refuse("needs a stage that writes spaces as \"▁\"");
  return found;
}

// The score of a token is that of its first merge. Other tokens have lower scores.
void GgufTokenizerWriter::scored() {
  const PieceStages found = piece_stages();
  if (found.trims || !found.charsmap.empty())
    root_.at("normalizer")
        .refuse(
            "changes texts more than GGUF's BPE of SentencePiece can say: it may write spaces as "
            "\"▁\" and begin a text with a space");
  std::map<std::string, float, std::less<>> scores;
  for (std::size_t i = 0; i < file_.merges.size(); ++i)
    scores.emplace(std::string(file_.text(file_.merges[i].first)) + std::string(file_.text(file_.merges[i].second)),
                   -static_cast<float>(i));
  std::vector<float> all;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto score = scores.find(tokens_[i]);
    all.push_back(score != scores.end() ? score->second : -static_cast<float>(file_.merges.size() + i));
    const bool is_byte = tokenizer_.is_byte(static_cast<std::int32_t>(i));
    if (is_byte) types_[i] = kByte;
  }
  if (const auto unknown = tokenizer_.special("<unk>")) types_[static_cast<std::size_t>(*unknown)] = kUnknown;
  made_[kModelKey] = "llama";
  made_[kSpacePrefixKey] = found.prefix;
  made_[kScoresKey] = GgufArray(std::move(all));
}

// Engines have no byte fallback here. A byte piece of an ASCII character that is no other piece is written as the
// character, which gives the same tokens. Other characters without a piece are unknown to engines.
void GgufTokenizerWriter::unigram() {
  const PieceStages found = piece_stages();
  if (found.trims && !found.prefix)
    root_.at("normalizer").refuse("removes spaces and does not begin a text with one; a GGUF file cannot say so");
  const std::set<std::string> texts(tokens_.begin(), tokens_.end());
  std::vector<float> scores(tokens_.size(), 0);
  float lowest = 0;
  for (std::size_t i = 0; i < file_.vocabulary.size(); ++i) {
    scores[i] = static_cast<float>(file_.vocabulary[i].value);
    lowest = std::min(lowest, scores[i]);
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (!tokenizer_.is_byte(id)) continue;
    const char byte = static_cast<char>(std::stoi(tokens_[i].substr(3, 2), nullptr, 16));
    const std::string text = byte == ' ' ? "▁" : std::string(1, byte);
    types_[i] = kByte;
    if (static_cast<unsigned char>(byte) >= 0x80 || texts.contains(text)) continue;
    tokens_[i] = text, types_[i] = kNormal, scores[i] = lowest;
  }
  if (const auto unknown = tokenizer_.special("<unk>")) types_[static_cast<std::size_t>(*unknown)] = kUnknown;
  made_[kModelKey] = "t5";
  made_[kSpacePrefixKey] = found.prefix;
  made_[kTrimKey] = found.trims;
  if (!found.charsmap.empty())
    made_[kCharsMapKey] = GgufArray(std::vector<std::uint8_t>(found.charsmap.begin(), found.charsmap.end()));
  made_[kScoresKey] = GgufArray(std::move(scores));
}

// Whether all tokens are single characters, or single bytes.
bool GgufTokenizerWriter::is_symbols(std::size_t kind) const {
  const std::vector<JsonView> splits = stages("pre_tokenizer", "pretokenizers");
  if (splits.size() != 1 || !file_.merges.empty() ||
      (root_.has("added_tokens") && !root_.at("added_tokens").items().empty()))
    return false;
  const JsonView& split = splits[0];
  if (kind == 0) return is(split, "ByteLevel") && !split.boolean_or("use_regex", true);
  return kind == 3 && is(split, "Split") && split.at("pattern").text_or("Regex", "") == kAnyCharacter;
}

// A token of `rwkv` with escapes.
std::string escaped(std::string_view bytes, bool is_text) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte > 0x20 && byte < 0x7F && c != '\\' && c != '\'' && c != '"') || (is_text && byte >= 0x80);
    text += plain ? std::string(1, c) : detail::formatted("\\x%02x", byte);
  }
  return text;
}

// The kind `rwkv` takes the longest token at each place of a text, and has no tokens of its own for the begin and the
// end. Other kinds take tokens of the vocabulary for these.
void GgufTokenizerWriter::symbols(bool bytes) {
  for (const JsonView& stage : stages("normalizer", "normalizers"))
    if (!is(stage, "NFC")) stage.refuse("has no counterpart in a GGUF file");
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::string symbol = bytes ? "" : tokens_[i];
    if (types_[i] == kUnused || (bytes && !byte_level::append_bytes(symbol, tokens_[i])))
      model_.refuse("has no token " + std::to_string(i) + "; a GGUF file requires each");
    tokens_[i] = escaped(symbol, !bytes);
  }
  made_[kModelKey] = "rwkv";
}

void GgufTokenizerWriter::word_piece() {
  const JsonView normalizer = root_.at("normalizer"), splitter = root_.at("pre_tokenizer");
  normalizer.at("type").one_of({"BertNormalizer"});
  splitter.at("type").one_of({"BertPreTokenizer"});
  model_.at("continuing_subword_prefix").one_of({"##"});
  for (const char* wanted : {"clean_text", "handle_chinese_chars"})
    if (!normalizer.at(wanted).boolean()) normalizer.at(wanted).refuse("is false; a GGUF file requires true");
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = tokens_[i];
    const bool is_name = types_[i] != kNormal || (text.size() > 2 && text.starts_with('[') && text.ends_with(']'));
    if (!is_name) tokens_[i] = text.starts_with("##") ? text.substr(2) : "▁" + text;
  }
  const bool lower = normalizer.at("lowercase").boolean();
  made_[kModelKey] = "bert";
  made_[kLowercaseKey] = lower;
  made_[kStripAccentsKey] = normalizer.boolean_or("strip_accents", lower);
  const Tokens around = tokenizer_.with_special_tokens({});
  if (around.size() != 2) root_.at("post_processor").refuse("must add one token before and one after a text");
  for (const char* key : {kClassKey, kBeginKey}) set_id(key, around[0]);
  for (const char* key : {kSeparatorKey, kEndKey}) set_id(key, around[1]);
}

}  // namespace

GgufMetadata tokenizer_metadata(const JsonTokenizer& tokenizer, std::optional<std::int32_t> begin_token,
                                std::span<const std::int32_t> end_tokens, Index vocabulary) {
  for (const std::int32_t id : end_tokens) detail::check_id("tokenizer_metadata", id, tokenizer.vocabulary_size());
  if (begin_token) detail::check_id("tokenizer_metadata", *begin_token, tokenizer.vocabulary_size());
  return GgufTokenizerWriter(tokenizer, vocabulary).written(begin_token, end_tokens);
}

}  // namespace heed
