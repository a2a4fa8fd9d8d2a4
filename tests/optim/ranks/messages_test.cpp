// Messages that ranks send each other at the same time.
#include <heed/optim/ranks/messages.hpp>

#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::on_ranks;

TEST_CASE("messages: an empty message is not sent") {
  detail::Messages all;
  char bytes[4];
  all.send(1, bytes, 0), all.receive(2, bytes, 0);
  CHECK((all.out.empty() && all.in.empty()));
  all.send(1, bytes, 4), all.receive(2, bytes, 3);
  CHECK((all.out.size() == 1 && all.out[0].rank == 1 && all.out[0].bytes == bytes && all.out[0].count == 4));
  CHECK((all.in.size() == 1 && all.in[0].rank == 2 && all.in[0].bytes == bytes && all.in[0].count == 3));
}

TEST_CASE("messages: each message has separate memory on its own cache lines") {
  detail::MessageMemory memory;
  const std::size_t sizes[] = {1, 64, 0, 65, 130, 2};
  std::vector<detail::MessageMemory::Place> places;
  for (const std::size_t bytes : sizes) places.push_back(memory.add(bytes));
  memory.allocate();
  for (std::size_t i = 0; i < places.size(); ++i) {
    CHECK(reinterpret_cast<std::uintptr_t>(memory.at<char>(places[i])) % 64 == 0);
    std::fill_n(memory.at<char>(places[i]), sizes[i], static_cast<char>('a' + i));
  }
  for (std::size_t i = 0; i < places.size(); ++i)
    CHECK(std::string(memory.at<char>(places[i]), sizes[i]) == std::string(sizes[i], static_cast<char>('a' + i)));
}

TEST_CASE("messages: all ranks gather the texts and numbers of all ranks") {
  for (const int size : {1, 2, 3, 5}) {
    CHECK(on_ranks(size, [&](Ranks& ranks) {
            const auto text_of = [](int r) { return std::string(static_cast<std::size_t>(r % 3), 'a') + "\n"; };
            const std::vector<std::string> texts = detail::all_gather(ranks, text_of(ranks.rank()));
            std::vector<Index> begins = {0};
            for (int r = 0; r < size; ++r) begins.push_back(begins.back() + r % 3);  // rank 0 has none
            std::vector<double> numbers(static_cast<std::size_t>(begins.back()), -1);
            for (Index i = begins[static_cast<std::size_t>(ranks.rank())];
                 i < begins[static_cast<std::size_t>(ranks.rank()) + 1]; ++i)
              numbers[static_cast<std::size_t>(i)] = static_cast<double>(i);
            detail::all_gather(ranks, numbers, begins);
            for (int r = 0; r < size; ++r) require(texts[static_cast<std::size_t>(r)] == text_of(r), "another text");
            for (std::size_t i = 0; i < numbers.size(); ++i)
              require(numbers[i] == static_cast<double>(i), "another number");
          }).empty());
  }
}

TEST_CASE("messages: packed numbers and texts are read in the order in which they were written") {
  detail::Packed out;
  out.add(0.1), out.add("a\nb"), out.add(""), out.add(-1e300);
  CHECK_FALSE(out.at_end());
  detail::Packed in(out.bytes());
  CHECK(in.number() == 0.1);
  CHECK(in.text() == "a\nb");
  CHECK(in.text().empty());
  CHECK_FALSE(in.at_end());
  CHECK(in.number() == -1e300);
  CHECK(in.at_end());
}
