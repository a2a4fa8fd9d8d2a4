// Tokenizers from tokenizer.json: reads the file, and runs the stages.
#include <algorithm>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/published_tokenizer.hpp>
#include <heed/io/tokenizer/added_tokens.hpp>
#include <heed/io/tokenizer/stages.hpp>
#include <heed/io/tokenizer_json.hpp>
#include <limits>
#include <mutex>
#include <numeric>

namespace heed {

using detail::JsonView;
using namespace detail::tokenizer;

struct JsonTokenizer::Parts {
  std::string json;
  Vocabulary vocabulary;  // of the model
  AddedTokens added;
  Stages<Normalizer> normalizers;
  Stages<Splitter> splitters;
  std::unique_ptr<const Model> model;
  Stages<Decoder> decoders;
  bool has_decoder = false;
  Tokens before, after;  // what the post-processor adds
  std::int32_t pad = -1;
  std::optional<Index> max_length;
  Index size = 0;

  // Parts of the text in which special tokens are ordinary text, and whether other text precedes it.
  struct Request {
    std::span<const Bytes> special_is_text = {};
    bool continues = false;
  };
  Places encode(std::string_view text, const Request& request) const;
  std::string decode(std::span<const std::int32_t> ids, bool without_special) const;
  std::string_view text_of(std::int32_t id) const;

  // Scratch memory for one call. It is kept for the next call.
  class Lease {
   public:
    explicit Lease(const Parts& parts) : parts_(parts) {
      const std::lock_guard lock(parts.mutex_);
      if (parts.idle_.empty()) return;
      scratch_ = std::move(parts.idle_.back());
      parts.idle_.pop_back();
    }
    ~Lease() {
      const std::lock_guard lock(parts_.mutex_);
      if (scratch_ && parts_.idle_.size() < kMaxIdle) parts_.idle_.push_back(std::move(scratch_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    EncodeScratch& operator*() {
      if (!scratch_) scratch_ = std::make_unique<EncodeScratch>();
      return *scratch_;
    }

   private:
    static constexpr std::size_t kMaxIdle = 64;
    const Parts& parts_;
    std::unique_ptr<EncodeScratch> scratch_;
  };

 private:
  // One text section between added tokens, on its way to `ids`.
  struct Section {
    std::string_view text;
    bool first, continues;
    bool special_is_text = false;  // it overlaps a range in which special tokens are text
  };
  void encode_section(Section section, Places& made, EncodeScratch& scratch) const;
  void encode_normalized(Section section, Tokens& ids, EncodeScratch& scratch) const;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<EncodeScratch>> idle_;
};

JsonTokenizer::Places JsonTokenizer::Parts::encode(std::string_view text, const Request& request) const {
  if (const auto bad = find_invalid_utf8(text))
    throw EncodeError("tokenizer: the byte " + show_byte(text[*bad]), *bad, "is not valid UTF-8");
  constexpr std::size_t kLongest = std::numeric_limits<std::int32_t>::max() / 4;  // stages may insert text
  require(text.size() <= kLongest, "encode: the text has ", text.size(), " bytes; it must have at most ", kLongest,
          "; encode_text() encodes longer ones");
  Lease lease(*this);
  EncodeScratch& scratch = *lease;
  scratch.allow(text.size());
  Places made;
  made.ids.reserve(text.size() / 3 + 1);
  const auto overlaps = [&](Range r) {
    const auto found = std::ranges::upper_bound(request.special_is_text, r.begin, {}, &Bytes::second);
    return found != request.special_is_text.end() && found->first < r.end;
  };
  const auto is_text = [&](Range r) {
    const bool found = overlaps(r);
    made.special_as_text += found ? 1 : 0;
    return found;
  };
  added.split(
      text, false, is_text, scratch.match,
      [&](Range r) {
        const bool begins = r.begin == 0;
        encode_section({part(text, r), begins, request.continues && begins, overlaps(r)}, made, scratch);
      },
      [&](std::int32_t id, std::size_t at) {
        made.added.emplace_back(at, made.ids.size());
        made.ids.push_back(id);
      });
  return made;
}

void JsonTokenizer::Parts::encode_section(Section section, Places& made, EncodeScratch& scratch) const {
  if (!normalizers.empty()) {
    scratch.normalized = section.text;
    normalize_all(normalizers, scratch.normalized, section.continues, scratch);
    section.text = scratch.normalized;
  }
  const auto is_text = [&](Range) {
    made.special_as_text += section.special_is_text ? 1 : 0;
    return section.special_is_text;
  };
  added.split(
      section.text, true, is_text, scratch.match,
      [&](Range r) {
        const bool begins = r.begin == 0;
        encode_normalized({part(section.text, r), section.first && begins, section.continues && begins}, made.ids,
                          scratch);
      },
      [&](std::int32_t id, std::size_t) { made.ids.push_back(id); });
}

void JsonTokenizer::Parts::encode_normalized(Section section, Tokens& ids, EncodeScratch& scratch) const {
  Pieces& pieces = scratch.pieces;
  pieces.text = section.text;
  pieces.ranges.assign(1, range(0, section.text.size()));
  pieces.first = section.first, pieces.continues = section.continues;
  for (const auto& stage : splitters) {
    stage->apply(pieces, scratch);
    scratch.pass(pieces.text.size());
  }
  model->encode(pieces, ids, scratch);
}

std::string_view JsonTokenizer::Parts::text_of(std::int32_t id) const {
  const AddedToken* token = added.with_id(id);
  return token != nullptr ? std::string_view(token->content) : vocabulary.text(id);
}

std::string JsonTokenizer::Parts::decode(std::span<const std::int32_t> ids, bool without_special) const {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const std::int32_t id : ids) {
    detail::check_id("decode", id, size);
    const AddedToken* token = added.with_id(id);
    if (token != nullptr ? !(without_special && token->special) : vocabulary.has(id))
      texts.emplace_back(token != nullptr ? std::string_view(token->pattern) : vocabulary.text(id));
  }
  if (texts.empty()) return {};
  Lease lease(*this);
  EncodeScratch& scratch = *lease;
  const auto size_of_texts = [&] {
    return std::accumulate(texts.begin(), texts.end(), texts.size(),
                           [](std::size_t sum, const std::string& text) { return sum + text.size(); });
  };
  scratch.allow(size_of_texts());
  for (const auto& stage : decoders) {
    stage->apply(texts, scratch);
    scratch.pass(size_of_texts());
  }
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) (all += i > 0 && !has_decoder ? " " : "") += texts[i];
  return all;
}

namespace {

// What a post-processor adds: a text's tokens are put between `before` and `after`.
struct Frame {
  Tokens before, after;
  Index size;  // of the vocabulary

