// The thread that drives exchanges between ranks.
#include <array>
#include <chrono>
#include <heed/optim/ranks/exchange_thread.hpp>
#include <numeric>

#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"

using namespace heed;
using detail::ExchangeThread;
using test::on_ranks;

TEST_CASE("exchange thread: exchanges of a channel complete in order, independent of other channels") {
  CHECK(on_ranks(3, [](Ranks& ranks) {
          constexpr std::size_t kCount = 50;
          std::vector<double> mine(kCount), gradients(3 * kCount), values(3 * kCount);
          std::iota(mine.begin(), mine.end(), 1000.0 * ranks.rank());
          ExchangeThread exchanges(ranks);
          std::vector<ExchangeThread::Ticket> tickets;
          const auto add = [&](std::vector<double>& to, ExchangeThread::Channel channel) {
            for (std::size_t i = 0; i < kCount; ++i) {
              detail::Messages all;
              for (int r = 0; r < 3; ++r) {
                if (r == ranks.rank()) continue;
                all.send(r, &mine[i], sizeof(double));
                all.receive(r, &to[static_cast<std::size_t>(r) * kCount + i], sizeof(double));
              }
              tickets.push_back(exchanges.add(std::move(all), channel));
            }
          };
          // Ranks start with different channels.
          if (ranks.rank() > 0) add(gradients, ExchangeThread::gradients);
          add(values, ExchangeThread::values);
          if (ranks.rank() == 0) add(gradients, ExchangeThread::gradients);
          exchanges.wait(tickets.back());
          for (const ExchangeThread::Ticket& t : tickets) exchanges.wait(t);
          for (const auto* all : {&gradients, &values})
            for (int r = 0; r < 3; ++r)
              for (std::size_t i = 0; i < kCount && r != ranks.rank(); ++i)
                require((*all)[static_cast<std::size_t>(r) * kCount + i] == 1000.0 * r + static_cast<double>(i),
                        "another number");
        }).empty());
}

TEST_CASE("exchange thread: an exchange completes without a waiting thread, and wait() throws its error") {
  const auto reasons = on_ranks(2, [](Ranks& ranks) {
    const int other = 1 - ranks.rank();
    double mine = ranks.rank(), theirs = -1;
    ExchangeThread exchanges(ranks);
    const auto add = [&] {
      detail::Messages all;
      all.send(other, &mine, sizeof mine);
      all.receive(other, &theirs, sizeof theirs);
      return exchanges.add(std::move(all), ExchangeThread::values);
    };
    const ExchangeThread::Ticket first = add();
    for (int i = 0; i < 5000 && !exchanges.done(first); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    require(theirs == other, "it was not driven");
    if (ranks.rank() == 1) fail("no more");
    exchanges.wait(add());
  });
  CHECK(reasons == std::map<int, std::string>{{0, "another rank failed"}, {1, "no more"}});
}

TEST_CASE("exchange thread: it reports when each channel had exchanges in flight, and the number of bytes") {
  CHECK(on_ranks(2, [](Ranks& ranks) {
          const int other = 1 - ranks.rank();
          std::array<char, 5> mine{}, theirs{};
          ExchangeThread exchanges(ranks);
          const auto add = [&](std::size_t bytes, ExchangeThread::Channel channel) {
            return exchanges.add({{{other, mine.data(), bytes}}, {{other, theirs.data(), bytes}}}, channel);
          };
          const double begin = detail::seconds_now();
          exchanges.wait(add(3, ExchangeThread::values));
          const double between = detail::seconds_now();
          add(1, ExchangeThread::gradients);  // the other rank needs both
          exchanges.wait(add(5, ExchangeThread::gradients));
          const double end = detail::seconds_now();
          const auto busy = exchanges.take_busy();
          require(exchanges.take_busy().empty(), "told twice");
          require(busy.size() >= 2 && busy.front().channel == ExchangeThread::values, "values came first");
          require(busy.front().bytes == 3, "bytes of values");
          require(begin <= busy.front().begin && busy.front().begin <= busy.front().end, "values' begin");
          require(busy.front().end <= between, "values' end");
          std::size_t bytes = 0;
          double last = between;
          for (std::size_t i = 1; i < busy.size(); ++i) {  // one period, or two if the first exchange completed at once
            require(busy[i].channel == ExchangeThread::gradients, "another channel");
            require(last <= busy[i].begin && busy[i].begin <= busy[i].end, "they follow each other");
            last = busy[i].end;
            bytes += busy[i].bytes;
          }
          require(last <= end && bytes == 6, "bytes of gradients");
        }).empty());
}
