// The tokens of a vocabulary: texts by id, and ids by text.
#pragma once
#include <cstdint>
#include <functional>
#include <heed/io/tokenizer/probes.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::tokenizer {

// Texts and ids, which need not be consecutive. Ids are from 0 on; -1 means that there is none.
class Vocabulary {
 public:
  // Reserves memory for ids below `ids` and texts of `bytes` bytes in all.
  void reserve(std::size_t ids, std::size_t bytes) {
    texts_.reserve(ids);
    bytes_.reserve(bytes);
  }
  // Adds a token. Both the text and the id must be new. Throws Error if the texts are chosen to collide.
  void add(std::string_view text, std::int32_t id) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= texts_.size()) texts_.resize(at + 1);
    texts_[at] = {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(text.size())};
    bytes_ += text;
    if (++count_ * 2 > slots_.size()) grow();
    insert(id);
  }

  std::int32_t id_of(std::string_view text) const {
    if (slots_.empty()) return -1;
    const std::size_t hash = std::hash<std::string_view>()(text), mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& s = slots_[i];
      if (s.id < 0) return -1;
      if (s.tag == tag_of(hash) && this->text(s.id) == text) return s.id;
    }
  }
  // The text of a token; empty if there is none with this id, which must be at least 0.
  std::string_view text(std::int32_t id) const {
    const auto at = static_cast<std::size_t>(id);
    return has(id) ? std::string_view(bytes_).substr(texts_[at].begin, texts_[at].size) : std::string_view();
  }
  bool has(std::int32_t id) const {
    const auto at = static_cast<std::size_t>(id);
    return at < texts_.size() && texts_[at].size != kNone;
  }
  std::size_t count() const { return count_; }        // of tokens
  std::size_t size() const { return texts_.size(); }  // the largest id + 1

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Text {
    std::uint32_t begin = 0, size = kNone;
  };
  struct Slot {
    std::uint32_t tag = 0;
    std::int32_t id = -1;
  };
  static std::uint32_t tag_of(std::size_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  void insert(std::int32_t id) {
    const std::size_t hash = std::hash<std::string_view>()(text(id)), mask = slots_.size() - 1;
    std::size_t steps = 0;
    while (slots_[(hash + steps) & mask].id >= 0) ++steps;
    slots_[(hash + steps) & mask] = {tag_of(hash), id};
    probes_.add(steps, count_);
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.id >= 0) insert(s.id);
  }

  std::string bytes_;
  std::vector<Text> texts_;  // by id
  std::vector<Slot> slots_;  // a hash table with linear probing; its size is a power of two
  std::size_t count_ = 0;
  Probes probes_;
};

}  // namespace heed::detail::tokenizer
