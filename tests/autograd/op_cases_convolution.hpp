// Rows of the table of op_cases.hpp: convolutions, pooling, padding and norms of channels.
#pragma once
#include "tests/autograd/op_cases.hpp"

namespace heed::test {

inline std::vector<OpCase> convolution_cases() {
  return {
      {"conv1d",
       {{2, N, 5}, {4, N, 3}, {4}},
       [](const List& x) { return conv1d(x[0], x[1], x[2], {.padding = 1}); },
       kNoScalar,
       -2,
       2,
       2},
      {"conv1d causal",
       {{2, 3, N}, {4, 3, 3}, {4}},
       [](const List& x) { return conv1d(x[0], x[1], x[2], {.dilation = 2, .causal = true}); },
       kNoScalar,
       -2,
       2,
       2},
      {"conv1d strided, of groups",
       {{1, 4, 7}, {N, 2, 3}, {N}},
       [](const List& x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .groups = 2}); },
       kNoScalar | kEven,
       -2,
       2,
       2},
      {"conv1d of channels",
       {{2, N, 6}, {N, 1, 3}, {N}},
       [](const List& x) {
         return conv1d(x[0], x[1], x[2], {.padding = 1, .groups = std::max<Index>(1, axis_size(x[0], 1))});
       },
       kNoScalar | kNotEmpty,
       -2,
       2,
       2},
      {"conv1d of channels, with documents",
       {{2, N, 6}, {N, 1, 3}, {N}},
       [](const List& x) {
         Conv1dOptions o{.groups = std::max<Index>(1, axis_size(x[0], 1)), .causal = true};
         o.documents = Tensor::from<std::int32_t>({0, 0, 2, 2, 2, 5, 0, 1, 1, 1, 1, 1}, {2, 6});
         return conv1d(x[0], x[1], x[2], o);
       },
       kNoScalar | kNotEmpty,
       -2,
       2,
       2},
      {"conv2d",
       {{1, 3, 4, N}, {2, 3, 3, 2}, {2}},
       [](const List& x) {
         return conv2d(x[0], x[1], x[2], {.padding = {0, 1}});
       },
       kNoScalar,
       -2,
       2,
       2},
      {"max_pool1d", {{2, 3, N}}, [](const List& x) { return max_pool1d(x[0], 2, {.padding = 1}); }, kNoScalar},
      {"max_pool2d",
       {{1, N, 4, 5}},
       [](const List& x) {
         return max_pool2d(x[0], {2, 3}, {.stride = 1});
       },
       kNoScalar},
      {"avg_pool1d", {{2, 3, N}}, [](const List& x) { return avg_pool1d(x[0], 2, {.padding = 1}); }, kNoScalar},
      {"avg_pool2d",
       {{1, N, 4, 5}},
       [](const List& x) {
         return avg_pool2d(x[0], {2, 3}, {.stride = 1, .count_include_pad = false});
       },
       kNoScalar},
      {"pad",
       {{2, N}},
       [](const List& x) {
         return pad(x[0], {1, 2, 0, 1}, 1);
       },
       kNoScalar | kAnyType},
      {"group_norm",
       {{2, 4, N}, {4}, {4}},
       [](const List& x) { return group_norm(x[0], 2, x[1], x[2]); },
       kNoScalar,
       -2,
       2,
       1},
      {"batch_norm",
       {{3, N, 4}, {N}, {N}},
       [](const List& x) { return batch_norm(x[0], x[1], x[2]); },
       kNoScalar,
       -2,
       2,
       1},
      {"batch_norm of statistics",
       {{3, N, 4}, {N}, {N}, {N}, {N}},
       [](const List& x) { return batch_norm(x[0], x[1], x[2], x[3], x[4]); },
       kNoScalar,
       0.3,
       2,
       3},
  };
}

}  // namespace heed::test
