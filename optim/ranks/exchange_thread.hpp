// A thread that drives exchanges between ranks while other threads compute. Private to optim/ranks.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <heed/core/clock.hpp>
#include <heed/optim/ranks/messages.hpp>
#include <heed/optim/ranks/ranks.hpp>
#include <mutex>
#include <thread>

namespace heed::detail {

// Backoff for polling: yields, then sleeps after half a second.
class Patience {
 public:
  void wait();  // call between two polls

 private:
  double begin_ = seconds_now();
};

// Starts the exchanges of each channel in order, a few at a time, and drives those in progress, because MPI moves bytes
// only inside its calls. Memory of messages must stay valid until their exchange is done or stop() has returned.
class ExchangeThread {
 public:
  enum Channel { direct, gradients, values, small, kChannels };  // direct: Ranks::exchange()
  // Identifies an exchange.
  struct Ticket {
    Channel channel = gradients;
    std::size_t number = 0;  // of the exchange in its channel, from 0
  };

  // An interval in which exchanges of a channel were in progress without a pause, and the bytes that this rank sent in
  // it.
  struct Busy {
    Channel channel = gradients;
    double begin = 0, end = 0;  // of seconds_now()
    std::size_t bytes = 0;
  };

  explicit ExchangeThread(Ranks& ranks) : ranks_(ranks) {}
  ~ExchangeThread() { stop(); }  // does not wait for exchanges in progress
  ExchangeThread(const ExchangeThread&) = delete;
  ExchangeThread& operator=(const ExchangeThread&) = delete;

  Ranks& ranks() { return ranks_; }
  Ticket add(Messages messages, Channel channel);  // queues an exchange; with one rank, it is done at once
  bool done(const Ticket& ticket) const { return queues_[ticket.channel].done > ticket.number; }
  void poll();  // drives all exchanges once, unless another thread does
  // Returns when the exchange is done, and drives all exchanges until then. Throws the exception of a failed exchange.
  void wait(const Ticket& ticket);
  // Ends the thread. Nothing writes to the memory of messages afterwards, unless wait(), poll() or add() is called.
  void stop();
  std::vector<Busy> take_busy();  // intervals that have ended since the last call

 private:
  struct Queue {
    std::deque<Messages> waiting;
    std::deque<std::unique_ptr<Ranks::Exchange>> under_way;
    std::size_t added = 0;              // number of exchanges added
    std::atomic<std::size_t> done = 0;  // number of exchanges done
    Busy busy;                          // since the channel was idle
    bool is_idle() const { return waiting.empty() && under_way.empty(); }
  };

  Ranks& ranks_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::array<Queue, kChannels> queues_;
  std::vector<Busy> busy_;
  std::exception_ptr error_;  // of a failed exchange
  bool stop_ = false;
  std::thread thread_;  // started by the first add()

  void move_on();  // starts and finishes exchanges; needs the lock
  void drive();    // the function of the thread
};

}  // namespace heed::detail
