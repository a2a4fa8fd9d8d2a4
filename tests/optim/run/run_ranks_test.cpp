// Numbers that ranks exchange, which are then equal on all ranks.
#include <atomic>
#include <chrono>
#include <heed/optim/run/run_ranks.hpp>
#include <thread>

#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::on_ranks;

TEST_CASE("run_ranks: sums, answers and losses are the same on all") {
  for (const int size : {1, 2, 3}) {
    CHECK(on_ranks(size, [&](Ranks& all) {
            detail::RunRanks ranks(&all, 5);
            double numbers[] = {1, static_cast<double>(all.rank())};
            ranks.sum(numbers);
            require(numbers[0] == size && numbers[1] == size * (size - 1) / 2, "another sum");
            require(ranks.any(all.rank() == size - 1) && !ranks.any(false), "another answer");
            ranks.start_sum({1.0 + all.rank(), 10});
            require(ranks.finish_sum() == std::vector<double>{size * (size + 1) / 2.0, 10.0 * size}, "another sum");
            // 1e16 + 1 + 1 + 1 - 1e16 gives 0 only if the five shards are summed in order.
            const std::vector<double> losses = {1e16, 1, 1, 1, -1e16};
            bool flags[] = {all.rank() == size - 1, false, all.rank() == 0};
            ranks.start_sum_of_shards({losses.begin() + ranks.begin(), losses.begin() + ranks.end()}, flags);
            ranks.start_sum({0.5});  // while the other sum is in flight
            require(ranks.finish_sum() == std::vector<double>{size / 2.0}, "another sum");
            const double sum = ranks.finish_sum_of_shards(flags);
            require(flags[0] && !flags[1] && flags[2], "another flag");
            require(sum == (((1e16 + 1) + 1) + 1) - 1e16, "another order");
          }).empty());
  }
}

// The address sanitizer reports a write to freed memory.
TEST_CASE("run_ranks: a sum that is never finished is not written to after its memory is freed") {
  test::PostOffice office;
  std::atomic<bool> delivers = false;
  office.before_delivery = [&](int to) {
    if (to != 0) return;
    delivers = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  test::ThreadRanks first(0, 2, office), second(1, 2, office);
  detail::RunRanks other(&second, 2);
  other.start_sum({2.0});
  {
    detail::RunRanks ranks(&first, 2);
    ranks.start_sum({1.0});
    while (!delivers) std::this_thread::yield();
  }
  CHECK(office.undelivered() <= 1);  // the sum of rank 0 has arrived at rank 1, or is on its way
}
