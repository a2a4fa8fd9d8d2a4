// Reads token files.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/mapped_file.hpp>
#include <heed/data/detail/token_header.hpp>
#include <heed/data/token_file.hpp>

namespace heed {
namespace {

namespace fs = std::filesystem;
using Header = detail::TokenHeader;

}  // namespace

bool is_token_file(const fs::path& path) {
  if (path.native().ends_with(".tokens")) return true;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  const auto d = detail::Descriptor::for_reading(path);
  char magic[8] = {};
  return d.get() >= 0 && ::read(d.get(), magic, 8) == 8 && std::memcmp(magic, detail::kTokenMagic, 8) == 0;
}

struct TokenSource::Store {
  Tokens tokens;     // tokens in memory, or
  std::string name;  // a mapped file
  std::optional<detail::MappedFile> map;
  Header header{};  // of the file; tokens in memory have only width and vocabulary

  const std::byte* after_header() const { return map->bytes().data() + sizeof(Header); }

  // Releases the memory of `count` tokens of the file. A later read loads them from the file again.
  void forget(Index from, Index count) const {
    map->forget({after_header() + header.tokenizer_bytes + static_cast<std::size_t>(from) * header.width,
                 static_cast<std::size_t>(count) * header.width});
  }

  template <class F>
  decltype(auto) values(F&& f) const {
    const void* data = map ? after_header() + header.tokenizer_bytes : static_cast<const void*>(tokens.data());
    return header.width == 2 ? f(static_cast<const std::uint16_t*>(data)) : f(static_cast<const std::int32_t*>(data));
  }
};

TokenSource::TokenSource(Tokens tokens, Exactly<Index> vocabulary)
    : begin_(0), end_(static_cast<Index>(tokens.size())) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    require(tokens[i] >= 0 && tokens[i] < vocabulary, "tokens: token ", tokens[i], " at position ", i,
            " is outside the vocabulary of ", vocabulary);
  auto store = std::make_shared<Store>();
  store->tokens = std::move(tokens);
  store->header.width = 4;
  store->header.vocabulary = static_cast<std::uint64_t>(Index{vocabulary});
  store_ = std::move(store);
}

namespace {

// Throws Error unless the header belongs to a token file of `bytes` bytes that this program can read.
void check_header(const Header& h, std::size_t bytes, const std::string& name) {
  require(bytes >= sizeof h && std::memcmp(h.magic, detail::kTokenMagic, 8) == 0, "token file: ", name,
          " is not a token file");
  require(h.version == kTokenFileVersion, "token file: ", name, " has version ", h.version,
          ", but this program reads version ", kTokenFileVersion, "; tokenize the text again");
  require(h.hash == detail::hash_of(h), "token file: the header of ", name, " is damaged");
  // TokenWriter ensures all of the following.
  constexpr std::uint64_t kMaxVocabulary = std::uint64_t{1} << 31;  // tokens are int32
  require(h.vocabulary >= 1 && h.vocabulary <= kMaxVocabulary, "token file: ", name, " has a vocabulary of ",
          h.vocabulary, " tokens; it must be from 1 to ", kMaxVocabulary);
  require(h.width == detail::width_of(static_cast<Index>(h.vocabulary)), "token file: ", name, " has ", h.width,
          " bytes per token; with a vocabulary of ", h.vocabulary, " it must be ",
          detail::width_of(static_cast<Index>(h.vocabulary)));
  require(h.tokenizer_bytes % 8 == 0, "token file: the tokenizer of ", name, " takes ", h.tokenizer_bytes,
          " bytes; it must be a multiple of 8");
  require(h.tokenizer_bytes <= bytes - sizeof h, "token file: ", name, " ends within its tokenizer; it is truncated");
  const std::uint64_t rest = bytes - sizeof h - h.tokenizer_bytes, held = rest / h.width;
  require(rest % h.width == 0 && held == h.count, "token file: ", name, " holds ", held, " tokens but its header says ",
          h.count, held < h.count ? "; it is truncated" : "; bytes were appended");
}

}  // namespace

