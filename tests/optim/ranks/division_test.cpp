// The division of shards and parameters over ranks.
#include <algorithm>
#include <cmath>
#include <heed/optim/ranks/division.hpp>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("division: shards are divided by the nodes of their tree") {
  using Joins = std::vector<std::pair<int, int>>;
  const auto division = [](Index shards, int ranks) { return detail::divide_shards(shards, ranks); };
  CHECK(division(8, 1).begins == std::vector<Index>{0, 8});
  CHECK(division(8, 1).joins == Joins{});
  CHECK(division(8, 3).begins == std::vector<Index>{0, 2, 4, 8});
  CHECK(division(8, 3).joins == Joins{{0, 1}, {0, 2}});
  CHECK(division(8, 4).begins == std::vector<Index>{0, 2, 4, 6, 8});
  CHECK(division(8, 4).joins == Joins{{0, 1}, {2, 3}, {0, 2}});
  CHECK(division(6, 3).begins == std::vector<Index>{0, 2, 4, 6});  // the halves of 6 shards are 4 and 2
  CHECK(division(6, 3).joins == Joins{{0, 1}, {0, 2}});
  CHECK(division(5, 5).joins == Joins{{0, 1}, {2, 3}, {0, 2}, {0, 4}});
  CHECK(test::error_of([&] { division(3, 4); }) ==
        "run: shards is 3, but there are 4 ranks; there must be at least one shard per rank");
}

TEST_CASE("division: parameters are divided evenly, by chunks or as a whole") {
  // The sizes of GPT-2: the embedding is a third of all parameters, then twelve blocks.
  std::vector<detail::Trained> parameters;
  std::vector<bool> cut, whole;
  const auto add = [&](Shape shape) {
    // The shape alone matters, so one value is expanded.
    parameters.push_back({"p" + std::to_string(parameters.size()), Tensor::scalar(0).expand(shape)});
    cut.push_back(false), whole.push_back(shape.rank() == 2);
  };
  add({50257, 768}), add({1024, 768});
  for (int block = 0; block < 12; ++block)
    for (const Shape& s : {Shape{768},
                           {768},
                           {2304, 768},
                           {2304},
                           {768, 768},
                           {768},
                           {768},
                           {768},
                           {3072, 768},
                           {3072},
                           {768, 3072},
                           {768}})
      add(s);
  Index total = 0;
  for (const detail::Trained& p : parameters) total += p.tensor.numel();
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    std::vector<Index> loads(static_cast<std::size_t>(ranks));
    const detail::Division d(parameters, cut, loads);
    for (const Index load : loads)
      CHECK(std::abs(static_cast<double>(load * ranks) / static_cast<double>(total) - 1) < 0.001);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Index end = 0;
      for (int r = 0; r < ranks; ++r) {
        CHECK(d.of(i, r).begin == end);
        CHECK((d.of(i, r).begin % detail::Chunks::kLongest == 0 || d.of(i, r).count() == 0));
        end = d.of(i, r).end;
      }
      CHECK(end == parameters[i].tensor.numel());
    }
    // The embedding is less than a rank's share with two ranks, and more than a share with four ranks.
    std::vector<Index> of_wholes(static_cast<std::size_t>(ranks));
    const detail::Division w(parameters, whole, of_wholes);
    const Index max_size = *std::max_element(of_wholes.begin(), of_wholes.end());
    CHECK(static_cast<double>(max_size) < 1.06 * std::max<double>(50257 * 768, static_cast<double>(total) / ranks));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      int owners = 0;
      for (int r = 0; r < ranks; ++r) owners += w.of(i, r).count() == parameters[i].tensor.numel() ? 1 : 0;
      if (whole[i]) CHECK(owners == 1);
    }
  }
}

TEST_CASE("division: of a state, a rank keeps the items of its stretch, or all or none of another shape") {
  std::vector<Index> loads(2);
  const detail::Division d({{"a", Tensor::zeros({20000})}, {"b", Tensor::zeros({30, 20})}}, {false, true}, loads);
  const auto kept = [&](std::size_t parameter, int rank, Index numel) {
    const detail::Stretch s = d.kept(parameter, rank, numel);
    return std::pair(s.begin, s.end);
  };
  CHECK(kept(0, 0, 20000) == std::pair<Index, Index>(0, 16384));
  CHECK(kept(0, 1, 20000) == std::pair<Index, Index>(16384, 20000));
  CHECK(d.kept(1, 0, 30).count() == 0);  // rank 0 has more items of the first parameter
  CHECK(kept(1, 1, 30) == std::pair<Index, Index>(0, 30));
}
