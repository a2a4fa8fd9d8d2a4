// Error messages of sparse attention.
#include <heed/autograd/attention.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("sparse attention: errors name the wrong argument") {
  const Tensor x = Tensor::ones({2, 2, 3, 4});
  const auto ints = [](const std::vector<std::int32_t>& list) {
    return Tensor::from(list, {static_cast<Index>(list.size())});
  };
  const KeyLists good{ints({0, 1, 2, 3}), ints({0, 1, 2})};
  const auto with = [&](const std::vector<std::int32_t>& offsets, const std::vector<std::int32_t>& keys) {
    return [=] { sparse_attention(x, x, x, {ints(offsets), ints(keys)}); };
  };
  CHECK(sparse_attention(x, x, x, good).shape() == x.shape());
  check_errors({
      {"sparse_attention: q is [2, 3, 4]", [&] { sparse_attention(x[0], x, x, good); }},
      {"the lists are undefined; both offsets and keys must be given", [&] { sparse_attention(x, x, x, {}); }},
      {"offsets is [3] int32; it must be [4] or [2, 2, 4] int32", with({0, 1, 2}, {0, 1})},
      {"offsets is [4] float32",
       [&] {
         sparse_attention(x, x, x, {Tensor::ones({4}), good.keys});
       }},
      {"keys is [3] float32; it must be [pairs] int32",
       [&] {
         sparse_attention(x, x, x, {good.offsets, Tensor::ones({3})});
       }},
      {"the list of query 0 is wrong; offsets must rise from 0", with({1, 1, 2, 3}, {0, 1, 2})},
      {"the list of query 1 is wrong", with({0, 2, 1, 3}, {0, 1, 2})},
      {"the list of query 3 is wrong", with({0, 1, 2, 2}, {0, 1, 2})},
      {"the list of query 2 is wrong", with({0, 1, 2, 4}, {0, 1, 2})},
      {"each list must ascend within [0, 3)", with({0, 1, 2, 3}, {0, 1, 3})},
      {"the list of query 2 is wrong", with({0, 1, 1, 3}, {0, 1, 1})},
      {"the list of query 2 is wrong", with({0, 1, 1, 3}, {0, 2, 1})},
      {"the list of query 0 is wrong", with({0, 1, 1, 1}, {-1})},
      {"the list of query 1 of head 1 is wrong",
       [&] {
         const Tensor y = Tensor::ones({1, 2, 3, 4});
         sparse_attention(y, y, y, {Tensor::from<std::int32_t>({0, 0, 0, 0, 0, 1, 2, 2}, {1, 2, 4}), ints({0, 5})});
       }},
      {"mask is [3, 3] float32; it must be bool8",
       [&] {
         sparse_attention(x, x, x, good, {.mask = Tensor::ones({3, 3})});
       }},
      {"mask is [5] bool8; it must broadcast",
       [&] { sparse_attention(x, x, x, good, {.mask = Tensor::ones({5}, DType::bool8)}); }},
      {"bias is [5] float32; it must broadcast", [&] { sparse_attention(x, x, x, good, {.bias = Tensor::ones({5})}); }},
      {"the dtypes must be the same",
       [&] { sparse_attention(x, x, x, good, {.bias = Tensor::ones({3}, DType::float64)}); }},
      {"dropout is 1.5; it must be in [0, 1]", [&] { sparse_attention(x, x, x, good, {.dropout = 1.5}); }},
      {"key_lengths is [3] int32; it must be [2] int32",
       [&] { sparse_attention(x, x, x, good, {.key_lengths = Tensor::ones({3}, DType::int32)}); }},
  });
}
