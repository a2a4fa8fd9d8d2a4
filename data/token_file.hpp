// Sequences of tokens in memory or in memory-mapped files, so that a corpus may be larger than memory.
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

// A token file: a header of 64 bytes, the tokenizer, then the tokens, all little-endian. See docs/token_files.md.
//    0  "HEEDTOKS"            8  version, uint32 (1)     12  bytes per token, uint32 (2 or 4)   16  tokens, uint64
//   24  vocabulary, uint64   32  hash of the tokenizer, uint64 (0: none)
//   40  bytes of the tokenizer, uint64 (a multiple of 8)                48  XXH64 of the tokens
//   56  XXH64 of bytes 0 to 55
//   64  the tokenizer: JSON (Tokenizer::to_json), then spaces; then the tokens
// Tokens have two bytes if the vocabulary has at most 65536 tokens, else four.
inline constexpr std::uint32_t kTokenFileVersion = 1;

// Whether a path names a token file: the name ends with .tokens, or the file begins with "HEEDTOKS".
bool is_token_file(const std::filesystem::path& path);

// Writes a token file piece by piece into a temporary file. finish() puts the file in its place (fsync, rename, fsync
// of the folder). Without finish(), nothing remains. All members throw Error if a system call fails; append() also
// throws it for a token outside the vocabulary.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& path, const Tokenizer& tokenizer);  // stores the tokenizer in the file, too
  TokenWriter(const std::filesystem::path& path, Exactly<Index> vocabulary);  // without a tokenizer
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();
  void append(std::span<const std::int32_t> tokens);  // after the tokens written before
  void finish();                                      // call it once, last
  Index size() const;  // tokens written

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

// Tokenizes files and folders into a token file, piece by piece: memory does not grow with the text. Returns the number
// of tokens. The offset of an EncodeError counts from the start of the file that it names. `watch` is called from time
// to time with the bytes of text read so far; if it throws, no file remains. The numbers of tokens, unknown tokens and
// byte tokens are added to `counts`, if given.
Index write_tokens(const std::filesystem::path& to, const std::vector<std::filesystem::path>& files_and_folders,
                   const Tokenizer& tokenizer, const std::function<void(std::uintmax_t)>& watch = {},
                   const ReadTextOptions& reading = {}, TokenCounts* counts = nullptr);

// A sequence of tokens to read: a vector, a file, or a part of either. Copies are cheap and share the tokens.
class TokenSource {
 public:
  TokenSource(Tokens tokens, Exactly<Index> vocabulary);  // throws Error for a token outside the vocabulary

  // Maps a token file: only the parts that are read take memory. Throws Error if the file is missing, truncated, not a
  // token file, of another version, or made with a tokenizer whose hash is not `tokenizer_hash`.
  static TokenSource open(const std::filesystem::path& file,
                          std::optional<std::uint64_t> tokenizer_hash = std::nullopt);

  Index size() const { return end_ - begin_; }                  // number of tokens
  Index vocabulary_size() const;                                // ids are below this number
  std::int32_t operator[](Index i) const;                       // 0 <= i < size()
  void read(Index from, std::span<std::int32_t> tokens) const;  // throws Error beyond the end or for a damaged token
  Tokens to_vector() const;                                     // a copy of all tokens in memory
  // The tokenizer stored in the file. Throws Error if there is none, if it is damaged, or if its kind is unknown.
  Tokenizer tokenizer() const;
  // XXH64 of the tokens in the format of a token file. Reads all tokens. Throws Error if they are a whole file and
  // differ from the tokens written to it.
  std::uint64_t hash() const;
  std::string fingerprint() const;  // "1000 tokens with the hash 0123456789abcdef", by hash()

  // The tokens [begin, end). Throws Error unless 0 <= begin <= end <= size().
  TokenSource part(Index begin, Index end) const;
  // Training and validation parts, in this order. The cut is at (1 - val_fraction) * size(), rounded down, as in
  // nanoGPT. With a separator, the cut moves forward to the next separator, which begins the validation part. Throws
  // Error unless 0 <= val_fraction < 1.
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
