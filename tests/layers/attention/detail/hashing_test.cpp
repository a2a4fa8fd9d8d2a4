// The parts that lsh and reformer share: rotations, buckets, and keys from queries.
#include <heed/layers/attention/detail/hashing.hpp>

#include <heed/core/random.hpp>

#include "tests/support.hpp"

using namespace heed;

TEST_CASE("Rotations: the products of a vector with the columns of all rounds, for any number of columns") {
  for (const Index half : {1, 3, 8, 11}) {
    Rng rng(1);
    const Tensor r = rng.normal({2, 5, half}), x = rng.normal({5});
    const detail::Rotations<float> rotations(r);
    CHECK(rotations.columns % 8 == 0);
    std::vector<float> sums(static_cast<std::size_t>(rotations.columns));
    rotations.rotate(x.data<float>(), sums.data());
    for (Index n = 0; n < 2 * half; ++n) {
      double expected = 0;
      for (Index c = 0; c < 5; ++c) expected += x.at({c}) * r.at({n / half, c, n % half});
      CHECK(sums[static_cast<std::size_t>(n)] == doctest::Approx(expected));
    }
  }
}

TEST_CASE("bucket_of: the first largest of the sums and their negatives") {
  const auto bucket = [](std::vector<double> sums) {
    return detail::bucket_of(sums.data(), static_cast<Index>(sums.size()));
  };
  CHECK(bucket({1, 3, 2}) == 1);
  CHECK(bucket({1, -3, 2}) == 4);
  CHECK(bucket({2, 2, -2}) == 0);
  CHECK(bucket({-1, -1}) == 2);
  CHECK(bucket({0}) == 0);
}

TEST_CASE("unite: sorted keys without repeats, and the query's own place if there is none") {
  std::vector<std::int32_t> seen = {9, 4, 7, 4};
  detail::unite(seen, 1, 0, [] { return true; });
  CHECK(seen == std::vector<std::int32_t>{9, 4, 7});
  detail::unite(seen, 3, 5, [] { return false; });
  CHECK(seen.size() == 3);
  detail::unite(seen, 3, -1, [] { return true; });
  CHECK(seen.size() == 3);
  detail::unite(seen, 3, 5, [] { return true; });
  CHECK(seen.back() == 5);
}

TEST_CASE("keys_from_queries: directions, and zeros for a zero query") {
  const Tensor keys = detail::keys_from_queries(Tensor::from({3.f, 4.f, 0.f, 0.f}, {2, 2}));
  CHECK(keys.at({0, 0}) == doctest::Approx(0.6));
  CHECK(keys.at({0, 1}) == doctest::Approx(0.8));
  CHECK(keys.at({1, 0}) == 0);
  CHECK(keys.at({1, 1}) == 0);
}
