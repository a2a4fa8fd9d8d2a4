// A tokenizer for pieces of words, by SentencePiece.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>
#include <iterator>
#include <new>
#include <unordered_map>
#include <utility>

namespace heed {

namespace sp = sentencepiece;

struct SentencePieceTokenizer::Model {
  sp::SentencePieceProcessor processor;
  std::string bytes;
  Tokens before;  // tokens of kBefore
  UnicodeForm unicode = UnicodeForm::none;
};

namespace {

constexpr char kBefore[] = "a\n";  // a text before the text to encode: see encode_next()
// Max bytes of a line to learn from; a longer line is split. The trainer crashes on words of 65536 characters.
constexpr std::size_t kLongest = 16384;

// Passes lines to the trainer. The library itself skips empty lines and warns of NUL bytes.
class Lines : public sp::SentenceIterator {
 public:
  explicit Lines(std::string_view text) : rest_(text) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    done_ = rest_.empty();
    const std::size_t end = cut_text(rest_, 0, kLongest), n = end == 0 ? rest_.size() : end;
    line_ = rest_.substr(0, n);  // with its line feed, or a part of a long line
    if (line_.ends_with('\n')) line_.pop_back();
    rest_.remove_prefix(n);
  }
  const std::string& value() const override { return line_; }
  sp::util::Status status() const override { return {}; }

 private:
  std::string_view rest_;
  std::string line_;
  bool done_ = false;
};

// Whether the trainer finds a character to learn. The trainer ignores zero bytes, tabs, and lines with its own sign for
// unknown pieces. If no character remains, the trainer of unigram models ends the process.
bool can_learn(std::string_view text) {
  constexpr std::string_view kNoCharacters("\0\t", 2), kUnknown = "\u2585";
  return std::ranges::any_of(split_lines(text), [&](std::string_view line) {
    return line.find_first_not_of(kNoCharacters) != line.npos && line.find(kUnknown) == line.npos;
  });
}

// Each output bit depends on all bits of x: splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Samples lines of a text that is given in pieces, at most `max_bytes` bytes. A line is kept if the hash of its number
// has at least zeros_ leading zeros. zeros_ grows when the sample exceeds `max_bytes`. So the sample is spread over
// the text and is a function of the text.
class LineSample {
 public:
  LineSample(std::size_t max_bytes, UnicodeForm unicode) : max_bytes_(max_bytes), unicode_(unicode) {}

  void feed(std::string_view piece) {
    detail::feed_parts(rest_, piece, 0, kLongest, [this](std::string_view line) { add(line); });
  }

  std::string finish() {
    if (!rest_.empty()) add(std::exchange(rest_, {}));
    return std::move(text_);
  }

 private:
  struct Line {
    std::size_t size;
    int zeros;
  };

  void add(std::string_view given) {
    const std::string line = normalized(given, unicode_);
    const int zeros = std::countl_zero(mixed(count_++));
    if (zeros < zeros_) return;
    text_ += line;
    lines_.push_back({line.size(), zeros});
    while (text_.size() > max_bytes_) drop(++zeros_);
  }

  void drop(int zeros) {
    std::size_t from = 0, to = 0;
    for (const Line& line : lines_) {
      if (line.zeros >= zeros) {
        std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(from), line.size,
                    text_.begin() + static_cast<std::ptrdiff_t>(to));
        to += line.size;
      }
      from += line.size;
    }
    text_.resize(to);
    std::erase_if(lines_, [&](const Line& line) { return line.zeros < zeros; });
  }

  std::size_t max_bytes_;
  UnicodeForm unicode_;
  std::uint64_t count_ = 0;
  int zeros_ = 0;
  std::string text_, rest_;
  std::vector<Line> lines_;
};

// Shortens an error of SentencePiece. "Internal: src/file.cc(12) [condition] Sentence. Increase vocab_size or ...
// --option." becomes "Sentence.", since heed has no such options. A text without a sentence is returned whole.
std::string reason(const sp::util::Status& status) {
  const std::string all = status.ToString();
  const std::size_t bracket = all.rfind("] ");
  std::string text = bracket == all.npos ? all : all.substr(bracket + 2);
  if (text.empty()) return all;
  if (const std::size_t hint = text.find(" Increase vocab_size"); hint != std::string::npos)
    text.replace(hint, std::string::npos, " The vocabulary must hold every character of the text.");
  return text;
}

// The form is stored in field 1000 of the model's protocol buffer, which SentencePiece leaves to extensions:
// "heed:nfc".
constexpr char kFormKey[] = "\xC2\x3E";  // field 1000, with a length
constexpr std::uint64_t kFormTag = 1000 << 3 | 2;
constexpr std::string_view kFormName = "heed:";

std::string form_field(UnicodeForm form) {
  const std::string content = std::string(kFormName) += name_of(form);
  return kFormKey + std::string(1, static_cast<char>(content.size())) + content;
}

// The form stored in a serialized model. If there are several such fields, the last one counts, as for every field.
UnicodeForm form_of_model(std::string_view model) {
  UnicodeForm form = UnicodeForm::none;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; at < model.size() && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(model[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < model.size()) {
    const std::uint64_t tag = varint(), size = varint();
    if ((tag & 7) != 2 || size > model.size() - at) break;  // all fields of a model have a length
    const std::string_view content = model.substr(at, size);
    at += size;
    if (tag == kFormTag && content.starts_with(kFormName))
      form = unicode_form_named(content.substr(kFormName.size())).value_or(form);
  }
  return form;
}

}  // namespace

SentencePieceTokenizer SentencePieceTokenizer::load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  require(in.good() && !std::filesystem::is_directory(file), "tokenizer: ", file.native(), " cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  try {
    return from_state(bytes);
  } catch (const Error&) {
    fail("tokenizer: ", file.native(), " is not a SentencePiece model");
  }
}