TokenSource TokenSource::open(const fs::path& file, std::optional<std::uint64_t> tokenizer_hash) {
  detail::MappedFile map("token file", file);
  const std::size_t bytes = map.bytes().size();
  Header h{};
  std::ranges::copy(map.bytes().first(std::min(bytes, sizeof h)), std::as_writable_bytes(std::span(&h, 1)).begin());
  check_header(h, bytes, file.native());
  require(!tokenizer_hash || *tokenizer_hash == h.tokenizer, "token file: ", file.native(),
          " was made with another tokenizer; tokenize the text again");
  auto store = std::make_shared<Store>();
  store->map = std::move(map);
  store->name = file.native();
  store->header = h;
  return TokenSource(std::move(store), 0, static_cast<Index>(h.count));
}

Index TokenSource::vocabulary_size() const { return static_cast<Index>(store_->header.vocabulary); }

std::int32_t TokenSource::operator[](Index i) const {
  std::int32_t token;
  read(i, {&token, 1});
  return token;
}

void TokenSource::read(Index from, std::span<std::int32_t> tokens) const {
  const auto n = static_cast<Index>(tokens.size());
  require(from >= 0 && n <= size() && from <= size() - n, "tokens: cannot read ", n, " tokens from position ", from,
          "; there are ", size());
  store_->values([&](const auto* all) { std::copy(all + begin_ + from, all + begin_ + from + n, tokens.begin()); });
  const Index vocabulary = vocabulary_size();
  for (std::int32_t t : tokens)
    require(t >= 0 && t < vocabulary, "token file: ", store_->name, " is damaged: token ", t,
            " is outside its vocabulary of ", vocabulary);
}

Tokens TokenSource::to_vector() const {
  Tokens tokens(static_cast<std::size_t>(size()));
  read(0, tokens);
  return tokens;
}

Tokenizer TokenSource::tokenizer() const {
  const Store& s = *store_;
  require(s.map && s.header.tokenizer_bytes > 0, "token file: ", s.map ? s.name : "a list of tokens in memory",
          " does not contain the tokenizer that made it");
  try {
    const auto* json = reinterpret_cast<const char*>(s.after_header());
    Tokenizer tokenizer = Tokenizer::from_json({json, s.header.tokenizer_bytes});
    require(tokenizer.hash() == s.header.tokenizer, "tokenizer: its hash is not the one in the header");
    require(tokenizer.vocabulary_size() == vocabulary_size(), "tokenizer: its vocabulary has ",
            tokenizer.vocabulary_size(), " tokens and that of the file ", vocabulary_size(),
            "; the numbers must be equal");
    return tokenizer;
  } catch (const Error& e) {
    fail("token file: the tokenizer in ", s.name, " cannot be used: ", e.what());
  }
}

std::uint64_t TokenSource::hash() const {
  const Store& s = *store_;
  const std::uint32_t width = detail::width_of(vocabulary_size());
  constexpr Index kPiece = Index{1} << 20;
  detail::TokenHash hash;
  Tokens piece;
  std::vector<std::uint16_t> narrow;
  for (Index at = 0; at < size(); at += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, size() - at)));
    read(at, piece);
    detail::as_stored(piece, width, narrow, [&](const void* data, std::size_t bytes) { hash.add(data, bytes); });
    if (s.map) s.forget(begin_ + at, static_cast<Index>(piece.size()));
  }
  const bool whole = s.map && size() == static_cast<Index>(s.header.count);
  require(!whole || hash.value() == s.header.tokens, "token file: ", s.name,
          " is damaged: its tokens differ from those that were written");
  return hash.value();
}

std::string TokenSource::fingerprint() const {
  return std::to_string(size()) + " tokens with the hash " + detail::hex(hash());
}

TokenSource TokenSource::part(Index begin, Index end) const {
  require(0 <= begin && begin <= end && end <= size(), "tokens: the part from ", begin, " to ", end,
          " is out of range; there are ", size());
  return TokenSource(store_, begin_ + begin, begin_ + end);
}

std::pair<TokenSource, TokenSource> TokenSource::split(double val_fraction,
                                                       std::optional<std::int32_t> separator) const {
  require(val_fraction >= 0 && val_fraction < 1, "split: the validation fraction is ", val_fraction,
          "; it must be in [0, 1)");
  auto cut = static_cast<Index>((1 - val_fraction) * static_cast<double>(size()));
  while (separator && cut < size() && (*this)[cut] != *separator) ++cut;
  return {part(0, cut), part(cut, size())};
}

}  // namespace heed
