#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>

namespace heed {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr char kMagic[9] = "HEEDTOKS";

struct Header {
  char magic[8];
  std::uint32_t version, width;
  std::uint64_t count, vocabulary, tokenizer;
  std::uint64_t zeros[2];
  std::uint64_t hash;
};
static_assert(sizeof(Header) == 64);

std::uint64_t hash_of(const Header& h) { return XXH64(&h, offsetof(Header, hash), 0); }

std::uint32_t width_of(Index vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

TokenWriter::TokenWriter(fs::path path, Index vocabulary, std::uint64_t tokenizer_hash)
    : path_(std::move(path)), temporary_(path_.native() + ".writing"), vocabulary_(vocabulary), hash_(tokenizer_hash) {
  require(vocabulary > 0, "token file: the vocabulary is ", vocabulary, "; it must be positive");
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) refuse("cannot be created");
  const Header none{};  // not valid until finish()
  write(&none, sizeof none);
}

TokenWriter::~TokenWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void TokenWriter::refuse(const char* what) const {
  fail("token file: ", path_.native(), " ", what, ": ", std::strerror(errno));
}

void TokenWriter::write(const void* data, std::size_t bytes) {
  for (const char* p = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = ::write(file_, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse("cannot be written");
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void TokenWriter::append(std::span<const std::int32_t> tokens) {
  require(file_ >= 0, "token file: ", path_.native(), " is finished; nothing can be appended");
  for (std::int32_t t : tokens)
    require(t >= 0 && t < vocabulary_, "token file: token ", t, " is outside the vocabulary of ", vocabulary_);
  if (width_of(vocabulary_) == 2) {
    narrow_.assign(tokens.begin(), tokens.end());
    write(narrow_.data(), narrow_.size() * 2);
  } else {
    write(tokens.data(), tokens.size_bytes());
  }
  count_ += static_cast<Index>(tokens.size());
}

void TokenWriter::finish() {
  require(file_ >= 0, "token file: ", path_.native(), " is finished already");
  Header h{{},
           kTokenFileVersion,
           width_of(vocabulary_),
           static_cast<std::uint64_t>(count_),
           static_cast<std::uint64_t>(vocabulary_),
           hash_,
           {},
           0};
  std::memcpy(h.magic, kMagic, 8);
  h.hash = hash_of(h);
  if (::pwrite(file_, &h, sizeof h, 0) != static_cast<ssize_t>(sizeof h)) refuse("cannot be written");
  if (::fsync(file_) != 0) refuse("cannot be written");
  if (::close(std::exchange(file_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    refuse("cannot be put in place");
  }
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const Descriptor d(folder, O_RDONLY | O_DIRECTORY);
  if (d.get() < 0 || ::fsync(d.get()) != 0) refuse("is in place, but its folder cannot be synced");
}

Index write_tokens(const fs::path& to, const std::vector<fs::path>& files_and_folders, const Tokenizer& tokenizer) {
  TokenWriter writer(to, tokenizer.vocabulary_size(), tokenizer.hash());
  read_text_pieces(files_and_folders, [&](std::string_view piece) { writer.append(tokenizer.encode(piece)); });
  writer.finish();
  return writer.size();
}

struct TokenSource::Store {
  std::vector<std::int32_t> tokens;  // in memory, or
  std::string name;                  // a file, mapped
  void* map = nullptr;
  std::size_t map_bytes = 0;
  std::uint32_t width = 4;
  Index vocabulary = 0;

  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() {
    if (map) ::munmap(map, map_bytes);
  }

  template <class F>
  decltype(auto) values(F&& f) const {
    const void* data = map ? static_cast<const char*>(map) + sizeof(Header) : static_cast<const void*>(tokens.data());
    return width == 2 ? f(static_cast<const std::uint16_t*>(data)) : f(static_cast<const std::int32_t*>(data));
  }
};

TokenSource::TokenSource(std::vector<std::int32_t> tokens, Index vocabulary)
    : begin_(0), end_(static_cast<Index>(tokens.size())) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    require(tokens[i] >= 0 && tokens[i] < vocabulary, "tokens: token ", tokens[i], " at position ", i,
            " is outside the vocabulary of ", vocabulary);
  auto store = std::make_shared<Store>();
  store->tokens = std::move(tokens);
  store->vocabulary = vocabulary;
  store_ = std::move(store);
}

namespace {

// Throws Error unless the header belongs to a file of so many bytes that this program can read.
void check_header(const Header& h, std::size_t bytes, const std::string& name) {
  require(bytes >= sizeof h && std::memcmp(h.magic, kMagic, 8) == 0, "token file: ", name, " is not a token file");
  require(h.version <= kTokenFileVersion, "token file: ", name, " has version ", h.version,
          ", but this program reads versions up to ", kTokenFileVersion);
  require(h.hash == hash_of(h) && (h.width == 2 || h.width == 4), "token file: the header of ", name, " is damaged");
  const std::uint64_t held = (bytes - sizeof h) / h.width;
  require(bytes == sizeof h + h.count * h.width, "token file: ", name, " holds ", held, " tokens but its header says ",
          h.count, held < h.count ? "; it is truncated" : "; something was appended");
}

}  // namespace

TokenSource TokenSource::open(const fs::path& file, std::optional<std::uint64_t> tokenizer_hash) {
  const Descriptor d(file, O_RDONLY);
  require(d.get() >= 0, "token file: ", file.native(), " cannot be opened: ", std::strerror(errno));
  struct stat status;
  require(::fstat(d.get(), &status) == 0 && S_ISREG(status.st_mode), "token file: ", file.native(),
          " is not a token file");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  Header h{};
  require(::pread(d.get(), &h, std::min(bytes, sizeof h), 0) >= 0, "token file: ", file.native(),
          " cannot be read: ", std::strerror(errno));
  check_header(h, bytes, file.native());
  require(!tokenizer_hash || *tokenizer_hash == h.tokenizer, "token file: ", file.native(),
          " was made with another tokenizer; tokenize the text again");
  auto store = std::make_shared<Store>();
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, d.get(), 0);
  require(map != MAP_FAILED, "token file: ", file.native(), " cannot be mapped: ", std::strerror(errno));
  store->map = map;
  store->map_bytes = bytes;
  store->name = file.native();
  store->width = h.width;
  store->vocabulary = static_cast<Index>(h.vocabulary);
  return TokenSource(std::move(store), 0, static_cast<Index>(h.count));
}

Index TokenSource::vocabulary_size() const { return store_->vocabulary; }

std::int32_t TokenSource::operator[](Index i) const {
  std::int32_t token;
  read(i, {&token, 1});
  return token;
}

void TokenSource::read(Index from, std::span<std::int32_t> tokens) const {
  const auto n = static_cast<Index>(tokens.size());
  require(from >= 0 && n <= size() && from <= size() - n, "tokens: ", n, " tokens from position ", from,
          " were asked for; there are ", size());
  store_->values([&](const auto* all) { std::copy(all + begin_ + from, all + begin_ + from + n, tokens.begin()); });
  for (std::int32_t t : tokens)
    require(t >= 0 && t < store_->vocabulary, "token file: ", store_->name, " is damaged: token ", t,
            " is outside its vocabulary of ", store_->vocabulary);
}

std::vector<std::int32_t> TokenSource::to_vector() const {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(size()));
  read(0, tokens);
  return tokens;
}

TokenSource TokenSource::part(Index begin, Index end) const {
  require(0 <= begin && begin <= end && end <= size(), "tokens: the part from ", begin, " to ", end,
          " was asked for; there are ", size());
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