SentencePieceTokenizer SentencePieceTokenizer::from_state(std::string_view serialized_model) {
  auto model = std::make_shared<Model>();
  model->bytes = serialized_model;
  model->unicode = form_of_model(serialized_model);
  bool ok = !serialized_model.empty();
  std::vector<int> before;
  try {
    ok = ok && model->processor.LoadFromSerializedProto(model->bytes).ok() && model->processor.GetPieceSize() > 0;
    if (ok && model->processor.Encode(kBefore, &before).ok()) model->before.assign(before.begin(), before.end());
  } catch (const std::bad_alloc&) {  // not an error of the model
    throw;
  } catch (const std::exception&) {  // thrown for some damaged models
    ok = false;
  }
  require(ok, "tokenizer: these ", serialized_model.size(), " bytes are not a SentencePiece model");
  return SentencePieceTokenizer(std::move(model));
}

SentencePieceTokenizer SentencePieceTokenizer::train(const std::vector<std::filesystem::path>& files,
                                                     const SentencePieceOptions& options,
                                                     const ReadTextOptions& reading) {
  require(options.sample > 0, "tokenizer: sample is ", options.sample, " bytes; it must be positive");
  LineSample sample(static_cast<std::size_t>(options.sample), options.unicode);
  read_text_pieces(
      files, [&](const TextPiece& piece) { sample.feed(piece.text); }, reading);
  return train_on_text(sample.finish(), options);
}

SentencePieceTokenizer SentencePieceTokenizer::train_on_text(std::string_view given,
                                                             const SentencePieceOptions& options) {
  require(options.model == "bpe" || options.model == "unigram", "tokenizer: the model is \"", options.model,
          "\"; it must be bpe or unigram");
  require(!given.empty(), "tokenizer: the text to learn the pieces from is empty");
  require(can_learn(given),
          "tokenizer: SentencePiece can learn nothing from this text: each line has only zero bytes "
          "and tabs, or has U+2585, which SentencePiece reserves");
  constexpr Index kAlways = 256 + 3;  // byte_fallback adds 256; <unk>, <s>, </s>
  require(options.vocabulary > kAlways, "tokenizer: vocabulary is ", options.vocabulary, "; it must be above ", kAlways,
          ": one piece per byte, and 3 of SentencePiece itself");
  if (const auto bad = find_invalid_utf8(given))
    fail("tokenizer: the text to learn from is not UTF-8 at offset ", *bad);
  const std::string text = normalized(given, options.unicode);
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", options.model},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"character_coverage", "1.0"},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", options.word_begins ? "true" : "false"},
      {"max_sentence_length", "1048576"},
      {"num_threads", "1"},  // the same pieces on every machine
      {"minloglevel", options.log ? "0" : "2"},
  };
  Lines lines(text);
  std::string bytes;
  const sp::util::Status status = sp::SentencePieceTrainer::Train(settings, &lines, &bytes);
  require(status.ok(), "tokenizer: SentencePiece cannot learn ", options.vocabulary,
          " pieces from this text: ", reason(status));
  return from_state(bytes).with_unicode(options.unicode);
}

UnicodeForm SentencePieceTokenizer::unicode() const { return model_->unicode; }

SentencePieceTokenizer SentencePieceTokenizer::with_unicode(UnicodeForm form) const {
  return form == unicode() ? *this : from_state(model_->bytes + form_field(form));
}

bool SentencePieceTokenizer::is_byte(std::int32_t id) const {
  return id >= 0 && id < vocabulary_size() && model_->processor.IsByte(id);
}

Tokens SentencePieceTokenizer::encode(std::string_view given) const {
  const std::string text = normalized(given, unicode());
  std::vector<int> ids;
  const sp::util::Status status = model_->processor.Encode(text, &ids);
  require(status.ok(), "encode: SentencePiece refuses the text: ", reason(status));
  return {ids.begin(), ids.end()};
}

// Some models add a space before each text, or drop spaces at its ends. So the text is encoded after kBefore, whose
// tokens are removed. If the result does not begin with these tokens (a model that joins lines to words), the text is
// encoded alone.
Tokens SentencePieceTokenizer::encode_next(std::string_view text) const {
  const Tokens& before = model_->before;
  Tokens ids = encode(kBefore + std::string(text));
  if (ids.size() < before.size() || !std::equal(before.begin(), before.end(), ids.begin())) return encode(text);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(before.size()));
  return ids;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  for (std::int32_t id : ids) detail::check_id("decode", id, vocabulary_size());
  std::string text;
  const sp::util::Status status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  require(status.ok(), "decode: SentencePiece refuses the tokens: ", reason(status));
  return text;
}

Index SentencePieceTokenizer::vocabulary_size() const { return model_->processor.GetPieceSize(); }
std::string SentencePieceTokenizer::state() const { return model_->bytes; }

void SentencePieceTokenizer::save(const std::filesystem::path& file) const {
  detail::replace_file("tokenizer", file, model_->bytes);
}

std::string SentencePieceTokenizer::piece(std::int32_t id) const {
  detail::check_id("piece", id, vocabulary_size());
  return model_->processor.IdToPiece(id);
}

std::optional<std::int32_t> SentencePieceTokenizer::special(std::string_view name) const {
  const auto& processor = model_->processor;
  const int id = name == "<pad>"   ? processor.pad_id()
                 : name == "<unk>" ? processor.unk_id()
                 : name == "<s>"   ? processor.bos_id()
                 : name == "</s>"  ? processor.eos_id()
                                   : -1;
  return id >= 0 ? std::optional<std::int32_t>(id) : std::nullopt;
}

}  // namespace heed
