// A thread that drives exchanges between ranks while other threads compute.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <heed/optim/ranks/exchange_thread.hpp>
#include <utility>

namespace heed::detail {
namespace {

// Pause of the thread between two polls. Polls take processor time from other threads: half a percent of a small
// model's step. The buffers of sockets hold the bytes that a link of 10 Gbit/s carries during a pause.
constexpr std::chrono::microseconds kPause{500};

// Max exchanges in progress per channel: enough to keep the link busy while one exchange is polled, and few enough that
// a small message of another channel does not wait for many.
constexpr std::size_t kUnderWay = 3;

}  // namespace

void Patience::wait() {
  if (seconds_now() - begin_ < 0.5)
    ::sched_yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void ExchangeThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

ExchangeThread::Ticket ExchangeThread::add(Messages messages, Channel channel) {
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[channel];
  if (ranks_.size() == 1) return {channel, queue.done++};
  if (queue.is_idle()) queue.busy = {channel, seconds_now(), 0, 0};
  for (const Outgoing& o : messages.out) queue.busy.bytes += o.count;
  queue.waiting.push_back(std::move(messages));
  move_on();
  if (!thread_.joinable()) thread_ = std::thread([this] { drive(); });
  changed_.notify_all();
  return {channel, queue.added++};
}

void ExchangeThread::poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && !error_) move_on();
}

void ExchangeThread::wait(const Ticket& ticket) {
  for (Patience patience; !done(ticket); patience.wait()) {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    move_on();
  }
}

std::vector<ExchangeThread::Busy> ExchangeThread::take_busy() {
  const std::lock_guard lock(mutex_);
  return std::exchange(busy_, {});
}

void ExchangeThread::move_on() {
  for (Queue& q : queues_) {
    if (q.is_idle()) continue;
    const int channel = static_cast<int>(&q - queues_.data());
    while (!q.under_way.empty() && (q.under_way.front() == nullptr || q.under_way.front()->done())) {
      q.under_way.pop_front();
      ++q.done;
    }
    while (!q.waiting.empty() && q.under_way.size() < kUnderWay) {
      q.under_way.push_back(ranks_.start(q.waiting.front().out, q.waiting.front().in, channel));
      q.waiting.pop_front();
    }
    if (!q.is_idle()) continue;
    q.busy.end = seconds_now();
    busy_.push_back(q.busy);
  }
}

void ExchangeThread::drive() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || (!error_ && !std::ranges::all_of(queues_, &Queue::is_idle)); });
    if (stop_) return;
    try {
      move_on();
    } catch (...) {
      error_ = std::current_exception();
    }
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

}  // namespace heed::detail
