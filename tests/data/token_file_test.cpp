#include <doctest/doctest.h>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/data/token_file.hpp>
#include <numeric>

#include "tests/data/temporary_folder.hpp"

using namespace heed;
using Ids = std::vector<std::int32_t>;

namespace {

std::string bytes_of(const std::filesystem::path& p) {
  std::ifstream in(p, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_ids(const std::filesystem::path& p, const Ids& ids, Index vocabulary, std::uint64_t hash = 0) {
  TokenWriter w(p, vocabulary, hash);
  w.append(ids);
  w.finish();
}

}  // namespace

TEST_CASE("token files give back what was written, two bytes a token while that suffices") {
  TemporaryFolder f;
  for (Index vocabulary : {Index{3}, Index{65536}, Index{65537}, Index{1} << 31}) {
    CAPTURE(vocabulary);
    const Ids ids = {0, 2, 1, static_cast<std::int32_t>(vocabulary - 1)};
    const auto file = f.path / "x.tokens";
    TokenWriter w(file, vocabulary, 77);
    w.append(std::span(ids).first(1));
    w.append({});
    w.append(std::span(ids).subspan(1));
    CHECK_FALSE(std::filesystem::exists(file));
    w.finish();
    CHECK(w.size() == 4);
    CHECK(std::filesystem::file_size(file) == 64 + 4 * (vocabulary <= 65536 ? 2 : 4));
    const TokenSource source = TokenSource::open(file, 77);
    CHECK(source.size() == 4);
    CHECK(source.vocabulary_size() == vocabulary);
    CHECK(source.to_vector() == ids);
    CHECK(source[2] == 1);
    CHECK(std::distance(std::filesystem::directory_iterator(f.path), {}) == 1);
    std::filesystem::remove(file);
  }
}

TEST_CASE("an unfinished token file leaves nothing behind and the old one in place") {
  TemporaryFolder f;
  const auto file = f.path / "x.tokens";
  write_ids(file, {1, 2}, 5);
  {
    TokenWriter w(file, 9);
    w.append(Ids{3});
  }
  CHECK(TokenSource::open(file).to_vector() == Ids{1, 2});
  CHECK(std::distance(std::filesystem::directory_iterator(f.path), {}) == 1);
}

TEST_CASE("texts are tokenized a piece at a time") {
  TemporaryFolder f;
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "line " + std::to_string(i) + "\n";
  const Tokenizer t = CharTokenizer(text);
  const auto file = f.path / "x.tokens";
  CHECK(write_tokens(file, {f.write("x.txt", text)}, t) == static_cast<Index>(text.size()));
  CHECK((t.decode(TokenSource::open(file, t.hash()).to_vector()) == text));
  const auto other = f.write("y.txt", "Z");
  CHECK(has(error_of([&] { write_tokens(f.path / "y.tokens", {other}, t); }), "the character 'Z'"));
  CHECK_FALSE(std::filesystem::exists(f.path / "y.tokens"));
}

TEST_CASE("what is not a token file of this program is refused") {
  TemporaryFolder f;
  const auto file = f.path / "x.tokens";
  write_ids(file, {1, 2, 3}, 5, 11);
  const std::string good = bytes_of(file);
  const auto refused = [&](std::string bytes) {
    return error_of([&] { TokenSource::open(f.write("bad.tokens", bytes)); });
  };
  CHECK(has(error_of([&] { TokenSource::open(f.path / "none"); }), "cannot be opened: No such file"));
  CHECK(has(error_of([&] { TokenSource::open(f.path); }), "is not a token file"));
  CHECK(has(error_of([&] { TokenSource::open(file, 12); }), "was made with another tokenizer"));
  CHECK(has(refused(""), "is not a token file"));
  CHECK(has(refused("a text file that is long enough to hold a whole header, or so one might think"),
            "is not a token file"));
  CHECK(has(refused(good.substr(0, good.size() - 1)), "holds 2 tokens but its header says 3; it is truncated"));
  CHECK(has(refused(good + "x"), "something was appended"));
  std::string newer = good, damaged = good;
  newer[8] = 2;
  CHECK(has(refused(newer), "has version 2, but this program reads versions up to 1"));
  damaged[16] ^= 1;
  CHECK(has(refused(damaged), "the header of " + f.path.native() + "/bad.tokens is damaged"));
  damaged = good;
  damaged[64] = 9;
  const TokenSource source = TokenSource::open(f.write("id.tokens", damaged));
  CHECK(has(error_of([&] { source.to_vector(); }), "is damaged: token 9 is outside its vocabulary of 5"));
}

TEST_CASE("writers refuse what they cannot write") {
  TemporaryFolder f;
  CHECK(has(error_of([&] { TokenWriter(f.path / "no/x", 5); }), "cannot be created: No such file"));
  CHECK(has(error_of([&] { TokenWriter(f.path / "x", 0); }), "must be positive"));
  TokenWriter w(f.path / "x", 5);
  CHECK(has(error_of([&] { w.append(Ids{1, 5}); }), "token 5 is outside the vocabulary of 5"));
  CHECK_THROWS_AS(w.append(Ids{-1}), Error);
  w.finish();
  CHECK_THROWS_AS(w.append(Ids{1}), Error);
  CHECK_THROWS_AS(w.finish(), Error);
  CHECK(TokenSource::open(f.path / "x").size() == 0);
  if (std::filesystem::exists("/dev/full")) {
    std::filesystem::create_symlink("/dev/full", f.path / "full.writing");
    CHECK(has(error_of([&] { write_ids(f.path / "full", Ids(100, 1), 5); }), "cannot be written: No space left"));
  }
}

TEST_CASE("sources split and share") {
  Ids ids(101);
  std::iota(ids.begin(), ids.end(), 0);
  const TokenSource all(ids, 101);
  const auto [train, val] = all.split(0.1);
  CHECK(train.size() == 90);  // int(0.9 * 101)
  CHECK(val.to_vector() == Ids(ids.begin() + 90, ids.end()));
  CHECK(val.part(1, 3).to_vector() == Ids{91, 92});
  const auto [a, b] = all.split(0.5, 60);
  CHECK(a.size() == 60);
  CHECK(b[0] == 60);
  CHECK(all.split(0).second.size() == 0);
  CHECK(all.split(0.5, 7).second.size() == 0);  // no 7 after the middle
  CHECK_THROWS_AS(all.split(1), Error);
  CHECK_THROWS_AS(all.split(-0.1), Error);
  CHECK_THROWS_AS(all.split(std::nan("")), Error);
  CHECK_THROWS_AS(all[101], Error);
  CHECK_THROWS_AS(all[-1], Error);
  CHECK_THROWS_AS(val.part(0, 12), Error);
  CHECK(has(error_of([&] { TokenSource({0, 3}, 3); }), "token 3 at position 1 is outside the vocabulary of 3"));
}
