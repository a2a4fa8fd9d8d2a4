// A trie of texts: finds all entries that begin at a byte of a text.
#pragma once
#include <cstdint>
#include <heed/io/tokenizer/probes.hpp>
#include <string_view>
#include <vector>

namespace heed::detail::tokenizer {

// Texts with values from 0 on. Steps are kept in one hash table with linear probing.
class ByteTrie {
 public:
  static constexpr std::int32_t kRoot = 0, kNone = -1;

  ByteTrie() : values_{kNone}, steps_(64) {}

  // Adds a text that is not empty. The last value of a text counts. Throws Error if the texts are chosen to collide.
  void add(std::string_view text, std::int32_t value) {
    std::int32_t node = kRoot;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (node == kRoot) begins_[byte] = true;
      const std::int32_t next = step(node, byte);
      node = next != kNone ? next : grow(node, byte);
    }
    values_[static_cast<std::size_t>(node)] = value;
  }

  bool empty() const { return values_.size() == 1; }
  bool begins(unsigned char byte) const { return begins_[byte]; }  // whether a text begins with the byte
  // The node after a byte; kNone if no text continues so.
  std::int32_t step(std::int32_t node, unsigned char byte) const {
    const std::uint32_t key = key_of(node, byte);
    for (std::size_t i = place(key);; i = (i + 1) & (steps_.size() - 1)) {
      if (steps_[i].node == kNone) return kNone;
      if (steps_[i].key == key) return steps_[i].node;
    }
  }
  std::int32_t value(std::int32_t node) const { return values_[static_cast<std::size_t>(node)]; }  // kNone: none

 private:
  struct Step {
    std::uint32_t key = 0;
    std::int32_t node = kNone;  // after the step
  };
  // 24 bits of a node, and a byte. The texts must have fewer than 2^24 bytes in all.
  static std::uint32_t key_of(std::int32_t node, unsigned char byte) {
    return static_cast<std::uint32_t>(node) << 8 | byte;
  }
  std::size_t place(std::uint32_t key) const {
    return (std::uint64_t{key} * 0x9E3779B97F4A7C15 >> 32) & (steps_.size() - 1);
  }

  std::int32_t grow(std::int32_t node, unsigned char byte) {
    if (values_.size() * 2 > steps_.size()) {
      std::vector<Step> old(steps_.size() * 2);
      old.swap(steps_);
      for (const Step& s : old)
        if (s.node != kNone) insert(s);
    }
    const auto made = static_cast<std::int32_t>(values_.size());
    values_.push_back(kNone);
    insert({key_of(node, byte), made});
    return made;
  }
  void insert(Step s) {
    const std::size_t begin = place(s.key), mask = steps_.size() - 1;
    std::size_t steps = 0;
    while (steps_[(begin + steps) & mask].node != kNone) ++steps;
    steps_[(begin + steps) & mask] = s;
    probes_.add(steps, values_.size());
  }

  std::vector<std::int32_t> values_;  // by node
  std::vector<Step> steps_;           // a power of two
  bool begins_[256] = {};
  Probes probes_;
};

}  // namespace heed::detail::tokenizer
