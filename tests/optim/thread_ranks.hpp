// Ranks that are threads of the test program.
#pragma once
#include <cstring>
#include <deque>
#include <functional>
#include <heed/core/check.hpp>
#include <heed/optim/ranks/ranks.hpp>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace heed::test {

// The messages in flight between the ranks of one run.
class PostOffice {
 public:
  void send(int from, int to, int channel, const void* bytes, std::size_t count) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to, channel}].emplace_back(static_cast<const char*>(bytes), count);
  }
  // Receives a message; false if none has arrived.
  bool receive(int from, int to, int channel, void* bytes, std::size_t count) {
    const std::lock_guard lock(mutex_);
    std::deque<std::string>& box = boxes_[{from, to, channel}];
    require(!failed_ || !box.empty(), "another rank failed");
    if (box.empty()) return false;
    if (before_delivery) before_delivery(to);
    require(box.front().size() == count, "rank ", to, " expects ", count, " bytes of rank ", from, " and gets ",
            box.front().size());
    std::memcpy(bytes, box.front().data(), count);
    box.pop_front();
    return true;
  }
  void fail(int rank, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    reasons[rank] = reason;
  }
  std::size_t undelivered() const {
    std::size_t count = 0;
    for (const auto& [ends, box] : boxes_) count += box.size();
    return count;
  }

  std::map<int, std::string> reasons;           // by rank
  std::function<void(int to)> before_delivery;  // called before a message is copied to the memory of its receiver

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, int>, std::deque<std::string>> boxes_;  // by sender, receiver and channel
  bool failed_ = false;
};

class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(int rank, int size, PostOffice& office, int of_a_machine = 1)
      : Ranks(rank, size), office_(office), of_a_machine_(of_a_machine) {}
  std::string host() const override { return "thread " + std::to_string(rank()); }
  void failed(const std::string& reason, int) override { office_.fail(rank(), reason); }
  bool shares_memory_with(int other) const override { return other / of_a_machine_ == rank() / of_a_machine_; }
  void read(int, const void* from, void* to, std::size_t count) const override { std::memcpy(to, from, count); }

 private:
  PostOffice& office_;
  int of_a_machine_;

  struct Letters final : Exchange {
    PostOffice& office;
    int rank, channel;
    std::deque<Incoming> awaited;
    Letters(PostOffice& o, int r, int c, std::span<const Incoming> in)
        : office(o), rank(r), channel(c), awaited(in.begin(), in.end()) {}
    bool done() override {
      while (!awaited.empty()) {
        const Incoming& i = awaited.front();
        if (!office.receive(i.rank, rank, channel, i.bytes, i.count)) return false;
        awaited.pop_front();
      }
      return true;
    }
  };
  std::unique_ptr<Exchange> begin(std::span<const Outgoing> out, std::span<const Incoming> in, int channel) override {
    for (const Outgoing& o : out) office_.send(rank(), o.rank, channel, o.bytes, o.count);
    return std::make_unique<Letters>(office_, rank(), channel, in);
  }
};

// Calls f(ranks) on one thread per rank. Groups of of_a_machine ranks share memory. Returns the errors by rank. An
// Error of one rank ends the others.
inline std::map<int, std::string> on_ranks(int size, const std::function<void(Ranks&)>& f, int of_a_machine = 1) {
  PostOffice office;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      ThreadRanks ranks(r, size, office, of_a_machine);
      try {
        f(ranks);
      } catch (const Error& e) {
        office.fail(r, e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  if (office.reasons.empty() && office.undelivered() > 0) office.reasons[-1] = "letters were left";
  return office.reasons;
}

}  // namespace heed::test
