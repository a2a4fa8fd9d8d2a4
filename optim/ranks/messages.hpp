// Messages of an exchange between ranks, memory for them, and gathering of small data. Private to optim.
#pragma once
#include <cstring>
#include <heed/core/dtype.hpp>
#include <heed/core/memory.hpp>
#include <heed/optim/ranks/ranks.hpp>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail {

// The messages of one exchange. Empty messages are left out.
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

// One block of memory for messages or parts of messages, each of which begins on its own cache line.
class MessageMemory {
 public:
  using Place = std::size_t;  // offset in bytes

  Place add(std::size_t bytes);
  void allocate();  // call after the last add()
  template <class T>
  T* at(Place place) const {
    return reinterpret_cast<T*>(block_->data() + place);
  }

 private:
  std::size_t size_ = 0;  // bytes
  std::unique_ptr<Scratch<char>> block_;
};

// ---- Gathering ----

// Gathers numbers from all ranks: rank r has set those from begins[r] to begins[r + 1]. Afterwards all numbers are set
// on all ranks.
void all_gather(Ranks& ranks, std::span<double> numbers, std::span<const Index> begins);
// The messages of this exchange, for callers that start the exchange themselves.
Messages gathering(const Ranks& ranks, std::span<double> numbers, std::span<const Index> begins);
// Gathers one text per rank.
std::vector<std::string> all_gather(Ranks& ranks, const std::string& mine);

// Numbers and names packed into a text for all_gather(), and read in the order in which they were added.
class Packed {
 public:
  explicit Packed(std::string bytes = {}) : bytes_(std::move(bytes)) {}

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
