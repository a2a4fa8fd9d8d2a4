// Ranks that are threads of the test.
#pragma once
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <heed/core/check.hpp>
#include <heed/optim/ranks.hpp>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace heed::test {

// What the ranks of one run share: letters on the way.
class PostOffice {
 public:
  void send(int from, int to, const void* bytes, std::size_t count) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].emplace_back(static_cast<const char*>(bytes), count);
    changed_.notify_all();
  }
  void receive(int from, int to, void* bytes, std::size_t count) {
    std::unique_lock lock(mutex_);
    std::deque<std::string>& box = boxes_[{from, to}];
    changed_.wait(lock, [&] { return failed_ || !box.empty(); });
    require(!box.empty(), "another rank failed");
    require(box.front().size() == count, "rank ", to, " expects ", count, " bytes of rank ", from, " and gets ",
            box.front().size());
    std::memcpy(bytes, box.front().data(), count);
    box.pop_front();
  }
  void fail(int rank, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    reasons[rank] = reason;
    changed_.notify_all();
  }
  std::size_t undelivered() const {
    std::size_t count = 0;
    for (const auto& [ends, box] : boxes_) count += box.size();
    return count;
  }

  std::map<int, std::string> reasons;  // by rank

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::string>> boxes_;
  bool failed_ = false;
};

class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(int rank, int size, PostOffice& office) : Ranks(rank, size), office_(office) {}
  std::string host() const override { return "thread " + std::to_string(rank()); }
  void failed(const std::string& reason) override { office_.fail(rank(), reason); }

 private:
  PostOffice& office_;
  void deliver(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    for (const Outgoing& o : out) office_.send(rank(), o.rank, o.bytes, o.count);
    for (const Incoming& i : in) office_.receive(i.rank, rank(), i.bytes, i.count);
  }
};

// Calls f(ranks) on a thread for each rank. Gives why ranks failed; nothing where none did. Whoever fails with an Error
// has the others end.
inline std::map<int, std::string> on_ranks(int size, const std::function<void(Ranks&)>& f) {
  PostOffice office;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      ThreadRanks ranks(r, size, office);
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
