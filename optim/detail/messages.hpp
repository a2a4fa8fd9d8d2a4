// What ranks send each other at once, and memory for it. Internal.
#pragma once
#include <cstring>
#include <heed/core/dtype.hpp>
#include <heed/core/memory.hpp>
#include <heed/optim/ranks.hpp>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// Those of one exchange. What has no bytes is no message.
struct Messages {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;

  void send(int rank, const void* bytes, std::size_t count) {
    if (count > 0) out.push_back({rank, bytes, count});
  }
  void receive(int rank, void* bytes, std::size_t count) {
    if (count > 0) in.push_back({rank, bytes, count});
  }
};

// One block of memory for messages, or parts of them. Each begins on a cache line of its own.
class MessageMemory {
 public:
  using Place = std::size_t;  // bytes from the beginning

  Place add(std::size_t bytes);
  void allocate();  // when all are added
  template <class T>
  T* at(Place place) const {
    return reinterpret_cast<T*>(block_->data() + place);
  }

 private:
  std::size_t size_ = 0;  // bytes
  std::unique_ptr<Scratch<char>> block_;
};

// ---- What all ranks tell each other ----

// Numbers of all ranks, side by side: rank r's from begins[r] to begins[r + 1]. This one's are there, the others'
// arrive.
void all_gather(Ranks& ranks, std::span<double> numbers, std::span<const Index> begins);
// The exchange in which they do, for who starts it.
Messages gathering(const Ranks& ranks, std::span<double> numbers, std::span<const Index> begins);
// A text of each, by rank.
std::vector<std::string> all_gather(Ranks& ranks, const std::string& mine);

// Numbers and names as such a text, which is read in the order in which it was written.
class Packed {
 public:
  Packed() = default;
  explicit Packed(std::string bytes) : bytes_(std::move(bytes)) {}

  void add(double x) { bytes_.append(reinterpret_cast<const char*>(&x), sizeof x); }
  void add(const std::string& text) {
    add(static_cast<double>(text.size()));
    bytes_ += text;
  }
  double number() {
    double x = 0;
    std::memcpy(&x, bytes_.data() + at_, sizeof x);
    at_ += sizeof x;
    return x;
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number());
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  bool at_end() const { return at_ == bytes_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace heed::detail
