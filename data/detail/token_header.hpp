// The header of a token file (see token_file.hpp) and helpers shared by its writer and reader.
#pragma once
#include <xxhash.h>

#include <bit>
#include <heed/core/check.hpp>
#include <memory>
#include <span>
#include <vector>

namespace heed::detail {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

inline constexpr char kTokenMagic[9] = "HEEDTOKS";

struct TokenHeader {
  char magic[8];
  std::uint32_t version, width;
  std::uint64_t count, vocabulary, tokenizer, tokenizer_bytes, tokens;
  std::uint64_t hash;
};
static_assert(sizeof(TokenHeader) == 64);

inline std::uint64_t hash_of(const TokenHeader& h) { return XXH64(&h, offsetof(TokenHeader, hash), 0); }

inline std::uint32_t width_of(Index vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

// XXH64 of data given in pieces.
class TokenHash {
 public:
  TokenHash() : state_(XXH64_createState(), XXH64_freeState) {
    require(state_ != nullptr, "token file: there is no memory for a hash");
    XXH64_reset(state_.get(), 0);
  }
  void add(const void* data, std::size_t bytes) { XXH64_update(state_.get(), data, bytes); }
  std::uint64_t value() const { return XXH64_digest(state_.get()); }

 private:
  std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t*)> state_;
};

// Calls use(data, bytes) with the tokens in the format of a token file, `width` bytes per token.
template <class F>
void as_stored(std::span<const std::int32_t> tokens, std::uint32_t width, std::vector<std::uint16_t>& narrow, F&& use) {
  if (width == 4) return use(tokens.data(), tokens.size_bytes());
  narrow.assign(tokens.begin(), tokens.end());
  use(narrow.data(), narrow.size() * 2);
}

}  // namespace heed::detail
