// rope(): the tables of cosines and sines, and the rotation of rows.
#include <heed/autograd/embedding.hpp>
//
#include <algorithm>
#include <heed/core/dry_run.hpp>
#include <heed/core/kernels/attention/rope.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/elementwise/scalar_math.hpp>
#include <heed/core/parallel.hpp>
#include <map>
#include <mutex>
#include <numbers>
#include <tuple>
#include <vector>

namespace heed {
namespace {

struct Turn {
  double base;
  RopeScaling scaling;
  Index offset, dims;
  bool interleaved;
};

double scaled(double frequency, const RopeScaling& s) {
  if (s.kind == RopeScalingKind::none) return frequency;
  if (s.kind == RopeScalingKind::linear) return frequency / s.factor;
  const double turns = static_cast<double>(s.original_context) * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp((turns - s.low_turns) / (s.high_turns - s.low_turns), 0.0, 1.0);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

template <class T>
void fill_angles(const Turn& how, Tensor& table) {
  const Index pairs = how.dims / 2;
  std::vector<double> frequency;
  for (Index i = 0; i < pairs; ++i)
    frequency.push_back(
        scaled(scalar::pow(how.base, -static_cast<double>(i) / static_cast<double>(pairs)), how.scaling));
  parallel_for_each(table.dim(0), 64, [&](Index t) {
    for (Index i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(t) * frequency[static_cast<std::size_t>(i)];
      const double sine = scalar::quick_sin(angle);
      const Index first = how.interleaved ? 2 * i : i, second = how.interleaved ? 2 * i + 1 : i + pairs;
      T *c = table.ptr<T>() + t * 2 * how.dims, *s = c + how.dims;
      c[first] = c[second] = static_cast<T>(scalar::quick_cos(angle));
      s[first] = static_cast<T>(-sine);
      s[second] = static_cast<T>(sine);
    }
  });
}

// Cosines and sines of all positions so far, [positions, 2, dims] in the layout of kernels::RopeProblem. A model uses
// one or two kinds of tables, which grow by doubling. A table is never written to after it was handed out.
Tensor angles_of(const Turn& how, DType dtype, Index positions) {
  static std::mutex mutex;
  // By everything that changes the angles. Leaked: ops may run while statics are destroyed.
  static auto* tables = new std::map<std::tuple<double, RopeScaling, Index, bool, DType>, Tensor>;
  const std::lock_guard lock(mutex);
  Tensor& known = (*tables)[{how.base, how.scaling, how.dims, how.interleaved, dtype}];
  if (!known.defined() || known.dim(0) < positions) {
    Index size = 256;
    while (size < positions) size *= 2;
    const detail::DryRunPause pause;
    Tensor table = Tensor::empty({size, 2, how.dims}, dtype);
    dtype == DType::float32 ? fill_angles<float>(how, table) : fill_angles<double>(how, table);
    known = table;
  }
  return known;
}

constexpr Index kMaxPositions = Index{1} << 31;

template <class T>
void turn_rows(const Turn& how, const Tensor& positions, const Tensor& x, const Tensor& y, bool inverse, bool add) {
  const auto* first = positions.defined() ? positions.ptr<std::int32_t>() : nullptr;
  const Index count =
      first != nullptr ? *std::max_element(first, first + positions.numel()) + Index{1} : how.offset + x.dim(2);
  const Tensor table = angles_of(how, x.dtype(), count);
  kernels::RopeProblem<T> p{};
  p.batch = x.dim(0), p.heads = x.dim(1), p.rows = x.dim(2), p.width = x.dim(3), p.dims = how.dims;
  p.x = {x.ptr<T>(), x.strides()[0], x.strides()[1], x.strides()[2]};
  p.y = {y.ptr<T>(), y.strides()[0], y.strides()[1], y.strides()[2]};
  p.table = table.ptr<T>() + how.offset * 2 * how.dims;
  p.positions = first;
  p.interleaved = how.interleaved, p.inverse = inverse, p.add = add;
  const Index rows = p.batch * p.heads * p.rows, grain = grain_for(p.width);
  const auto turn = kernels::of<T>(kernels::rope_table());
  parallel_for(rows, grain, [&](Index begin, Index end) { turn(p, begin, end); });
}

// Whether four strides give the addresses of all rows.
bool has_plain_rows(const Tensor& x) {
  return x.is_contiguous() || (x.rank() <= 4 && (x.dim(-1) <= 1 || x.strides()[-1] == 1));
}

Tensor four_axes(const Tensor& x) {
  if (x.rank() > 4) return x.view({-1, x.dim(-3), x.dim(-2), x.dim(-1)});
  Tensor y = x;
  while (y.rank() < 4) y = y.unsqueeze(0);
  return y;
}

// y (+)= x rotated. Both have plain rows. `positions` may be undefined.
void turn(const Turn& how, const Tensor& positions, const Tensor& x, const Tensor& y, bool inverse, bool add) {
  if (x.numel() == 0) return;
  detail::with_float(x.dtype(),
                     [&]<class T>(T) { turn_rows<T>(how, positions, four_axes(x), four_axes(y), inverse, add); });
}

// Positions of rows that do not follow from one offset: see RopeOptions. At most one is defined.
struct Places {
  Tensor offsets, positions;

  auto tensors() { return std::tie(offsets, positions); }  // for saved()
};

// The same, with an offset for each x[b] or a position for each row if `places` has them.
void turn_each(Turn how, const Places& places, const Tensor& x, const Tensor& y, bool inverse, bool add) {
  if (!places.offsets.defined()) return turn(how, places.positions, x, y, inverse, add);
  for (Index b = 0; b < x.dim(0); ++b) {
    how.offset = places.offsets.ptr<std::int32_t>()[b];
    turn(how, {}, x.slice(0, b, b + 1), y.slice(0, b, b + 1), inverse, add);
  }
}

void check_scaling(const RopeScaling& s, const Where& where) {
  if (s.kind == RopeScalingKind::none) return;
  check(s.factor > 0, where, "rope: the factor of scaling is ", s.factor, "; it must be positive");
  check(s.kind != RopeScalingKind::llama3 || (s.high_turns > s.low_turns && s.original_context > 0), where,
        "rope: scaling has low_turns ", s.low_turns, ", high_turns ", s.high_turns, " and original_context ",
        s.original_context, "; high_turns must be above low_turns, and original_context 1 or more");
}

// Copies of the offsets and positions of o, checked.
Places places_of(In x, const RopeOptions& o) {
  const auto not_negative = [&](const char* name, const Tensor& all) {
    const auto* first = all.ptr<std::int32_t>();
    for (Index n = 0; n < all.numel(); ++n)
      check(first[n] >= 0, x.where(), "rope: ", name, "[", n, "] is ", first[n], "; it must be 0 or more");
  };
  Places places;
  if (o.offsets.defined()) {
    check(x.rank() > 2 && o.offset == 0 && o.offsets.shape() == Shape{x.dim(0)} && o.offsets.dtype() == DType::int32,
          x.where(), "rope: x is ", x.tensor(), ", offset is ", o.offset, " and offsets are ", o.offsets,
          "; x must have 3 axes or more, offsets must be int32 [", x.dim(0),
          "], one per entry of the first axis, and offset must be 0");
    not_negative("offsets", places.offsets = o.offsets.clone());
  }
  if (o.positions.defined()) {
    check(x.rank() == 4 && o.positions.shape() == Shape{x.dim(0), x.dim(2)} && o.positions.dtype() == DType::int32 &&
              o.offset == 0 && !o.offsets.defined(),
          x.where(), "rope: x is ", x.tensor(), " and positions are ", o.positions,
          "; x must be [batch, heads, length, width], positions [batch, length] int32, and there must be no offset");
    not_negative("positions", places.positions = o.positions.dense());
  }
  return places;
}

}  // namespace

// y = R x, where R rotates each pair; dx = R^T dy rotates back.
Tensor rope(In x, const RopeOptions& o) {
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, x.where(), "rope: x is ", x.tensor(),
        "; it must be float32 or float64");
  check(x.rank() >= 2, x.where(), "rope: x is ", x.tensor(), "; it must be [..., length, width]");
  const Index dims = o.dims == 0 ? x.dim(-1) : o.dims;
  check(dims % 2 == 0 && dims >= 0 && dims <= x.dim(-1), x.where(), "rope: x is ", x.tensor(), " and dims is ", dims,
        "; dims must be even and at most the size of the last axis");
  check(o.offset >= 0 && o.offset <= kMaxPositions - x.dim(-2), x.where(), "rope: x is ", x.tensor(), " and offset is ",
        o.offset, "; offset must be 0 or more, and all positions below 2^31");
  check(o.base > 0, x.where(), "rope: base is ", o.base, "; it must be positive");
  check_scaling(o.scaling, x.where());
  const Places places = places_of(x, o);
  const Turn how{o.base, o.scaling, o.offset, dims, o.interleaved};
  const bool plain = has_plain_rows(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  turn_each(how, places, plain ? x.tensor().detach() : x->dense(), y, false, false);
  record("rope", x.where(), y, {x}, saved(places), [how, plain](Grads& d, const Tensor& dy, const Places& at) {
    if (Target t = plain ? d.strided(0) : d.dense(0)) turn_each(how, at, dy, t.gradient, true, t.accumulate);
  });
  return y;
}

}  // namespace heed
