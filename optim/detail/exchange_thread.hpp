// A thread that moves exchanges between ranks on while another computes. Internal.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <heed/optim/detail/clock.hpp>
#include <heed/optim/detail/messages.hpp>
#include <heed/optim/ranks.hpp>
#include <mutex>
#include <thread>

namespace heed::detail {

// Of who asks again and again whether something is done: the processor is left to others, and after half a second to
// all.
class Patience {
 public:
  void wait();

 private:
  double begin_ = seconds_now();
};

// Makes exchanges one after another, some at a time, and drives those that are under way: MPI moves bytes on only while
// somebody asks it to. What is sent and received must outlive it, or its exchange.
class ExchangeThread {
 public:
  enum Channel { direct, gradients, values, small, kChannels };  // direct: Ranks::exchange()
  // One of the exchanges of a channel.
  struct Ticket {
    Channel channel = gradients;
    std::size_t number = 0;
  };

  // A time in which exchanges of a channel were under way without a rest, and the bytes that this rank sent in it.
  struct Busy {
    Channel channel = gradients;
    double begin = 0, end = 0;  // of seconds_now()
    std::size_t bytes = 0;
  };

  explicit ExchangeThread(Ranks& ranks) : ranks_(ranks) {}
  ~ExchangeThread();  // what is under way is left as it is
  ExchangeThread(const ExchangeThread&) = delete;
  ExchangeThread& operator=(const ExchangeThread&) = delete;

  Ranks& ranks() { return ranks_; }
  Ticket add(Messages messages, Channel channel);
  bool done(const Ticket& ticket) const { return queues_[ticket.channel].done > ticket.number; }
  void poll();  // drives all of them for a moment, where the thread does not
  // Drives all of them itself meanwhile. Throws what an exchange threw.
  void wait(const Ticket& ticket);
  std::vector<Busy> take_busy();  // those that have ended since the last call

 private:
  struct Queue {
    std::deque<Messages> waiting;
    std::deque<std::unique_ptr<Ranks::Exchange>> under_way;
    std::size_t added = 0;
    std::atomic<std::size_t> done = 0;
    Busy busy;  // since it was idle
    bool is_idle() const { return waiting.empty() && under_way.empty(); }
  };

  Ranks& ranks_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::array<Queue, kChannels> queues_;
  std::vector<Busy> busy_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // from the first exchange on

  bool is_idle() const;
  void move_on();
  void drive();
};

}  // namespace heed::detail
