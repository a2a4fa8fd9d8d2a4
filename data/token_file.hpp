// Rows of tokens, in memory or in memory-mapped files, so that a corpus may be larger than memory.
//
// Example:
//
//   const Tokenizer tokenizer = ByteTokenizer();
//   TokenWriter writer("corpus.tokens", tokenizer);
//   writer.append(tokenizer.encode("to be or not to be"));
//   writer.finish();
//   const auto [training, held_out] = TokenSource::open("corpus.tokens").split(0.1);
#pragma once
#include <filesystem>
#include <heed/data/tokenizer.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heed {

// A token file: 64 bytes of header, the tokenizer, then the tokens; all little-endian. docs/token_files.md
//   0  "HEEDTOKS"            8  version, uint32 (1)     12  bytes per token, uint32 (2 or 4)   16  tokens, uint64
//  24  vocabulary, uint64   32  hash of the tokenizer, uint64 (0: none)
//  40  bytes of the tokenizer, uint64 (a multiple of 8)                48  XXH64 of the tokens
//  56  XXH64 of bytes 0 to 55
//  64  the tokenizer: JSON (Tokenizer::to_json), then spaces; then the tokens
// Two bytes per token where the vocabulary allows it.
inline constexpr std::uint32_t kTokenFileVersion = 1;

// Whether a path is meant as a token file: its name ends with .tokens, or it is a file that begins as one.
bool is_token_file(const std::filesystem::path& path);

// Writes a token file piece by piece, next to its place; finish() puts it there (fsync, rename, fsync of the folder).
// Without finish() nothing remains. All throw Error where the system refuses, and for a token outside the vocabulary.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& path, const Tokenizer& tokenizer);
  TokenWriter(const std::filesystem::path& path, Exactly<Index> vocabulary);  // tokens of no tokenizer
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();
  void append(std::span<const std::int32_t> tokens);
  void finish();
  Index size() const;

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// Tokenizes files and folders into a token file, a piece at a time: memory does not grow with the text. Returns the
// number of tokens. An EncodeError counts from the start of the file that it names. `watch` is called now and then with
// the bytes of text that were read; what it throws ends the work and leaves nothing behind. `counts`, if given, is
// added to: how many tokens the tokenizer does not know.
Index write_tokens(const std::filesystem::path& to, const std::vector<std::filesystem::path>& files_and_folders,
                   const Tokenizer& tokenizer, const std::function<void(std::uintmax_t)>& watch = {},
                   const ReadTextOptions& reading = {}, TokenCounts* counts = nullptr);

// Tokens to read: a vector, a file, or a part of one of them. Copies are cheap and share what they read.
class TokenSource {
 public:
  TokenSource(Tokens tokens, Exactly<Index> vocabulary);  // Error for a token outside the vocabulary

  // Maps a token file: memory holds only what is read of it. Throws Error if it is missing, foreign, truncated, of
  // another version, or made with a tokenizer of another hash than the one given.
  static TokenSource open(const std::filesystem::path& file,
                          std::optional<std::uint64_t> tokenizer_hash = std::nullopt);

  Index size() const { return end_ - begin_; }
  Index vocabulary_size() const;
  std::int32_t operator[](Index i) const;                       // 0 <= i < size()
  void read(Index from, std::span<std::int32_t> tokens) const;  // Error beyond the end, or for a damaged token
  Tokens to_vector() const;
  // The tokenizer that the file holds. Throws Error if there is none, if it is damaged, or of a kind that cannot be
  // made again here.
  Tokenizer tokenizer() const;
  // XXH64 of the tokens as a token file holds them: tells texts apart. Reads them all; Error if they are a whole file
  // but not what was written to it.
  std::uint64_t hash() const;
  std::string fingerprint() const;  // "1000 tokens with the hash 0123456789abcdef", by hash()

  TokenSource part(Index begin, Index end) const;
  // The first part to train on, the last one to validate with: the cut is at (1 - val_fraction) * size(), rounded down,
  // as nanoGPT's. Given a separator, the cut moves on to the next one, which begins the last part. Error unless
  // 0 <= val_fraction < 1.
  std::pair<TokenSource, TokenSource> split(double val_fraction,
                                            std::optional<std::int32_t> separator = std::nullopt) const;

 private:
  struct Store;
  TokenSource(std::shared_ptr<const Store> store, Exactly<Index> begin, Exactly<Index> end)
      : store_(std::move(store)), begin_(begin), end_(end) {}

  std::shared_ptr<const Store> store_;
  Index begin_, end_;
};

}  // namespace heed