  void check_count(std::size_t more) const {
    constexpr std::size_t kMaxAdded = 1024;
    require(before.size() + after.size() + more <= kMaxAdded, "tokenizer.json: post_processor adds more than ",
            kMaxAdded, " tokens");
  }
  void add(const Tokens& begin, const Tokens& end) {
    check_count(begin.size() + end.size());
    before.insert(before.begin(), begin.begin(), begin.end());
    after.insert(after.end(), end.begin(), end.end());
  }
  std::int32_t id(const JsonView& json) const { return static_cast<std::int32_t>(json.integer(0, size - 1)); }
};

// The tokens that the template for one text names.
void add_template(Frame& frame, const JsonView& json) {
  json.only({"type", "single", "pair", "special_tokens"});  // `pair` is for two texts
  Tokens begin, end;
  int texts = 0;
  const std::vector<JsonView> pieces = json.at("single").items();
  frame.check_count(pieces.size());  // the token of each is searched for
  for (const JsonView& piece : pieces) {
    piece.only({"Sequence", "SpecialToken"});
    if (piece.has("Sequence")) {
      piece.at("Sequence").only({"id", "type_id"});
      piece.at("Sequence").at("id").one_of({"A"});
      ++texts;
      continue;
    }
    const JsonView token = piece.at("SpecialToken");
    token.only({"id", "type_id"});
    const JsonView made = json.at("special_tokens").at(token.at("id").text());
    made.only({"id", "ids", "tokens"});
    for (const JsonView& id : made.at("ids").items()) (texts == 0 ? begin : end).push_back(frame.id(id));
    frame.check_count(begin.size() + end.size());
  }
  if (texts != 1) json.at("single").refuse("must have the sequence A once");
  frame.add(begin, end);
}

void add_post_processor(Frame& frame, const JsonView& json) {
  const std::size_t kind =
      json.at("type").one_of({"TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel", "Sequence"});
  const auto token = [&](std::string_view key) {
    const std::vector<JsonView> pair = json.at(key).items();
    if (pair.size() != 2) json.at(key).refuse("must be a token and its id");
    return Tokens{frame.id(pair[1])};
  };
  switch (kind) {
    case 0: return add_template(frame, json);
    case 1: json.only({"type", "sep", "cls"}); return frame.add(token("cls"), token("sep"));
    case 2:
      json.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});  // the last two concern offsets
      return frame.add(token("cls"), token("sep"));
    case 3: return json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});  // concerns offsets
    default:
      json.only({"type", "processors"});
      for (const JsonView& item : json.at("processors").items()) add_post_processor(frame, item);
  }
}

std::unique_ptr<const Model> make_model(const TokenizerFile& file, const JsonView& json, const Vocabulary& vocabulary,
                                        bool bytes) {
  require(vocabulary.count() > 0, "tokenizer.json: model.vocab has no tokens");
  const std::size_t kind = json.at("type").one_of({"BPE", "WordPiece", "WordLevel", "Unigram"});
  if (kind == 0) return make_bpe(file, json, vocabulary, bytes);
  if (bytes) json.at("type").refuse("must be BPE, because the last pre-tokenizer is ByteLevel");
  if (kind == 1) return make_wordpiece(file, json, vocabulary);
  return kind == 2 ? make_word_level(file, json, vocabulary) : make_unigram(file, json, vocabulary);
}

std::optional<Index> read_max_length(const JsonView& root) {
  if (!root.has("truncation")) return {};
  const JsonView json = root.at("truncation");
  json.only({"direction", "max_length", "strategy", "stride"});
  return json.at("max_length").integer(0, std::numeric_limits<std::int32_t>::max());
}

