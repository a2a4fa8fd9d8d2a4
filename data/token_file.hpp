// Rows of tokens, in memory or in memory-mapped files, so that a corpus may be larger than memory.
#pragma once
#include <filesystem>
#include <heed/data/tokenizer.hpp>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heed {

// A token file: 64 bytes of header, then the tokens, little-endian.
//   0  "HEEDTOKS"            8  version, uint32 (1)     12  bytes a token, uint32 (2 or 4)   16  tokens, uint64
//  24  vocabulary, uint64   32  hash of the tokenizer, uint64 (0: not told)                  40  zeros
//  56  XXH64 of bytes 0 to 55
// Two bytes a token where the vocabulary allows it.
inline constexpr std::uint32_t kTokenFileVersion = 1;

// Writes a token file piece by piece, next to its place; finish() puts it there (fsync, rename, fsync of the folder).
// Without finish() nothing remains. All throw Error where the system refuses, and for a token outside the vocabulary.
class TokenWriter {
 public:
  TokenWriter(std::filesystem::path path, Index vocabulary, std::uint64_t tokenizer_hash = 0);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();
  void append(std::span<const std::int32_t> tokens);
  void finish();
  Index size() const { return count_; }

 private:
  void write(const void* data, std::size_t bytes);
  [[noreturn]] void refuse(const char* what) const;

  std::filesystem::path path_, temporary_;
  int file_ = -1;
  Index vocabulary_, count_ = 0;
  std::uint64_t hash_;
  std::vector<std::uint16_t> narrow_;
};

// Tokenizes files and folders into a token file, a piece at a time; returns the number of tokens.
Index write_tokens(const std::filesystem::path& to, const std::vector<std::filesystem::path>& files_and_folders,
                   const Tokenizer& tokenizer);

// Tokens to read: a vector, a file, or a part of one of them. Copies are cheap and share what they read.
class TokenSource {
 public:
  TokenSource(std::vector<std::int32_t> tokens, Index vocabulary);  // Error for a token outside the vocabulary

  // Maps a token file. Throws Error if it is missing, foreign, truncated, of a newer version, or made with a tokenizer
  // of another hash than the one given.
  static TokenSource open(const std::filesystem::path& file,
                          std::optional<std::uint64_t> tokenizer_hash = std::nullopt);

  Index size() const { return end_ - begin_; }
  Index vocabulary_size() const;
  std::int32_t operator[](Index i) const;                       // 0 <= i < size()
  void read(Index from, std::span<std::int32_t> tokens) const;  // Error beyond the end, or for a damaged token
  std::vector<std::int32_t> to_vector() const;

  TokenSource part(Index begin, Index end) const;
  // The first part to train on, the last one to validate with: the cut is at (1 - val_fraction) * size(), rounded down,
  // as nanoGPT's. Given a separator, the cut moves on to the next one, which begins the last part. Error unless
  // 0 <= val_fraction < 1.
  std::pair<TokenSource, TokenSource> split(double val_fraction,
                                            std::optional<std::int32_t> separator = std::nullopt) const;

 private:
  struct Store;
  TokenSource(std::shared_ptr<const Store> store, Index begin, Index end)
      : store_(std::move(store)), begin_(begin), end_(end) {}

  std::shared_ptr<const Store> store_;
  Index begin_, end_;
};

}  // namespace heed
