// Tokenizer files whose texts are chosen to collide in a hash table. To insert them would take the square of their
// number of steps.
#include <doctest/doctest.h>
#include <functional>
#include <heed/io/tokenizer/byte_trie.hpp>
#include <heed/io/tokenizer_json.hpp>

#include <nlohmann/json.hpp>

#include "tests/support.hpp"

using namespace heed;
using nlohmann::json;
using test::contains;
using test::error_of;

namespace tokenizer_collisions_test {  // several sources of tests are compiled as one
namespace {

constexpr const char* kCollide = "tokenizer: the texts of the file collide in a hash table: ";
constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;  // of the tables of numbers

json file_of(const json& vocabulary, const json& merges = json::array()) {
  return {{"version", "1.0"}, {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

}  // namespace

TEST_CASE("tokenizer.json: texts of a vocabulary that collide are refused") {
  json colliding, others;
  for (int n = 0; colliding.size() < 2000; ++n) {
    const std::string text = std::to_string(n);
    if (std::hash<std::string_view>()(text) % 4096 == 0) colliding[text] = colliding.size();
    if (others.size() < 2000) others[text] = others.size();
  }
  CHECK(contains(error_of([&] { JsonTokenizer::from_state(file_of(colliding).dump()); }), kCollide));
  CHECK(error_of([&] { JsonTokenizer::from_state(file_of(others).dump()); }) == "");
}

TEST_CASE("tokenizer.json: merges that collide are refused") {
  // The place of a pair is that of its number, in a table of 4096.
  const auto place = [](std::uint64_t left, std::uint64_t right) {
    const std::uint64_t hash = (left << 32 | right) * kFactor;
    return (hash ^ hash >> 32) % 4096;
  };
  json vocabulary, merges = json::array();
  std::vector<int> right_of(2000);
  int next = 10'000;  // the ids of pairs; those of the left parts are below 4096, and of the right parts from 4096 on
  for (int id = 4096; id < 6096; ++id) {
    int left = 0;
    while (place(static_cast<std::uint64_t>(left), static_cast<std::uint64_t>(id)) != 0) ++left;
    const std::string l = "l" + std::to_string(left), r = "r" + std::to_string(id);
    vocabulary[l] = left, vocabulary[r] = id, vocabulary[l + r] = next++;
    merges.push_back({l, r});
  }
  CHECK(contains(error_of([&] { JsonTokenizer::from_state(file_of(vocabulary, merges).dump()); }), kCollide));
  for (json& merge : merges) merge = {merges[0][0], merges[0][1]};
  CHECK(error_of([&] { JsonTokenizer::from_state(file_of(vocabulary, merges).dump()); }) == "");
}

TEST_CASE("tokenizer.json: bytes of a trie that collide are refused") {
  // The byte of each node whose step has the lowest place in a table of 8192.
  std::string text, plain(3000, 'a');
  for (std::uint64_t node = 0; node < 3000; ++node) {
    const auto place = [node](char c) { return ((node << 8 | static_cast<unsigned>(c)) * kFactor >> 32) % 8192; };
    char best = ' ';
    for (char c = ' '; c < '~'; ++c)
      if (place(c) < place(best)) best = c;
    text += best;
  }
  detail::tokenizer::ByteTrie trie;
  CHECK(contains(error_of([&] { trie.add(text, 0); }), kCollide));
  detail::tokenizer::ByteTrie other;
  CHECK(error_of([&] { other.add(plain, 0); }) == "");
}

}  // namespace tokenizer_collisions_test