std::int32_t read_pad(const JsonView& root, Index size) {
  if (!root.has("padding")) return -1;
  const JsonView json = root.at("padding");
  json.only({"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
  return static_cast<std::int32_t>(json.at("pad_id").integer(0, size - 1));
}

}  // namespace

JsonTokenizer JsonTokenizer::from_state(std::string_view text) {
  const TokenizerFile file = parse_tokenizer_json(text);
  const JsonView root(file.root, "tokenizer.json");
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (root.has("version")) root.at("version").one_of({"1.0"});
  auto parts = std::make_shared<Parts>();
  parts->json = text;
  parts->vocabulary = vocabulary_of(file);
  if (root.has("normalizer")) add_normalizers(parts->normalizers, root.at("normalizer"));
  const bool bytes = root.has("pre_tokenizer") && add_splitters(parts->splitters, root.at("pre_tokenizer"));
  parts->model = make_model(file, root.at("model"), parts->vocabulary, bytes);
  if (root.has("added_tokens")) {
    Parts::Lease lease(*parts);
    parts->added = AddedTokens(root.at("added_tokens"), parts->vocabulary, parts->normalizers, *lease);
  }
  parts->size = std::max<Index>(static_cast<Index>(parts->vocabulary.size()), parts->added.largest_id() + 1);
  parts->has_decoder = root.has("decoder");
  if (parts->has_decoder) add_decoders(parts->decoders, root.at("decoder"));
  Frame frame{{}, {}, parts->size};
  if (root.has("post_processor")) add_post_processor(frame, root.at("post_processor"));
  parts->before = frame.before, parts->after = frame.after;
  parts->max_length = read_max_length(root);
  parts->pad = read_pad(root, parts->size);
  return JsonTokenizer(std::move(parts));
}

Tokenizer detail::published_tokenizer(std::string_view state) { return JsonTokenizer::from_state(state); }

JsonTokenizer JsonTokenizer::load(const std::filesystem::path& path) {
  const detail::InputFile file("load_tokenizer", path);
  constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  require(file.size() <= kMaxBytes, "load_tokenizer: ", path.native(), " has ", file.size(),
          " bytes; it must have at most ", kMaxBytes);
  std::string text(file.size(), '\0');
  file.read_at(0, reinterpret_cast<unsigned char*>(text.data()), text.size());
  try {
    return from_state(text);
  } catch (const Error& e) {
    fail("load_tokenizer: ", path.native(), ": ", e.what());
  }
}

Tokens JsonTokenizer::encode(std::string_view text) const { return parts_->encode(text, {}).ids; }
Tokens JsonTokenizer::encode_as_text(std::string_view text) const {
  const Bytes all{0, text.size()};
  return parts_->encode(text, {.special_is_text = {&all, 1}}).ids;
}
Tokens JsonTokenizer::encode_next(std::string_view text) const { return parts_->encode(text, {.continues = true}).ids; }
JsonTokenizer::Places JsonTokenizer::encode_around(std::string_view text,
                                                   std::span<const Bytes> special_is_text) const {
  return parts_->encode(text, {.special_is_text = special_is_text});
}

Tokens JsonTokenizer::with_special_tokens(const Tokens& ids) const {
  Tokens all = parts_->before;
  all.insert(all.end(), ids.begin(), ids.end());
  all.insert(all.end(), parts_->after.begin(), parts_->after.end());
  return all;
}

std::string JsonTokenizer::decode(std::span<const std::int32_t> ids) const { return parts_->decode(ids, false); }
std::string JsonTokenizer::decode_without_special(std::span<const std::int32_t> ids) const {
  return parts_->decode(ids, true);
}

Index JsonTokenizer::vocabulary_size() const { return parts_->size; }
std::string JsonTokenizer::state() const { return parts_->json; }
std::optional<Index> JsonTokenizer::max_length() const { return parts_->max_length; }

std::optional<std::int32_t> JsonTokenizer::special(std::string_view name) const {
  const Parts& p = *parts_;
  if (name == "<unk>" && p.model->unknown() >= 0) return p.model->unknown();
  if (name == "<s>" && !p.before.empty()) return p.before.front();
  if (name == "</s>" && !p.after.empty()) return p.after.back();
  if (name == "<pad>" && p.pad >= 0) return p.pad;
  return name == "<unk>" || name == "<s>" || name == "</s>" || name == "<pad>" ? id_of(name) : std::nullopt;
}

bool JsonTokenizer::is_byte(std::int32_t id) const { return parts_->model->is_byte(id); }

std::optional<std::int32_t> JsonTokenizer::id_of(std::string_view token) const {
  std::int32_t id = parts_->added.id_of(token);
  if (id < 0) id = parts_->vocabulary.id_of(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string JsonTokenizer::token(std::int32_t id) const {
  detail::check_id("token", id, parts_->size);
  return std::string(parts_->text_of(id));
}

bool JsonTokenizer::is_special(std::int32_t id) const {
  const AddedToken* token = parts_->added.with_id(id);
  return token != nullptr && token->special;
}

}  // namespace heed
