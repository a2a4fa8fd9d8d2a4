// Writes token files.
#include <algorithm>
#include <cstring>
#include <deque>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/token_header.hpp>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>

namespace heed {

namespace fs = std::filesystem;

struct TokenWriter::Work {
  std::string name;
  detail::TokenHeader header{};
  detail::NewFile file;
  detail::TokenHash hash;
  std::vector<std::uint16_t> narrow;
  bool finished = false;

  Work(const fs::path& path, Index vocabulary, std::string tokenizer) : name(path.native()), file("token file", path) {
    require(vocabulary > 0, "token file: the vocabulary is ", vocabulary, "; it must be positive");
    tokenizer.resize((tokenizer.size() + 7) / 8 * 8, ' ');
    header.version = kTokenFileVersion;
    header.width = detail::width_of(vocabulary);
    header.vocabulary = static_cast<std::uint64_t>(vocabulary);
    header.tokenizer_bytes = tokenizer.size();
    file.write(&header, sizeof header);  // not valid until finish()
    file.write(tokenizer.data(), tokenizer.size());
  }
};

TokenWriter::TokenWriter(const fs::path& path, Exactly<Index> vocabulary)
    : work_(std::make_unique<Work>(path, vocabulary, std::string())) {}

TokenWriter::TokenWriter(const fs::path& path, const Tokenizer& tokenizer)
    : work_(std::make_unique<Work>(path, tokenizer.vocabulary_size(), tokenizer.to_json())) {
  work_->header.tokenizer = tokenizer.hash();
}

TokenWriter::~TokenWriter() = default;

Index TokenWriter::size() const { return static_cast<Index>(work_->header.count); }

void TokenWriter::append(std::span<const std::int32_t> tokens) {
  Work& w = *work_;
  require(!w.finished, "token file: ", w.name, " is finished; nothing can be appended");
  const auto vocabulary = static_cast<Index>(w.header.vocabulary);
  for (std::int32_t t : tokens)
    require(t >= 0 && t < vocabulary, "token file: token ", t, " is outside the vocabulary of ", vocabulary);
  detail::as_stored(tokens, w.header.width, w.narrow, [&](const void* data, std::size_t bytes) {
    w.file.write(data, bytes);
    w.hash.add(data, bytes);
  });
  w.header.count += tokens.size();
}

void TokenWriter::finish() {
  Work& w = *work_;
  require(!w.finished, "token file: ", w.name, " is finished already");
  w.finished = true;
  std::memcpy(w.header.magic, detail::kTokenMagic, 8);
  w.header.tokens = w.hash.value();
  w.header.hash = detail::hash_of(w.header);
  w.file.overwrite(&w.header, sizeof w.header);
  w.file.finish();
}

namespace {

// Maps positions in a text that is read from files to a file and an offset in the file.
class Places {
 public:
  void add(const TextPiece& piece) {
    // The encoder lags the reader by less than this.
    constexpr std::size_t kMaxLag = std::size_t{1} << 22;
    while (parts_.size() > 1 && parts_[1].begin + kMaxLag < size_) parts_.pop_front();
    if (files_.empty() || files_.back().native() != piece.file.native()) files_.push_back(piece.file);
    const bool goes_on = !parts_.empty() && parts_.back().file == files_.size() - 1 &&
                         parts_.back().offset + (size_ - parts_.back().begin) == piece.offset;
    if (!goes_on) parts_.push_back({size_, piece.offset, files_.size() - 1});
    size_ += piece.text.size();
  }
  std::uintmax_t size() const { return size_; }
  EncodeError locate(const EncodeError& e) const {
    const auto after =
        std::find_if(parts_.begin() + 1, parts_.end(), [&](const Part& p) { return p.begin > e.offset(); });
    const Part& p = after[-1];
    return e.at(p.offset + (e.offset() - p.begin), shown_file(files_[p.file]));
  }

 private:
  struct Part {
    std::size_t begin, offset;  // of the part's text in the whole text, and in the file
    std::size_t file;           // index in files_
  };
  std::vector<fs::path> files_;
  std::deque<Part> parts_;
  std::size_t size_ = 0;
};

}  // namespace

Index write_tokens(const fs::path& to, const std::vector<fs::path>& files_and_folders, const Tokenizer& tokenizer,
                   const std::function<void(std::uintmax_t)>& watch, const ReadTextOptions& reading,
                   TokenCounts* counts) {
  const std::vector<fs::path> files = text_files(files_and_folders);  // listed before the new file exists
  TokenWriter writer(to, tokenizer);
  StreamEncoder encoder(tokenizer, [&](std::span<const std::int32_t> ids) {
    writer.append(ids);
    if (counts != nullptr) counts->add(tokenizer, ids);
  });
  Places places;
  try {
    const auto use = [&](const TextPiece& piece) {
      places.add(piece);
      encoder.feed(piece.text);
      if (watch) watch(places.size());
    };
    read_text_pieces(files, use, reading);
    encoder.finish();
  } catch (const EncodeError& e) {
    throw places.locate(e);
  }
  writer.finish();
  return writer.size();
}

}  // namespace heed
