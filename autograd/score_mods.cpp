// Functions of scores that are kernels: ALiBi, soft caps, relative biases and T5's biases.
#include <heed/autograd/flex_attention.hpp>
//
#include <algorithm>
#include <cmath>
#include <heed/core/kernels/attention/score_functions.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/elementwise/scalar_math.hpp>

namespace heed {
namespace {

using kernels::DistanceTable;

template <class T>
ScoreFunction<T> distance_function() {
  return kernels::of<T>(kernels::score_function_table()).distance;
}
template <class T>
ScoreFunction<T> cap_function() {
  return kernels::of<T>(kernels::score_function_table()).soft_cap;
}

// A table of distances that owns its map.
struct MappedTable : DistanceTable {
  std::vector<std::int32_t> entries;
};

ScoreMod by_distance(std::shared_ptr<const DistanceTable> table, const Tensor& parameter) {
  return detail::ScoreModAccess::of_kernels(std::move(table), distance_function<float>, distance_function<double>,
                                            parameter);
}

// Throws Error unless the table is [heads, entries] and `fits`.
void check_table(const char* name, const Tensor& table, bool fits, const char* must) {
  require(table.defined() && table.rank() == 2 && table.dim(0) > 0 && fits, name, ": table is ", table, "; it must be ",
          must);
}

}  // namespace

Tensor alibi_slopes(Index heads) {
  require(heads > 0, "alibi: heads is ", heads, "; it must be 1 or more");
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  Tensor slopes = Tensor::empty({heads});
  for (Index h = 0; h < heads; ++h) {
    // slopes of the power below: 8 (h + 1) / power; every other slope of the power above: 8 (2 i + 1) / (2 power)
    const double exponent = h < power ? 8.0 * static_cast<double>(h + 1) / static_cast<double>(power)
                                      : 4.0 * static_cast<double>(2 * (h - power) + 1) / static_cast<double>(power);
    slopes.ptr<float>()[h] = static_cast<float>(scalar::exp2(-exponent));
  }
  return slopes;
}

ScoreMod alibi(const Tensor& slopes) {
  require(slopes.defined() && slopes.rank() == 1, "alibi: slopes is ", slopes, "; it must be [heads]");
  static const DistanceTable of_slopes{-1, nullptr};
  return by_distance({std::shared_ptr<const void>(), &of_slopes}, slopes);
}
ScoreMod alibi(Index heads) { return alibi(alibi_slopes(heads)); }

ScoreMod soft_cap(double c) {
  require(c > 0 && std::isfinite(c), "soft_cap: c is ", c, "; it must be a number above 0");
  return soft_cap(Tensor::full({1}, c, DType::float64));
}
ScoreMod soft_cap(const Tensor& c) {
  require(c.defined() && c.rank() <= 1, "soft_cap: c is ", c, "; it must be [], [1] or [heads]");
  return detail::ScoreModAccess::of_kernels(nullptr, cap_function<float>, cap_function<double>,
                                            c.rank() == 0 ? c.view({1}) : c);
}

ScoreMod relative_bias(const Tensor& table) {
  check_table("relative_bias", table, table.defined() && table.rank() == 2 && table.dim(1) % 2 == 1,
              "[heads, 2 clip + 1] or [1, 2 clip + 1]");
  return by_distance(std::make_shared<const DistanceTable>(DistanceTable{table.dim(1) / 2, nullptr}), table);
}

Index t5_bucket(Index distance, Index buckets, const T5BiasOptions& o) {
  Index first = 0, back = -distance;  // distance from the query back to the key
  if (o.bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    back = std::abs(distance);
  } else {
    back = std::max<Index>(back, 0);
  }
  // Half of the buckets hold one distance each. The widths of the others grow by a factor, up to max_distance.
  const Index exact = buckets / 2;
  if (back < exact) return first + back;
  const double share = scalar::log(static_cast<double>(back) / static_cast<double>(exact)) /
                       scalar::log(static_cast<double>(o.max_distance) / static_cast<double>(exact));
  return first + std::min(buckets - 1, exact + static_cast<Index>(share * static_cast<double>(buckets - exact)));
}

ScoreMod t5_bias(const Tensor& table, const T5BiasOptions& o) {
  const Index min_buckets = o.bidirectional ? 4 : 2;
  check_table("t5_bias", table,
              table.defined() && table.rank() == 2 && table.dim(1) >= min_buckets && table.dim(1) % min_buckets == 0,
              "[heads, buckets] or [1, buckets], where buckets is a multiple of 2 (of 4 if bidirectional)");
  require(o.max_distance > table.dim(1) / min_buckets && o.max_distance < Index{1} << 20, "t5_bias: max_distance is ",
          o.max_distance, "; it must be above ", table.dim(1) / min_buckets,
          ", the number of distances with their own bucket, and below 2^20");
  const auto mapped = std::make_shared<MappedTable>();
  mapped->clip = o.max_distance;
  for (Index d = -o.max_distance; d <= o.max_distance; ++d)
    mapped->entries.push_back(static_cast<std::int32_t>(t5_bucket(d, table.dim(1), o)));
  mapped->map = mapped->entries.data();
  return by_distance(mapped, table);
}

}  // namespace heed
