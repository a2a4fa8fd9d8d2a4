// Rows of different length in decode states: lengths after a step, and where positions are stored.
#include <heed/layers/attention/detail/row_lengths.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::detail;

namespace {

Tensor ints(std::initializer_list<double> values) { return Tensor::from<std::int32_t>(values); }

}  // namespace

TEST_CASE("row lengths: the longest and the shortest, before the first step and after") {
  const Tensor none = Tensor::zeros({0}, DType::int32);
  CHECK(longest_of(none) == 0);
  CHECK(shortest_of(none) == 0);
  CHECK(all_alike(none));
  CHECK(longest_of(ints({3, 7, 5})) == 7);
  CHECK(shortest_of(ints({3, 7, 5})) == 3);
  CHECK(!all_alike(ints({3, 7, 5})));
  CHECK(all_alike(ints({4, 4})));
}

TEST_CASE("row lengths: a step adds its positions, or per row the number in key_lengths") {
  const Tensor none = Tensor::zeros({0}, DType::int32), x = Tensor::zeros({2, 1, 3, 4});
  CHECK(test::ids_of(lengths_after("op", none, x, {})) == std::vector<std::int32_t>{3, 3});
  CHECK(test::ids_of(lengths_after("op", ints({5, 1}), x, {.key_lengths = ints({0, 2})})) ==
        std::vector<std::int32_t>{5, 3});
  test::check_errors({
      {"op: key_lengths[1] is 4; it must be from 0 to the number of new positions, 3",
       [&] { lengths_after("op", none, x, {.key_lengths = ints({0, 4})}); }},
      {"op: key_lengths is [3] int32; it must be [2] int32",
       [&] { lengths_after("op", none, x, {.key_lengths = ints({1, 1, 1})}); }},
  });
}

TEST_CASE("row lengths: the last position of each row, or the first if a row has none") {
  const Tensor h = Tensor::arange(12, DType::float32).reshape({2, 3, 2});
  CHECK(last_of_rows(h, {}).to_vector<float>() == std::vector<float>{4, 5, 10, 11});
  CHECK(last_of_rows(h, {.key_lengths = ints({2, 0})}).to_vector<float>() == std::vector<float>{2, 3, 6, 7});
}

TEST_CASE("row lengths: positions are stored after the existing ones of each row, and read from there") {
  Tensor cache = Tensor::zeros({3, 1, 5, 1});
  const Tensor lengths = ints({2, 2, 0});
  const Tensor x = Tensor::arange(6, DType::float32).reshape({3, 1, 2, 1}) + 1;
  append_rows(cache, x, lengths);
  CHECK(cache.to_vector<float>() == std::vector<float>{0, 0, 1, 2, 0, 0, 0, 3, 4, 0, 5, 6, 0, 0, 0});
  CHECK(test::same_bits(rows_after(cache, lengths, 2), x));
  const Tensor alike = ints({1, 1, 1});
  CHECK(rows_after(cache, alike, 2).shares_storage(cache));
  append_rows(cache, x, Tensor::zeros({0}, DType::int32));
  CHECK(cache.slice(2, 0, 2).to_vector<float>() == x.to_vector<float>());
}

TEST_CASE("row lengths: the part of a bias that belongs to a query and the keys before it") {
  const Tensor bias = Tensor::arange(12, DType::float32).reshape({1, 1, 3, 4});
  CHECK(bias_of_query(bias, 1, 2).to_vector<float>() == std::vector<float>{4, 5});
  const Tensor of_keys = bias.slice(2, 0, 1), one = Tensor::ones({1, 1});
  CHECK(bias_of_query(of_keys, 2, 3).to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(test::same_bits(bias_of_query(one, 2, 3), one));
  CHECK(!bias_of_query(Tensor(), 2, 3).defined());
}
